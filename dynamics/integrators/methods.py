"""The menu of methods, for any system and for the overlap flow: what "auto" chooses, and the stepper of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.integrators import METHODS
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.stepper import Stepper, Tolerances
from dynamics.integrators.system_calls import BoundSystem
from dynamics.kernels.compile_time import compiled_seconds
from hermite.text.messages import not_a_choice, refuse, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from dynamics.equations.interface import EquationSystem, FlowSystem
    from dynamics.equations.vectors import VectorSystem
    from dynamics.integrators.large_flow import LargeFlowStepper
    from dynamics.integrators.large_flow.device import TorchFlowStepper
    from dynamics.integrators.map_stepper import MapStepper
    from dynamics.integrators.small_flow import SmallFlowStepper
    from hermite.arrays import Array


def check_method(method: object, menu: Sequence[str] = METHODS) -> str:
    """Return the name of a method of the menu.

    Raises TypeError or ValueError if it is none of them, ImportError if it needs a package that is not installed.

    Examples
    --------
    >>> check_method("explicit")
    'explicit'
    """
    if not isinstance(method, str):
        refuse(f"Argument `method` must be a string, but is {shown(method)}.", error=TypeError)
    if method not in menu:
        refuse(not_a_choice("Argument `method`", method, menu))
    if method == "sundials":
        from dynamics.integrators.foreign import check_installed

        check_installed()
    return method


def stepper_of(
    system: EquationSystem,
    method: str,
    *,
    atol: float | Array,
    rtol: float = 1e-8,
    start: ArrayLike | None = None,
    t0: float = 0.0,
    fixed_step: float = 0.0,
    largest_step: float = np.inf,
    fixed_order: int = 0,
    unit_vectors: VectorSystem | None = None,
) -> Stepper:
    """Return a stepper of y' = rhs(t, y) at y(t0); the functions of the system are compiled or loaded here.

    The methods are ``"explicit"``, of order 8, best without stiffness; ``"bdf"``, matrix-free backward differentiation
    of order 1 to 5; ``"sundials"``, the same by CVODE, an extra; ``"scipy:<name>"``, a referee.

    It begins at `start`, by default the initial state. `rtol` and `atol` bound the error of each component in a step;
    `atol` is a number, which `system.absolute_tolerance` turns into one per component, or these themselves.
    `fixed_step` and `fixed_order` force every step and the order of ``"bdf"`` unless 0. Given `unit_vectors`, a
    compiled method shows its state [U | ln n] as overlaps [C | G | ln n]. All numbers are dimensionless.

    Raises TypeError, ValueError or ImportError if an argument is wrong or the method is not installed.
    """
    check_method(method)
    tolerances = Tolerances(
        rtol=rtol,
        atol=atol if isinstance(atol, np.ndarray) else system.absolute_tolerance(atol),
        fixed_step=fixed_step,
        largest_step=largest_step,
        fixed_order=fixed_order,
    )
    if method == "explicit" and fixed_order != 0:
        refuse(f"Argument `fixed_order` must be 0 for method 'explicit', but is {fixed_order}.")
    bound = BoundSystem(system, implicit=method in ("bdf", "sundials"))
    state = np.array(system.initial_state if start is None else start, dtype=np.float64)
    if tolerances.atol.shape != state.shape:
        refuse(f"Argument `atol` must be a number or have shape {state.shape}, but has shape {tolerances.atol.shape}.")
    control: dict[str, Any] = {"tolerances": tolerances, "num_events": system.num_events, "t0": t0}
    if method not in ("explicit", "bdf"):
        # Imported here because scipy.integrate is heavy and other methods are rare.
        from dynamics.integrators.foreign import ScipyStepper, SundialsStepper

        return (SundialsStepper if method == "sundials" else ScipyStepper)(method, state, bound, **control)
    kernels = import_module(f"dynamics.integrators.{method}_kernels")
    integers = [] if method == "explicit" else [bound.has_product, bound.least_stiff]
    control |= {"integers": integers, "unit_vectors": unit_vectors}
    return CompiledStepper(kernels.advance_through, kernels.LAYOUT, state, bound, **control)


#: Number of stability-limited steps of the explicit pair above which "auto" takes the stiff method: of most systems;
#: of the overlap flow, where both take as long at 50 to 300 steps for h_4 with 8 to 64 neurons, and at 30 to 300 for
#: links with k ≤ 2 with 32 and 64, but the explicit pair compiles in half the time, which the default problem of the
#: command, 302 steps, saves; and of links with k ≤ 2 with up to `FEW_NEURONS`, where "bdf" is faster from 10 to 30 on.
EXPLICIT_STEP_LIMIT, EXPLICIT_FLOW_LIMIT, EXPLICIT_FEW_LIMIT = 3000.0, 400.0, 30.0
FEW_NEURONS = 16
#: Evaluations of the rates in a step of the explicit pair, and seconds of them above which "auto" takes "bdf", which
#: needs some thousand and compiles for as long.
EXPLICIT_STAGES, EXPLICIT_SECONDS = 12.0, 8.0
#: Tolerance per step in units of the tolerance asked for. Errors of the methods of low order add up over many steps:
#: that of "bdf" on 196 random problems at rtol 1e-6 was 0.2 rtol κ in the median, 1.3 in 99 %, 14 at most. The first
#: escapes of a small flow are a few long steps, whose errors fall with the tolerance from 3e-5 on.
LOCAL_TOLERANCE = {"bdf": 0.01, "sundials": 0.03, "small-flow": 0.3}
#: Size m² D of a matrix product up to which "stiff" takes the compiled loop of small flows, with the whole field at
#: every stage: m = P = 50. There it takes as long as the large-flow solver, at m = P = 32 half, at 8 a fifteenth.
LARGEST_SMALL_FLOW = 250_000
SMALLEST_LOCAL_RTOL = 1e-14
#: Size below which "bdf" measures the error of a component against this: in units of 1/√d for vectors, of 1 for ln n.
#: Overlaps that decay to 1e-6 and less would else set the step, which they need not: for k ≤ 2 steps are a third fewer
#: and errors within the tolerance, also where overlaps of 1e-18 grow again.
SMALLEST_SIZE = 0.1
#: Largest step of the explicit pair times the fastest rate. At its limit of stability, 6.1, the error estimate misses
#: stiff modes: up to 2000 rtol in losses of random problems, 0.2 rtol with this bound for a sixth more steps.
EXPLICIT_REACH = 5.0
#: Number of such steps above which the step is not bounded: a search that long is over before anything is stiff, or the
#: explicit pair is the wrong choice.
EXPLICIT_BOUNDED_STEPS = 1e5
#: Smallest rtol of the method "stiff". Its clusters and its lagged rest are of order 4, and errors of many steps of a
#: light neuron at rest add up: its overlap was wrong by 6 rtol at 1e-9 and by 70 rtol at 1e-10.
SMALLEST_STIFF_RTOL = 1e-9


def choose_method(system: FlowSystem, last_time: float) -> str:
    """Return "explicit" or "stiff" for a flow up to the time `last_time`.

    The explicit pair of order 8 is stable to a step of about 6 over the fastest rate; "stiff" is chosen where that
    alone would force too many steps on it.
    """
    stability_steps = system.stiffness() * last_time / 6.0
    if stability_steps * EXPLICIT_STAGES * system.seconds_of_rates > EXPLICIT_SECONDS:
        return "stiff"
    limit = EXPLICIT_STEP_LIMIT
    if system.has_unit_vectors:
        few = system.problem.information_exponent <= 2 and system.problem.width <= FEW_NEURONS
        limit = EXPLICIT_FEW_LIMIT if few else EXPLICIT_FLOW_LIMIT
    return "explicit" if stability_steps < limit else "stiff"


@dataclass
class FlowMethod:
    """A method chosen for a system: its steppers, and their attributes in a dataset.

    "stiff" becomes "bdf" where it does not apply, as `note` says, or where `rtol` is below `SMALLEST_STIFF_RTOL`. The
    learning rate is that of "gradient-descent" and "map", whose steps are iterated, and of "smooth-map", which passes
    over most of them along the flow through them. A device is where torch carries
    "stiff"; by default compiled passes do on the processor.
    """

    system: FlowSystem
    name: str
    atol: float
    learning_rate: float | None = None
    device: str | None = None
    last_time: float = np.inf
    rtol: float = SMALLEST_STIFF_RTOL
    field_precision: str = field(default="double", init=False)
    note: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.device is not None:
            if self.name != "stiff":
                refuse(
                    f"Argument `device` must be None unless `method` is 'stiff' or 'auto', but is {shown(self.device)}."
                )
            from dynamics.integrators.device import load_torch

            load_torch(self.device)
        if self.name == "stiff":
            from dynamics.integrators.large_flow import reason_against

            self.note = self.system.against_clusters or reason_against(self.system.problem)
            if self.note is None and self.rtol < SMALLEST_STIFF_RTOL:
                self.note = f"rtol is below {SMALLEST_STIFF_RTOL:g}"
        if self.note is not None:
            if self.device is not None:
                refuse(f"Argument `device` must be None for this problem, but is {shown(self.device)}: {self.note}.")
            self.name = "bdf"

    def stepper(self, rtol: float, time: float = 0.0) -> Stepper:
        """Return a stepper at the start of the system, which is at time 0, or later for methods that need no map.

        With a learning rate it takes steps of descent, else steps of the flow by the method, with relative tolerance
        `rtol`. The method "stiff" goes on by "bdf" where its clusters do not suit (`FallingBack`).
        """
        problem = self.system.problem
        if self.name == "smooth-map":
            return self._smooth_map(rtol)
        if self.learning_rate is not None:
            from dynamics.integrators.descent import DescentStepper, EulerStepper

            if self.system.has_unit_vectors:
                return DescentStepper(problem, self.learning_rate)
            steps, start = EulerStepper(self.system, self.learning_rate), self.system.initial_state
            if time > 0.0:
                steps.go_to(round(time / self.learning_rate), [start, start], steps.event_times + time)
            return steps
        if self.name != "stiff":
            return self._generic(self.name, rtol, time=time)
        from dynamics.integrators.large_flow import FallingBack, LargeFlowStepper

        first: LargeFlowStepper | SmallFlowStepper | TorchFlowStepper
        former = None
        if self.device is not None:
            from dynamics.integrators.large_flow.device import TorchFlowStepper

            first = TorchFlowStepper(problem, rtol=rtol, atol=self.atol, device=self.device)
        elif problem.width**2 * min(problem.dimension, problem.teacher.span + problem.width) <= LARGEST_SMALL_FLOW:
            from dynamics.integrators.small_flow import SmallFlowStepper

            factor = LOCAL_TOLERANCE["small-flow"]
            first = SmallFlowStepper(problem, rtol=factor * rtol, atol=factor * self.atol)
            former = partial(LargeFlowStepper, problem, rtol=rtol, atol=self.atol)
        else:
            first = LargeFlowStepper(problem, rtol=rtol, atol=self.atol)
            self.field_precision = "single" if first.rows.single else "double"
        return FallingBack(first, lambda U, time: self._generic("bdf", rtol, U, time), self.last_time, former)

    def _smooth_map(self, rtol: float) -> MapStepper:
        """Return a stepper of a map whose steps are known to `rtol`."""
        from dynamics.equations.optimizers import TERMS
        from dynamics.integrators.descent import EulerStepper
        from dynamics.integrators.map_stepper import FEWEST, MapStepper

        system: Any = self.system
        local = max(LOCAL_TOLERANCE["bdf"] * rtol, SMALLEST_LOCAL_RTOL)
        tolerances = Tolerances(rtol=local, atol=LOCAL_TOLERANCE["bdf"] * system.absolute_tolerance(self.atol))
        flow = system.smooth()

        def of_flow(start: Array, time: float) -> CompiledStepper:
            stepper = stepper_of(flow, "bdf", rtol=local, atol=tolerances.atol, start=start, t0=time)
            return cast("CompiledStepper", stepper)

        exact = EulerStepper(system, cast("float", self.learning_rate))
        if self.last_time >= FEWEST * exact.rate:
            # Compiled here, not in the middle of the run.
            of_flow(system.initial_state, 0.0).advance(0.0, 2)
        return MapStepper(exact, of_flow, TERMS, tolerances, self.last_time)

    @property
    def carries_vectors(self) -> bool:
        """Whether vectors are integrated, so that they exist by construction."""
        return self.name in ("stiff", "gradient-descent") or (self.name == "bdf" and self.system.has_unit_vectors)

    def attributes(self, stepper: Any) -> dict[str, Any]:
        """Return the attributes of a dataset that tell which method ran."""
        reason, fallback = getattr(stepper, "fallback_reason", None), None
        if self.note is not None:
            fallback = f"'bdf' instead of 'stiff': {self.note}"
        elif reason is not None:
            fallback = f"'bdf' instead of 'stiff' from t = {stepper.fallback_time:.6g} on: {reason}"
        return {
            "method": self.name,
            "device": self.device,
            "fallback": fallback,
            "field_precision": self.field_precision,
            "compile_seconds": compiled_seconds(),
        }

    def _generic(self, name: str, rtol: float, start: tuple[Array, Array] | None = None, time: float = 0.0) -> Stepper:
        """Return a stepper by the method `name` of `dynamics.integrators`, from the start of the system at a time.

        `start` is (unit vectors, ln n) if it is to begin there. By "bdf", systems that have unit vectors are integrated
        in them. Local tolerances are `rtol` and the absolute one times the factor of the method; by "explicit" the step
        is bounded by the stiffness for runs that are not too long.
        """
        # Imported here because a menu needs no linear algebra.
        from dynamics.equations.vectors import VectorSystem

        vectors = VectorSystem(self.system.problem) if name == "bdf" and self.system.has_unit_vectors else None
        system, factor, reach = vectors or self.system, LOCAL_TOLERANCE.get(name, 1.0), np.inf
        if name == "explicit":
            rate = self.system.stiffness()
            reach = EXPLICIT_REACH / rate if rate > 0.0 else np.inf
        return stepper_of(
            system,
            name,
            rtol=max(factor * rtol, SMALLEST_LOCAL_RTOL),
            atol=factor * system.absolute_tolerance(self.atol + (0.0 if vectors is None else SMALLEST_SIZE * rtol)),
            start=None if vectors is None or start is None else vectors.pack(*start),
            t0=time,
            largest_step=reach if self.last_time <= EXPLICIT_BOUNDED_STEPS * reach else np.inf,
            unit_vectors=vectors,
        )
