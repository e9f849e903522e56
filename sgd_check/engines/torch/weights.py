"""SGD step by step on the weights in R^d in torch, with the seeds as a batch axis: gradient, optimizer, constraint.

A step on a batch of B samples, those of `sgd_check.engines.torch.samples`, takes the mean g_i over the batch of the
gradient, in closed form, has the optimizer move w_i along it, and brings w_i back to where it must lie. With
e_b = f(x_b) − y_b the students are

* spherical, f = (1/m) Σ_i σ(w_i·x), |w_i| = 1: g_i = e σ'(w_i·x) x, m times the gradient of ½ e², less its part along
  w_i, so that Σ η is the time of `solve_spherical` and `solve_mean_field`; then w_i ← w_i/|w_i|;
* committees, f = Σ_i σ(w_i·x): g_i = e σ'(w_i·x) x;
* homogeneous neurons on inputs of covariance Σ, in whitened weights ŵ = Σ^½ w and x = Σ^½ z, z ~ N(0, I): Σ times the
  gradient of isotropic inputs, g_i = Σ e ρ_i [(2σ − ζ_i σ') u_i + σ' z], ρ_i = |ŵ_i|, u_i = ŵ_i/ρ_i, ζ_i = u_i·z;
* networks, f = s Σ_i v_i σ(w_i·x + b_i), whose v_i and b_i are two more columns of the weights: the gradient of ½ e²,
  that of w_i times Σ in whitened weights, and with decay κ also κ/ε times what is moved at the learning rate η ε;
* frames of orthogonal neurons, with U = W/σ0 and z = Ux: g = √2 e z (x − Uᵀz)ᵀ, the tangential part of the gradient;
  then the polar factor of where it leads, U ← (YYᵀ)^(−½) Y, by an eigendecomposition.

An optimizer is a class of `optimizers`. For those that see coordinates, teacher and start lie along axes that are drawn
for each seed, whose coordinates are all of order 1/√d.

On the processor every run has tensors of its own, so that none sees the rounding of another; runs are stepped together
on a CUDA device. Where steps are taken in closed form, that of plain SGD is part of it: blocks of steps in the span of
their samples (`engine`), the Triton kernel, and the engines that draw projections alone and hold no gradient in R^d.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamics.problem import is_frame, is_homogeneous, is_network, is_spherical
from dynamics.problem.optimizers import ZerothOrder
from hermite.text.messages import require
from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.registry import Engine, EngineOptions, Measurement
from sgd_check.engines.seeded_runs import DENSE_AXES, DIRECTIONS, RunThreads, generators
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.optimizers import arrays_kept, check_optimizer, make_optimizer
from sgd_check.engines.torch.samples import (
    FixedSamples,
    FreshDirections,
    FreshSamples,
    TorchTeacher,
    make_streams,
    steps_ahead,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines import problem_forms
    from sgd_check.engines.torch.links import TorchLink
    from sgd_check.engines.torch.optimizers import PlainSgd

    Source = FreshSamples | FixedSamples


DTYPES = {"float32": torch.float32, "float64": torch.float64}
MEMORY_LIMIT = 16 * 2**30
#: Below this many numbers in a step of one run, threads cost more than they bring.
THREADED_NUMBERS = 2**18
#: Numbers m·(samples) of one pass on the processor, which bounds the memory of a run; shorter passes cost more calls.
PASS_NUMBERS = 2**18


def checked_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is CUDA if the machine has it."""
    available = torch.cuda.is_available()
    need = "Argument `device` must be 'auto' or 'cpu' on this machine, but is 'cuda' and torch finds no CUDA device."
    require(available or device != "cuda", need)
    return torch.device("cuda" if device != "cpu" and available else "cpu")


