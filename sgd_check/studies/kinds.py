"""Kinds of problem for the calibration of the verdict: small ones, the right theory, and errors planted in it.

A planted error is the theory of another problem, of another step or at other times, that says it were the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

import dynamics
import dynamics.tokens
import sgd_check.tokens
from dynamics.problem import Inputs, Problem, SaveAt, Student, Teacher
from dynamics.problem.optimizers import PLAIN, SGD, Optimizer, SignSGD, ZerothOrder
from dynamics.solve.arguments import ProblemArguments
from hermite.arrays import Array
from sgd_check.simulations.plan import make_plan
from sgd_check.simulations.simulation import simulate
from sgd_check.verdicts import curves
from sgd_check.verdicts.check import compare
from sgd_check.verdicts.path_tests import interpolated
from sgd_check.verdicts.verdict import VISIBLE_ERROR

#: Factor of an error in time.
LATE = 1.0 + VISIBLE_ERROR
#: Least error of a time, as a factor, and of a curve, in parts of its range, that a verdict must not miss.
LARGE_TIME_ERROR, LARGE_CURVE_ERROR = VISIBLE_ERROR, 0.1
#: Runs of one ensemble are no more.
MOST_RUNS = 100
#: Variables with times, of which those over `time` are the curves.
TIMES = ("emergence_time", "learned_time", "component_learned_time")


class Effect(NamedTuple):
    """The effect of an error: largest |ln ratio| of an awaited time, and largest change of a curve over its range."""

    time: float
    curve: float

    @property
    def is_large(self) -> bool:
        """Whether the effect is so large that the verdict must find it."""
        return self.time >= (1.0 - 1e-9) * np.log1p(LARGE_TIME_ERROR) or self.curve >= LARGE_CURVE_ERROR


@dataclass(frozen=True)
class Kind:
    """A problem by the number of its start, and its runs: of η (without `step_theory` also of η/2), until a time.

    `step_theory` is that of the equation of finite steps; empty: the flow is tested.
    """

    problem: Callable[..., Any]
    rate: float
    end: float
    runs: int = 16
    step_theory: Literal["", "finite-d", "infinite-d"] = ""
    optimizer: Optimizer = PLAIN
    batch_size: int = 1
    #: Of one repetition, about, on one core of an AMD EPYC.
    seconds: float = 2.0
    #: Whether the runs need torch.
    torch: bool = False

    @property
    def steps(self) -> int:
        """Steps of each run at η."""
        return round(self.end / self.rate)

    def faster(self, factor: float) -> Kind:
        """Return the kind at another learning rate."""
        return replace(self, rate=factor * self.rate)

    def of_batch(self, size: int) -> Kind:
        """Return the kind with larger batches."""
        return replace(self, batch_size=size)

    @property
    def samples(self) -> float:
        """Steps of all runs of one ensemble together."""
        return float(self.runs * self.steps * (1 if self.step_theory else 3))

    def theory(self, problem: Problem) -> xr.Dataset:
        """Return the theory of a problem by the kind's `step_theory`, to 1.5 times the end of the runs."""
        plan = make_plan(self.rate, self.steps, None)
        late = self.end * np.linspace(1.0, 1.5, 11)[1:]
        save_at = SaveAt.at(np.concatenate([plan.times(plan.recorded), late]))
        asked: ProblemArguments = {"save_at": save_at, "error_estimate": False, "progress": False}
        if self.step_theory:
            asked |= {"learning_rate": self.rate, "step_theory": self.step_theory, "batch_size": self.batch_size}
            if not self.optimizer.is_plain:
                asked["optimizer"] = self.optimizer
        return dynamics.solve_problem(problem, **asked)

    def simulated(self, problem: Problem, seeds: range) -> object:
        """Return the runs with these seeds: one dataset, or, if the flow is tested, a list of two, at η and at η/2."""
        rates = (self.rate,) if self.step_theory else (self.rate, self.rate / 2)
        runs = [
            simulate(
                problem,
                learning_rate=rate,
                steps=round(self.end / rate),
                seeds=seeds,
                batch_size=self.batch_size,
                optimizer=None if self.optimizer.is_plain else self.optimizer,
                progress=False,
            )
            for rate in rates
        ]
        return runs[0] if self.step_theory else runs

    def compared(self, theory: xr.Dataset, runs: Any, false_alarm_rate: float) -> xr.Dataset:
        """Return the comparison; its attribute `verdict` is the verdict."""
        return compare(theory, runs, false_alarm_rate=false_alarm_rate)["comparison"].to_dataset()

    def stretched(self, theory: xr.Dataset, factor: float) -> xr.Dataset:
        """Return a theory with all times multiplied by `factor`."""
        return stretched(theory, factor)

    def curve_effect(self, problem: Problem, right: xr.Dataset, wrong: xr.Dataset) -> float:
        """Return the largest change of a curve until the end of the runs, in parts of its range."""
        times, sizes = right["time"].values, []
        times = times[(times > 0.0) & (times <= self.end) & (times <= wrong["time"].values[-1])]
        wrong_values = {quantity[:2]: quantity.values for quantity in curves.quantities_of(problem, wrong)}
        for quantity in curves.quantities_of(problem, right):
            pair = (quantity.values, wrong_values[quantity[:2]])
            y, y_wrong = (
                interpolated(theory["time"].values, values, times)
                for theory, values in zip((right, wrong), pair, strict=True)
            )
            is_known = np.isfinite(y) & np.isfinite(y_wrong)
            sizes.append(np.abs(y_wrong - y)[is_known].max(initial=0.0) / max(np.ptp(y[is_known]), quantity.scale))
        return float(max(sizes, default=0.0))

    def time_effect(self, right: xr.Dataset, wrong: xr.Dataset) -> float:
        """Return the largest |ln ratio| of the times that are 30 % later still within the runs; never is infinite."""
        sizes = [0.0]
        for name in [name for name in TIMES if name in right and "undefined" not in right[name].attrs]:
            t, t_wrong = (np.nan_to_num(theory[name].values, nan=np.inf).ravel() for theory in (right, wrong))
            awaited = (t > 0.0) & (LATE * t <= self.end)
            with np.errstate(divide="ignore"):
                sizes += np.abs(np.log(t_wrong[awaited]) - np.log(t[awaited])).tolist()
        return float(max(sizes))


