r"""Online SGD in R^d in torch, with the seeds as a batch axis, on the processor or on a CUDA device.

Steps are those of `neurons`, without autograd. `make_engine` says which problems have their steps taken in blocks,
which by one Triton kernel (`fused_kernels`), and which one by one (`weights`).

*Blocks.* Weights are read and written once a block. On the processor, groups of seeds are drawn and multiplied in
threads; on a CUDA device the whole block but the drawing is one CUDA graph. With the weights V at the start of a block
and its samples x_1, …, x_K as rows of X, the weights after k steps are

.. math:: w_i = s_i\,\Bigl(V_i - \sum_{j \le k} c_{ij}\, x_j\Bigr), \qquad
   w_i\cdot x_{k+1} = s_i\,\Bigl(Z_{i,k+1} - \sum_{j \le k} c_{ij}\, G_{j,k+1}\Bigr), \quad Z = VX^T, \quad G = XX^T,

so K steps need Z, G and the sum over j as three matrix products, and in between O(m K) operations a step instead of
passes over m d weights. Of a network on inputs of covariance Σ the weights are whitened, x = z, and Σ x_j stands for
x_j in the sum over steps and on the left of G. Lengths follow from |w'|² = n [h² − 2 h g z + g²|x|²] with
h = 1 − ηe(2σ − zσ'), g = ηeσ', and are taken from the weights once a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import hermite
from dynamics.integrators.device import Replay
from dynamics.problem import Problem, is_frame, is_homogeneous, is_network, is_spherical, needs_points
from hermite import HermiteExpansion
from hermite.arrays import Array
from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.registry import Engine, EngineOptions
from sgd_check.engines.seeded_runs import check_shapes
from sgd_check.engines.torch.links import TorchLink
from sgd_check.engines.torch.samples import Streams, aligned, kernels, sample_streams, triton_version
from sgd_check.engines.torch.weights import (
    DTYPES,
    THREADED_NUMBERS,
    LossEngine,
    TorchRuns,
    WeightEngine,
    checked_device,
)

#: Elements are rounded one way in vectors of this many and another in the rest at an array's end.
VECTOR = 32


class Recursion:
    """The K steps of one block of a committee, for all lanes (runs side by side) at once; K > 1 only with B = 1.

    Before a block `projections` are filled with Z (K, m, lanes, B), `gram` with G (K, K, lanes; None for one step),
    `squared_norm` with n (m, lanes), `targets` with minus the labels (K, lanes, B) and `rates` with η/B (K, 1, 1). Then
    `coefficients` (K, m, lanes, B) are the c of the steps taken, zero elsewhere. `layers` (rows, m, lanes) move beside
    the weights, none here; `opened` is what they were before the block.
    """

    def __init__(
        self, problem: Problem, link: TorchLink, lanes: int, steps: int, batch: int, like: torch.Tensor
    ) -> None:
        """Allocate the arrays of a block of `steps` = K steps of `batch` = B samples, for all lanes.

        `link` writes the functions of the problem's link, and `like` is a tensor of the wanted dtype and device. Lanes
        are padded so that those that are read fill whole vectors of `VECTOR` numbers, which are all rounded alike.
        """
        self._fill, self._batch, width = link.fill, batch, problem.width
        every = lanes  # so many that those that are read fill whole vectors
        while every * batch % VECTOR and (every - lanes) * batch < VECTOR - 1:
            every += 1

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
        self._z_later = [all_z[k + 1 :] for k in range(steps)]
        self._gram_later = [] if all_g is None else [all_g[k, k + 1 :, None, :, None] for k in range(steps)]
        self._length_of = [] if all_g is None else [all_g[k, k, None, :, None] for k in range(steps)]
        self._functions = zeros(3, width, every, batch)
        self._parts = self._functions.unbind(0)
        self._z, self._slope = zeros(width, every, batch), zeros(width, every, batch)
        self._sum, self._error = zeros(every, batch), zeros(every, batch)
        self._ratio, self._shrink, self._growth = zeros(3, width, every, 1).unbind(0)
        self.layers = self.opened = zeros(0, width, lanes)
        self._one = zeros(1, 1, 1).fill_(1.0)

    def enter(self, problem: Problem) -> None:
        """Take the rates of another phase, which networks alone have."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start a block; its arrays are filled in."""
        self._all_c.zero_()

    def take(self, k: int) -> None:
        """Take step k of the block for all runs at once: w_i' = w_i − (η/B) Σ_b e_b σ'(w_i·x_b) x_b for every neuron i.

        From the projections w_i·x_b and the labels this writes the coefficients (η/B) e_b σ'(w_i·x_b) of the samples,
        with the error e_b, and updates the projections of the later steps. It makes few calls, since their number sets
        the cost.
        """
        sigma, _, derivative = self._parts
        self._fill(self._z_of[k], self._functions)
        torch.sum(sigma, dim=0, out=self._sum)
        torch.add(self._sum, self._target_of[k], out=self._error).mul_(self._rate_of[k])
        torch.mul(derivative, self._error, out=self._c_of[k])
        self._pass_on(k)

    def scale(self, moved: torch.Tensor, lanes: slice) -> torch.Tensor | None:  # noqa: ARG002
        """Return s of the weights after the steps taken, shape (lanes, m), or None if it is one.

        `moved` (lanes, m, d) are the sums V_i − Σ c_ij x_j of the lanes `at`.
        """
        return None

    def _pass_on(self, k: int) -> None:
        """Bring the projections of the later steps up to date with step k."""
        if self._length_of:
            self._z_later[k].addcmul_(self._c_of[k], self._gram_later[k], value=-1)