def memory_limit(device: torch.device) -> int:
    """Return the bytes that runs may take: what is free on a CUDA device, `MEMORY_LIMIT` on the processor."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else MEMORY_LIMIT


def memory_needed(runs: int, width: int, dimension: int, drawn: int, dtype: torch.dtype) -> int:
    """Return the bytes of weights, of a copy of them in a step or a block, and of so many samples drawn per run."""
    return runs * dimension * (2 * width + drawn) * dtype.itemsize


class TorchRuns(Engine):
    """Runs in R^d in torch side by side: device, link, teacher, and weights (seeds, m, columns), zero from d on.

    So many samples of every run are `drawn` at a time.
    """

    def __init__(self, problem: Problem, options: EngineOptions, drawn: int, columns: int) -> None:
        self._device, self._dtype = checked_device(options.device), DTYPES[options.dtype]
        runs, m, self._dimension = len(options.seeds), problem.width, problem.dimension
        need, limit = memory_needed(runs, m, self._dimension, drawn, self._dtype), memory_limit(self._device)
        most = f"Arguments `problem` and `seeds` must fit in {limit / 2**30:.3g} GiB, but {runs} seeds"
        found = f"of {m} neurons in dimension {self._dimension} need {need / 2**30:.1f} GiB."
        require(need <= limit, f"{most} {found}")
        where = self._dtype, self._device
        self._teacher = TorchTeacher.of(problem, *where)
        self._link, link_name = make_link(problem.activation, *where, anywhere=is_network(problem))
        reduced, axes = _reduced_starts(problem, options), problem.input_axes()
        self._weights = torch.zeros(runs, m, columns, dtype=self._dtype, device=self._device)
        places = np.arange(reduced.shape[2]) if axes is None else axes.places
        self._weights[:, :, torch.tensor(places, device=self._device)] = torch.from_numpy(reduced).to(self._weights)
        self._threads = RunThreads(1)
        on_cuda = self._device.type == "cuda"
        self.attributes = {
            "device": f"cuda ({torch.cuda.get_device_name(self._device)})" if on_cuda else "cpu",
            "dtype": options.dtype,
            "simulated_link": link_name,
            "torch_version": str(torch.__version__),
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context without autograd in which runs share threads; torch has one on the processor."""
        before = torch.get_num_threads()
        if self._device.type == "cpu":
            torch.set_num_threads(1)
        try:
            with torch.inference_mode(), self._threads.running():
                yield
        finally:
            torch.set_num_threads(before)

    def current(self) -> torch.Tensor:
        """Return the weights of the moment, shape (seeds, m, d)."""
        return self._weights[..., : self._dimension]

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps."""
        return measured(self.current(), self._teacher, student=student)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the seeds apart, so the others do not notice."""
        self._weights[np.flatnonzero(stopped).tolist()] = torch.nan

    def _use(self, threads: int, kernel: str) -> None:
        """Have runs share threads, and say so and by which kernel steps are taken."""
        self._threads = RunThreads(threads)
        self.attributes |= {"step_kernel": kernel, "threads": threads}


def _reduced_starts(problem: Problem, options: EngineOptions) -> Array:
    """Return the weights of each run at the start, or of all, on the axes that they reduce to, shape (…, m, axes)."""
    starts = [problem]
    if options.starts is not None:
        from dynamics.solve import coupled_problem  # loads Numba

        starts = [coupled_problem(problem, problem.width, seed) for seed in options.starts]
    reduced = np.array([each.reduced_weights() for each in starts])
    if is_frame(problem):
        reduced /= math.sqrt(float(problem.start().squared_norm[0]))
    elif is_spherical(problem):
        reduced /= np.linalg.norm(reduced, axis=2, keepdims=True)
    return reduced


def on_dense_axes(start: Array, span: int, dimension: int, seed: int) -> tuple[Array, Array]:
    """Return a start [M | L] (m, D), whose first axes are the teacher's, on axes in R^d drawn from a seed, and these.

    Shapes (m, d), and of the teacher's axes (span, d). The axes are orthonormal and uniform.
    """
    if start.shape[1] > span + len(start):  # only L Lᵀ matters
        start = np.hstack([start[:, :span], np.linalg.qr(start[:, span:].T).R.T])
    normals = generators(seed, [DENSE_AXES])[0].standard_normal((dimension, start.shape[1]))
    factor, triangle = np.linalg.qr(normals)
    axes = (factor * np.sign(np.diag(triangle))).T
    return start @ axes, axes[:span]


