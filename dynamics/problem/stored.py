"""The arguments of a `Problem` read back from the dataset of a result, or of one point of a sweep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.emergence import ALL_DEGREES
from dynamics.problem.inputs import Inputs
from dynamics.problem.student import Student, read_link
from dynamics.problem.teacher import Teacher

if TYPE_CHECKING:
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Axes of a sweep that set something of the problem under another name than it is stored by.
_SET_BY_AXES = ("k", "order", "teacher", "teacher_activation", "initial_weights", "initial_overlaps", "alpha")


def stored_arguments(dataset: Any) -> dict[str, Any]:
    """Return the arguments of the `Problem` that a result answers.

    Of a sweep, one point must be left: what its axes say there takes the place of what the points have in common.
    ValueError is raised if the dataset holds no problem of this program, or more than one.
    """
    try:
        several = [name for name in _axes_of_problem(dataset) if name not in dataset.coords or dataset[name].ndim > 0]
        if not several:
            return _arguments(dataset)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # the last of endless JSON
        msg = "Argument `dataset` must hold `parameters` with a problem and `teacher_coefficient`, but does not."
        raise ValueError(msg) from error
    names = ", ".join(f"{name}=…" for name in several)
    msg = f"Argument `dataset` must be one point of its sweep, as found.sel({names}) is, but is not."
    raise ValueError(msg)


def _axes_of_problem(dataset: Any) -> list[str]:
    """Return the axes of a sweep that set something of the problem; none where the dataset is no sweep."""
    names = json.loads(dataset.attrs["sweep"])["axes"] if "sweep" in dataset.attrs else ()
    stored = json.loads(dataset.attrs["parameters"])["problem"]
    return [name for name in names if name in stored or name in _SET_BY_AXES]


def _stored(dataset: Any) -> dict[str, Any]:
    """Return the stored problem, changed by the axes of a sweep at the point that is left."""
    stored: dict[str, Any] = json.loads(dataset.attrs["parameters"])["problem"]
    # The order is that of the link, which another axis may set.
    for name in sorted(_axes_of_problem(dataset), key=lambda each: each == "order"):
        value = dataset[name].item()
        if name in ("activation", "teacher_activation"):
            stored[name] = {"text": value, "order": None}
        elif name == "k":
            stored["activation"] = {"text": f"he{value}", "order": None}
        elif name == "order":
            stored["activation"]["order"] = None if value == "None" else int(value)
        elif name == "teacher":
            stored["beta"] = None
        elif name == "alpha":
            stored["inputs"] = {"alpha": value}
        elif name in stored:
            stored[name] = value
    return stored


def _arguments(dataset: Any) -> dict[str, Any]:
    """Return the arguments of the stored problem."""
    stored = _stored(dataset)
    known = {name: stored[name] for name in ("dimension", "seed", "label_noise")}
    # What old files lack has its usual value.
    known |= {name: stored[name] for name in ("objective", "smoothing") if name in stored}
    weights = _array(dataset, "initial_weight")
    known |= {
        "initial_weights": weights,
        "teacher_activation": _link(stored["teacher_activation"]) if "teacher_activation" in stored else None,
    }
    if isinstance(stored["student"], dict):
        # An axis of a sweep may have set the student's link or width.
        student = stored["student"] | {name: stored[name] for name in ("activation", "width")}
        starts = (_array(dataset, name) for name in ("initial_second_layer", "initial_bias"))
        return known | {
            "student": Student.of(student, *starts),
            "teacher": _network_teacher(stored, dataset),
            "initial_norm": stored["initial_norm"] if weights is None else None,
        }
    overlaps = tuple(
        _array(dataset, f"initial_{each}") for each in ("teacher_overlap", "student_overlap", "squared_norm")
    )
    spectrum = (_array(dataset, f"input_{each}") for each in ("eigenvalue", "multiplicity"))
    return known | {
        "student": stored["student"],
        "teacher": _teacher(stored, dataset),
        "activation": read_link(stored["activation"]),
        "order": stored["activation"]["order"],
        "width": stored["width"],
        "initial_norm": stored["initial_norm"],
        "initial_overlaps": None if overlaps[0] is None else overlaps,
        "inputs": Inputs.of(stored.get("inputs"), *spectrum),
        "learned_definition": stored.get("learned_definition", ALL_DEGREES),
    }


def _array(dataset: Any, name: str) -> Array | None:
    return np.asarray(dataset[name].values) if name in dataset else None


def _link(stored: dict[str, Any]) -> HermiteExpansion:
    import hermite

    return hermite.expand(read_link(stored), order=stored["order"])


def _teacher(stored: dict[str, Any], dataset: Any) -> Teacher:
    """Return the teacher of a student that has a name."""
    coefficients = np.asarray(dataset["teacher_coefficient"].values)
    if stored["beta"] is not None:
        return Teacher.power_law(stored["num_directions"], stored["beta"])
    # Of a sweep, arrays are as long as the longest of any point.
    own, directions = ~np.isnan(coefficients), _array(dataset, "teacher_direction")
    if directions is not None:
        known = ~np.isnan(directions[own]).any(axis=0)
        directions = directions[own][:, known] if known.any() else None
    return Teacher(coefficients[own], directions=directions)


def _network_teacher(stored: dict[str, Any], dataset: Any) -> Teacher:
    """Return the teacher of a `Student`."""
    polynomial, links = stored["teacher"]["polynomial"], stored["teacher"]["links"]
    if polynomial is not None:
        return Teacher.polynomial(polynomial)
    if stored["beta"] is not None:
        return Teacher.power_law(stored["num_directions"], stored["beta"])
    return Teacher(
        np.asarray(dataset["unit_coefficient"].values),
        directions=_array(dataset, "unit_direction"),
        links=None if links is None else [_link(each) for each in links],
        biases=_array(dataset, "unit_bias"),
    )