class _HomogeneousRecursion(Recursion):
    """The K steps of one block of homogeneous neurons |w|² σ(w·x/|w|); the running ratio is s_i/|w_i|."""

    def begin(self) -> None:
        """Prepare a block of steps: the running ratio s_i/|w_i| of each neuron begins with s_i = 1."""
        super().begin()
        torch.rsqrt(self._norm, out=self._ratio)

    def take(self, k: int) -> None:
        """Take step k of the block for all runs at once, of homogeneous neurons |w|² σ(z) with z = w·x/|w|.

        With the error e of a sample times η/B, the step is w' = h w − Σ g |w| x, where h = 1 − Σ e (2σ − zσ') and
        g = e σ'; the sums go over the batch. The running ratio is multiplied by h, and the coefficient of the sample is
        g over the ratio. In a block of several steps the squared norms and the ratio are brought up to date too.
        """
        z, slope, ratio, shrink, growth = self._z, self._slope, self._ratio, self._shrink, self._growth
        sigma, double, derivative = self._parts
        error, norm = self._error, self._norm
        torch.mul(self._z_of[k], ratio, out=z)
        self._fill(z, self._functions)
        torch.sum(sigma.mul_(norm), dim=0, out=self._sum)
        torch.add(self._sum, self._target_of[k], out=error).mul_(self._rate_of[k])  # η e / B
        torch.mul(derivative, error, out=slope)  # g
        if self._batch == 1:
            torch.addcmul(self._one, double, error, value=-1, out=shrink)  # h
        else:
            torch.sub(self._one, torch.sum(double.mul_(error), dim=2, keepdim=True, out=shrink), out=shrink)
        ratio.mul_(shrink)
        torch.div(slope, ratio, out=self._c_of[k])
        self._pass_on(k)
        if self._length_of:  # not in a block of one step, after which nothing needs lengths
            torch.addcmul(shrink, slope, z, value=-2, out=growth).mul_(shrink)
            growth.addcmul_(slope.mul_(slope), self._length_of[k])  # |w'|² / |w|²
            norm.mul_(growth)
            ratio.div_(growth.sqrt_())

    def scale(self, moved: torch.Tensor, lanes: slice) -> torch.Tensor:  # noqa: ARG002
        """Return the factors by which the stored weights of the runs `lanes` are multiplied at the end of a block."""
        return (self._ratio * torch.sqrt(self._norm))[:, : self.squared_norm.shape[1], 0].T[lanes]