@dataclass(frozen=True)
class ReusedKind(Kind):
    """Kind of problem with n = 1.5 d samples that are used again, in `batches` batches."""

    batches: int = 1

    def faster(self, factor: float) -> Kind:
        """Return the kind with as many steps at another learning rate."""
        return replace(self, rate=factor * self.rate, end=factor * self.end)

    def of_batch(self, size: int) -> Kind:
        """Return the kind with so many batches instead of one."""
        return replace(self, batches=size)

    @property
    def samples(self) -> float:
        """Steps of all runs of one ensemble together."""
        return float(self.runs * self.steps)

    def theory(self, problem: Problem) -> xr.Dataset:
        """Return the theory of a problem for samples that are used again, to 1.3 times the steps of the runs."""
        steps = round(LATE * self.steps) + 2
        return dynamics.solve_reused_data(
            problem,
            samples="1.5d",
            learning_rate=self.rate,
            steps=steps,
            batches_per_epoch=self.batches,
            draws=2**16,
            progress=False,
        )

    def simulated(self, problem: Problem, seeds: range) -> object:
        """Return the runs with these seeds on n = 1.5 d samples each, all steps recorded."""
        samples = round(1.5 * problem.dimension)
        return simulate(
            problem,
            learning_rate=self.rate,
            steps=self.steps,
            seeds=seeds,
            training_samples=samples,
            batch_size=samples // self.batches,
            reshuffle=False,
            save_at=SaveAt.at(self.rate * np.arange(self.steps + 1)),
            progress=False,
        )

    def stretched(self, theory: xr.Dataset, factor: float) -> xr.Dataset:
        """Return a theory at the same steps with all times multiplied by `factor`."""
        times = theory["time"].values
        return _with(theory, {name: _at(theory[name], times, times / factor) for name in _over_time(theory)})


