"""Shared parts of all comparisons: whether two datasets answer one question, results of tests, the rule of the verdict.

A comparison aligns prediction and runs, tests them, and collects the tests as rows of evidence: of times (`times`), of
curves (`curves`), of the distance between networks and their mean field (`mean_field`), of estimates (`recovery`) and
of runs on tokens (`sgd_check.tokens.comparison`). One rule turns the rows into a word (`evidence`), and templates turn
them into the sentence that gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from dynamics.problem import Problem, checked_real, is_frame, is_network, is_spherical
from dynamics.problem.checks import field_values, is_at_most, require
from dynamics.problem.emergence import ALL_DEGREES
from dynamics.problem.optimizers import PLAIN, Optimizer, checked_optimizer
from dynamics.problem.question import Question
from dynamics.runs import make_dataset
from dynamics.solve import reused_data
from hermite import HermiteExpansion
from hermite.arrays import Array, Switches
from hermite.text.messages import refuse, shown
from sgd_check.verdicts.evidence import Row, RowKind, evidence_variables, word_of

#: Fewest runs that a test takes.
FEWEST_RUNS = 4
#: "Agree" is said only where an error of this size in the predicted time would have been seen with this probability.
VISIBLE_ERROR, POWER = 0.3, 0.8
MORE_WORK = "use more seeds, a smaller learning rate or more steps"
START_TOLERANCE, RATE_TOLERANCE = 1e-7, 1e-9
#: Name of the number of runs that tests can use, in rows of evidence.
USABLE = "usable runs"
#: Two learning rates that differ by less leave hardly anything to extrapolate from.
LEAST_RATE_RATIO = 1.2


class Event(NamedTuple):
    """The event whose times are compared: its words in sentences and figures, and the variable with its time."""

    noun: str
    verb: str
    past: str
    present: str
    variable: str
    #: Words before the number of a direction.
    what: str = "direction"


#: A neuron finds a direction, the span of a frame has half of it, or neurons carry its learned mass.
EMERGENCE = Event("emergence", "emerge", "emerged", "emerges", "emergence_time")
ALIGNMENT = Event("alignment", "align", "aligned", "aligns", "emergence_time")
LEARNING = Event("learning", "be learned", "learned it", "is learned", "learned_time", "learned time of direction")
EVENTS = {event.noun: event for event in (EMERGENCE, ALIGNMENT, LEARNING)}


def event_of(dataset: xr.Dataset) -> Event:
    """Return the event of the times of a dataset: alignment for frames, else emergence."""
    return ALIGNMENT if "alignment" in dataset else EMERGENCE


def has_step(prediction: xr.Dataset) -> bool:
    """Return whether a prediction carries the mean effect of steps of finite size."""
    return "step_theory" in prediction.attrs or prediction.attrs.get("answer") == reused_data.ANSWER


def optimizer_of(dataset: xr.Dataset) -> Optimizer:
    """Return the optimizer of a prediction or of runs; plain SGD if the dataset names none."""
    return checked_optimizer(dataset.attrs.get("optimizer"))


def other_optimizer(prediction: xr.Dataset, simulation: xr.Dataset) -> list[str]:
    """Return a sentence, in a list, if prediction and runs have different optimizers, else an empty list."""
    theirs, ours = optimizer_of(prediction), optimizer_of(simulation)
    if theirs == ours:
        return []
    if has_step(prediction):
        return [f"The prediction is of {theirs}, the runs are of {ours}."]
    return [f"The prediction is of the flow of {theirs}, the runs are of {ours}."]


def tell_alike(name: str, datasets: Sequence[xr.Dataset]) -> bool:
    """Return whether all datasets have a variable with one definition; learned masses have two definitions."""
    if any(name not in dataset or "undefined" in dataset[name].attrs for dataset in datasets):
        return False
    return not name.startswith("learned_") or len(set(map(definition_of_learned, datasets))) == 1


def definition_of_learned(dataset: xr.Dataset) -> str:
    """Return which degrees of the link count in the learned masses and times of a dataset."""
    return str(dataset.attrs.get("learned_definition", ALL_DEGREES))


def checked_problem(prediction: xr.Dataset, simulation: object) -> tuple[Problem, xr.Dataset]:
    """Return the problem of prediction and simulation, and the simulation; ValueError if they cannot be compared.

    They must agree in dimension, width, teacher, emergence level and start. A prediction for a finite learning rate, or
    one that consists of runs, must also agree in learning rate, batch size and label noise, runs in the optimizer too;
    runs by one engine must have different seeds. The simulation is returned with times of emergence, which are those of
    alignment for frames.
    """
    check_dataset("prediction", prediction)
    simulated = check_dataset("simulation", simulation)
    for name, dataset in (("prediction", prediction), ("simulation", simulated)):
        require(
            "emergence_time" in with_emergence(dataset),
            f"Argument `{name}` must have a variable `emergence_time`, but has {', '.join(map(str, dataset))}.",
        )
    require(
        "seed" in simulated.dims,
        "Arguments `prediction` and `simulation` must be a prediction and a simulation, in this order, but are not.",
    )
    problem, predicted = Problem.from_dataset(simulated), Problem.from_dataset(prediction)
    check_question(predicted, problem, ("dimension", "width", "teacher"))
    check_alike("emergence level", predicted.emergence_level, problem.emergence_level)
    check_start(predicted, problem)
    # Runs from several starts are compared with a prediction that has the same alone.
    starts = [
        sorted(dataset["start_seed"].values.tolist()) if "start_seed" in dataset else "that of its problem"
        for dataset in (prediction, simulated)
    ]
    check_alike("starts", *starts)
    if has_step(prediction) or "seed" in prediction.dims:
        check_rates(prediction, simulated)
        check_alike("batch size", *(int(dataset.attrs["batch_size"]) for dataset in (prediction, simulated)))
        check_alike("label noise", predicted.label_noise, problem.label_noise)
    if "seed" in prediction.dims:
        check_alike("optimizer", optimizer_of(prediction), optimizer_of(simulated))
    if "seed" in prediction.dims and prediction.attrs.get("engine") == simulated.attrs.get("engine"):
        # Runs of one engine and one seed share samples, and are not independent.
        shared = np.intersect1d(prediction["seed"].values, simulated["seed"].values)[:1]
        require(
            not shared.size,
            "Argument `simulation` must have other seeds than a prediction by the same engine, but both have seed "
            f"{', '.join(map(str, shared))}.",
        )
    return problem, with_emergence(simulated)


def with_emergence(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset whose `emergence_time` is its `aligned_time` if it has only the latter; else the dataset."""
    if "emergence_time" in dataset or "aligned_time" not in dataset:
        return dataset
    return dataset.assign(emergence_time=dataset["aligned_time"])