class _NetworkRecursion(Recursion):
    """The K steps of one block of a network with `layers` v and b.

    The running ratio is g of the steps before, on the sphere divided by the lengths.
    """

    def __init__(
        self, problem: Problem, link: TorchLink, lanes: int, steps: int, batch: int, like: torch.Tensor
    ) -> None:
        """Allocate the arrays of a block as `Recursion` does, and put second layer v and biases b beside them.

        `layers` and `opened`, those now and at the start of the block, are views (2, m, lanes): row 0 is v, row 1 is b.
        Lengths (m,) are kept for neurons that stay on the sphere.
        """
        super().__init__(problem, link, lanes, steps, batch, like)
        self._network = network = network_of(problem)
        start = torch.from_numpy(np.array([network.second_layer, network.bias])).to(like)
        self._both = start[:, :, None, None].expand(2, problem.width, self._norm.shape[1], 1).contiguous()
        self._second, self._bias = self._both.unbind(0)
        self._all_opened = self._both.clone()
        self.layers, self.opened = self._both[:, :, :lanes, 0], self._all_opened[:, :, :lanes, 0]
        self._lengths = None if network.lengths is None else torch.from_numpy(network.lengths).to(like)
        self._slopes, self._values = torch.zeros_like(self._norm), torch.zeros_like(self._norm)

    def enter(self, problem: Problem) -> None:
        """Take the rates and the decay of another phase."""
        self._network = network_of(problem)

    def begin(self) -> None:
        """Prepare a block of steps: all weights have the factor 1."""
        super().begin()
        self._ratio.fill_(1.0)
        self._all_opened.copy_(self._both)

    def scale(self, moved: torch.Tensor, lanes: slice) -> torch.Tensor | None:
        """Return the factors that weight decay gives, or that bring neurons back to the sphere."""
        ratio = self._ratio[:, : self.squared_norm.shape[1], 0].T[lanes]
        if self._lengths is None:
            return ratio if self._network.decay[0] else None
        return torch.sign(ratio).mul_(self._lengths).div_(torch.linalg.vector_norm(moved, dim=2))

    def take(self, k: int) -> None:
        """Take step k of the block for all runs at once, also of the second layer and the biases that are trained.

        v, b and w are the second layer, the biases and the first layer, ε_v, ε_b and ε_w their relative rates, and s is
        the scale of the output. With the error e of a sample times η/B and sums over the batch, v' = v − ε_v s Σ e σ,
        b' = b − ε_b s v Σ e σ', and the coefficient of the sample in w is ε_w s e v σ' over the running ratio, all from
        v before the step. Decay multiplies v and the ratio; on the sphere the ratio restores the lengths of neurons.
        """
        network, rate, error, on_sphere = self._network, self._rate_of[k], self._error, self._lengths is not None
        along, slope, second = self._z, self._slope, self._second
        ratio, shrink, growth = self._ratio, self._shrink, self._growth
        sigma, product, derivative = self._parts
        torch.mul(self._z_of[k], ratio, out=along)
        self._fill(torch.add(along, self._bias), self._functions)
        torch.sum(torch.mul(sigma, second, out=product), dim=0, out=self._sum)
        torch.add(self._target_of[k], self._sum, alpha=network.scale, out=error).mul_(rate)  # η e / B
        torch.sum(sigma.mul_(error), dim=2, keepdim=True, out=self._values)
        torch.sum(derivative.mul_(error), dim=2, keepdim=True, out=self._slopes)
        torch.mul(derivative, second, out=slope).mul_(network.rates[0] * network.scale)  # h
        if network.rates[2]:  # both from the v before the step
            self._bias.addcmul_(second, self._slopes, value=-network.rates[2] * network.scale)
        if network.decay[1]:
            second.addcmul_(second, rate, value=-network.decay[1] * self._batch)
        if network.rates[1]:
            second.sub_(self._values, alpha=network.rates[1] * network.scale)
        if on_sphere:
            torch.sum(torch.mul(slope, along, out=product), dim=2, keepdim=True, out=growth)  # Σ h λ
            torch.div(growth, self._norm, out=shrink).add_(1.0)
            ratio.mul_(shrink)
        elif network.decay[0]:
            ratio.addcmul_(ratio, rate, value=-network.decay[0] * self._batch)
        torch.div(slope, ratio, out=self._c_of[k])
        self._pass_on(k)
        if on_sphere and self._length_of:
            # |w'|²/|w|², which the ratio brings back to one
            torch.addcmul(torch.mul(shrink, self._norm), slope, along, value=-2, out=growth).mul_(shrink)
            growth.addcmul_(slope.mul_(slope), self._length_of[k]).div_(self._norm)
            ratio.div_(growth.sqrt_())