@dataclass(frozen=True)
class TokenKind(Kind):
    """A model of tokens, of which half of the runs have batches four times as large."""

    @property
    def samples(self) -> float:
        """Steps of all runs of one ensemble together."""
        return float(self.runs * self.steps)

    def theory(self, problem: Any) -> xr.Dataset:
        """Return the equations' solution of a problem of tokens at the learning rate of the kind."""
        return dynamics.tokens.solve(problem, None, self.rate, keep="summary", progress=False)

    def simulated(self, problem: Any, seeds: range) -> Any:
        """Return as many runs as there are seeds, on the processor."""
        return sgd_check.tokens.simulate(
            problem,
            learning_rate=self.rate,
            steps=self.steps,
            batch_size=self.batch_size,
            seeds=len(seeds),
            first_seed=seeds[0],
            device="cpu",
            progress=False,
        )

    def compared(self, theory: xr.Dataset, runs: Any, false_alarm_rate: float) -> xr.Dataset:
        """Return the comparison of `sgd_check.tokens.compare`."""
        return sgd_check.tokens.compare(theory, runs, false_alarm_rate=false_alarm_rate)["comparison"].to_dataset()

    def curve_effect(self, problem: Any, right: xr.Dataset, wrong: xr.Dataset) -> float:  # noqa: ARG002  # no curves
        """Return 0: times alone are tested."""
        return 0.0


def _over_time(theory: xr.Dataset) -> list[str]:
    """Return the names of the variables of a theory that hold real numbers over time."""
    return [
        str(name)
        for name, variable in theory.data_vars.items()
        if "time" in variable.dims and variable.dtype.kind == "f"
    ]


def _at(variable: xr.DataArray, times: Array, new_times: Array) -> Array:
    """Return a variable over `times`, interpolated at `new_times`; NaN beyond its ends."""
    values = np.moveaxis(variable.values, variable.dims.index("time"), -1)
    return np.moveaxis(interpolated(times, values, new_times), -1, variable.dims.index("time"))


def _with(theory: xr.Dataset, values: dict[str, Array]) -> xr.Dataset:
    """Return a theory with other values of some variables, by name, with the dims and attributes of before."""
    return theory.assign({name: theory[name].copy(data=array) for name, array in values.items()})


def stretched(theory: xr.Dataset, factor: float) -> xr.Dataset:
    """Return a theory in which each curve and event comes at `factor` times its time."""
    later = theory.assign_coords(time=theory["time"] * factor) if "time" in theory.coords else theory
    return later.assign({name: factor * theory[name] for name in TIMES if name in theory})


def planted(right: xr.Dataset, wrong: xr.Dataset) -> xr.Dataset:
    """Return a wrong theory on the time axis of the right one, as a check of a comparison takes it.

    The dataset is `right` with the event times of `wrong`, and with its curves interpolated to the saved times of
    `right` (NaN beyond the curves). Curves of training on samples that are used again are taken by their place, the
    number of steps, without interpolation. Attributes and all else are those of `right`.
    """
    values = {name: wrong[name].values for name in TIMES if name in right}
    if "time" in right.coords:
        pair = (wrong["time"].values, right["time"].values)
        # Samples that are used again count in steps, whatever these are worth in time.
        by_step = "train_loss" in right
        values |= {
            name: wrong[name].values if by_step else _at(wrong[name], *pair)
            for name in _over_time(right)
            if name in wrong
        }
    return _with(right, values)


# --- the kinds --------------------------------------------------------------------------------------------------------
# A problem has the number of its start, which is drawn, and a factor of the overlaps with the teacher at the start, and
# of the teacher's coefficients.


def _lone(start: int, lead: float = 1.0, strength: float = 1.0, *, k: int, drawn: tuple[float, float]) -> Problem:
    """Return one neuron of link h_k at an overlap drawn from the interval `drawn`, with label noise 0.2.

    `start` is the seed. `lead` multiplies the overlap, and `strength` is the coefficient of the one direction; values
    other than 1 plant an error. The dimension is 16, and the length of the neuron 0.1.
    """
    C = lead * np.random.default_rng(start).uniform(*drawn)
    overlaps = ([[C]], [[1.0]], [0.1**2])
    return Problem(
        activation=f"he{k}",
        teacher=Teacher([strength]),
        width=1,
        dimension=16,
        initial_overlaps=overlaps,
        label_noise=0.2,
    )


