r"""The large-flow solver on a device, in double precision.

The equations, the pair of formulas, the slowed clusters and the step control of
`dynamics.integrators.large_flow.stepper`; but the whole field is computed at every stage.  On a graphics processor its
two products cost little more than the memory traffic of a step, so that there is neither a lagged rest nor a division
into fast and slow neurons, and every step is the same sequence of operations.  The state stays on the device; the host
sees one number per attempted step, and the events.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, II.4 to II.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.losses import events_of_directions
from dynamics.equations.vectors import unit_vectors
from dynamics.integrators.clusters import LARGEST_FACTOR, SMALLEST_FACTOR
from dynamics.integrators.events import record_crossings
from dynamics.integrators.large_flow.device.device import load_torch
from dynamics.integrators.large_flow.device.step import DeviceStep, polynomial
from dynamics.integrators.large_flow.stepper import (
    DENSE_TOLERANCE,
    ClusterStepper,
    factor_of,
    shortened,
    tolerances,
)
from dynamics.integrators.stepper import Status, check_inside, check_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


class TorchFlowStepper(ClusterStepper):
    """Steps of the coupled flow of many neurons on a device: "cpu", "cuda" or "cuda:<number>".

    Problem and tolerances are as for `LargeFlowStepper`. On a CUDA device the operations of a step are recorded once as
    a graph. Raises ImportError if torch is not installed, ValueError if there is no such device.
    """

    #: Nothing is compiled.
    compile_seconds = 0.0

    def __init__(self, problem: Problem, *, rtol: float, atol: float, device: str) -> None:
        super().__init__(2 * problem.num_directions)
        torch = self._torch = load_torch(device)
        self._part = problem.learned_part
        self._value = problem.activation.kernel_at_one
        self._a = np.array(problem.teacher.coefficients, dtype=np.float64)
        self._sign_matters = problem.information_exponent % 2 == 1
        U, log_norm = unit_vectors(problem)
        self._m, self._D = U.shape
        tolerance = tolerances(problem, rtol, atol)
        self._step = DeviceStep(torch, torch.device(device), problem, U, log_norm, tolerance)
        self._accepted = self._rejected = 0
        self._time_last = self._length_before = 0.0
        self._events = self._step.start()
        record_crossings(self._event_times, self._events, self._events, (0.0, 0.0), lambda _: self._events)
        # A first step short enough to be linear.
        speed = self._step.now_rates[:, : self._D].abs().max() * (rtol / tolerance[0])
        rate = torch.maximum(speed, self._step.now_rates[:, self._D].abs().max())
        self._h = 1e-2 / max(float(rate), 1e-290)

    # --- the stepper's protocol -----------------------------------------------------------------------------

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the overlaps [C | G | ln n] at a time within the last step."""
        Y = self._at(t)
        U = Y[:, : self._D]
        G = U @ U.t()
        G.fill_diagonal_(1.0)
        return self._overlaps(Y[:, : self._a.size], G, Y[:, self._D], out)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        Y = self._at(t).cpu().numpy()
        return Y[:, : self._D].copy(), Y[:, self._D].copy()

    def loss(self, t: float) -> float:
        """Return E(f − f*)² at a time within the last step; a difference of O(1) terms, so rounding below ~1e-12."""
        field, Y = self._step.field, self._at(t)
        field.rates(Y, self._torch.empty_like(Y))
        students, teachers = field.kernel[:, : self._m], field.kernel[:, self._m :]
        excess = field.n @ (students @ field.n - 2.0 * (teachers @ self._step.tensor(self._a)))
        return self._value * float(self._a @ self._a) + float(excess)

    def summary(self, t: float) -> dict[str, Array | float]:
        """Return what `OverlapSystem.summarise` says of a time within the last step, without moving G to the host."""
        torch, P, field = self._torch, self._a.size, self._step.field
        loss, Y = self.loss(t), self._at(t)
        size = Y[:, :P].clamp(min=0.0) if self._sign_matters else Y[:, :P].abs()
        learned = (field.n @ field.kernel[:, self._m :]) / self._value
        largest, mass, n = np.split(torch.cat([size.amax(0), learned, field.n]).cpu().numpy(), [P, 2 * P])
        return {"max_overlap": largest, "learned_mass": mass, "squared_norm": n, "loss": loss}

    def derivative(self, t: float) -> Array:
        """Return the rates of the overlaps at a time within the last step."""
        Y = self._at(t)
        rates = self._torch.empty_like(Y)
        self._step.field.rates(Y, rates)
        product = rates[:, : self._D] @ Y[:, : self._D].t()
        return self._overlaps(rates[:, : self._a.size], product + product.t(), rates[:, self._D])

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return {
            "steps_accepted": self._accepted,
            "steps_rejected": self._rejected,
            "rhs_evaluations": self._step.evaluations,
        }

    def _copies(self) -> dict[str, NDArray[np.generic]]:
        step, clusters = self._step, self._step.clusters
        tensors = {"now": step.now}
        numbers = [self._time, self._h]
        if step.length is not None:
            tensors |= {
                "begin": step.begin,
                "cluster": clusters.cluster,
                "sign": clusters.sign,
                "drift": clusters.drift,
            }
            numbers += [self._time_last, step.length, self._length_before]
        return {name: np.array(tensor.cpu().numpy()) for name, tensor in tensors.items()} | {
            "times_and_steps": np.array(numbers),
            "events": np.stack([self._event_times, self._events]),
            "marks": np.array(self._marks),
            "counts": np.array([self._accepted, self._rejected, step.evaluations]),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem."""
        step, given = self._step, {name: np.array(array) for name, array in state.items()}
        check_stored(given, "now", tuple(step.now.shape))
        self._time, self._h, *last = given["times_and_steps"].tolist()
        self._event_times, self._events = given["events"].copy()
        self._marks = given["marks"].tolist()
        step.now.copy_(step.tensor(given["now"]))
        step.start()
        if last:
            self._time_last, length, *before = last
            self._length_before = before[0] if before else 0.0  # not stored by earlier versions
            step.begin.copy_(step.tensor(given["begin"]))
            step.clusters.reset(*(step.tensor(given[name]) for name in ("cluster", "sign", "drift")))
            step.repeat(length, self._length_before)
        self._accepted, self._rejected, step.evaluations = given["counts"].tolist()

    # --- one step -------------------------------------------------------------------------------------------

    def _advance_once(self, target: float) -> Status | None:
        """Take one accepted step; return why that is impossible, or None.

        Where `target` is inside and the polynomial there is not good enough, the step is shortened as in
        `LargeFlowStepper`.
        """
        # What a step starts from is on the device, and is overwritten there.
        with self._whole:
            return self._step_towards(target)

    def _step_towards(self, target: float) -> Status | None:
        step, h, most, planned = self._step, self._h, LARGEST_FACTOR, 0.0
        before = step.length or 0.0
        step.prepare()
        while True:
            failure = self._failure(h)
            if failure is not None:
                step.withdraw()
                self._time_last = self._time
                return failure
            error = step.attempt(h)
            if error <= 1.0:
                events = step.settle(before)
                if not self._lies_inside(target, h) or step.error_within() <= DENSE_TOLERANCE:
                    break
                planned, h = planned or h, max(target - self._time, SMALLEST_FACTOR * h)
                continue
            self._rejected += 1
            h = shortened(h, factor_of(error))
            most, planned = 1.0, 0.0
        self._length_before = before
        self._accept(h, events)
        self._h = planned or h * min(most, max(SMALLEST_FACTOR, factor_of(max(error, 1e-12))))
        return None

    def _accept(self, h: float, events: Array) -> None:
        before, self._events = self._events, events
        self._time_last, self._time = self._time, self._time + h
        self._accepted += 1
        self._mark()
        passed = np.flatnonzero(np.isnan(self._event_times) & (self._events >= 0.0))
        if passed.size > 0:
            values_at = self._events_at(np.unique(passed % self._a.size), before)
            record_crossings(self._event_times, before, self._events, (self._time_last, self._time), values_at)

    # --- inside the last step ---------------------------------------------------------------------------------

    def _at(self, t: float) -> Tensor:
        """Return the state at a time within the last step, on the device."""
        check_inside(t, self._time_last, self._time)
        return self._step.at(1.0 if t == self._time else self._fraction(t))

    def _fraction(self, t: float) -> float:
        assert self._step.length is not None
        return (t - self._time_last) / self._step.length

    def _events_at(self, directions: Integers, before: Array) -> Callable[[float], Array]:
        """Return a function of t with the values of all events, right for these directions alone."""
        start, coefficients = self._step.columns(directions)
        values, P = before.copy(), self._a.size

        def values_at(t: float) -> Array:
            y = start + polynomial(coefficients, self._fraction(t))
            C, n = y[:, :-1], np.exp(y[:, -1])
            values[directions], values[P + directions] = events_of_directions(
                self._part, self._a[directions], C, n, sign_matters=self._sign_matters
            )
            return values

        return values_at

    def _overlaps(self, C: Tensor, G: Tensor, log_norm: Tensor, out: Array | None = None) -> Array:
        """Return [C | G | ln n] as one array of the host."""
        state: Array = self._torch.cat([C.reshape(-1), G.reshape(-1), log_norm]).cpu().numpy()
        if out is None:
            return state
        out[...] = state
        return out
