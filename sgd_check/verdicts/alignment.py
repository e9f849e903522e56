"""Checks that prediction and simulation answer the same question, before anything is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.problem import checked_real, is_frame, is_network, is_spherical
from dynamics.problem.emergence import ALL_DEGREES
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array

START_TOLERANCE = 1e-7
RATE_TOLERANCE = 1e-9
#: Two learning rates that differ by less leave hardly anything to extrapolate from.
LEAST_RATE_RATIO = 1.2


class Event(NamedTuple):
    """The event whose times are compared: how sentences and figures call it, and the variable with its time."""

    noun: str
    verb: str
    past: str
    present: str
    variable: str


#: A neuron finds a direction, the span of a frame has half of it, or neurons carry its learned mass.
EMERGENCE = Event("emergence", "emerge", "emerged", "emerges", "emergence_time")
ALIGNMENT = Event("alignment", "align", "aligned", "aligns", "emergence_time")
LEARNING = Event("learning", "be learned", "learned it", "is learned", "learned_time")


def event_of(dataset: xr.Dataset) -> Event:
    """Return the event whose times a simulation or a prediction has as times of emergence."""
    return ALIGNMENT if "alignment" in dataset else EMERGENCE


def has_step(prediction: xr.Dataset) -> bool:
    """Return whether a prediction carries the mean effect of steps of finite size."""
    return "step_theory" in prediction.attrs


def tell_alike(name: str, datasets: Sequence[xr.Dataset]) -> bool:
    """Return whether all datasets have a variable, and mean the same by it.

    Learned masses and times count degrees of the link by one of two definitions, and are not defined for links of
    degree up to 2.
    """
    if any(name not in dataset or "undefined" in dataset[name].attrs for dataset in datasets):
        return False
    return not name.startswith("learned_") or len({definition_of_learned(dataset) for dataset in datasets}) == 1


def definition_of_learned(dataset: xr.Dataset) -> str:
    """Return which degrees of the link count in the learned masses and times of a dataset."""
    return str(dataset.attrs.get("learned_definition", ALL_DEGREES))


def checked_problem(prediction: xr.Dataset, simulation: object) -> tuple[Problem, xr.Dataset]:
    """Return the problem that both answer, and the simulation, or say in one sentence why they cannot be compared.

    A prediction that has a step size or seeds of its own must have them in common, or must not, with the simulation.
    """
    from dynamics.problem import Problem

    check_dataset("prediction", prediction)
    simulated = check_dataset("simulation", simulation)
    for name, dataset in (("prediction", prediction), ("simulation", simulated)):
        if "emergence_time" not in with_emergence(dataset):
            msg = f"Argument `{name}` must have a variable `emergence_time`, but has {', '.join(map(str, dataset))}."
            raise ValueError(msg)
    if "seed" not in simulated.dims:
        msg = (
            "Arguments `prediction` and `simulation` must be a prediction and a simulation, in this order, but are not."
        )
        raise ValueError(msg)
    problem, predicted = Problem.from_dataset(simulated), Problem.from_dataset(prediction)
    _check_same(predicted, problem)
    _check_own_starts(prediction, simulated)
    if has_step(prediction) or "seed" in prediction.dims:
        _check_steps(prediction, simulated)
        if predicted.label_noise != problem.label_noise:
            refuse("label noise", predicted.label_noise, problem.label_noise)
    if "seed" in prediction.dims:
        _check_seeds(prediction, simulated)
    return problem, with_emergence(simulated)


def with_emergence(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset in which the times of alignment of a span, where it has such, stand for those of emergence."""
    if "emergence_time" in dataset or "aligned_time" not in dataset:
        return dataset
    return dataset.assign(emergence_time=dataset["aligned_time"])


