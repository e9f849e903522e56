r"""Steps of the large-flow solver on a device, in double precision.

The same equations, pair of formulas, slowed clusters and step control as in `dynamics.large_flow.stepper`; but the whole
field is computed at every stage.  On a graphics processor its two products cost less than the memory traffic that saves
them, so that there is neither a lagged rest nor a division into fast and slow neurons, and a step is always the same
sequence of operations.  The state stays on the device; the host sees one number per attempted step and the events.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, sections II.5 and II.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators.dop853_tableau import DOP853_WEIGHTS
from dynamics.integrators.events import record_crossings
from dynamics.integrators.stepper import Status
from dynamics.large_flow.stepper import (
    COORDINATE_FLOOR,
    KAPPA,
    LAG_SAFETY,
    LARGEST_FACTOR,
    SAFETY,
    SMALLEST_FACTOR,
    SMALLEST_STEP,
    STALL_GAIN,
    STALL_STEPS,
)
from dynamics.large_flow.torch_clusters import DeviceClusters
from dynamics.large_flow.torch_device import Replay, load_torch
from dynamics.large_flow.torch_field import DeviceField, padded
from dynamics.systems.unit_vectors import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from dynamics.problem import Problem

    Array = NDArray[np.float64]

__all__ = ["TorchFlowStepper"]

_END = 12  # row of the tableau that gives the step, and the stage at its end
_ERRORS, _DENSE = slice(16, 18), slice(18, 22)


class TorchFlowStepper:
    """Take steps of the coupled flow of many neurons on a device.

    Parameters
    ----------
    problem : Problem
        For which `reason_against` has nothing to say.
    rtol, atol : float
        Tolerances per step, as for `LargeFlowStepper`.
    device : str
        "cpu", "cuda" or "cuda:<number>".
    graph : bool, optional
        Whether to start the operations of a step as one recorded graph; CUDA only.

    Raises
    ------
    ImportError
        If torch is not installed.
    ValueError
        If there is no such device, or a graph is wanted of the processor.
    """

    compile_seconds = 0.0

    def __init__(self, problem: Problem, *, rtol: float, atol: float, device: str, graph: bool = False) -> None:
        torch = self._torch = load_torch(device)
        if graph and device == "cpu":
            msg = "Argument `graph` must be False on the device 'cpu', but is True."
            raise ValueError(msg)
        self._device = torch.device(device)
        self._problem, self._link = problem, problem.activation
        self._a = np.array(problem.teacher.coefficients, dtype=np.float64)
        self._sign_matters = problem.information_exponent % 2 == 1
        U, log_norm = unit_vectors(problem)
        m, D = self._m, self._D = U.shape
        W = self._W = padded(D)
        a = self._on_device(self._a)
        self._field = DeviceField(
            torch, self._device, self._link.coefficients, self._a, m, D, sign_matters=self._sign_matters
        )
        self._clusters = DeviceClusters(
            torch, a, float(self._link.kernel(1.0)), float(self._link.kernel_derivative(1.0)), (m, D, W),
            both_poles=self._link.parity == "even", kappa=KAPPA,
        )  # fmt: skip
        root = np.sqrt(problem.dimension)
        self._tolerance = (max(atol, COORDINATE_FLOOR * rtol) / root, rtol)
        absolute, relative = np.full(W, self._tolerance[0]), np.full(W, rtol)
        absolute[D:], relative[D:] = max(atol, rtol), 0.0
        self._absolute, self._relative = self._on_device(absolute), self._on_device(relative)
        self._weights = self._on_device(DOP853_WEIGHTS)
        self._allocate()
        self._trial: Callable[[], None] = Replay(torch, self._device, self._try) if graph else self._try
        self._counts = dict.fromkeys(("steps_accepted", "steps_rejected", "rhs_evaluations"), 0)
        self._time, self._marks = 0.0, list[float]()
        self._now[:, :D], self._now[:, D] = self._on_device(U), self._on_device(log_norm)
        self._start()

    def _allocate(self) -> None:
        """Make the tensors of a step: begin, end and trial state, rates at both ends, stages, errors."""
        shape, real = (self._m, self._W), {"dtype": self._torch.float64, "device": self._device}
        zeros: Callable[..., Tensor] = self._torch.zeros
        self._begin, self._now, self._stage = (zeros(shape, **real) for _ in range(3))
        self._begin_rates, self._now_rates = zeros(shape, **real), zeros(shape, **real)
        self._stages = zeros((16, *shape), **real)
        self._errors, self._scale = zeros((2, *shape), **real), zeros(shape, **real)
        self._error, self._h_device = zeros((), **real), zeros((), **real)
        self._scaled_weights = self._weights.clone()

    def _on_device(self, array: Array) -> Tensor:
        tensor: Tensor = self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device, copy=True)
        return tensor

    # --- the stepper's protocol -----------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._time

    @property
    def event_times(self) -> Array:
        """Time at which each direction emerged, then was learned; not-a-number until then; the start if there."""
        return self._event_times.copy()

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        marks = self._marks
        return len(marks) > STALL_STEPS and marks[-1] < STALL_GAIN * marks[-1 - STALL_STEPS]

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        last = self._tried() + max_steps
        while self._time < target:
            if self._tried() >= last:
                return Status.MAX_STEPS
            failure = self._advance_once()
            if failure is not None:
                return failure
        return Status.REACHED

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the overlaps [C | G | ln n] at a time within the last step, both ends included.

        Raises
        ------
        ValueError
            If `t` is outside the last step.
        """
        Y = self._at(t)
        U = Y[:, : self._D]
        G = U @ U.t()
        G.fill_diagonal_(1.0)
        state = self._torch.cat([U[:, : self._a.size].reshape(-1), G.view(-1), Y[:, self._D]]).cpu().numpy()
        if out is None:
            return np.array(state)
        out[...] = state
        return out

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        Y = self._at(t).cpu().numpy()
        return Y[:, : self._D].copy(), Y[:, self._D].copy()

    def summary(self, t: float) -> dict[str, Array | float]:
        """Return what `OverlapSystem.summarise` says of a time within the last step, without moving G to the host."""
        torch, D, P = self._torch, self._D, self._a.size
        Y = self._at(t)
        self._field.rates(Y, torch.empty_like(Y))
        n, C, kernel = self._field.n, Y[:, :P], self._field.kernel
        pull = kernel[:, self._m :]
        size = C.clamp(min=0.0) if self._sign_matters else C.abs()
        value = float(self._link.kernel(1.0))
        numbers = torch.cat([size.amax(0), (n @ pull) / value, n]).cpu().numpy()
        constant = value * float(self._a @ self._a)
        loss = n @ (kernel[:, : self._m] @ n - 2.0 * (pull @ self._on_device(self._a)))
        # G − C Cᵀ is the Gram matrix of what the unit vectors have outside the teacher's span.
        outside = Y[:, P:D]
        margin = float(torch.linalg.eigvalsh(outside @ outside.t())[0]) if D - P >= self._m else 0.0
        return {
            "max_overlap": numbers[:P].copy(),
            "learned_mass": numbers[P : 2 * P].copy(),
            "squared_norm": numbers[2 * P :].copy(),
            "loss": constant + float(loss),
            "gram_margin": margin,
        }

    def derivative(self, t: float) -> Array:
        """Return the rates of the overlaps at a time within the last step."""
        torch, D = self._torch, self._D
        Y = self._at(t)
        rates = torch.zeros_like(Y)
        self._field.rates(Y, rates)
        product = rates[:, :D] @ Y[:, :D].t()
        parts = [rates[:, : self._a.size].reshape(-1), (product + product.t()).reshape(-1), rates[:, D]]
        return np.array(torch.cat(parts).cpu().numpy())

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return dict(self._counts)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit on a device of the same kind."""
        tensors = {"now": self._now}
        if self._h_last is not None:
            clusters = self._clusters
            tensors |= {
                "begin": self._begin,
                "cluster": clusters.cluster,
                "sign": clusters.sign,
                "drift": clusters.drift,
            }
        arrays: dict[str, NDArray[np.generic]] = {
            name: np.array(tensor.cpu().numpy()) for name, tensor in tensors.items()
        }
        lengths = [self._h] if self._h_last is None else [self._h, self._time_last, self._h_last]
        return arrays | {
            "time_and_steps": np.array([self._time, *lengths]),
            "events": np.stack([self._event_times, self._events]),
            "marks": np.array(self._marks),
            "counts": np.array(list(self._counts.values())),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned.

        Raises
        ------
        ValueError
            If they are those of another problem.
        """
        shape = state["now"].shape if "now" in state else None
        if shape != tuple(self._now.shape):
            msg = f"Argument `state` must hold `now` of shape {tuple(self._now.shape)}, but has {shape}."
            raise ValueError(msg)
        given = {name: self._torch.from_numpy(np.array(array)).to(self._device) for name, array in state.items()}
        self._now.copy_(given["now"])
        self._start()
        if "begin" in given:
            self._begin.copy_(given["begin"])
            self._clusters.reset(given["cluster"], given["sign"], given["drift"])
            self._field.rates(self._begin, self._begin_rates)
            _, _, self._time_last, h = given["time_and_steps"].tolist()
            # The stages of the last step, which its dense output needs.
            self._h_last = h
            self._h_device.fill_(h)
            self._trial()
            self._settle()
        self._time, self._h = given["time_and_steps"].tolist()[:2]
        self._event_times, self._events = (row.copy() for row in given["events"].cpu().numpy())
        self._marks = given["marks"].tolist()
        self._counts = dict(zip(self._counts, given["counts"].tolist(), strict=True))

    # --- one step -------------------------------------------------------------------------------------------

    def _tried(self) -> int:
        return self._counts["steps_accepted"] + self._counts["steps_rejected"]

    def _start(self) -> None:
        """Start at the present state: its rates, its events, a first step short enough to be linear."""
        D = self._D
        self._h_last: float | None = None
        self._time_last = self._time
        self._dense: Tensor | None = None
        self._clusters.reset(
            self._torch.full_like(self._clusters.cluster, self._a.size),
            self._torch.ones_like(self._clusters.sign),
            self._torch.zeros_like(self._clusters.drift),
        )
        self._events = self._look()
        speed, growth = self._now_rates[:, :D].abs().max(), self._now_rates[:, D].abs().max()
        rate = max(float(speed) * self._tolerance[1] / self._tolerance[0], float(growth))
        self._h = 1e-2 / max(rate, 1e-290)
        self._event_times = np.full(2 * self._a.size, np.nan)
        self._begin.copy_(self._now)
        record_crossings(
            self._event_times, self._events, self._events, (self._time, self._time), lambda _: self._events
        )

    def _advance_once(self) -> Status | None:
        """Take one accepted step; return why that is impossible, or None."""
        self._prepare()
        h, rejected = self._h, False
        while True:
            if not h > SMALLEST_STEP * self._time and not (self._time == 0.0 and h > 1e-290):
                return Status.STEP_TOO_SMALL if np.isfinite(h) else Status.NOT_FINITE
            self._h_device.fill_(h)
            self._trial()
            self._counts["rhs_evaluations"] += 11
            error = float(self._error)
            if error <= 1.0:
                break
            factor = SAFETY * error**-0.125 if np.isfinite(error) else 0.0
            self._counts["steps_rejected"] += 1
            h *= max(SMALLEST_FACTOR, min(factor, LAG_SAFETY))
            rejected = True
        factor = SAFETY * max(error, 1e-12) ** -0.125
        self._accept(h)
        self._h = h * min(1.0 if rejected else LARGEST_FACTOR, max(SMALLEST_FACTOR, factor))
        return None

    def _prepare(self) -> None:
        """Divide the neurons and make the present state the beginning of a step."""
        self._h_device.fill_(self._h_last or 1.0)
        self._clusters.divide(self._now, self._begin, self._now_rates, self._h_device)
        self._begin.copy_(self._now)
        self._begin_rates.copy_(self._now_rates)

    def _try(self) -> None:
        """Compute the stages and the state at the end of a step, and its error in units of the tolerance."""
        torch, stages = self._torch, self._stages
        torch.mul(self._weights, self._h_device, out=self._scaled_weights)
        self._clusters.pace(self._h_device)
        stages[0].copy_(self._begin_rates)
        self._clusters.slow(stages[0], torch.exp(self._begin[:, self._D]))
        for s in range(1, _END):
            self._evaluate_stage(s)
        self._combine(_END, self._now)
        torch.mm(
            self._weights[_ERRORS, :_END],
            stages[:_END].view(_END, -1),
            out=self._errors.view(2, -1),
        )
        torch.maximum(self._begin.abs(), self._now.abs(), out=self._scale)
        self._scale.mul_(self._relative).add_(self._absolute)
        five, three = self._errors.div_(self._scale).square_().sum(2)
        total = ((five + 0.01 * three) * (self._D + 1.0)).clamp_(min=1e-300).sqrt_()
        torch.max(self._h_device * five / total, out=self._error)

    def _evaluate_stage(self, s: int) -> None:
        self._combine(s, self._stage)
        self._field.rates(self._stage, self._stages[s])
        self._clusters.slow(self._stages[s], self._field.n)

    def _combine(self, s: int, out: Tensor) -> None:
        """Write y_0 + h Σ_j w_sj k_j, with the weights of row s of the tableau."""
        K = self._stages[:s].view(s, -1)
        self._torch.addmv(self._begin.view(-1), K.t(), self._scaled_weights[s, :s], out=out.view(-1))

    def _settle(self) -> Array:
        """Put the rows at the end of a step back on the sphere; return what `_look` does."""
        U = self._now[:, : self._D]
        U.div_(U.norm(dim=1, keepdim=True))
        self._dense = None
        return self._look()

    def _look(self) -> Array:
        """Compute the rates at the present state and see who is where; return the values of the events."""
        field = self._field
        field.rates(self._now, self._now_rates)
        self._clusters.look(field.n, field.overlap, field.kernel)
        self._counts["rhs_evaluations"] += 1
        return np.array(field.events().cpu().numpy())

    def _accept(self, h: float) -> None:
        before, self._events = self._events, self._settle()
        self._time_last, self._h_last = self._time, h
        self._time += h
        self._counts["steps_accepted"] += 1
        self._marks = [*self._marks[-STALL_STEPS:], self._time]
        passed = np.flatnonzero(np.isnan(self._event_times) & (self._events >= 0.0))
        if passed.size > 0:
            values_at = self._events_at(np.unique(passed % self._a.size), before)
            record_crossings(self._event_times, before, self._events, (self._time_last, self._time), values_at)

    # --- inside the last step ---------------------------------------------------------------------------------

    def _at(self, t: float) -> Tensor:
        """Return the state at a time within the last step, on the device."""
        if not self._time_last <= t <= self._time:
            msg = f"Argument `t` must be within the last step [{self._time_last}, {self._time}], but is {t}."
            raise ValueError(msg)
        if t == self._time:
            return self._now
        if t == self._time_last:
            return self._begin
        Y: Tensor = self._begin + _polynomial(self._coefficients(), (t - self._time_last) / self._last_length())
        U = Y[:, : self._D]
        U.div_(U.norm(dim=1, keepdim=True))
        return Y

    def _last_length(self) -> float:
        assert self._h_last is not None
        return self._h_last

    def _coefficients(self) -> Tensor:
        """Return the coefficients b_0 … b_6 of y_0 + x (b_0 + (1−x)(b_1 + x (b_2 + …))), shape (7, m, W)."""
        if self._dense is None:
            torch, stages, h = self._torch, self._stages, self._last_length()
            stages[_END].copy_(self._now_rates)
            self._clusters.slow(stages[_END], torch.exp(self._now[:, self._D]))
            for s in range(_END + 1, 16):
                self._evaluate_stage(s)
            self._counts["rhs_evaluations"] += 3
            rise = self._now - self._begin
            low = torch.stack([rise, h * stages[0] - rise, 2.0 * rise - h * (stages[_END] + stages[0])])
            high = (self._scaled_weights[_DENSE] @ stages.view(16, -1)).view(4, *rise.shape)
            self._dense = torch.cat([low, high])
        return self._dense

    def _events_at(self, directions: NDArray[np.int64], before: Array) -> Callable[[float], Array]:
        """Return the function t -> values of all events, of which those of these directions are meant."""
        columns = self._torch.from_numpy(np.append(directions, self._D)).to(self._device)
        coefficients = self._coefficients().index_select(2, columns).cpu().numpy()
        start = self._begin.index_select(1, columns).cpu().numpy()
        values, P, value = before.copy(), self._a.size, float(self._link.kernel(1.0))

        def values_at(t: float) -> Array:
            y = start + _polynomial(coefficients, (t - self._time_last) / self._last_length())
            C, n = y[:, :-1], np.exp(y[:, -1])
            size = np.maximum(C, 0.0) if self._sign_matters else C
            values[directions] = np.max(size**2, axis=0) - 0.5
            values[P + directions] = n @ self._link.kernel(C) / value - 0.5 * self._a[directions]
            return values

        return values_at


def _polynomial(coefficients: Any, x: float) -> Any:
    """Return x (b_0 + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …))))."""
    total = coefficients[6]
    for q in range(5, -1, -1):
        total = coefficients[q] + (x if q % 2 == 1 else 1.0 - x) * total
    return x * total
