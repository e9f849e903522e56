r"""Consecutive steps of SGD in the span of their samples, without touching the weights.

With the weights V at the start of a block and its samples x_1, …, x_K as rows of X, the weights after k steps are

.. math:: w_i = s_i\,\Bigl(V_i - \sum_{j \le k} c_{ij}\, x_j\Bigr), \qquad
   w_i\cdot x_{k+1} = s_i\,\Bigl(Z_{i,k+1} - \sum_{j \le k} c_{ij}\, G_{j,k+1}\Bigr), \quad Z = VX^T, \quad G = XX^T,

so K steps need Z, G and the sum over j as three matrix products, and in between O(m K) operations a step in place of
passes over m d weights. This is SGD itself, no approximation. Lengths follow from
|w'|² = n [h² − 2 h g z + g²|x|²] with h = 1 − ηe(2σ − zσ'), g = ηeσ', and are taken from the weights once a block.

*Networks* f = s Σ_i v_i σ(w_i·x + b_i). With λ_ib = w_i·x_b and the errors e_b from the parameters before the step,

.. math:: w_i \leftarrow g_i w_i - \sum_b h_{ib} x_b, \qquad
   h_{ib} = \tfrac{\eta}{B}\, \varepsilon_w s\, v_i\, \sigma'_{ib}\, e_b, \qquad g_i = 1 - \eta\kappa_w,

   v_i \leftarrow (1 - \eta\kappa_v)\, v_i - \tfrac{\eta}{B}\, \varepsilon_v s \sum_b \sigma_{ib} e_b, \qquad
   b_i \leftarrow b_i - \tfrac{\eta}{B}\, \varepsilon_b s\, v_i \sum_b \sigma'_{ib} e_b.

On the sphere g_i = 1 + Σ_b h_ib λ_ib/|w_i|², the step along it, and w_i is brought back to its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sgd_check.engines.problem_forms import Network
    from sgd_check.engines.torch.links import TorchLink

#: Elements are rounded one way in vectors of this many and another in the rest at an array's end.
VECTOR = 32
#: Rows of a multiple of so many numbers begin at a cache line, which matrix products need for equal roundings of lanes.
ALIGNED = 16


def aligned(count: int) -> int:
    """Return the least multiple of `ALIGNED` that is not below `count`."""
    return -(-count // ALIGNED) * ALIGNED


def _all_lanes(lanes: int, batch: int) -> int:
    """Return how many lanes to keep so that the lanes that are read fill whole vectors."""
    found = lanes
    while found * batch % VECTOR and (found - lanes) * batch < VECTOR - 1:
        found += 1
    return found


class Recursion:
    """The steps of one block, for all lanes (runs side by side) at once; lanes are the last axis but the samples.

    A block has K steps of B samples, K > 1 only with B = 1. Neurons enter as |w|² σ(w·x/|w|), or if `free`, as in a
    committee, as σ(w·x). `like` has the device and the type of all numbers.

    Before a block `projections` are filled with Z (K, m, lanes, B), `gram` with G (K, K, lanes; None for blocks of one
    step), `squared_norm` with n (m, lanes) and `targets` with minus the labels (K, lanes, B); before a step `rates`
    with η/B (K, 1, 1). Then `coefficients` (K, m, lanes, B) are the c of the steps taken, zero elsewhere.

    `layers` (rows, m, lanes) are what moves beside the weights, none here; `opened` is what they were before the block.
    """

    def __init__(
        self, lanes: int, width: int, steps: int, batch: int, *, link: TorchLink, free: bool, like: torch.Tensor
    ) -> None:
        self._free, self._fill, self._single = free, link.fill, batch == 1
        every = _all_lanes(lanes, batch)

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=like.dtype, device=like.device)

        all_z, self._all_c = zeros(steps, width, every, batch), zeros(steps, width, every, batch)
        all_targets, self._norm = zeros(steps, every, batch), zeros(width, every, 1).fill_(1.0)
        all_g = zeros(steps, steps, every) if steps > 1 else None
        self.rates = zeros(steps, 1, 1)
        self.projections, self.coefficients = all_z[:, :, :lanes], self._all_c[:, :, :lanes]
        self.targets, self.squared_norm = all_targets[:, :lanes], self._norm[:, :lanes, 0]
        self.gram = None if all_g is None else all_g[..., :lanes]
        # Views cost as much to make as a step's operations cost to call, so every step has its own from the start.
        self._z_of, self._c_of = all_z.unbind(0), self._all_c.unbind(0)
        self._target_of, self._rate_of = all_targets.unbind(0), self.rates.unbind(0)
        self._z_later: list[torch.Tensor] = []
        self._gram_later: list[torch.Tensor] = []
        self._length_of: list[torch.Tensor] = []
        if all_g is not None:
            self._z_later = [all_z[k + 1 :] for k in range(steps)]
            self._gram_later = [all_g[k, k + 1 :, None, :, None] for k in range(steps)]
            self._length_of = [all_g[k, k, None, :, None] for k in range(steps)]
        self._functions = zeros(3, width, every, batch)
        self._parts = self._functions.unbind(0)
        self._z, self._slope = zeros(width, every, batch), zeros(width, every, batch)
        self._sum, self._error = zeros(every, batch), zeros(every, batch)
        self._ratio, self._shrink = zeros(width, every, 1), zeros(width, every, 1)
        self._growth = zeros(width, every, 1)
        self.layers = self.opened = zeros(0, width, lanes)
        self._one = torch.ones(1, 1, 1, dtype=like.dtype, device=like.device)
        self._take: Callable[[int], None] = self._step_free if free else self._step

    def begin(self) -> None:
        """Start a block, whose arrays have been filled in."""
        self._all_c.zero_()
        if not self._free:
            torch.rsqrt(self._norm, out=self._ratio)

    def run(self, first: int, last: int) -> None:
        """Take the steps first, …, last − 1 of the block: about twenty calls each, whose number is the cost."""
        for k in range(first, last):
            self._take(k)

    def scale(self, moved: torch.Tensor, at: slice) -> torch.Tensor | None:  # noqa: ARG002
        """Return s of the weights after the steps taken, shape (lanes, m), or None if it is one.

        `moved` (lanes, m, d) are the sums V_i − Σ c_ij x_j of the lanes `at`.
        """
        if self._free:
            return None
        return (self._ratio * torch.sqrt(self._norm))[:, : self.squared_norm.shape[1], 0].T[at]

    def _step(self, k: int) -> None:
        """Take step k; the running ratio is s_i/|w_i|."""
        z, slope, ratio, shrink, growth = self._z, self._slope, self._ratio, self._shrink, self._growth
        sigma, double, derivative = self._parts
        error, norm, coefficient = self._error, self._norm, self._c_of[k]
        torch.mul(self._z_of[k], ratio, out=z)
        self._fill(z, self._functions)
        torch.sum(sigma.mul_(norm), dim=0, out=self._sum)
        torch.add(self._sum, self._target_of[k], out=error).mul_(self._rate_of[k])  # η e / B
        torch.mul(derivative, error, out=slope)  # g
        if self._single:
            torch.addcmul(self._one, double, error, value=-1, out=shrink)  # h
        else:
            torch.sum(double.mul_(error), dim=2, keepdim=True, out=shrink)
            torch.sub(self._one, shrink, out=shrink)
        ratio.mul_(shrink)
        torch.div(slope, ratio, out=coefficient)
        if not self._length_of:  # a block of one step: nothing follows that would need its projections and lengths
            return
        self._z_later[k].addcmul_(coefficient, self._gram_later[k], value=-1)
        torch.addcmul(shrink, slope, z, value=-2, out=growth).mul_(shrink)
        growth.addcmul_(slope.mul_(slope), self._length_of[k])  # |w'|² / |w|²
        norm.mul_(growth)
        ratio.div_(growth.sqrt_())

    def _step_free(self, k: int) -> None:
        """Take step k of a committee: w' = w − η e σ'(w·x) x, with f = Σ_i σ(w_i·x)."""
        sigma, _, derivative = self._parts
        self._fill(self._z_of[k], self._functions)
        torch.sum(sigma, dim=0, out=self._sum)
        torch.add(self._sum, self._target_of[k], out=self._error).mul_(self._rate_of[k])
        torch.mul(derivative, self._error, out=self._c_of[k])
        if self._length_of:
            self._z_later[k].addcmul_(self._c_of[k], self._gram_later[k], value=-1)


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
        """Start a block, whose arrays have been filled in."""
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
        """Write the coefficients of step k, and the projections and lengths of the later steps."""
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