def checked_simulations(prediction: xr.Dataset, simulation: object) -> tuple[Problem, list[xr.Dataset]]:
    """Return the problem and one or two simulations; of two, the one at the larger learning rate comes first.

    Two are allowed where the prediction is a flow that is judged by its curves. They must agree in batch size, engine
    and optimizer, and their learning rates differ by the factor `LEAST_RATE_RATIO` or more. ValueError otherwise.
    """
    if not isinstance(simulation, (list, tuple)):
        problem, first = checked_problem(prediction, simulation)
        return problem, [first]
    require(
        len(simulation) == 2,
        f"Argument `simulation` must be one Dataset, or two at different learning rates, but is {len(simulation)}.",
    )
    (problem, first), (_, second) = (checked_problem(prediction, dataset) for dataset in simulation)
    is_flow = not has_step(prediction) and "seed" not in prediction.dims and decided_by_curves(problem)
    require(
        is_flow,
        "Argument `simulation` must be one Dataset, unless the prediction is a flow that is judged by its curves, as "
        "for information exponents up to 2, but is two.",
    )
    pair = sorted((first, second), key=lambda dataset: -float(dataset.attrs["effective_learning_rate"]))
    large, small = (float(dataset.attrs["effective_learning_rate"]) for dataset in pair)
    require(
        is_at_most(LEAST_RATE_RATIO * small, large),
        f"Argument `simulation` must be two whose learning rates differ by a factor of {LEAST_RATE_RATIO:g} or more, "
        f"but they are {large:g} and {small:g}.",
    )
    for quantity, value_of in (
        ("batch size", lambda dataset: dataset.attrs["batch_size"]),
        ("engine", lambda dataset: dataset.attrs["engine"]),
        ("optimizer", optimizer_of),
    ):
        values = value_of(first), value_of(second)
        require(
            values[0] == values[1],
            f"Argument `simulation` must be two of one {quantity}, but they have {values[0]} and {values[1]}.",
        )
    return problem, pair


