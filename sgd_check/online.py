r"""Plain online SGD in R^d in torch, with the seeds as a batch axis, on the processor or on a CUDA device.

Responsible for samples and weight updates alone. One step on a batch of B fresh samples is

.. math:: w_i \leftarrow w_i - \frac{\eta}{B} \sum_b e_b\, \rho_i \left[(2\sigma_{ib} - z_{ib}\sigma'_{ib})\,u_i
   + \sigma'_{ib}\, x_b\right], \qquad e_b = f(x_b) - f^*(x_b) - \text{noise}_b,

with ρ_i = |w_i|, u_i = w_i/ρ_i, z_ib = u_i·x_b: the gradient of half the squared error in closed form, no autograd.
Must not know about schedules, emergence times or predictions, and must import without numba.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from sgd_check.engines import EngineOptions, Measurement
from sgd_check.torch_links import make_link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dynamics.problem import Problem

DTYPES = {"float32": torch.float32, "float64": torch.float64}
DEVICES = ("auto", "cpu", "cuda")
MEMORY_LIMIT = 16 * 2**30
# Numbers drawn per seed at a time. The block depends on d and B alone, so that the samples of a seed are the same
# whatever runs beside it and however the run is cut into chunks.
BLOCK_NUMBERS = 2**16
BLOCK_STEPS = (16, 1024)
# Below this many numbers per seed and step, threads cost more than they bring.
THREADED_NUMBERS = 2**18


def make_engine(problem: Problem, options: EngineOptions) -> OnlineEngine:
    """Return the engine that simulates the samples x in R^d themselves."""
    return OnlineEngine(problem, options)


class OnlineEngine:
    """A batch of online SGD runs in R^d; see the module's docstring for the step."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._device = _checked_device(options.device)
        self._dtype = _choice(options.dtype, "dtype", DTYPES)
        self._seeds = len(options.seeds)
        # A batch of one takes another route through the matrix library and other roundings; a silent copy keeps a lone
        # seed on the route of the rest.
        self._lanes = max(self._seeds, 2) if self._device.type == "cpu" else self._seeds
        self._width, self._dim, self._batch = problem.width, problem.dimension, options.batch_size
        low, high = BLOCK_STEPS
        self._block = min(max(BLOCK_NUMBERS // (self._dim * self._batch), low), high)
        self._check_memory()
        self._threads = 1 if self._width * self._dim * self._batch < THREADED_NUMBERS else torch.get_num_threads()
        self._noise = problem.label_noise
        self._teacher = self._tensor(problem.teacher.coefficients)
        rows = problem.teacher.directions
        self._directions = None if rows is None else self._tensor(rows)
        self._span = problem.teacher.span
        self._link, link_name = make_link(problem.activation, self._dtype, self._device)
        self._weights = self._start(problem)
        self._generators = [torch.Generator(device=self._device).manual_seed(seed) for seed in options.seeds]
        self._allocate()
        self.attributes: dict[str, str | int | float] = {
            "device": _device_name(self._device),
            "dtype": options.dtype,
            "simulated_link": link_name,
            "torch_version": str(torch.__version__),
            "threads": self._threads,
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context without autograd, with the number of threads that suits the size; both are put back."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_num_threads(before)

    def advance(self, rates: NDArray[np.float64]) -> None:
        """Take one step per learning rate."""
        scaled = (rates / self._batch).tolist()
        done = 0
        while done < len(scaled):
            if self._position == self._block:
                self._draw_block()
            count = min(self._block - self._position, len(scaled) - done)
            self._take_steps(self._position, scaled[done : done + count])
            self._position += count
            done += count

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        weights = self._weights[: self._seeds].to(torch.float64)
        squared_norm = torch.sum(weights * weights, dim=2)
        unit = weights / torch.sqrt(squared_norm)[:, :, None]
        overlap = unit[:, :, : self._span]
        if self._directions is not None:
            overlap = overlap @ self._directions.to(torch.float64).T
        gram = torch.bmm(unit, unit.transpose(1, 2)).cpu().numpy() if student else None
        return Measurement(overlap.cpu().numpy(), gram, squared_norm.cpu().numpy())

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the seeds apart, so the others do not notice."""
        for index in np.flatnonzero(stopped):
            self._weights[index] = torch.nan

    def weights(self) -> NDArray[np.float64]:
        """Return the weights w_i, shape (seeds, neurons, d)."""
        return self._weights[: self._seeds].to(torch.float64, copy=True).cpu().numpy()

    def draw(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw the next block of samples and return x (steps, seeds, batch, d) and labels (steps, seeds, batch)."""
        self._draw_block()
        x, labels = self._x[:, : self._seeds], -self._targets[:, : self._seeds, 0]
        return x.to(torch.float64, copy=True).cpu().numpy(), labels.to(torch.float64).cpu().numpy()

    # --- building -----------------------------------------------------------------------------------------

    def _tensor(self, values: NDArray[np.float64]) -> torch.Tensor:
        return torch.tensor(np.array(values), dtype=self._dtype, device=self._device)

    def _check_memory(self) -> None:
        size = torch.empty(0, dtype=self._dtype).element_size()
        steps = self._block * self._batch * (self._lanes + 1)
        need = size * self._dim * (2 * self._lanes * self._width + steps)
        if need > MEMORY_LIMIT:
            msg = (
                f"Arguments `problem` and `seeds` must fit in {MEMORY_LIMIT / 2**30:.0f} GiB, but {self._seeds} seeds "
                f"of {self._width} neurons in dimension {self._dim} need {need / 2**30:.1f} GiB."
            )
            raise ValueError(msg)

    def _start(self, problem: Problem) -> torch.Tensor:
        reduced = problem.reduced_weights()
        weights = np.zeros((self._width, self._dim))
        weights[:, : reduced.shape[1]] = reduced
        return self._tensor(weights).expand(self._lanes, -1, -1).contiguous()

    def _allocate(self) -> None:
        def empty(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=self._dtype, device=self._device)

        s, m, b = self._lanes, self._width, self._batch
        self._x = empty(self._block, s, b, self._dim)
        self._targets = empty(self._block, s, 1, b)
        self._scratch = empty(self._block, b, self._dim)
        self._scratch_noise = empty(self._block, b)
        self._position = self._block
        self._z, self._slope = empty(s, m, b), empty(s, m, b)
        self._functions = empty(3, s, m, b)
        self._length, self._rate_norm, self._shrink = empty(s, m, 1), empty(s, m, 1), empty(s, m, 1)
        self._error = empty(s, 1, b)
        self._one = torch.ones(1, 1, 1, dtype=self._dtype, device=self._device).expand(s, m, 1)
        self._zero = torch.zeros(1, 1, 1, dtype=self._dtype, device=self._device)

    # --- samples ------------------------------------------------------------------------------------------

    def _draw_block(self) -> None:
        """Fill the buffers with fresh samples and minus their labels, each seed from its own generator."""
        for lane in range(self._lanes):
            if lane >= self._seeds:
                self._x[:, lane] = self._x[:, 0]
                self._targets[:, lane] = self._targets[:, 0]
                continue
            generator = self._generators[lane]
            self._scratch.normal_(generator=generator)
            self._x[:, lane] = self._scratch
            if self._noise > 0:
                self._scratch_noise.normal_(generator=generator)
                self._targets[:, lane, 0] = self._scratch_noise
        labels = self._labels(self._x[..., : self._span])
        if self._noise > 0:
            labels.add_(self._targets[:, :, 0], alpha=self._noise)
        torch.neg(labels, out=self._targets[:, :, 0])
        self._position = 0

    def _labels(self, x: torch.Tensor) -> torch.Tensor:
        """Return Σ_p a_p σ(θ_p·x), elementwise in the samples, so that no sample sees its neighbours' rounding."""
        if self._directions is None:
            return torch.sum(self._link.value(x.contiguous()) * self._teacher, dim=-1)
        total = torch.zeros(x.shape[:-1], dtype=self._dtype, device=self._device)
        for coefficient, direction in zip(self._teacher, self._directions, strict=True):
            total.addcmul_(coefficient, self._link.value(torch.sum(x * direction, dim=-1)))
        return total

    # --- the step -----------------------------------------------------------------------------------------

    def _take_steps(self, first: int, rates: list[float]) -> None:
        """Take consecutive steps of the current block; `rates` are η/B.

        About fourteen torch calls a step, all into buffers: at these sizes the number of calls is the cost.
        """
        w, z, slope, functions = self._weights, self._z, self._slope, self._functions
        length, rate_norm, shrink, error = self._length, self._rate_norm, self._shrink, self._error
        sigma, double, derivative = functions.unbind(0)
        norm_row, error_column = rate_norm.transpose(1, 2), error.transpose(1, 2)
        one, zero, fill, single = self._one, self._zero, self._link.fill, self._batch == 1
        last = first + len(rates)
        samples, targets = self._x[first:last].unbind(0), self._targets[first:last].unbind(0)
        columns = self._x[first:last].transpose(2, 3).unbind(0)
        for x, column, target, rate in zip(samples, columns, targets, rates, strict=True):
            torch.bmm(w, column, out=z)
            torch.linalg.vector_norm(w, dim=2, keepdim=True, out=length)
            torch.addcmul(zero, length, length, value=rate, out=rate_norm)  # η n_i / B
            z.div_(length)
            fill(z, functions)
            torch.baddbmm(target, norm_row, sigma, beta=rate, out=error)  # η e / B
            torch.mul(derivative, length, out=slope)
            slope.mul_(error)  # η e ρ σ' / B
            if single:  # sums over a batch of one are products, in half the time
                torch.addcmul(one, double, error, value=-1, out=shrink)
                w.mul_(shrink).addcmul_(slope, x, value=-1)
            else:
                torch.baddbmm(one, double, error_column, alpha=-1, out=shrink)
                w.mul_(shrink).baddbmm_(slope, x, alpha=-1)


def _choice(value: str, name: str, menu: dict[str, torch.dtype]) -> torch.dtype:
    if value not in menu:
        msg = f"Argument `{name}` must be one of {', '.join(map(repr, menu))}, but is {value!r}."
        raise ValueError(msg)
    return menu[value]


def _checked_device(device: str) -> torch.device:
    if device not in DEVICES:
        msg = f"Argument `device` must be one of {', '.join(map(repr, DEVICES))}, but is {device!r}."
        raise ValueError(msg)
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        msg = "Argument `device` must be 'auto' or 'cpu' on this machine, but is 'cuda' and torch finds no CUDA device."
        raise ValueError(msg)
    return torch.device("cuda" if device != "cpu" and available else "cpu")


def _device_name(device: torch.device) -> str:
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"
