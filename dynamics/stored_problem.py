"""A problem as it stands in a file, read back: links as text or series, and the arguments of `Problem`.

Knows names in a dataset, links and teachers; not what makes a problem a valid one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.teacher import Teacher

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hermite import HermiteExpansion

__all__ = ["stored_arguments", "stored_link"]


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

    Raises
    ------
    ValueError
        If the dataset holds no problem of this program.
    """
    try:
        stored = json.loads(dataset.attrs["parameters"])["problem"]
        activation = _read_link(stored["activation"])
        coefficients = np.asarray(dataset["teacher_coefficient"].values)
    except (KeyError, TypeError, ValueError, AttributeError):
        msg = "Argument `dataset` must hold `parameters` with a problem and `teacher_coefficient`, but does not."
        raise ValueError(msg) from None

    def array(name: str) -> NDArray[np.float64] | None:
        return np.asarray(dataset[name].values) if name in dataset else None

    if stored["beta"] is not None:
        teacher = Teacher.power_law(stored["num_directions"], stored["beta"])
    else:
        teacher = Teacher(coefficients, directions=array("teacher_direction"))
    teacher_activation = None
    if "teacher_activation" in stored:
        import hermite

        link = stored["teacher_activation"]
        teacher_activation = hermite.expand(_read_link(link), order=link["order"])
    overlaps = tuple(array(f"initial_{name}") for name in ("teacher_overlap", "student_overlap", "squared_norm"))
    return {
        "activation": activation,
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