def measured(
    weights: torch.Tensor, teacher: TorchTeacher, *, student: bool, squared: float | None = None, vectors: bool = False
) -> Measurement:
    """Return overlaps of weights (lanes, m, d) in float64, or if `squared` is given of unit vectors of that |w|².

    Of the student are the neurons themselves if `vectors`.
    """
    w, directions = weights.to(torch.float64), teacher.directions
    squared_norm = torch.sum(w * w, dim=2)
    unit = w / torch.sqrt(squared_norm)[:, :, None] if squared is None else w
    overlap = teacher.coordinates(unit)
    overlap = overlap if directions is None else overlap @ directions.to(torch.float64).T
    gram = torch.bmm(unit, unit.transpose(1, 2)) if student and not vectors else None
    found = (overlap, gram, squared_norm * (squared or 1.0), unit if student and vectors else None)
    arrays: list[Any] = [None if each is None else each.cpu().numpy() for each in found]
    return Measurement(*arrays)


class Neurons(ABC):
    """A kind of student: its gradient, and the set on which its weights must lie."""

    #: Squared norm of the neurons whose directions are the weights, None where these are the neurons.
    squared: float | None = None
    #: Eigenvalue of Σ of each column of whitened weights, 1 of other columns, 0 of those that are fixed; None if all 1.
    metric: torch.Tensor | None = None

    def __init__(self, link: TorchLink) -> None:
        self._link = link
        self._numbers = torch.empty(0)

    @abstractmethod
    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add Σ_b g_b of samples x (lanes, B, d) at the weights (lanes, m, columns) to `out`."""

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return f (lanes, B) of samples x (lanes, B, d), of students that are free."""
        raise NotImplementedError

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:  # noqa: ARG002 (others need where they are)
        """Multiply the gradient by Σ, or remove the part that must not move the weights."""
        if self.metric is not None:
            gradient.mul_(self.metric)

    def add_decay(self, w: torch.Tensor, gradient: torch.Tensor) -> None:  # noqa: B027 (networks alone decay)
        """Add the gradient of weight decay."""

    def step(self, w: torch.Tensor, direction: torch.Tensor, rate: float) -> None:
        """Move the weights by η against a direction."""
        w.sub_(direction, alpha=rate)

    def put_back(self, w: torch.Tensor) -> None:  # noqa: B027 (free neurons need none)
        """Bring the weights back to where they must lie."""

    def _link_at(self, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return σ, 2σ − zσ' and σ' at z, in memory that the next call takes."""
        if self._numbers.shape[1:] != z.shape:
            self._numbers = z.new_empty(3, *z.shape)
        self._link.fill(z, self._numbers)
        return self._numbers.unbind(0)


class Committee(Neurons):
    """f = Σ_i σ(w_i·x)."""

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add Σ_b e_b σ'_ib x_b."""
        value, _, slope = self._link_at(torch.bmm(w, x.transpose(1, 2)))
        error = self.output(value).sub_(labels)
        out.baddbmm_(slope.mul_(error[:, None]), x)

    def output(self, value: torch.Tensor) -> torch.Tensor:
        """Return f (lanes, B) of σ_ib (lanes, m, B)."""
        return torch.sum(value, dim=1)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return f."""
        return self.output(self._link.value(torch.bmm(w, x.transpose(1, 2))))


class Spherical(Committee):
    """f = (1/m) Σ_i σ(w_i·x) with |w_i| = 1."""

    squared = 1.0

    def output(self, value: torch.Tensor) -> torch.Tensor:
        """Return f."""
        return torch.mean(value, dim=1)

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take away the part along the neuron."""
        gradient.addcmul_(torch.sum(gradient * w, dim=2, keepdim=True), w, value=-1)

    def put_back(self, w: torch.Tensor) -> None:
        """Return to the sphere."""
        w.div_(torch.linalg.vector_norm(w, dim=2, keepdim=True))


class Homogeneous(Neurons):
    """f = Σ_i |w_i|² σ(w_i·x/|w_i|); `eigenvalues` (d,) are those of Σ in whitened weights, None for the identity."""

    def __init__(self, link: TorchLink, eigenvalues: torch.Tensor | None) -> None:
        super().__init__(link)
        self.metric = eigenvalues

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the sum of isotropic inputs."""
        rho = torch.linalg.vector_norm(w, dim=2, keepdim=True)
        value, double, slope = self._link_at(torch.bmm(w, x.transpose(1, 2)) / rho)
        error = (torch.sum(rho * rho * value, dim=1) - labels)[:, None]
        out.addcmul_(torch.sum(double.mul_(error), dim=2, keepdim=True), w)
        out.baddbmm_(slope.mul_(rho).mul_(error), x)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return f."""
        rho = torch.linalg.vector_norm(w, dim=2, keepdim=True)
        return torch.sum(rho * rho * self._link.value(torch.bmm(w, x.transpose(1, 2)) / rho), dim=1)


class Network(Neurons):
    """f = s Σ_i v_i σ(w_i·x + b_i), with free neurons; the last two columns of the weights are v and b.

    A column of learning rate ε moves at η ε; decay κ adds κ/ε times the weights to the gradient. Where ε = 0 but κ > 0,
    it moves at η along its decay alone.
    """

    def __init__(
        self, link: TorchLink, network: problem_forms.Network, eigenvalues: torch.Tensor | None, like: torch.Tensor
    ) -> None:
        super().__init__(link)
        self._scale, self._trained = network.scale, [rate > 0 for rate in network.rates]
        decays = (*network.decay, 0.0)
        rates = [rate or float(decay > 0) for rate, decay in zip(network.rates, decays, strict=True)]
        counts = torch.tensor([like.shape[2] - 2, 1, 1], device=like.device)

        def columns(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=like.dtype, device=like.device).repeat_interleave(counts)

        self._rates = columns(rates)
        self._decay = columns([decay / (rate or 1.0) for rate, decay in zip(rates, decays, strict=True)])
        self._decays = any(decays)
        self.metric = columns([float(each) for each in self._trained])
        if eigenvalues is not None:
            self.metric[:-2] *= eigenvalues

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add Σ e s v_i σ' x to the columns of w_i, Σ e s σ to that of v_i, Σ e s v_i σ' to that of b_i."""
        v, b, (of_w, of_v, of_b) = w[:, :, -2:-1], w[:, :, -1:], self._trained
        value, product, slope = self._link_at(torch.bmm(w[:, :, :-2], x.transpose(1, 2)).add_(b))
        error = torch.sum(torch.mul(value, v, out=product), dim=1).mul_(self._scale).sub_(labels)[:, None]
        error.mul_(self._scale)
        slope.mul_(error).mul_(v)
        if of_v:
            out[:, :, -2].add_(torch.sum(value.mul_(error), dim=2))
        if of_b:
            out[:, :, -1].add_(torch.sum(slope, dim=2))
        if of_w:
            out[:, :, :-2].baddbmm_(slope, x)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return f."""
        value = self._link.value(torch.bmm(w[:, :, :-2], x.transpose(1, 2)).add_(w[:, :, -1:]))
        return torch.sum(value * w[:, :, -2:-1], dim=1).mul_(self._scale)

    def add_decay(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add κ/ε times the weights."""
        if self._decays:
            gradient.addcmul_(w, self._decay)

    def step(self, w: torch.Tensor, direction: torch.Tensor, rate: float) -> None:
        """Move every column at its own learning rate."""
        w.addcmul_(direction, self._rates, value=-rate)


class Frame(Neurons):
    """f of the quadratic network Σ_i σ0² σ(u_i·x), whose neurons U (m, d) stay orthonormal."""

    def __init__(self, link: TorchLink, squared_norm: float) -> None:
        super().__init__(link)
        self._squared_norm = self.squared = squared_norm

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add √2 Σ_b e_b z_b x_bᵀ, less its part in the span of the frame."""
        z = torch.bmm(w, x.transpose(1, 2))
        error = self._squared_norm / math.sqrt(2.0) * (torch.sum(z * z, dim=1) - w.shape[1]) - labels
        pull = math.sqrt(2.0) * error[:, None] * z
        out.baddbmm_(pull, x - torch.bmm(z.transpose(1, 2), w))

    def put_back(self, w: torch.Tensor) -> None:
        """Take the polar factor."""
        values, vectors = torch.linalg.eigh(torch.nan_to_num(torch.bmm(w, w.transpose(1, 2))))
        w.copy_(torch.bmm((vectors / torch.sqrt(values)[:, None]) @ vectors.transpose(1, 2), w))


class WeightRuns:
    """Runs side by side in one tensor: weights (lanes, m, columns), moved on batches of B samples of a source."""

    def __init__(
        self, neurons: Neurons, weights: torch.Tensor, source: Source, batch: int, optimizer: PlainSgd
    ) -> None:
        self.weights, self.source, self.optimizer = weights, source, optimizer
        #: Memory for a gradient.
        self.memory = torch.empty_like(weights)
        self._neurons, self._batch = neurons, batch
        # On a CUDA device one pass takes the whole batch: there is no cache to keep to, and a launch costs more.
        largest = max(PASS_NUMBERS // weights.shape[1], 1) if weights.device.type == "cpu" else batch
        self._passes = [slice(first, min(first + largest, batch)) for first in range(0, batch, largest)]

    def advance(self, rates: list[float]) -> None:
        """Take one step per learning rate η."""
        optimizer = self.optimizer
        for rate in rates:
            x, labels = self.source.batch()
            optimizer.move(self.weights, optimizer.pull(self, x, labels), rate)
            self._neurons.put_back(self.weights)

    def gradient(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean gradient over a batch, in `memory`."""
        gradient = self.memory.zero_()
        for chosen in self._passes:
            self._neurons.add_gradient(self.weights, x[:, chosen], labels[:, chosen], gradient)
        if self._batch > 1:
            gradient.div_(self._batch)
        return gradient

    def loss(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return ½ mean e² (lanes,) over a batch, at other weights."""
        parts = [torch.sum((self._neurons.predict(w, x[:, c]) - labels[:, c]) ** 2, dim=1) for c in self._passes]
        return torch.stack(parts).sum(dim=0).div_(2.0 * self._batch)


class WeightEngine(TorchRuns):
    """A batch of runs that are stepped one step at a time; see the module's docstring for the students."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        d, batch, reused, seeds = problem.dimension, options.batch_size, options.training_samples, options.seeds
        check_optimizer(problem, options)
        optimizer, m, layered = options.optimizer, problem.width, is_network(problem)
        count = optimizer.directions if isinstance(optimizer, ZerothOrder) else 0
        drawn = steps_ahead(d, batch) * batch if reused is None else 2 * reused
        drawn += m * arrays_kept(optimizer) + (problem.teacher.span if optimizer.sees_axes else 0)
        drawn += steps_ahead(d, count * m) * count * m if count else 0
        super().__init__(problem, options, drawn, d + 2 if layered else d)
        if optimizer.sees_axes:
            self._turn(problem, seeds)
        if layered:
            start = problem.network_start()
            self._weights[:, :, d:] = torch.from_numpy(np.array([start.second_layer, start.bias]).T).to(self._weights)
        streams, on_cpu = make_streams(seeds, self._dtype, self._device), self._device.type == "cpu"
        others = make_streams(seeds, self._dtype, self._device, DIRECTIONS) if count else None
        self._layered, self._groups = layered, list[WeightRuns]()
        size = 1 if on_cpu else len(seeds)
        for first in range(0, len(seeds), size):
            lanes = range(first, first + size)
            teacher, axes = self._teacher, self._teacher.axes
            if axes is not None:
                teacher = replace(teacher, axes=axes[first : first + size])
            source: Source = FreshSamples(teacher, streams, lanes, reused or batch, self._weights[:0, :, :d])
            if reused is not None:
                source = FixedSamples(source.batch(), batch, seeds[first : first + size])
            self._neurons = neurons = _neurons(problem, self._link, self._weights)
            own = self._weights[first : first + size].clone()
            spread = None if neurons.metric is None else torch.sqrt(neurons.metric)
            z = None if others is None else FreshDirections(others, lanes, count, own, spread)
            made = make_optimizer(optimizer, neurons, own, d, z)
            self._groups.append(WeightRuns(neurons, own, source, batch, made))
        self._weights = self._weights.new_empty(0)  # the groups have theirs
        many = on_cpu and m * max(d, batch) >= THREADED_NUMBERS and not is_frame(problem)
        self._use(min(torch.get_num_threads(), len(self._groups)) if many else 1, "plain")

    def _turn(self, problem: Problem, seeds: tuple[int, ...]) -> None:
        """Turn teacher and start to dense axes."""
        d, span, reduced = problem.dimension, problem.teacher.span, problem.reduced_weights()
        own = self._weights.new_empty(len(seeds), span, d)
        for run, seed in enumerate(seeds):
            weights, axes = on_dense_axes(reduced, span, d, seed)
            self._weights[run, :, :d], own[run] = torch.from_numpy(weights), torch.from_numpy(axes)
        self._teacher = replace(self._teacher, axes=own)

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        self._threads.each(torch.inference_mode()(lambda runs: runs.advance(rates.tolist())), self._groups)

    def current(self) -> torch.Tensor:
        """Return the weights of the moment."""
        return torch.cat([runs.weights for runs in self._groups])[..., : self._dimension]

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps, and the neurons of the spherical student."""
        own, vectors = self._neurons, isinstance(self._neurons, Spherical)
        return measured(self.current(), self._teacher, student=student, squared=own.squared, vectors=vectors)

    def layers(self) -> Array:
        """Return v and b of a network."""
        return _layers(torch.cat([runs.weights for runs in self._groups]))

    def measure_average(self) -> tuple[Measurement, Array | None]:
        """Return overlaps of the averages of the weights, and of a network v and b."""
        averages = torch.cat([runs.optimizer.average for runs in self._groups if runs.optimizer.average is not None])
        found = measured(averages[..., : self._dimension], self._teacher, student=True)
        return found, _layers(averages) if self._layered else None

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN."""
        lanes = [lane for runs in self._groups for lane in runs.weights]
        for index in np.flatnonzero(stopped).tolist():
            lanes[index].fill_(torch.nan)


def _layers(weights: torch.Tensor) -> Array:
    """Return v and b (lanes, 2, m) of weights whose last columns they are."""
    return np.asarray(weights[:, :, -2:].transpose(1, 2).to("cpu", torch.float64, copy=True).numpy())


def _neurons(problem: Problem, link: TorchLink, like: torch.Tensor) -> Neurons:
    """Return the student's kind; `like` is a tensor of its weights."""
    if is_frame(problem):
        return Frame(link, float(problem.start().squared_norm[0]))
    if not (is_homogeneous(problem) or is_network(problem)):
        return (Spherical if is_spherical(problem) else Committee)(link)
    inputs, values = problem.inputs, None
    if inputs is not None:
        values = torch.from_numpy(inputs.eigenvalues_of_axes(problem.dimension)).to(like)
    return Network(link, network_of(problem), values, like) if is_network(problem) else Homogeneous(link, values)
