"""SGD step by step on the weights in R^d in torch, with the seeds as a batch axis: gradient, optimizer, constraint.

A step on a batch of B samples, those of `sgd_check.engines.torch.samples`, takes the mean g_i over the batch of the
gradient, in closed form, has the optimizer move w_i along it, and brings w_i back to where it must lie. With
e_b = f(x_b) − y_b the students are

* spherical, f = (1/m) Σ_i σ(w_i·x), |w_i| = 1: g_i = e σ'(w_i·x) x, m times the gradient of ½ e², less its part along
  w_i, so that Σ η is the time of `solve_spherical` and `solve_mean_field`; then w_i ← w_i/|w_i|;
* committees, f = Σ_i σ(w_i·x): g_i = e σ'(w_i·x) x;
* homogeneous neurons on inputs of covariance Σ, in whitened weights ŵ = Σ^½ w and x = Σ^½ z, z ~ N(0, I): Σ times the
  gradient of isotropic inputs, g_i = Σ e ρ_i [(2σ − ζ_i σ') u_i + σ' z], ρ_i = |ŵ_i|, u_i = ŵ_i/ρ_i, ζ_i = u_i·z;
* frames of orthogonal neurons, with U = W/σ0 and z = Ux: g = √2 e z (x − Uᵀz)ᵀ, the tangential part of the gradient;
  then the polar factor of where it leads, U ← (YYᵀ)^(−½) Y, by an eigendecomposition.

On the processor every run has tensors of its own, so that none sees the rounding of another; runs are stepped together
on a CUDA device.

An optimizer is a class that takes a step along a gradient; a further one is a further class. Where steps are taken in
closed form, that of plain SGD is part of it: blocks of steps in the span of their samples (`engine`), the Triton kernel
(`fused_kernels`), and the engines that draw projections alone (`sgd_check.engines.projected`), which never hold a
gradient in R^d.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from dynamics.problem import is_frame, is_spherical
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.seeded_runs import RunThreads
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.samples import FixedSamples, FreshSamples, TorchTeacher, make_streams, steps_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.torch.links import TorchLink

    Source = FreshSamples | FixedSamples


class Optimizer(Protocol):
    """Moves the weights of runs side by side; it may keep arrays between steps, such as a momentum."""

    def move(self, weights: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        """Take one step at the learning rate η along a gradient of the weights, both of shape (lanes, m, d)."""


class PlainSgd(Optimizer):
    """w ← w − η g."""

    def move(self, weights: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        """Take one step at the learning rate η."""
        weights.sub_(gradient, alpha=rate)


DTYPES = {"float32": torch.float32, "float64": torch.float64}
MEMORY_LIMIT = 16 * 2**30
#: Below this many numbers in a step of one run, threads cost more than they bring.
THREADED_NUMBERS = 2**18
#: Numbers m·(samples) of one pass on the processor, which bounds the memory of a run; shorter passes cost more calls.
PASS_NUMBERS = 2**18


def check_runs_fit(numbers: int, problem: Problem, seeds: int, dtype: torch.dtype) -> None:
    """Refuse runs that keep so many numbers of this type that they do not fit."""
    need = numbers * torch.empty(0, dtype=dtype).element_size()
    if need > MEMORY_LIMIT:
        msg = (
            f"Arguments `problem` and `seeds` must fit in {MEMORY_LIMIT / 2**30:.0f} GiB, but {seeds} seeds "
            f"of {problem.width} neurons in dimension {problem.dimension} need {need / 2**30:.1f} GiB."
        )
        raise ValueError(msg)


@contextmanager
def shared_by(threads: RunThreads, *, single: bool) -> Iterator[None]:
    """Return a context without autograd in which runs share threads, each with one of torch's own if `single`."""
    before = torch.get_num_threads()
    if single:
        torch.set_num_threads(1)
    try:
        with torch.inference_mode(), threads.running():
            yield
    finally:
        torch.set_num_threads(before)


def checked_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is CUDA if the machine has it."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        msg = "Argument `device` must be 'auto' or 'cpu' on this machine, but is 'cuda' and torch finds no CUDA device."
        raise ValueError(msg)
    return torch.device("cuda" if device != "cpu" and available else "cpu")


def run_attributes(
    device: torch.device, options: EngineOptions, link_name: str, kernel: str, threads: int
) -> dict[str, str | int | float]:
    """Return what to write down about runs in torch."""
    return {
        "device": f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu",
        "dtype": options.dtype,
        "simulated_link": link_name,
        "torch_version": str(torch.__version__),
        "step_kernel": kernel,
        "threads": threads,
    }