def _on_spectrum(start: int, lead: float = 1.0, strength: float = 1.0) -> Problem:
    """Return one neuron of link h_3 on inputs of two eigenvalues; its whitened weights off the teacher are equal.

    `start` is the seed of the random start, `lead` multiplies the products of neurons and directions at the start and
    `strength` the teacher's coefficients; values other than 1 plant an error. The dimension is 24, with the eigenvalue
    2 on 4 axes and 0.5 on 20.
    """
    inputs, d = Inputs([2.0, 0.5], [4, 20]), 24
    C = lead * np.random.default_rng(start).uniform(0.35, 0.45)
    whitened = 0.1 * np.append(C, np.full(d - 1, np.sqrt((1.0 - C * C) / (d - 1))))
    return Problem(
        activation="he3",
        teacher=Teacher([strength]),
        width=1,
        dimension=d,
        inputs=inputs,
        initial_weights=[whitened / np.sqrt(inputs.eigenvalues_of_axes(d))],
        label_noise=0.2,
    )


def _drawn_weights(start: int, lead: float, width: int, dimension: int, length: float = 1.0) -> Array:
    """Return weights (width, dimension) of a length, drawn from the seed `start`.

    Their components along the first two directions are then multiplied by `lead`, which plants an error of the start.
    """
    weights = np.random.default_rng(start).standard_normal((width, dimension))
    weights *= length / np.linalg.norm(weights, axis=1, keepdims=True)
    weights[:, :2] *= lead
    return weights


def _drawn(start: int, lead: float = 1.0, strength: float = 1.0) -> Problem:
    """Return four neurons of link h_3 of length 0.1 that learn two directions from random weights, at d = 12.

    `start` is the seed of the random start, `lead` multiplies the products of neurons and directions at the start and
    `strength` the teacher's coefficients; values other than 1 plant an error. The coefficients are 1 and 0.8 times
    `strength`; the label noise is 0.2.
    """
    return Problem(
        activation="he3",
        teacher=Teacher([strength, 0.8 * strength]),
        width=4,
        dimension=12,
        initial_weights=_drawn_weights(start, lead, 4, 12, 0.1),
        label_noise=0.2,
    )


def _network(start: int, lead: float = 1.0, strength: float = 1.0, link: str = "gelu") -> Problem:
    """Return three neurons with biases that learn x1 + x1 x2 at d = 10, with all weights trained.

    `start` is the seed of the random start, `lead` multiplies the products of neurons and directions at the start and
    `strength` the teacher's coefficients; values other than 1 plant an error. `link` is the activation of the student.
    """
    student = Student(
        activation=link,
        width=3,
        biases="trained",
        initial_biases=np.random.default_rng([start, 1]).standard_normal(3),
        scale="1/m",
        rates="mean-field",
    )
    return Problem(
        student=student,
        teacher=Teacher.polynomial(f"{strength}*x1 + {strength}*x1*x2"),
        dimension=10,
        initial_weights=_drawn_weights(start, lead, 3, 10),
    )


def _erf(
    start: int, lead: float = 1.0, strength: float = 1.0, *, width: int = 2, dimension: int = 100, lean: float = 0.0
) -> Problem:
    """Return as many erf neurons as directions, near a plateau or, by `lean`, each close to a direction.

    `start` is the seed of the random start, `lead` multiplies the products of neurons and directions at the start and
    `strength` the teacher's coefficients; values other than 1 plant an error. `width` is the number of neurons and
    directions, `dimension` is d, and `lean` times `lead` is added to the product of each neuron with its own direction;
    the label noise is 0.3.
    """
    near = 0.1 * np.random.default_rng(start).uniform(-1.0, 1.0, (width, width)) + lean * np.eye(width)
    student = Student(activation="erf", width=width, second_layer="fixed", initial_second_layer=np.ones(width))
    return Problem(
        student=student,
        teacher=Teacher(np.full(width, strength)),
        dimension=dimension,
        initial_weights=np.hstack([lead * near, 0.5 * np.eye(width)]),
        label_noise=0.3,
    )