def checked_simulations(prediction: xr.Dataset, simulation: object) -> tuple[Problem, list[xr.Dataset]]:
    """Return the problem, and the simulation or the two of one flow at different learning rates, the larger one first.

    Two make a verdict by curves, from which the effect of the step size is extrapolated away.
    """
    if not isinstance(simulation, (list, tuple)):
        problem, one = checked_problem(prediction, simulation)
        return problem, [one]
    if len(simulation) != 2:
        msg = (
            f"Argument `simulation` must be one Dataset, or two at different learning rates, but is {len(simulation)}."
        )
        raise ValueError(msg)
    (problem, first), (_, second) = (checked_problem(prediction, one) for one in simulation)
    if has_step(prediction) or "seed" in prediction.dims or not decided_by_curves(problem):
        msg = (
            "Argument `simulation` must be one Dataset, unless the prediction is a flow that is judged by its curves, "
            "as for information exponents up to 2, but is two."
        )
        raise ValueError(msg)
    coarse, fine = sorted((first, second), key=lambda one: -float(one.attrs["effective_learning_rate"]))
    rates = [float(one.attrs["effective_learning_rate"]) for one in (coarse, fine)]
    if rates[0] < LEAST_RATE_RATIO * rates[1]:
        msg = (
            "Argument `simulation` must be two whose learning rates differ by a factor of "
            f"{LEAST_RATE_RATIO:g} or more, but they are {rates[0]:g} and {rates[1]:g}."
        )
        raise ValueError(msg)
    for what in ("batch_size", "engine"):
        if first.attrs[what] != second.attrs[what]:
            msg = (
                f"Argument `simulation` must be two of one {what.replace('_', ' ')}, but they have {first.attrs[what]} "
                f"and {second.attrs[what]}."
            )
            raise ValueError(msg)
    return problem, [coarse, fine]


def decided_by_curves(problem: Problem) -> bool:
    """Return whether curves decide on agreement: where directions are not learned one by one, by single neurons.

    That is so for every general network, and for the two sums of neurons at information exponents up to 2. A frame of
    orthogonal neurons has times at which its span has each direction.
    """
    by_times = is_spherical(problem) or is_frame(problem)
    return is_network(problem) or (not by_times and problem.information_exponent <= 2)


def check_prediction(prediction: xr.Dataset) -> None:
    """Refuse a dataset that is no prediction of one problem, or lacks numbers that tests need."""
    from dynamics.problem import Problem

    if "aligned_time" in getattr(prediction, "data_vars", ()) and not is_frame(Problem.from_dataset(prediction)):
        msg = (
            "Argument `prediction` must have times of single neurons for the homogeneous student, but has times of "
            "alignment, which runs of the stiefel student have."
        )
        raise ValueError(msg)
    if "emergence_time" not in getattr(prediction, "data_vars", ()) or "seed" in prediction.dims:
        msg = "Argument `prediction` must be a dataset of a prediction with `emergence_time`, but is not."
        raise ValueError(msg)
    directions = Problem.from_dataset(prediction).num_directions
    shapes = {"emergence_time": {"direction": directions}}
    if "loss" in prediction and "time" in prediction["loss"].dims:
        shapes["loss"] = shapes["time"] = {"time": prediction.sizes["time"]}
    for name, shape in shapes.items():
        found = prediction[name]
        if found.sizes != shape or found.dtype.kind not in "fiu":
            msg = f"Argument `prediction` must have numbers `{name}{shape}`, but has {found.dtype} {dict(found.sizes)}."
            raise ValueError(msg)
    for name in ("learning_rate", "batch_size") if has_step(prediction) else ():
        value = prediction.attrs.get(name)
        if not isinstance(value, (int, float, np.number)):
            msg = f"Argument `prediction` must have a number as attribute `{name}`, but has {shown(value)}."
            raise ValueError(msg)


def checked_rate(false_alarm_rate: object) -> float:
    """Return a rate of false alarms, a probability."""
    rate = checked_real(false_alarm_rate, "false_alarm_rate")
    if not 0 < rate < 1:
        msg = f"Argument `false_alarm_rate` must lie between 0 and 1, but is {shown(false_alarm_rate)}."
        raise ValueError(msg)
    return rate


def sound_runs(simulation: xr.Dataset) -> NDArray[np.bool_]:
    """Return which runs did not blow up, shape (seeds,)."""
    return np.asarray(simulation["blown_up"].values == 0)


def of_sound_runs(simulation: xr.Dataset, name: str) -> Array:
    """Return a variable of the runs that did not blow up, shape (runs, …)."""
    return np.asarray(simulation[name].values, dtype=np.float64)[sound_runs(simulation)]


def unfinished(what: str, dataset: xr.Dataset) -> str:
    """Return that a dataset stopped before its end, and why; empty if it did not."""
    reason = str(dataset.attrs.get("stop_reason", "reached_end"))
    if reason in ("reached_end", "steady_state"):
        return ""
    return f"{what} stopped early ({reason}) at time {float(dataset.attrs['end_time']):.3g}"


