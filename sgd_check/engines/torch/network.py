r"""A network f = s Σ_i v_i σ(w_i·x + b_i) in torch: its teacher's labels, and the steps of one block.

With λ_ib = w_i·x_b and the errors e_b from the parameters before the step,

.. math:: w_i \leftarrow g_i w_i - \sum_b h_{ib} x_b, \qquad
   h_{ib} = \tfrac{\eta}{B}\, \varepsilon_w s\, v_i\, \sigma'_{ib}\, e_b, \qquad g_i = 1 - \eta\kappa_w,

   v_i \leftarrow (1 - \eta\kappa_v)\, v_i - \tfrac{\eta}{B}\, \varepsilon_v s \sum_b \sigma_{ib} e_b, \qquad
   b_i \leftarrow b_i - \tfrac{\eta}{B}\, \varepsilon_b s\, v_i \sum_b \sigma'_{ib} e_b.

On the sphere g_i = 1 + Σ_b h_ib λ_ib/|w_i|², the step along it, and w_i is brought back to its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from sgd_check.engines.torch.links import make_link_anywhere
from sgd_check.engines.torch.recursion import Recursion

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from sgd_check.engines.problem_forms import Network
    from sgd_check.engines.torch.links import TorchLink


@dataclass(frozen=True)
class NetworkTeacher:
    """The teacher of a network in tensors: f* of the first `span` coordinates (…, span), and the label noise τ."""

    value: Callable[[torch.Tensor], torch.Tensor]
    span: int
    noise: float
    #: Overlaps are those with the axes.
    directions: torch.Tensor | None = None

    @classmethod
    def of(cls, problem: Problem, dtype: torch.dtype, device: torch.device) -> NetworkTeacher:
        """Return the teacher of a problem."""
        target = problem.teacher.target
        if target is None:
            value = _units(problem, dtype, device)
        else:
            value = partial(_polynomial, target.powers.tolist(), target.exponents.tolist())
        return cls(value, problem.teacher.span, problem.label_noise)

    def label(self, x: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Return f*(x) + τξ of samples x (…, d): elementwise, so none sees its neighbours' rounding."""
        labels = self.value(x[..., : self.span])
        return labels if noise is None else labels.add_(noise, alpha=self.noise)


