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
on a CUDA device. Where steps are taken in closed form, that of plain SGD is part of it: blocks of steps in the span of
their samples (`engine`), the Triton kernel, and the engines that draw projections alone and hold no gradient in R^d.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamics.problem import is_frame, is_network, is_spherical
from hermite.text.messages import require
from sgd_check.engines.registry import Engine, EngineOptions, Measurement
from sgd_check.engines.seeded_runs import RunThreads
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.samples import FixedSamples, FreshSamples, TorchTeacher, make_streams, steps_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.torch.links import TorchLink

    Source = FreshSamples | FixedSamples


class PlainSgd:
    """w ← w − η g. Another optimizer is a class with this method, which may keep arrays, such as a momentum.

    `WeightEngine` makes one for each of its groups of runs, and is the place to make another.
    """

    def move(self, weights: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        """Take one step at the learning rate η along a gradient of the weights, both of shape (lanes, m, d)."""
        weights.sub_(gradient, alpha=rate)


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


def measured(
    weights: torch.Tensor, teacher: TorchTeacher, *, student: bool, squared: float | None = None, vectors: bool = False
) -> Measurement:
    """Return overlaps of weights (lanes, m, d) in float64, or if `squared` is given of unit vectors of that |w|².

    Of the student are the neurons themselves if `vectors`.
    """
    w, directions = weights.to(torch.float64), teacher.directions
    squared_norm = torch.sum(w * w, dim=2)
    unit = w / torch.sqrt(squared_norm)[:, :, None] if squared is None else w
    overlap = unit[:, :, : teacher.span]
    overlap = overlap if directions is None else overlap @ directions.to(torch.float64).T
    gram = torch.bmm(unit, unit.transpose(1, 2)) if student and not vectors else None
    found = (overlap, gram, squared_norm * (squared or 1.0), unit if student and vectors else None)
    arrays: list[Any] = [None if each is None else each.cpu().numpy() for each in found]
    return Measurement(*arrays)


class Neurons(ABC):
    """A kind of student: its gradient, and the set on which its weights must lie."""

    #: Squared norm of the neurons whose directions are the weights, None where these are the neurons.
    squared: float | None = None

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


class Covariant(Neurons):
    """f = Σ_i |w_i|² σ(w_i·x/|w_i|) in whitened weights; `eigenvalues` (d,) are those of Σ."""

    def __init__(self, link: TorchLink, eigenvalues: torch.Tensor) -> None:
        super().__init__(link)
        self._eigenvalues = eigenvalues

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the sum of isotropic inputs."""
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
    """Runs side by side in one tensor: weights (lanes, m, d), moved on batches of B samples of a source."""

    def __init__(
        self, neurons: Neurons, weights: torch.Tensor, source: Source, batch: int, optimizer: PlainSgd
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


class WeightEngine(TorchRuns):
    """A batch of runs that are stepped one step at a time; see the module's docstring for the students."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        d, batch, reused, seeds = problem.dimension, options.batch_size, options.training_samples, options.seeds
        super().__init__(problem, options, steps_ahead(d, batch) * batch if reused is None else 2 * reused, d)
        streams, on_cpu = make_streams(seeds, self._dtype, self._device), self._device.type == "cpu"
        self._groups: list[WeightRuns] = []
        size = 1 if on_cpu else len(seeds)
        for first in range(0, len(seeds), size):
            lanes = range(first, first + size)
            source: Source = FreshSamples(self._teacher, streams, lanes, reused or batch, self._weights[:0])
            if reused is not None:
                source = FixedSamples(source.batch(), batch, seeds[first : first + size])
            self._neurons = _neurons(problem, self._link, self._weights)
            own = self._weights[first : first + size].clone()
            self._groups.append(WeightRuns(self._neurons, own, source, batch, PlainSgd()))
        self._weights = self._weights.new_empty(0)  # the groups have theirs
        many = on_cpu and problem.width * max(d, batch) >= THREADED_NUMBERS and not is_frame(problem)
        self._use(min(torch.get_num_threads(), len(self._groups)) if many else 1, "plain")

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        self._threads.each(torch.inference_mode()(lambda runs: runs.advance(rates.tolist())), self._groups)

    def current(self) -> torch.Tensor:
        """Return the weights of the moment."""
        return torch.cat([runs.weights for runs in self._groups])

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps, and the neurons of the spherical student."""
        own, vectors = self._neurons, isinstance(self._neurons, Spherical)
        return measured(self.current(), self._teacher, student=student, squared=own.squared, vectors=vectors)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN."""
        lanes = [lane for runs in self._groups for lane in runs.weights]
        for index in np.flatnonzero(stopped).tolist():
            lanes[index].fill_(torch.nan)


def _neurons(problem: Problem, link: TorchLink, like: torch.Tensor) -> Neurons:
    if problem.inputs is not None:
        return Covariant(link, torch.from_numpy(problem.inputs.eigenvalues_of_axes(problem.dimension)).to(like))
    if is_frame(problem):
        return Frame(link, float(problem.start().squared_norm[0]))
    return (Spherical if is_spherical(problem) else Committee)(link)