def _committee(start: int, lead: float = 1.0, strength: float = 1.0) -> Problem:
    """Return two erf neurons of a committee that learn two directions at d = 16, each close to one.

    `start` is the seed of the random start, `lead` multiplies the products of neurons and directions at the start and
    `strength` the teacher's coefficients; values other than 1 plant an error. Weights are drawn with length 0.2; then
    0.2 `lead` is added to the product of each neuron with its direction.
    """
    weights = _drawn_weights(start, lead, 2, 16, 0.2)
    weights[:, :2] += 0.2 * lead * np.eye(2)
    return Problem(
        activation="erf",
        teacher=Teacher([strength, strength]),
        width=2,
        dimension=16,
        student="committee",
        initial_weights=weights,
    )


def _reused(_: int, lead: float = 1.0, strength: float = 1.0) -> Problem:
    """Return one erf neuron at d = 600 with |w|² = 0.5 and, for `lead` 1, product 0.2 with the direction.

    The start is not random, so that its number, the first argument, is ignored. `lead` multiplies the product at the
    start and `strength` is the coefficient of the direction; values other than 1 plant an error. The label noise is
    0.4.
    """
    student = Student(activation="erf", width=1, second_layer="fixed", initial_second_layer=[1.0])
    return Problem(
        student=student,
        teacher=Teacher([strength]),
        dimension=600,
        initial_weights=[[0.2 * lead, np.sqrt(0.46)]],
        label_noise=0.4,
    )


def _classified(start: int, lead: float = 1.0, *, labels: str = "sign", flip: float = 0.1) -> Problem:
    """Return two erf neurons that learn the sign of x1, flipped in a tenth of the samples, by cross-entropy.

    `start` is the seed, `lead` scales the overlaps at the start, and `labels` and `flip` are those of `Problem`.
    """
    near = 0.2 + 0.1 * np.random.default_rng(start).uniform(-1.0, 1.0, (2, 1))
    return Problem(
        student=Student(activation="erf", width=2, second_layer="trained", initial_second_layer=[1.0, 1.0]),
        teacher=Teacher([1.0]),
        dimension=80,
        objective="logistic",
        labels=labels,
        flip=flip,
        initial_weights=np.hstack([lead * near, 0.5 * np.eye(2)]),
    )


def _selection(start: int, lead: float = 1.0) -> dynamics.tokens.Selection:
    """Return two heads that select two of six tokens; `start` is the seed, `lead` scales the initial read-out."""
    return dynamics.tokens.Selection(tokens=6, selected=2, heads=2, initial_scale=0.5 * lead, seed=start)


KINDS: dict[str, Kind] = {
    "link-1": Kind(partial(_lone, k=1, drawn=(0.1, 0.4)), 2e-3, 1.6),
    "link-2": Kind(partial(_lone, k=2, drawn=(0.1, 0.4)), 2e-4, 1.6, step_theory="finite-d"),
    "link-3": Kind(partial(_lone, k=3, drawn=(0.3, 0.4)), 1.4e-4, 3.0, step_theory="finite-d"),
    "link-4": Kind(partial(_lone, k=4, drawn=(0.35, 0.45)), 1.7e-5, 3.0, step_theory="finite-d"),
    "random-start": Kind(_drawn, 5e-5, 6.0, step_theory="finite-d"),
    "inputs": Kind(_on_spectrum, 4e-5, 3.0, step_theory="finite-d"),
    "network": Kind(_network, 1.5e-3, 7.0, seconds=4.5),
    "committee": Kind(_committee, 1e-3, 4.0, 24, torch=True),
    "momentum": Kind(
        partial(_erf, lean=0.3), 1e-4, 2.0, step_theory="finite-d", optimizer=SGD(momentum=0.9), seconds=4.0
    ),
    "sign-sgd": Kind(
        partial(_erf, width=1), 2e-3, 2.5, step_theory="infinite-d", optimizer=SignSGD(), torch=True, seconds=4.0
    ),
    "zeroth-order": Kind(
        partial(_erf, dimension=40, lean=0.3),
        1e-4,
        6.0,
        step_theory="finite-d",
        optimizer=ZerothOrder(directions=8),
        seconds=3.0,
    ),
    "reused-data": ReusedKind(_reused, 2.0, 32.0, 32, seconds=4.0),
    "classes": Kind(_classified, 5e-3, 12.0, 48, step_theory="finite-d", seconds=20.0),
    "tokens": TokenKind(_selection, 0.25, 65.0, 8, batch_size=64, torch=True, seconds=1.5),
}

