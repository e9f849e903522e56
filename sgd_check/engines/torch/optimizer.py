"""Optimizers, which take a step along a gradient, for engines that hold the weights in R^d: one class for each.

An engine says how samples are drawn and what the gradient is (`sgd_check.engines.torch.weights`); a further optimizer
is a further class here. Where steps are taken in closed form, that of plain SGD is part of it: blocks of steps in the
span of their samples (`recursion`), the Triton kernel (`fused_kernels`), and the engines that draw projections alone
(`sgd_check.engines.projected`), which never hold a gradient in R^d.
"""

from __future__ import annotations

from typing import Protocol

import torch


class Optimizer(Protocol):
    """Moves the weights of runs side by side; it may keep arrays between steps, such as a momentum."""

    def move(self, weights: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        """Take one step at the learning rate η along a gradient of the weights, both of shape (lanes, m, d)."""


class PlainSgd(Optimizer):
    """w ← w − η g."""

    def move(self, weights: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        """Take the step."""
        weights.sub_(gradient, alpha=rate)