def measured(weights: torch.Tensor, teacher: TorchTeacher, *, student: bool) -> Measurement:
    """Return the overlaps of weights (lanes, m, d), in float64."""
    weights = weights.to(torch.float64)
    squared_norm = torch.sum(weights * weights, dim=2)
    unit = weights / torch.sqrt(squared_norm)[:, :, None]
    gram = torch.bmm(unit, unit.transpose(1, 2)).cpu().numpy() if student else None
    return Measurement(_on_directions(unit, teacher), gram, squared_norm.cpu().numpy())


def _on_directions(vectors: torch.Tensor, teacher: TorchTeacher) -> Array:
    """Return the products with the directions of the teacher, (lanes, m, P)."""
    overlap = vectors[:, :, : teacher.span]
    if teacher.directions is not None:
        overlap = overlap @ teacher.directions.to(torch.float64).T
    found: Array = overlap.cpu().numpy()
    return found


class Neurons(ABC):
    """A kind of student: its gradient, the set on which its weights must lie, and its overlaps."""

    def __init__(self, link: TorchLink) -> None:
        self._link = link
        self._numbers = torch.empty(0)

    @abstractmethod
    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add Σ_b g_b of samples x (lanes, B, d) at the weights (lanes, m, d) to `out`."""

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:  # noqa: B027 (free neurons need none)
        """Remove the part of the gradient that must not move the weights."""

    def put_back(self, w: torch.Tensor) -> None:  # noqa: B027
        """Bring the weights back to where they must lie."""

    def measure(self, w: torch.Tensor, teacher: TorchTeacher, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        return measured(w, teacher, student=student)

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


class Spherical(Committee):
    """f = (1/m) Σ_i σ(w_i·x) with |w_i| = 1."""

    def output(self, value: torch.Tensor) -> torch.Tensor:
        """Return f."""
        return torch.mean(value, dim=1)

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take away the part along the neuron."""
        gradient.addcmul_(torch.sum(gradient * w, dim=2, keepdim=True), w, value=-1)

    def put_back(self, w: torch.Tensor) -> None:
        """Return to the sphere."""
        w.div_(torch.linalg.vector_norm(w, dim=2, keepdim=True))

    def measure(self, w: torch.Tensor, teacher: TorchTeacher, *, student: bool) -> Measurement:
        """Return overlaps, and the neurons if asked for."""
        w = w.to(torch.float64)
        norms = torch.sum(w * w, dim=2).cpu().numpy()
        return Measurement(_on_directions(w, teacher), None, norms, w.cpu().numpy() if student else None)