def noise_rate(simulation: xr.Dataset) -> float:
    """Return learning rate over batch size, what sets the noise of the steps."""
    return float(simulation.attrs["effective_learning_rate"]) / int(simulation.attrs["batch_size"])


def check_dataset(name: str, dataset: object) -> xr.Dataset:
    """Return a dataset, or refuse anything else."""
    import xarray as xr

    if not isinstance(dataset, xr.Dataset):
        msg = f"Argument `{name}` must be a Dataset, but is {type(dataset).__name__}."
        raise TypeError(msg)
    return dataset


def refuse(what: str, theirs: object, ours: object) -> None:
    """Raise one sentence on a difference between a simulation and the prediction."""
    msg = f"Argument `simulation` must have the {what} of the prediction, {theirs}, but has {ours}."
    raise ValueError(msg)


def check_question(predicted: Problem, simulated: Problem, fields: Sequence[str]) -> None:
    """Refuse a simulation of another student, other links, or other values of the named fields of the problem."""
    for name in ("student", *fields):
        if getattr(predicted, name) != getattr(simulated, name):
            refuse(name, getattr(predicted, name), getattr(simulated, name))
    for word, link in (("link", "activation"), ("teacher's link", "teacher_link")):
        check_link(word, getattr(predicted, link), getattr(simulated, link))


def check_link(word: str, theirs: HermiteExpansion, ours: HermiteExpansion) -> None:
    """Refuse a simulation of another link, by the coefficients."""
    c, other = theirs.coefficients, ours.coefficients
    if c.shape != other.shape or not np.allclose(other, c, rtol=1e-9, atol=1e-12):
        refuse(word, theirs.name, ours.name)


def _check_same(predicted: Problem, simulated: Problem) -> None:
    check_question(predicted, simulated, ("dimension", "width", "teacher"))
    starts = [list(problem.start()) for problem in (predicted, simulated)]
    fields = list(predicted.start()._fields)
    if is_network(predicted):
        starts = [
            [*start, *problem.network_start()[:2]]
            for start, problem in zip(starts, (predicted, simulated), strict=True)
        ]
        fields += ["second_layer", "bias"]
    for field, a, b in zip(fields, *starts, strict=True):
        if not np.allclose(a, b, rtol=START_TOLERANCE, atol=START_TOLERANCE * float(np.abs(a).max())):
            refuse(f"initial {field}", "of its start", f"one that differs by {np.abs(a - b).max():.3g}")


def _check_own_starts(prediction: xr.Dataset, simulation: xr.Dataset) -> None:
    """Refuse runs from several starts, unless those of the prediction have the same."""
    theirs, ours = (
        sorted(dataset["start_seed"].values.tolist()) if "start_seed" in dataset else "that of its problem"
        for dataset in (prediction, simulation)
    )
    if theirs != ours:
        refuse("starts", theirs, ours)


def _check_steps(prediction: xr.Dataset, simulation: xr.Dataset) -> None:
    """Refuse another learning rate or batch size than those that made the prediction."""
    theirs, ours = prediction.attrs["learning_rate"], simulation.attrs["learning_rate"]
    scheduled = [isinstance(rate, str) for rate in (theirs, ours)]
    if any(scheduled):
        plans = [str(dataset.attrs.get("schedule", "")) for dataset in (prediction, simulation)]
        same = all(scheduled) and plans[0] == plans[1]
        theirs, ours = (plan or rate for plan, rate in zip(plans, (theirs, ours), strict=True))
    else:
        same = bool(np.isclose(theirs, ours, rtol=RATE_TOLERANCE, atol=0.0))
    if not same:
        refuse("learning rate", theirs, ours)
    sizes = [int(dataset.attrs["batch_size"]) for dataset in (prediction, simulation)]
    if sizes[0] != sizes[1]:
        refuse("batch size", *sizes)


def _check_seeds(prediction: xr.Dataset, simulation: xr.Dataset) -> None:
    """Refuse runs of one engine that share seeds, since they share samples and are not independent."""
    if prediction.attrs.get("engine") != simulation.attrs.get("engine"):
        return
    shared = np.intersect1d(prediction["seed"].values, simulation["seed"].values)
    if shared.size:
        msg = (
            "Argument `simulation` must have other seeds than a prediction by the same engine, "
            f"but both have seed {shared[0]}."
        )
        raise ValueError(msg)
