"""A problem as it stands in a file, read back: its links, and the arguments of `Problem`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.teacher import Teacher

if TYPE_CHECKING:
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Axes of a sweep that set something of the problem under another name than it is stored by.
_SET_BY_AXES = ("k", "order", "teacher", "teacher_activation", "initial_weights", "initial_overlaps")


def stored_link(link: HermiteExpansion) -> dict[str, Any]:
    """Return a link as JSON-ready values: text where it has one, else its series."""
    stored: dict[str, Any] = {"name": link.name, "order": link.order}
    if link.text is not None:
        stored["text"] = link.text
    else:
        stored["coefficients"] = [float(c) for c in link.coefficients]
    return stored


def _read_link(stored: dict[str, Any]) -> object:
    """Return what `hermite.expand` makes the stored link of."""
    if "text" in stored:
        return stored["text"]
    return {j: c for j, c in enumerate(stored["coefficients"]) if c != 0.0}


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
    """Return the stored problem, with what the axes of a sweep say at the point that is left."""
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
        elif name in stored:
            stored[name] = value
    return stored


def _arguments(dataset: Any) -> dict[str, Any]:
    """Return the arguments of the stored problem."""
    stored = _stored(dataset)
    coefficients = np.asarray(dataset["teacher_coefficient"].values)
    # Of a sweep, arrays are as long as the longest of any point.
    own = ~np.isnan(coefficients)

    def array(name: str) -> Array | None:
        return np.asarray(dataset[name].values) if name in dataset else None

    if stored["beta"] is not None:
        teacher = Teacher.power_law(stored["num_directions"], stored["beta"])
    else:
        directions = array("teacher_direction")
        if directions is not None:
            known = ~np.isnan(directions[own]).any(axis=0)
            directions = directions[own][:, known] if known.any() else None
        teacher = Teacher(coefficients[own], directions=directions)
    teacher_activation = None
    if "teacher_activation" in stored:
        import hermite

        link = stored["teacher_activation"]
        teacher_activation = hermite.expand(_read_link(link), order=link["order"])
    overlaps = tuple(array(f"initial_{name}") for name in ("teacher_overlap", "student_overlap", "squared_norm"))
    return {
        "activation": _read_link(stored["activation"]),
        "teacher": teacher,
        "width": stored["width"],
        "dimension": stored["dimension"],
        "initial_norm": stored["initial_norm"],
        "seed": stored["seed"],
        "initial_weights": array("initial_weight"),
        "initial_overlaps": None if overlaps[0] is None else overlaps,
        "label_noise": stored["label_noise"],
        "student": stored["student"],
        "teacher_activation": teacher_activation,
        "order": stored["activation"]["order"],
    }