#: Steps whose updates wait for one matrix product, half as many for weights of few numbers: more read weights less
#: often, but multiply samples with each other, 2 d (2 m + K) operations a step.
DELAYED_STEPS = 32
FEW_NUMBERS = 2**13
#: Numbers and steps drawn per seed at a time on the processor, where that is more than a block.
DRAWN_NUMBERS, DRAWN_STEPS = 2**16, 1024
#: Numbers that one thread works on at a time: about half of the second-level cache.
GROUP_NUMBERS = 2**17


def block_steps(width: int, dimension: int, batch: int) -> int:
    """Return the number of steps of one block: 1 for minibatches, whose steps already share reads of the weights."""
    if batch > 1:
        return 1
    return DELAYED_STEPS if width * dimension >= FEW_NUMBERS else DELAYED_STEPS // 2


def drawn_steps(width: int, dimension: int, batch: int, device: torch.device) -> int:
    """Return the number of steps drawn at a time, from m, d and B alone, so that no seed depends on other seeds."""
    block = block_steps(width, dimension, batch)
    if device.type != "cpu":
        return block
    return block * min(max(DRAWN_NUMBERS // (aligned(dimension) * batch * block), 1), DRAWN_STEPS // block)


class OnlineEngine(TorchRuns):
    """Runs whose steps are taken in blocks."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        """Put all runs at their start, with memory for the samples drawn at a time, a block, and its products.

        `options` give seeds, batch size, device and dtype. Samples are (lanes, drawn steps · B, columns), their
        products with the weights (lanes, m, K B) and with each other (lanes, K B, K B), for blocks of K steps. On the
        processor, groups of lanes are shared among threads; on a CUDA device all lanes are one group, and a whole block
        is one graph. No block is open at first.
        """
        self._batch, width, d = options.batch_size, problem.width, problem.dimension
        drawn = drawn_steps(width, d, self._batch, checked_device(options.device))
        super().__init__(problem, options, drawn * self._batch, aligned(d))
        weights = self._weights
        self._lanes, _, columns = weights.shape
        self._cuda = self._device.type == "cuda"
        self._streams: Streams = sample_streams(problem, options, self._dtype, self._device)
        self._steps = block_steps(width, d, self._batch)
        self._samples = weights.new_empty(self._lanes, drawn * self._batch, columns)
        self._targets = weights.new_zeros(self._lanes, drawn * self._batch)
        kind = _HomogeneousRecursion if is_homogeneous(problem) else Recursion
        kind = _NetworkRecursion if is_network(problem) else kind
        self._recursion = kind(problem, self._link, self._lanes, self._steps, self._batch, weights)
        #: Eigenvalues of Σ, where they are not all 1.
        self._eigenvalues: torch.Tensor | None = None
        if problem.covariance is not None:
            self._eigenvalues = weights.new_ones(columns)
            self._eigenvalues[:d] = torch.from_numpy(problem.covariance.eigenvalues_of_axes(d))
        rows = self._steps * self._batch
        # Memory of matrix products, with lanes first; the recursion has them last.
        self._products = weights.new_zeros(self._lanes, width, aligned(rows))[..., :rows]
        self._gram = weights.new_zeros(self._lanes, rows, rows) if self._steps > 1 else None
        self._blocks = drawn // self._steps
        self._block = self._blocks - 1  # index of the open block among the drawn ones
        self._taken = 0  # steps taken of the open block; zero if none is open
        self._before_draw = self._streams.state()
        self._rows = [slice(index * rows, (index + 1) * rows) for index in range(self._blocks)]
        work = columns * (width + rows)
        shared = self._lanes * work >= THREADED_NUMBERS and not self._cuda
        threads = min(torch.get_num_threads(), self._lanes) if shared else 1
        group = self._lanes if self._cuda else max(GROUP_NUMBERS // work, 1)
        if threads > 1:
            group = -(-self._lanes // max(threads, -(-self._lanes // group)))
        self._groups = [range(first, min(first + group, self._lanes)) for first in range(0, self._lanes, group)]
        self._use(threads, "graph" if self._cuda else "plain")
        self._whole_block = self._replay()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate η of `rates` (steps,), whole blocks at once and parts of them at the ends."""
        sample_rates = torch.from_numpy(rates / self._batch).to(self._weights)
        done, count = 0, rates.size
        while done < count:
            first = self._taken
            if first == 0:
                if self._block == self._blocks - 1:
                    self.draw()
                self._block += 1
            last = min(self._steps, first + count - done)
            self._recursion.rates[first:last, 0, 0] = sample_rates[done : done + last - first]
            if self._cuda and last - first == self._steps:
                self._whole_block()
            else:
                self._take(first, last)
            done += last - first

    @torch.inference_mode()
    def enter(self, problem: Problem) -> None:
        """Change to the rates of another phase of `problem`, between two steps.

        If steps of the current block have been taken, they are put into the weights, and the block is begun again with
        the learning rate 0 for these steps.
        """
        taken = self._taken
        if taken > 0:
            self._run_all(lambda lanes: self._moved(lanes, self._weights))
            self._recursion.rates[:taken] = 0.0
        self._recursion.enter(problem)
        self._whole_block = self._replay()
        if taken > 0:
            self._take(0, taken)

    def _replay(self) -> Replay:
        """Return the operations of a whole block."""
        moving = (self._weights, self._recursion.layers)
        return Replay(torch, self._device, lambda: self._take(0, self._steps), moving)

    def current(self) -> torch.Tensor:
        """Return the weights of the moment without ending the open block."""
        weights = self._weights
        if self._taken:
            weights = torch.empty_like(weights)
            self._moved(range(self._lanes), weights)
        return weights[..., : self._dimension]

    def layers(self) -> Array:
        """Return v and b of a network."""
        layers = self._recursion.layers.permute(2, 0, 1)
        return np.asarray(layers.to("cpu", torch.float64, copy=True).numpy())

    def _with_layers(self) -> torch.Tensor:
        """Return the weights of the moment, of a network with the columns of v and b."""
        layers = self._recursion.layers
        if not layers.numel():
            return self.current()
        return torch.cat([self.current(), layers.permute(2, 1, 0)], dim=2)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn weights and layers of the runs that `stopped` (seeds,) marks to NaN."""
        super().freeze(stopped)
        self._recursion.layers[..., np.flatnonzero(stopped).tolist()] = torch.nan

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays by name that the later steps depend on; `restore` draws the samples of an open block again.

        `weights` (lanes, m, columns) are those at the start of the open block, `layers` (2, m, lanes), of a network
        alone, its second layer and biases there; `streams` is the state of the random numbers, before the samples at
        hand were drawn if some of these are still to be used; `position` is (whether they are, number of the block
        among the drawn ones, steps taken of the open block), and `rates` (K, 1, 1) are the learning rates of the block
        over B.
        """
        drawn = self._taken > 0 or self._block < self._blocks - 1
        layers = self._recursion.opened if self._taken else self._recursion.layers
        return {
            **({"layers": layers.cpu().numpy().copy()} if layers.numel() else {}),
            "weights": self._weights.cpu().numpy().copy(),
            "streams": self._before_draw if drawn else self._streams.state(),
            "position": np.array([drawn, self._block, self._taken]),
            "rates": self._recursion.rates.cpu().numpy().copy(),
        }

    @torch.inference_mode()
    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from the arrays that `state` returned, for the same problem and options on the same device."""
        check_shapes(state, {"weights": self._weights})
        layers, (drawn, self._block, taken) = self._recursion.layers, np.asarray(state["position"]).tolist()
        restored = {"weights": self._weights, "rates": self._recursion.rates}
        for name, array in (restored | ({"layers": layers} if layers.numel() else {})).items():
            array.copy_(torch.from_numpy(np.array(state[name])))
        self._streams.restore(state["streams"])
        if drawn:
            self._before_draw = np.array(state["streams"])
            self._run_all(self._draw)
        if taken > 0:
            self._take(0, taken)

    def draw(self) -> None:
        """Fill the buffers with fresh samples of the steps to come."""
        self._before_draw = self._streams.state()
        self._run_all(self._draw)
        self._block = -1

    def _draw(self, lanes: range) -> None:
        """Fill the buffers of some lanes with fresh samples and minus their labels."""
        teacher, part = self._teacher, slice(lanes.start, lanes.stop)
        samples, targets = self._samples[part], self._targets[part]
        noise = targets if teacher.noise > 0 else None
        self._streams.fill(lanes, samples, noise)
        samples[..., self._dimension :] = 0.0
        # On the processor lane by lane: the roundings of a lane must not depend on how many there are.
        for lane_samples, target in [(samples, targets)] if self._cuda else zip(samples, targets, strict=True):
            torch.neg(teacher.label(lane_samples, None if noise is None else target), out=target)

    def _take(self, first: int, last: int) -> None:
        """Take steps of a block, which opens with the first and ends with the last."""
        if first == 0:
            self._run_all(self._project)
            self._recursion.begin()
        for k in range(first, last):
            self._recursion.take(k)
        self._taken = last
        if last == self._steps:
            self._run_all(lambda lanes: self._moved(lanes, self._weights))
            self._taken = 0

    def _project(self, lanes: range) -> None:
        """Write the products of weights and samples that the steps of a block need."""
        part, recursion = slice(lanes.start, lanes.stop), self._recursion
        weights, products = self._weights[part], self._products[part]
        samples = self._samples[part, self._rows[self._block]]
        columns = samples.transpose(1, 2)
        torch.bmm(weights, columns, out=products)
        recursion.projections[:, :, part] = self._by_step(products)
        if self._gram is not None and recursion.gram is not None:
            torch.bmm(self._pulls(samples), columns, out=self._gram[part])
            recursion.gram[..., part] = self._gram[part].permute(1, 2, 0)
        length = torch.linalg.vector_norm(weights, dim=2)
        recursion.squared_norm[:, part] = torch.mul(length, length).T
        targets = self._targets[part, self._rows[self._block]]
        recursion.targets[:, part] = targets.reshape(len(lanes), self._steps, -1).transpose(0, 1)

    def _by_step(self, products: torch.Tensor) -> torch.Tensor:
        """Return (lanes, m, K B) as (K, m, lanes, B), which the recursion has."""
        lanes, width, _ = products.shape
        return products.view(lanes, width, self._steps, -1).permute(2, 1, 0, 3)

    def _moved(self, lanes: range, out: torch.Tensor) -> None:
        """Write the weights of some lanes with the steps taken to `out`, which may be the weights themselves."""
        part, recursion = slice(lanes.start, lanes.stop), self._recursion
        products = self._products[part]
        self._by_step(products).copy_(recursion.coefficients[:, :, part])
        samples = self._samples[part, self._rows[self._block]]
        torch.baddbmm(self._weights[part], products, self._pulls(samples), alpha=-1, out=out[part])
        scale = recursion.scale(out[part], part)
        if scale is not None:
            out[part].mul_(scale[..., None])

    def _pulls(self, samples: torch.Tensor) -> torch.Tensor:
        """Return Σ x of samples x (lanes, K B, aligned(d)), along which they pull the weights."""
        return samples if self._eigenvalues is None else samples * self._eigenvalues

    def _run_all(self, work: Callable[[range], None]) -> None:
        """Run `work` on all groups of lanes, which share the threads."""
        self._threads.map(torch.inference_mode()(work), self._groups)


#: Steps of a block of the Triton kernel; with twice as many it runs out of registers.
FUSED_STEPS = 16
#: Smallest side of a matrix product in Triton.
LEAST_SIDE = 16
#: Largest m for which the kernel's tensors fit the registers, and largest degree for which its link is unrolled.
LARGEST_WIDTH, LARGEST_DEGREE = 64, 64
#: A program takes four warps below so many neurons, eight otherwise.
WIDE = 33
NAMED_LINKS = ("relu", "tanh", "erf", "gelu")


class KernelLink(NamedTuple):
    """A link as the kernels know it: a name, or Hermite coefficients c_j."""

    name: str
    hermite: tuple[float, ...] = ()


def kernel_link(expansion: HermiteExpansion) -> KernelLink | None:
    """Return the link for the kernels, or None if they cannot evaluate it as the other engines do."""
    if expansion.is_polynomial:
        c = np.trim_zeros(np.asarray(expansion.coefficients, dtype=np.float64), "b")
        return KernelLink("hermite", tuple(c.tolist())) if 0 < c.size <= LARGEST_DEGREE + 1 else None
    for name in NAMED_LINKS:
        if expansion.expression is not None and expansion.expression == hermite.expand(name).expression:
            return KernelLink(name)
    return None


def fusible(problem: Problem, batch: int, dtype: torch.dtype) -> KernelLink | None:
    """Return the kernels' link if they can run the problem, else None.

    They take single samples per step in single precision, whose products keep all but its last three bits, teachers
    along the first axes and up to 64 neurons.
    """
    fits = batch == 1 and dtype == torch.float32 and problem.width <= LARGEST_WIDTH
    if not fits or problem.teacher.directions is not None or triton_version() is None:
        return None
    return kernel_link(problem.activation)


class FusedEngine(TorchRuns):
    """Runs on a CUDA device, many steps per launch; where they are in their samples is no state that can be kept."""

    def __init__(self, problem: Problem, options: EngineOptions, link: KernelLink) -> None:
        """Put weights, seeds and the teacher's coefficients of all runs on the CUDA device; no step is taken."""
        super().__init__(problem, options, FUSED_STEPS, aligned(problem.dimension))
        self._kernel_link, self._taken = link, 0
        coefficients = torch.tensor(problem.teacher.coefficients, device=self._device)
        self._coefficients = coefficients.to(self._weights)
        self._seeds = torch.tensor(options.seeds, dtype=torch.int64, device=self._device)
        self._use(1, "fused")

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate η of `rates` (steps,), in one launch of a kernel, with a program per run."""
        lanes, width, columns = self._weights.shape
        kernels().advance[(lanes,)](
            self._weights,
            torch.from_numpy(rates).to(self._weights),
            self._seeds,
            self._coefficients,
            self._taken,
            rates.size,
            width,
            self._dimension,
            columns,
            self._coefficients.shape[0],
            self._problem.label_noise,
            K=FUSED_STEPS,
            M=max(LEAST_SIDE, 1 << (width - 1).bit_length()),
            LINK=self._kernel_link.name,
            HERMITE=self._kernel_link.hermite,
            FREE=not is_homogeneous(self._problem),
            NOISY=self._problem.label_noise > 0,
            PRECISION="tf32x3" if self._dtype == torch.float32 else "ieee",
            num_warps=4 if width < WIDE else 8,
            num_stages=1,
            enable_fp_fusion=True,
        )
        self._taken += rates.size


def make_engine(problem: Problem, options: EngineOptions) -> Engine:
    """Return the engine that draws whole samples x in R^d, of the class that suits problem and options.

    They are `LossEngine` for losses that need points, `WeightEngine` for steps taken one by one on the weights, and
    `OnlineEngine`, or `FusedEngine` on a CUDA device, for blocks of steps, where the problem allows these.
    """
    covariant = problem.inputs is not None and not is_network(problem)
    in_blocks = options.optimizer.is_plain and options.training_samples is None
    if needs_points(problem):
        return LossEngine(problem, options)
    if covariant or is_frame(problem) or is_spherical(problem) or not in_blocks:
        return WeightEngine(problem, options)
    on_cuda = checked_device(options.device).type == "cuda" and not is_network(problem)
    on_cuda = on_cuda and options.rows is None
    link = fusible(problem, options.batch_size, DTYPES[options.dtype]) if on_cuda else None
    return OnlineEngine(problem, options) if link is None else FusedEngine(problem, options, link)
