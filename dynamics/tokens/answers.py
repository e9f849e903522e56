"""Answers to problems on tokens: the flow, gradient descent at a learning rate, and closed forms."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dynamics.integrators import Status, Stepper, stepper_of
from dynamics.problem.checks import checked_number, require
from dynamics.problem.question import check_question
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import make_dataset
from dynamics.runs.run_file import RunFile
from dynamics.runs.trackers import Tracker
from dynamics.solve.arguments import ParticleArguments
from dynamics.solve.integration import AnswerCall, Integration, integrate
from dynamics.tokens.causal_graph import CausalGraphSystem
from dynamics.tokens.chain import ChainSystem
from dynamics.tokens.composition import CompositionSystem
from dynamics.tokens.memory import MemorySystem, recovered
from dynamics.tokens.policy_gradient import PolicyGradientSystem
from dynamics.tokens.problems import AssociativeMemory, TokenProblem
from dynamics.tokens.recall import RecallSystem
from dynamics.tokens.selection import SelectionSystem
from dynamics.tokens.system import TOKEN_VARIABLES, TokenSystem
from dynamics.tokens.trigger import TriggerSystem
from hermite.arrays import Array
from hermite.text.messages import warn

NAME = "tokens"
#: Kind of a problem -> its reduction.
SYSTEMS: dict[str, Callable[[Any], TokenSystem]] = {
    "composition": CompositionSystem,
    "recall": RecallSystem,
    "causal-graph": CausalGraphSystem,
    "memory": MemorySystem,
    "trigger": TriggerSystem,
    "selection": SelectionSystem,
    "policy-gradient": PolicyGradientSystem,
    "chain": ChainSystem,
}
KINDS = tuple(SYSTEMS)
#: Steps between two tests of whether all components are learned, and the largest number of steps that are tried.
LOOK_STEPS, MOST_STEPS = 20_000, 20_000_000


def solve(
    problem: TokenProblem,
    save_at: SaveAt | None = None,
    learning_rate: float | None = None,
    *,
    keep: Literal["full", "summary"] = "full",
    method: str = "explicit",
    rtol: float = 1e-10,
    atol: float = 1e-12,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Predict how a model of tokens learns, by the few numbers to which its gradient descent reduces exactly.

    .. math:: y' = f(y) \quad\text{or, at a learning rate η,}\quad y \leftarrow y + \eta f(y), \qquad t = \eta\,
       \mathrm{step}

    with f of `docs/token_equations.md`.

    Parameters
    ----------
    problem : TokenProblem
        Any problem of this room; its docstring names variables that it adds.
    save_at : SaveAt, optional
        Saved times. Default: 400 up to 1.3 times (selection: 5 times) the time at which the last component is
        learned, of those that ever are; with a learning rate these are multiples of it. Between two steps of a map
        states lie on a line.
    learning_rate : float, optional
        η > 0: gradient descent on the population, a map. Default: the flow, η → 0.
    keep : {"full", "summary"}
        "full" saves the numbers of the reduction too.
    method : str
        Of the flow: "explicit" (order 8), or "scipy:<name>" as a referee.
    rtol, atol : float
        Wanted accuracy of the numbers of the flow.
    trackers, progress, max_runtime, on_failure, checkpoint
        Watch, bound, end and keep the run, as in `dynamics.solve_overlaps`.

    Returns
    -------
    Dataset
        `loss(time)`; `progress(time, component)` between 0 and 1; `learned_time(component)`, the first time at which it
        is ½, located within steps (NaN: not within the run); `predicted_learned_time(component)` in closed form (inf:
        never; NaN: there is none); `plateau(component)`, the loss on the plateau that ends then. All dimensionless;
        times after an early stop hold NaN. `notes` says what is not exact. Of Gaussian embeddings instead
        `recovery(rank)` after one step, the number `rank_count(rank)` of items of a rank, and `recovered_count`.

    Raises
    ------
    SolveError, SolveInterrupted, TypeError, ValueError
        As `dynamics.solve_overlaps`; ValueError too if no times are given and not all components are learned in
        20 million steps.

    Examples
    --------
    >>> from dynamics import tokens
    >>> answer = tokens.solve(tokens.Composition(vocabulary=6, hops=4), progress=False)
    >>> answer.learned_time.values.round(1).tolist()
    [98.0, 223.2, 352.0]
    """
    if isinstance(problem, AssociativeMemory) and problem.embeddings == "gaussian":
        absent = {
            "save_at": save_at,
            "learning_rate": learning_rate,
            "max_runtime": max_runtime,
            "checkpoint": checkpoint,
        }
        for name, value in absent.items():
            require(
                value is None,
                f"Argument `{name}` must be None for Gaussian embeddings, which are one step, but is given.",
            )
        return predict(problem)
    shared = ParticleArguments(
        save_at=save_at,
        keep=keep,
        method=method,
        rtol=rtol,
        atol=atol,
        trackers=trackers,
        progress=progress,
        max_runtime=max_runtime,
        on_failure=on_failure,
        checkpoint=checkpoint,
    )
    return integrate(NAME, _integration, problem, shared, learning_rate=learning_rate)