def _units(problem: Problem, dtype: torch.dtype, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    units = [
        (
            unit.coefficient,
            make_link_anywhere(unit.link, dtype, device, slope=False)[0],
            torch.tensor(unit.direction, dtype=dtype, device=device),
            unit.bias,
        )
        for unit in problem.teacher.units(problem.teacher_link)
    ]

    def value(axes: torch.Tensor) -> torch.Tensor:
        total = axes.new_zeros(axes.shape[:-1])
        for coefficient, link, direction, bias in units:
            total.add_(link.value(torch.sum(axes * direction, dim=-1).add_(bias)), alpha=coefficient)
        return total

    return value


def _polynomial(powers: list[float], exponents: list[list[int]], axes: torch.Tensor) -> torch.Tensor:
    """Return the sum of the monomials at points (…, r)."""
    total = axes.new_zeros(axes.shape[:-1])
    for power, degrees in zip(powers, exponents, strict=True):
        term = torch.full_like(total, power)
        for axis, degree in enumerate(degrees):
            for _ in range(degree):
                term.mul_(axes[..., axis])
        total.add_(term)
    return total


class NetworkRecursion(Recursion):
    """The steps of one block of networks, whose `layers` (2, m, lanes) are v and b."""

    def __init__(
        self, lanes: int, width: int, steps: int, batch: int, *, link: TorchLink, network: Network, like: torch.Tensor
    ) -> None:
        super().__init__(lanes, width, steps, batch, link=link, free=True, like=like)
        self._fill, self._batch, self._network = link.fill_ends, batch, network
        self._sphere = network.lengths is not None
        every = self._norm.shape[1]
        start = torch.from_numpy(np.array([network.second_layer, network.bias])).to(like)
        both = start[:, :, None, None].expand(2, width, every, 1).contiguous()
        self._second, self._bias = both.unbind(0)
        self._all_opened, self._both = both.clone(), both
        self.layers, self.opened = both[:, :, :lanes, 0], self._all_opened[:, :, :lanes, 0]
        self._lengths = like.new_empty(0) if network.lengths is None else torch.from_numpy(network.lengths).to(like)
        self._slopes, self._values = torch.zeros_like(self._norm), torch.zeros_like(self._norm)
        self._take = self._step_network

    def begin(self) -> None:
        """Start a block with what was filled in."""
        self._all_c.zero_()
        self._ratio.fill_(1.0)
        self._all_opened.copy_(self._both)

    def scale(self, moved: torch.Tensor, at: slice) -> torch.Tensor | None:
        """Return the factors of the weights `moved` (lanes, m, d) after the steps taken, shape (lanes, m), or None."""
        ratio = self._ratio[:, : self.squared_norm.shape[1], 0].T[at]
        if not self._sphere:
            return ratio if self._network.decay[0] else None
        return torch.sign(ratio).mul_(self._lengths).div_(torch.linalg.vector_norm(moved, dim=2))

    def _step_network(self, k: int) -> None:
        """Take step k; the running ratio is g of the steps before, and on the sphere what brought w_i back."""
        network, rate, error = self._network, self._rate_of[k], self._error
        along, slope, second = self._z, self._slope, self._second
        sigma, product, derivative = self._parts
        torch.mul(self._z_of[k], self._ratio, out=along)
        self._fill(torch.add(along, self._bias), self._functions)
        torch.sum(torch.mul(sigma, second, out=product), dim=0, out=self._sum)
        torch.add(self._target_of[k], self._sum, alpha=network.scale, out=error).mul_(rate)  # η e / B
        torch.sum(sigma.mul_(error), dim=2, keepdim=True, out=self._values)
        torch.sum(derivative.mul_(error), dim=2, keepdim=True, out=self._slopes)
        torch.mul(derivative, second, out=slope).mul_(network.rates[0] * network.scale)  # h
        self._move_layers(rate)
        self._move_neurons(k, rate)

    def _move_layers(self, rate: torch.Tensor) -> None:
        """Move b and v, both from the v before the step."""
        network, second = self._network, self._second
        if network.rates[2]:
            self._bias.addcmul_(second, self._slopes, value=-network.rates[2] * network.scale)
        if network.decay[1]:
            second.addcmul_(second, rate, value=-network.decay[1] * self._batch)
        if network.rates[1]:
            second.sub_(self._values, alpha=network.rates[1] * network.scale)

    def _move_neurons(self, k: int, rate: torch.Tensor) -> None:
        """Write the coefficients of step k, and what the later steps need of it."""
        network, coefficient, slope, along = self._network, self._c_of[k], self._slope, self._z
        ratio, shrink, growth, product = self._ratio, self._shrink, self._growth, self._parts[1]
        if self._sphere:
            torch.sum(torch.mul(slope, along, out=product), dim=2, keepdim=True, out=growth)  # Σ h λ
            torch.div(growth, self._norm, out=shrink).add_(1.0)
            ratio.mul_(shrink)
        elif network.decay[0]:
            ratio.addcmul_(ratio, rate, value=-network.decay[0] * self._batch)
        torch.div(slope, ratio, out=coefficient)
        if not self._length_of:
            return
        self._z_later[k].addcmul_(coefficient, self._gram_later[k], value=-1)
        if self._sphere:
            # |w'|²/|w|², which the ratio brings back to one
            torch.addcmul(torch.mul(shrink, self._norm), slope, along, value=-2, out=growth).mul_(shrink)
            growth.addcmul_(slope.mul_(slope), self._length_of[k]).div_(self._norm)
            ratio.div_(growth.sqrt_())