def decided_by_curves(problem: Problem, optimizer: Optimizer = PLAIN) -> bool:
    """Return whether curves, not times, decide: unless single neurons of plain SGD learn directions one by one."""
    by_times = is_spherical(problem) or is_frame(problem)
    return not optimizer.is_plain or is_network(problem) or (not by_times and problem.information_exponent <= 2)


def check_prediction(prediction: xr.Dataset) -> None:
    """Raise ValueError for a dataset that is no prediction of one problem, or lacks numbers that tests need.

    It must have `emergence_time` (direction), and if it has a loss over time, `loss` and `time` (time), all of them
    real numbers; with a finite learning rate, numbers as attributes `batch_size` and, without a schedule,
    `learning_rate`. A prediction of times of alignment is refused unless the problem is a frame.
    """
    variables = prediction.data_vars if isinstance(prediction, xr.Dataset) else {}
    alone = "aligned_time" not in variables or is_frame(Problem.from_dataset(prediction))
    require(
        alone,
        "Argument `prediction` must have times of single neurons for the homogeneous student, but has times of "
        "alignment, which runs of the stiefel student have.",
    )
    require(
        "emergence_time" in variables and "seed" not in prediction.dims,
        "Argument `prediction` must be a dataset of a prediction with `emergence_time`, but is not.",
    )
    shapes = {"emergence_time": {"direction": Problem.from_dataset(prediction).num_directions}}
    if "loss" in prediction and "time" in prediction["loss"].dims:
        shapes["loss"] = shapes["time"] = {"time": prediction.sizes["time"]}
    for name, shape in shapes.items():
        variable = prediction[name]
        require(
            variable.sizes == shape and variable.dtype.kind in "fiu",
            f"Argument `prediction` must have numbers `{name}{shape}`, but has {variable.dtype} "
            f"{dict(variable.sizes)}.",
        )
    for name in ("learning_rate", "batch_size") if has_step(prediction) else ():
        value = prediction.attrs.get(name)
        if name == "batch_size" or not isinstance(prediction.attrs.get("schedule"), str):
            require(
                isinstance(value, (int, float, np.number)),
                f"Argument `prediction` must have a number as attribute `{name}`, but has {shown(value)}.",
            )


def checked_rate(false_alarm_rate: object) -> float:
    """Return a rate of false alarms, a probability; ValueError unless it lies in (0, 1)."""
    rate = checked_real(false_alarm_rate, "false_alarm_rate")
    require(0 < rate < 1, f"Argument `false_alarm_rate` must lie between 0 and 1, but is {shown(false_alarm_rate)}.")
    return rate


def sound_runs(simulation: xr.Dataset) -> Switches:
    """Return which runs did not blow up, shape (seeds,)."""
    return np.asarray(simulation["blown_up"].values == 0)


def of_sound_runs(simulation: xr.Dataset, name: str) -> Array:
    """Return a variable of the runs that did not blow up, shape (runs, …)."""
    return np.asarray(simulation[name].values, dtype=np.float64)[sound_runs(simulation)]


def unfinished(subject: str, dataset: xr.Dataset) -> str:
    """Return words on the early stop of a dataset, its reason and time; empty if it reached its end."""
    reason = str(dataset.attrs.get("stop_reason", "reached_end"))
    if reason in ("reached_end", "steady_state"):
        return ""
    return f"{subject} stopped early ({reason}) at time {float(dataset.attrs['end_time']):.3g}"