def predict(problem: TokenProblem) -> xr.Dataset:
    """Return the closed forms: when each component is learned, and the plateau that ends then.

    They are `predicted_learned_time(component)` (inf: never; NaN: no closed form) and `plateau(component)`, as in
    `solve`.

    Examples
    --------
    >>> from dynamics import tokens
    >>> found = predict(tokens.Composition(vocabulary=6, hops=4))
    >>> found.predicted_learned_time.values.round(1).tolist(), found.plateau.values.round(2).tolist()
    ([97.7, nan, nan], [0.0, -6.67, -13.33])
    """
    check_question(problem, KINDS)
    if isinstance(problem, AssociativeMemory) and problem.embeddings == "gaussian":
        return recovered(problem, NAME)
    system = system_of(problem)
    return make_dataset(
        system.closed_forms(),
        problem=problem,
        title=f"Closed forms of {system.name}",
        coords={"component": system.components},
        solver={"answer": f"{NAME}-closed"},
        attributes={
            "answer": f"{NAME}-closed",
            "references": system.references,
            "notes": "; ".join(system.notes),
            **system.attributes,
        },
        variables=TOKEN_VARIABLES,
    )


def system_of(problem: TokenProblem) -> TokenSystem:
    """Return the reduced equations of a problem: their state at the start, kernels, observables and closed forms.

    Examples
    --------
    >>> from dynamics.tokens import Composition
    >>> system = system_of(Composition(vocabulary=6, hops=4))
    >>> system.components, len(system.numbers)
    (['hop 1', 'hop 2', 'hop 4'], 9)
    """
    return SYSTEMS[problem.kind](problem)


@dataclass
class _Steps:
    """The flow by a method for any system, stage by stage, or gradient descent at a learning rate."""

    system: TokenSystem
    name: str
    atol: float
    learning_rate: float | None

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        if self.learning_rate is not None:
            from dynamics.integrators.descent import EulerStepper

            return EulerStepper(self.system, self.learning_rate)
        ends = self.system.stage_ends
        return StagedStepper(partial(self._of_stage, rtol), ends) if ends else self._of_stage(rtol, -1, None, 0.0)

    def _of_stage(self, rtol: float, stage: int, start: Array | None, t0: float) -> Stepper:
        """Return a stepper of one stage of the equations, from the state `start` at the time `t0`."""
        system = copy(self.system)
        system.sizes = np.array([*self.system.sizes[:-1], stage], dtype=np.int64)
        return stepper_of(system, self.name, rtol=rtol, atol=self.atol, start=start, t0=t0)

    def attributes(self, _stepper: Stepper) -> Mapping[str, object]:
        """Return the name of the method."""
        return {"method": self.name if self.learning_rate is None else "gradient-descent"}


def _integration(run: AnswerCall, *, learning_rate: object) -> Integration:
    """Return what the run loop needs to integrate a problem on tokens; ValueError for a bad rate."""
    rate = None if learning_rate is None else checked_number(learning_rate, "learning_rate", positive=True)
    system = system_of(cast("TokenProblem", run.problem))
    method = _Steps(system, run.method, run.atol, rate)
    coords = {"component": system.components, **system.coords}
    if run.keep == "full":
        coords["number"] = system.numbers
    return Integration(
        title=f"Learning from tokens: {system.name}",
        saved_times=run.saved_times(lambda: _default_times(system, method.stepper(run.rtol), rate)),
        method=method,
        observe=system.observer(run.keep),
        start=system.initial_state,
        events={"learned_time": len(system.components)},
        constants=system.closed_forms(),
        coords=coords,
        settings={"learning_rate": rate},
        attributes=lambda values: {
            "learning_rate": rate,
            "learning_rate_limit": system.rate_limit(values),
            "references": system.references,
            **system.attributes,
        },
        warn=_warn_of_rate,
        notes=system.notes,
        variables=system.variables,
    )