# --- planted errors ---------------------------------------------------------------------------------------------------


def _noisier(kind: Kind, start: int) -> xr.Dataset:
    """Return the theory of a kind, from the start with this number, for twice the label noise."""
    problem = kind.problem(start)
    return kind.theory(replace(problem, label_noise=2.0 * problem.label_noise))


#: Makes a wrong theory of a kind, from a start.
ERRORS: dict[str, Callable[[Kind, int], xr.Dataset]] = {
    "start x 1.15": lambda kind, start: kind.theory(kind.problem(start, lead=1.15)),
    "teacher x 1.15": lambda kind, start: kind.theory(kind.problem(start, strength=1.15)),
    "teacher x 1.3": lambda kind, start: kind.theory(kind.problem(start, strength=1.3)),
    "label noise x 2": _noisier,
    "learning rate x 1.3": lambda kind, start: kind.faster(1.3).theory(kind.problem(start)),
    "batch 4 for 1": lambda kind, start: kind.of_batch(4).theory(kind.problem(start)),
    "4 directions for 8": lambda kind, start: _stepped(kind, start, ZerothOrder(directions=4)),
    "momentum .8 for .9": lambda kind, start: _stepped(kind, start, SGD(momentum=0.8)),
    "relu for gelu": lambda kind, start: kind.theory(kind.problem(start, link="relu")),
    "times x 1.2": lambda kind, start: kind.stretched(kind.theory(kind.problem(start)), 1.2),
    "no flips": lambda kind, start: kind.theory(kind.problem(start, flip=0.0)),
    "bernoulli for sign": lambda kind, start: kind.theory(kind.problem(start, labels="bernoulli")),
}


def _stepped(kind: Kind, start: int, optimizer: Optimizer) -> xr.Dataset:
    """Return the theory of a kind, from the start with this number, for another optimizer."""
    return replace(kind, optimizer=optimizer).theory(kind.problem(start))


def errors_of(name: str) -> list[str]:
    """Return the names of the errors that are planted in theories of the kind `name`.

    The two errors of a time factor, which all kinds have, are not among them.
    """
    kind, errors = KINDS[name], ["start x 1.15", "teacher x 1.15", "teacher x 1.3"]
    if isinstance(kind, TokenKind):
        return [errors[0], "learning rate x 1.3"]
    if name == "classes":
        return [errors[0], "learning rate x 1.3", "batch 4 for 1", "times x 1.2", "no flips", "bernoulli for sign"]
    if kind.step_theory or isinstance(kind, ReusedKind):
        errors += ["label noise x 2", "learning rate x 1.3"]
        errors += ["batch 4 for 1"] if kind.optimizer.is_plain else []
    own_errors = {"zeroth-order": "4 directions for 8", "momentum": "momentum .8 for .9", "network": "relu for gelu"}
    return [*errors, own_errors[name]] if name in own_errors else errors


#: The right theory, and all errors that are planted.
CASES = ("right", "times x 1.3", "times / 1.3", *ERRORS)


def theories_of(name: str, start: int) -> dict[str, xr.Dataset]:
    """Return the right theory of a kind from a start, and all wrong theories of that kind, by name of the error."""
    kind = KINDS[name]
    right = kind.theory(kind.problem(start))
    delayed = {
        f"times {sign} {LATE:g}": kind.stretched(right, factor) for sign, factor in (("x", LATE), ("/", 1 / LATE))
    }
    return {
        "right": right,
        **delayed,
        **{error: planted(right, ERRORS[error](kind, start)) for error in errors_of(name)},
    }


def compared(name: str, start: int, seeds: range, false_alarm_rate: float) -> dict[str, tuple[str, Effect]]:
    """Return, by name of the error, the verdict on each theory of a kind, and the effect of the error.

    All theories are compared with the same runs.

    `start` is the number of the start, `seeds` are those of the runs.
    """
    kind = KINDS[name]
    problem, theories = kind.problem(start), theories_of(name, start)
    runs = kind.simulated(problem, seeds)
    return {
        case: (
            kind.compared(theory, runs, false_alarm_rate).attrs["verdict"],
            Effect(kind.time_effect(theories["right"], theory), kind.curve_effect(problem, theories["right"], theory)),
        )
        for case, theory in theories.items()
    }