def check_dataset(name: str, dataset: object) -> xr.Dataset:
    """Return an argument that is a dataset; TypeError for anything else."""
    if not isinstance(dataset, xr.Dataset):
        refuse(f"Argument `{name}` must be a Dataset, but is {type(dataset).__name__}.", error=TypeError)
    return dataset


def check_alike(quantity: str, theirs: object, ours: object, *, same: bool | None = None) -> None:
    """Refuse a simulation with another value of a quantity than the prediction; `same` replaces `theirs == ours`."""
    require(
        theirs == ours if same is None else same,
        f"Argument `simulation` must have the {quantity} of the prediction, {theirs}, but has {ours}.",
    )


def check_question(predicted: Problem, simulated: Problem, fields: Sequence[str]) -> None:
    """Refuse a simulation of another student, other links, or other values of the named fields of the problem."""
    theirs, ours = field_values(predicted), field_values(simulated)
    for name in ("student", *fields):
        check_alike(name, theirs[name], ours[name])
    check_link("link", predicted.activation, simulated.activation)
    check_link("teacher's link", predicted.teacher_link, simulated.teacher_link)


def check_link(word: str, theirs: HermiteExpansion, ours: HermiteExpansion) -> None:
    """Refuse a simulation of a link with other coefficients."""
    predicted, simulated = theirs.coefficients, ours.coefficients
    same = predicted.shape == simulated.shape and np.allclose(simulated, predicted, 1e-9, 1e-12)
    check_alike(word, theirs.name, ours.name, same=same)


def check_rates(prediction: xr.Dataset, simulated: xr.Dataset) -> None:
    """Refuse a simulation at another learning rate; schedules are compared by their texts."""
    theirs, ours = (
        dataset.attrs.get("schedule", dataset.attrs["learning_rate"]) for dataset in (prediction, simulated)
    )
    numbers = not (isinstance(theirs, str) or isinstance(ours, str))
    same = bool(np.isclose(theirs, ours, rtol=RATE_TOLERANCE, atol=0.0)) if numbers else theirs == ours
    check_alike("learning rate", theirs, ours, same=same)


def check_start(predicted: Problem, simulated: Problem) -> None:
    """Refuse a simulation from another start."""
    problems, fields = (predicted, simulated), [*predicted.start()._fields]
    starts = [[*problem.start()] for problem in problems]
    if is_network(predicted):
        starts = [[*start, *problem.network_start()[:2]] for start, problem in zip(starts, problems, strict=True)]
        fields += ["second_layer", "bias"]
    for field, a, b in zip(fields, *starts, strict=True):
        same = np.allclose(a, b, rtol=START_TOLERANCE, atol=START_TOLERANCE * float(np.abs(a).max()))
        gap = f"one that differs by {np.abs(a - b).max():.3g}"
        check_alike(f"initial {field}", "of its start", gap, same=same)


def difference(rows: Sequence[Row], p_value: float, rate: float) -> str:
    """Return a sentence on the row that differs most from theory; `p_value` is that of all rows."""
    worst, end = min(rows, key=lambda row: row.p_value), f"(global p = {p_value:.2g} < {rate:g})."
    if worst.kind in EVENTS and np.isnan(worst.z):
        return count_sentence(worst, f" {end}")
    if worst.kind in EVENTS:
        side = "late" if worst.z > 0 else "early"
        return f"Direction {worst.label} {EVENTS[worst.kind].present} {side}, z = {worst.z:.1f} {end}"
    if worst.kind == RowKind.TIME:
        return f"The {worst.name} is {'later' if worst.z > 0 else 'earlier'} than predicted, z = {worst.z:.1f} {end}"
    most = f", most at time {worst.time:.3g}" if worst.kind in (RowKind.CURVE, RowKind.RANKS, RowKind.SCATTER) else ""
    return f"The {worst.name} is {side_of(worst.z)} than predicted{most}, z = {worst.z:.1f} {end}"