def _warn_of_rate(attributes: Mapping[str, Any]) -> None:
    """Warn where the learning rate of a run is above the largest one at which the full model is stable."""
    rate, limit = attributes.get("learning_rate"), attributes.get("learning_rate_limit")
    if rate is not None and limit is not None and rate > limit:
        warn(
            f"The full model is not stable at learning rate {rate:g}, but below {limit:.3g}; the map is its mean alone."
        )


def _default_times(system: TokenSystem, stepper: Stepper, rate: float | None) -> SaveAt:
    """Return the default times to save, until the last component is learned; multiples of `rate`, if it is given."""
    first, last = (0.0, system.last_time) if np.isfinite(system.last_time) else _range(system, stepper)
    times = np.geomspace(first, last, 400) if first else np.linspace(0.0, last, 400)
    return SaveAt.at(times if rate is None else rate * np.unique(np.ceil(times / rate)))


def _range(system: TokenSystem, stepper: Stepper) -> tuple[float, float]:
    """Return the first and last time to save, found by running the stepper; the first is 0 for equal distances."""
    awaited = np.isfinite(closed := system.closed_times()) | (np.isnan(closed) & system.all_are_learned)
    target, spent = system.time_scale, 0
    while np.isnan(stepper.event_times[awaited]).any():
        status = stepper.advance(target, LOOK_STEPS)
        spent += LOOK_STEPS if status == Status.MAX_STEPS else 0
        if status not in (Status.REACHED, Status.MAX_STEPS):
            break  # the run itself raises the error
        require(
            spent < MOST_STEPS,
            f"Argument `save_at` must be given, because not all components are learned in {MOST_STEPS} steps, until "
            f"t = {stepper.time:.3g}.",
        )
        target = 2.0 * target if status == Status.REACHED else target
    # Components that are learned at the start, such as one of two tokens, say nothing of the scale of times.
    times, scale = stepper.event_times[awaited & (stepper.event_times > 0.0)], system.time_scale
    first, last = (times.min(), system.beyond * times.max()) if times.size else (scale, 3.0 * scale)
    return (1e-3 * first if system.geometric else 0.0), last


class StagedStepper:
    """A stepper of equations that jump at times `ends`; `make` returns that of a stage, from its start and time."""

    def __init__(self, make: Callable[[int, Array | None, float], Stepper], ends: tuple[float, ...]) -> None:
        """Prepare a stepper of stages that end at `ends`; `make` makes that of one, from its index, start and time."""
        self._make, self._ends, self._stage = make, (*ends, np.inf), 0
        self._stepper, self._spent = make(0, None, 0.0), dict[str, int]()
        self._passed = np.full_like(self._stepper.event_times, np.nan)

    @property
    def time(self) -> float:
        """End of the last accepted step, or of the stage within it."""
        return min(self._stepper.time, self._ends[self._stage])

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then."""
        times = self._stepper.event_times
        return np.fmin(self._passed, np.where(times <= self._ends[self._stage], times, np.nan))

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps as any stepper does; a call ends at the end of a stage, as if `max_steps` were reached."""
        end = self._ends[self._stage]
        if self.time >= end and target > end:
            self._passed, self._spent, self._stage = self.event_times, self.statistics(), self._stage + 1
            self._stepper = self._make(self._stage, self._stepper.interpolate(end), end)
            end = self._ends[self._stage]
        status = self._stepper.advance(min(target, end), max_steps)
        return Status.MAX_STEPS if status == Status.REACHED and target > end else status

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step."""
        return self._stepper.interpolate(t, out)

    def derivative(self, t: float) -> Array:
        """Return y' at a time within the last step."""
        return self._stepper.derivative(t)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations in all stages."""
        return {name: count + self._spent.get(name, 0) for name, count in self._stepper.statistics().items()}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays from which `restore` continues bit for bit."""
        spent = np.array([self._spent.get(name, 0) for name in self._stepper.statistics()])
        return {**self._stepper.state(), "stage": np.array(self._stage), "passed": self._passed.copy(), "spent": spent}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        self._stage = int(state["stage"])
        count = len(self._ends)
        require(0 <= self._stage < count, f"Argument `state` must hold a stage below {count}, but has {self._stage}.")
        self._stepper = self._make(self._stage, None, 0.0)
        self._stepper.restore(state)
        self._passed = np.array(state["passed"], dtype=np.float64)
        self._spent = dict(zip(self._stepper.statistics(), state["spent"].astype(int).tolist(), strict=True))
