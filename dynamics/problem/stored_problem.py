"""A problem as it stands in a file: what is stored of it, and the arguments of `Problem` read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.emergence import ALL_DEGREES
from dynamics.problem.inputs import Inputs
from dynamics.problem.problem_checks import DECLARED_FIELDS, NETWORK
from dynamics.problem.stored_link import read_link, stored_link
from dynamics.problem.student import Student
from dynamics.problem.teacher import Teacher

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem.problem import Problem
    from hermite.arrays import Array

#: Axes of a sweep that set something of the problem under another name than it is stored by.
_SET_BY_AXES = ("k", "order", "teacher", "teacher_activation", "initial_weights", "initial_overlaps", "alpha")


def stored_parameters(problem: Problem) -> dict[str, Any]:
    """Return the scalar parameters of a problem as a JSON-ready dict."""
    student = problem.student
    parameters = {
        "activation": stored_link(problem.activation),
        "beta": problem.teacher.beta,
        "num_directions": problem.num_directions,
        "width": problem.width,
        "dimension": problem.dimension,
        "initial_norm": problem.initial_norm,
        "seed": problem.seed,
        "label_noise": problem.label_noise,
        "student": student.parameters() if isinstance(student, Student) else student,
        **{name: getattr(problem, name) for name in DECLARED_FIELDS},
        "inputs": None if problem.inputs is None else problem.inputs.parameters(),
    }
    if isinstance(student, Student):
        parameters["teacher"] = stored_teacher(problem.teacher)
    else:
        parameters["learned_definition"] = problem.learned_definition
    if problem.kind in (NETWORK, "spherical") and problem.teacher_activation is not None:
        parameters["teacher_activation"] = stored_link(problem.teacher_activation)
    return parameters


def stored_arrays(problem: Problem) -> dict[str, tuple[tuple[str, ...], Array]]:
    """Return the array-valued inputs of a problem as {variable name: (dims, values)}."""
    found: dict[str, tuple[tuple[str, ...], Array]] = {}
    teacher, name = problem.teacher, "unit" if problem.kind == NETWORK else "teacher"
    along = "unit" if problem.kind == NETWORK else "direction"
    if not teacher.is_polynomial:
        found[f"{name}_coefficient"] = ((along,), teacher.coefficients)
    if teacher.directions is not None:
        found[f"{name}_direction"] = ((along, "teacher_axis"), teacher.directions)
    if teacher.biases is not None:
        found["unit_bias"] = (("unit",), teacher.biases)
    if isinstance(problem.student, Student):
        found |= {each: (("neuron",), values) for each, values in problem.student.arrays().items()}
    if problem.inputs is not None:
        found |= problem.inputs.arrays()
    if problem.initial_weights is not None:
        found["initial_weight"] = (("neuron", "axis"), problem.initial_weights)
    if problem.initial_overlaps is not None:
        C, G, n = problem.initial_overlaps
        found["initial_teacher_overlap"] = (("neuron", "direction"), C)
        found["initial_student_overlap"] = (("neuron", "neuron_2"), G)
        found["initial_squared_norm"] = (("neuron",), n)
    return found


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
        elif name == "alpha":
            stored["inputs"] = {"alpha": value}
        elif name in stored:
            stored[name] = value
    return stored


def _arguments(dataset: Any) -> dict[str, Any]:
    """Return the arguments of the stored problem."""
    stored = _stored(dataset)
    if isinstance(stored["student"], dict):
        return _network_arguments(stored, dataset)
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
        teacher_activation = hermite.expand(read_link(link), order=link["order"])
    overlaps = tuple(array(f"initial_{name}") for name in ("teacher_overlap", "student_overlap", "squared_norm"))
    return {
        "activation": read_link(stored["activation"]),
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
        **_declared(stored),
        "inputs": Inputs.of(stored.get("inputs"), array("input_eigenvalue"), array("input_multiplicity")),
        "learned_definition": stored.get("learned_definition", ALL_DEGREES),
    }


def _declared(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that answers declare; files from before them have their usual values."""
    return {name: stored.get(name, usual) for name, usual in DECLARED_FIELDS.items()}


def stored_teacher(teacher: Teacher) -> dict[str, Any]:
    """Return the teacher of a network as JSON-ready values; coefficients, directions and biases travel as arrays."""
    links = None if teacher.links is None else [stored_link(link) for link in teacher.links]
    return {"polynomial": None if teacher.target is None else teacher.target.text, "links": links}


def _network_arguments(stored: dict[str, Any], dataset: Any) -> dict[str, Any]:
    """Return the arguments of a stored problem whose student is a `Student`."""
    import hermite

    def array(name: str) -> Array | None:
        return np.asarray(dataset[name].values) if name in dataset else None

    # An axis of a sweep may have set the student's link or width.
    student = stored["student"] | {name: stored[name] for name in ("activation", "width")}
    link = stored.get("teacher_activation")
    weights = array("initial_weight")
    return {
        "student": Student.of(student, array("initial_second_layer"), array("initial_bias")),
        "teacher": _network_teacher(stored, array),
        "dimension": stored["dimension"],
        "initial_norm": stored["initial_norm"] if weights is None else None,
        "seed": stored["seed"],
        "initial_weights": weights,
        "label_noise": stored["label_noise"],
        "teacher_activation": None if link is None else hermite.expand(read_link(link), order=link["order"]),
        **_declared(stored),
    }


def _network_teacher(stored: dict[str, Any], array: Callable[[str], Array | None]) -> Teacher:
    """Return the teacher of a stored problem whose student is a `Student`."""
    import hermite

    told = stored["teacher"]
    if told["polynomial"] is not None:
        return Teacher.polynomial(told["polynomial"])
    if stored["beta"] is not None:
        return Teacher.power_law(stored["num_directions"], stored["beta"])
    coefficients, links = array("unit_coefficient"), told["links"]
    if coefficients is None:
        msg = "a network's teacher has coefficients or is a polynomial"
        raise KeyError(msg)
    return Teacher(
        coefficients,
        directions=array("unit_direction"),
        links=None if links is None else [hermite.expand(read_link(each), order=each["order"]) for each in links],
        biases=array("unit_bias"),
    )