class Covariant(Neurons):
    """f = Σ_i |w_i|² σ(w_i·x/|w_i|) in whitened weights; `eigenvalues` (d,) are those of Σ."""

    def __init__(self, link: TorchLink, eigenvalues: torch.Tensor) -> None:
        super().__init__(link)
        self._eigenvalues = eigenvalues

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add what isotropic inputs give."""
        rho = torch.linalg.vector_norm(w, dim=2, keepdim=True)
        value, double, slope = self._link_at(torch.bmm(w, x.transpose(1, 2)) / rho)
        error = (torch.sum(rho * rho * value, dim=1) - labels)[:, None]
        out.addcmul_(torch.sum(double.mul_(error), dim=2, keepdim=True), w)
        out.baddbmm_(slope.mul_(rho).mul_(error), x)

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:  # noqa: ARG002
        """Multiply by Σ."""
        gradient.mul_(self._eigenvalues)


class Frame(Neurons):
    """f of the quadratic network Σ_i σ0² σ(u_i·x), whose neurons U (m, d) stay orthonormal."""

    def __init__(self, link: TorchLink, squared_norm: float) -> None:
        super().__init__(link)
        self._squared_norm = squared_norm

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

    def measure(self, w: torch.Tensor, teacher: TorchTeacher, *, student: bool) -> Measurement:
        """Return overlaps."""
        w = w.to(torch.float64)
        gram = torch.bmm(w, w.transpose(1, 2)).cpu().numpy() if student else None
        norms = self._squared_norm * torch.sum(w * w, dim=2)
        return Measurement(_on_directions(w, teacher), gram, norms.cpu().numpy())


class WeightRuns:
    """Runs side by side in one tensor: weights (lanes, m, d), moved on batches of B samples of a source."""

    def __init__(
        self, neurons: Neurons, weights: torch.Tensor, source: Source, batch: int, optimizer: Optimizer
    ) -> None:
        self.weights, self.source = weights, source
        self._neurons, self._optimizer, self._batch = neurons, optimizer, batch
        self._gradient = torch.empty_like(weights)
        # On a CUDA device one pass takes the whole batch: there is no cache to keep to, and a launch costs more.
        largest = max(PASS_NUMBERS // weights.shape[1], 1) if weights.device.type == "cpu" else batch
        self._passes = [slice(first, min(first + largest, batch)) for first in range(0, batch, largest)]

    def advance(self, rates: list[float]) -> None:
        """Take one step per learning rate η."""
        w, gradient = self.weights, self._gradient
        for rate in rates:
            x, labels = self.source.batch()
            gradient.zero_()
            for chosen in self._passes:
                self._neurons.add_gradient(w, x[:, chosen], labels[:, chosen], gradient)
            if self._batch > 1:
                gradient.div_(self._batch)
            self._neurons.restrict(w, gradient)
            self._optimizer.move(w, gradient, rate)
            self._neurons.put_back(w)


class WeightEngine:
    """A batch of runs that are stepped one step at a time; see the module's docstring for the students."""

    def __init__(self, problem: Problem, options: EngineOptions, optimizer: Callable[[], Optimizer] = PlainSgd) -> None:
        device, dtype, seeds = checked_device(options.device), DTYPES[options.dtype], options.seeds
        d, batch, reused = problem.dimension, options.batch_size, options.training_samples
        held = steps_ahead(d, batch) * batch if reused is None else 2 * reused
        check_runs_fit(d * len(seeds) * (2 * problem.width + held), problem, len(seeds), dtype)
        link, link_name = make_link(problem.activation, dtype, device)
        self._teacher, streams = TorchTeacher.of(problem, dtype, device), make_streams(seeds, dtype, device)
        start = torch.tensor(_starts(problem, options), dtype=dtype, device=device)
        self._groups: list[WeightRuns] = []
        size = 1 if device.type == "cpu" else len(seeds)
        for first in range(0, len(seeds), size):
            lanes = range(first, min(first + size, len(seeds)))
            source: Source = FreshSamples(self._teacher, streams, lanes, reused or batch, start[:0])
            if reused is not None:
                source = FixedSamples(source.batch(), batch, seeds[lanes.start : lanes.stop])
            self._neurons = _neurons(problem, link, dtype, device)
            own = start[lanes.start : lanes.stop].clone()
            self._groups.append(WeightRuns(self._neurons, own, source, batch, optimizer()))
        many = device.type == "cpu" and problem.width * max(d, batch) >= THREADED_NUMBERS and not is_frame(problem)
        self._threads = RunThreads(min(torch.get_num_threads(), len(self._groups)) if many else 1)
        self.attributes = run_attributes(device, options, link_name, "plain", self._threads.count)

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which runs share threads."""
        return shared_by(self._threads, single=True)

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        steps = rates.tolist()
        self._threads.each(torch.inference_mode()(lambda runs: runs.advance(steps)), self._groups)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        weights = torch.cat([runs.weights for runs in self._groups])
        return self._neurons.measure(weights, self._teacher, student=student)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the runs apart, so the others do not notice."""
        lanes = [lane for runs in self._groups for lane in runs.weights]
        for index in np.flatnonzero(stopped).tolist():
            lanes[index].fill_(torch.nan)


def _neurons(problem: Problem, link: TorchLink, dtype: torch.dtype, device: torch.device) -> Neurons:
    if problem.inputs is not None:
        eigenvalues = problem.inputs.eigenvalues_of_axes(problem.dimension)
        return Covariant(link, torch.tensor(eigenvalues, dtype=dtype, device=device))
    if is_frame(problem):
        return Frame(link, float(problem.start().squared_norm[0]))
    return (Spherical if is_spherical(problem) else Committee)(link)


def _starts(problem: Problem, options: EngineOptions) -> Array:
    """Return the weights of all runs at the start, shape (seeds, m, d)."""
    from dynamics.solve import coupled_problem

    chosen = (
        [problem] if options.starts is None else [coupled_problem(problem, problem.width, s) for s in options.starts]
    )
    reduced = np.array([each.reduced_weights() for each in chosen])
    start = np.zeros((len(options.seeds), problem.width, problem.dimension))
    axes = problem.input_axes()
    start[:, :, slice(reduced.shape[2]) if axes is None else axes.places] = reduced
    if is_frame(problem):
        start /= math.sqrt(float(problem.start().squared_norm[0]))
    elif is_spherical(problem):
        start /= np.linalg.norm(start, axis=2, keepdims=True)
    return start