def count_sentence(row: Row, end: str) -> str:
    """Return a sentence on the runs that have a direction which theory puts beyond them, closed by `end`."""
    when = "never" if np.isinf(row.time) else f"at {row.time:.3g}, after the end of the runs"
    having = f"{row.value:.0f} of {row.runs:.0f} runs {EVENTS[row.kind].past}"
    return f"Direction {row.label}, predicted {when}: {having}{end} {row.cause}".rstrip()


def verdict_tree(
    rows: Sequence[Row],
    reasons: Sequence[str],
    values: Mapping[str, object],
    *,
    problem: Question,
    prediction: xr.Dataset,
    simulations: Mapping[str, xr.Dataset],
    rate: float,
    theory: str,
    usable: int,
    blown_up: int = 0,
    attributes: Mapping[str, object],
    title: str = "Online SGD against prediction",
    **labels: Any,
) -> xr.DataTree:
    """Return the tree of `sgd_check.compare`: prediction, simulations by their place, and the comparison.

    The word follows from the `rows`; `reasons` are sentences. `values` are its further variables, `attributes` those
    that others lack, and `labels` arguments of `make_dataset`.
    """
    lost = [f"Runs left out because they blew up: {blown_up}."] if blown_up else []
    comparison = make_dataset(
        {**values, **evidence_variables(rows)},
        problem=problem,
        title=title,
        solver={"answer": "comparison", "false_alarm_rate": rate},
        attributes={
            "answer": "comparison",
            "prediction": str(prediction.attrs.get("answer", "simulation" if "seed" in prediction.dims else "unknown")),
            "verdict": str(word_of(rows)),
            "false_alarm_rate": rate,
            "reasons": " ".join([*reasons, *lost]),
            "theory": theory,
            "usable_runs": usable,
            "blown_up_count": blown_up,
            **attributes,
        },
        **labels,
    )
    return xr.DataTree.from_dict({"/prediction": prediction, **simulations, "/comparison": comparison})


def too_few(usable: int) -> list[Row]:
    """Return the row that says that fewer runs are usable than a test takes; none if they are enough."""
    if usable >= FEWEST_RUNS:
        return []
    cause = f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}."
    return [lacking_row(USABLE, cause, value=usable, low=FEWEST_RUNS)]


def lacking_row(quantity: str, cause: str, **numbers: Any) -> Row:
    """Return the row of an unmet requirement, which prevents agreement; `cause` is a sentence."""
    return Row(quantity=quantity, kind=RowKind.REQUIREMENT, required=True, cause=cause, **numbers)


def leave(rows: Sequence[Row]) -> bool:
    """Return whether a mean lies outside its band, significantly or not; losses by ranks have none."""
    return any(abs(row.z) > 0.0 for row in rows if row.kind != RowKind.RANKS)


def significantly(left: bool) -> str:
    """Return the word " significantly" if a mean lies outside its band, else an empty text."""
    return " significantly" if left else ""


def side_of(score: float) -> str:
    """Return "larger" or "smaller", the side of its prediction on which a quantity lies."""
    return "larger" if score > 0 else "smaller"


def normal_score(distance: float, error: float, freedom: int) -> float:
    """Return the normal score with the tail probability of Student's t = distance/error."""
    if distance == 0.0:
        return 0.0
    tail = special.stdtr(freedom, -abs(distance) / error) if error else 0.0
    return float(np.copysign(-special.ndtri(tail) if tail > 0 else np.inf, distance))


def two_sided(score: float) -> float:
    """Return the two-sided p-value of a normal score; 1 for 0, inside the band."""
    return float(2.0 * special.ndtr(-abs(score))) if score else 1.0


def reach_in_errors(freedom: float, level: float) -> float:
    """Return the distance, in standard errors, that Student's t at this level sees with probability 0.8."""
    return float(special.stdtrit(freedom, 1.0 - level / 2) + special.stdtrit(freedom, POWER))
