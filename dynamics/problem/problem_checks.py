"""Checks of the arguments of `Problem` beside each other: student and teacher, links, norm, start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import check_choice, checked_link, checked_number
from dynamics.problem.inputs import Inputs
from dynamics.problem.network_start import checked_network_weights
from dynamics.problem.start import check_orthogonal, check_unit_lengths, checked_overlaps, checked_weights
from dynamics.problem.student import Student
from hermite.text.messages import shown

if TYPE_CHECKING:
    from dynamics.problem.start import Overlaps
    from dynamics.problem.teacher import Teacher
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Students that have a name, each with the function that integrates its overlaps.
STUDENTS = {
    "homogeneous": "solve_overlaps",
    "committee": "solve_committee",
    "spherical": "solve_mean_field",
    "stiefel": "solve_quadratic",
}
#: The kind of a problem whose student is a `Student`.
NETWORK = "network"
#: What a problem descends.
SQUARED, CORRELATION = "squared", "correlation"
OBJECTIVES = (SQUARED, CORRELATION)
#: Fields that an answer or an engine takes only if it declares so, each with the value that all of them take.
DECLARED_FIELDS: dict[str, object] = {"objective": SQUARED, "smoothing": 0.0, "inputs": None}
#: The kind of a problem whose neurons stay orthogonal and of one length.
FRAME = "stiefel"
#: Largest coefficient of a link: rates hold its fourth power, times those of the teacher and of overlaps.
LARGEST_COEFFICIENT = 1e30
#: |w_i| at the start where it is not given: of a neuron whose second layer is |w_i|², and of any other.
SMALL_NORM, UNIT_NORM = 1e-2, 1.0


def kind_of(student: str | Student) -> str:
    """Return the name of a student; "network" for a `Student`."""
    return NETWORK if isinstance(student, Student) else student


def default_norm(kind: str, width: int) -> float:
    """Return |w_i| at the start where it is not given; that of a frame gives the network a mean square of order 1."""
    if kind == FRAME:
        norm: float = float(width) ** -0.25
        return norm
    return UNIT_NORM if kind in ("spherical", NETWORK) else SMALL_NORM


def check_same_as(student: Student, **given: Any) -> None:
    """Refuse what is given beside a `Student` and differs from what it has."""
    for name, value in given.items():
        if value is not None and value != getattr(student, name):
            msg = f"Argument `{name}` must be absent where `student` is a Student, but is {shown(value)}."
            raise ValueError(msg)


def check_named_student(student: str, teacher: Teacher, **needed: object) -> None:
    """Refuse a student that has a name, without what it needs or with a teacher that it cannot learn."""
    for name, value in needed.items():
        if value is None:
            msg = f"Argument `{name}` must be given for the {student} student, but is absent."
            raise TypeError(msg)
    if teacher.is_polynomial:
        what = "units, but is a polynomial"
    elif teacher.links is not None or teacher.biases is not None:
        what = f"units without {'links' if teacher.links is not None else 'biases'} of their own, but has some"
    elif (teacher.coefficients < 0).any():
        p = int(np.argmax(teacher.coefficients < 0))
        what = f"positive coefficients, but entry {p} is {teacher.coefficients[p]}"
    else:
        return
    msg = f"Argument `teacher` must have {what}, which the {student} student cannot learn; a `Student` can."
    raise ValueError(msg)


def checked_teacher_link(
    given: object, kind: str, teacher: Teacher, own: HermiteExpansion, order: int | None
) -> HermiteExpansion:
    """Return the teacher's link at the order that was asked; only spherical students and a `Student` may learn another.

    A polynomial of the student's own order could cut the teacher's.
    """
    import hermite

    if teacher.is_polynomial:
        msg = "Argument `teacher_activation` must be absent where the teacher is a polynomial, but is given."
        raise ValueError(msg)
    is_free = kind in ("spherical", NETWORK)
    if is_free and isinstance(given, hermite.HermiteExpansion):
        return given
    link = checked_link(given, "teacher_activation", None if kind == NETWORK else order)
    if not is_free and not np.array_equal(link.coefficients, own.coefficients):
        msg = (
            f"Argument `teacher_activation` must equal `activation` for the {kind} student, "
            f"but is {link.name} against {own.name}."
        )
        raise ValueError(msg)
    return link


def check_sizes(**links: HermiteExpansion) -> None:
    """Refuse links whose coefficients are so large that rates, which hold powers of them, leave float64."""
    for name, link in links.items():
        j = int(np.argmax(np.abs(link.coefficients)))
        if abs(link.coefficients[j]) > LARGEST_COEFFICIENT:
            msg = (
                f"Argument `{name}` must have Hermite coefficients of at most {LARGEST_COEFFICIENT:g}, "
                f"but c_{j} is {link.coefficients[j]:g}."
            )
            raise ValueError(msg)


def checked_objective(
    objective: object, smoothing: object, kind: str, teacher: Teacher, width: int, dimension: int
) -> float:
    """Return the smoothing λ; refuse a correlation of anything but one spherical neuron and one direction."""
    check_choice("objective", objective, OBJECTIVES)
    size = checked_number(smoothing, "smoothing", positive=False)
    if objective == CORRELATION:
        if kind != "spherical":
            msg = f"Argument `objective` must be 'squared' for the {kind} student, but is 'correlation'."
            raise ValueError(msg)
        if width != 1:
            msg = f"Argument `width` must be 1 for the objective 'correlation', but is {width}."
            raise ValueError(msg)
        if teacher.num_directions != 1:
            msg = (
                "Argument `teacher` must have one direction for the objective 'correlation', "
                f"but has {teacher.num_directions}."
            )
            raise ValueError(msg)
        if dimension < 2:
            msg = f"Argument `dimension` must be at least 2 for the objective 'correlation', but is {dimension}."
            raise ValueError(msg)
    elif size > 0.0:
        msg = f"Argument `smoothing` must be 0 for the objective {objective!r}, but is {size}."
        raise ValueError(msg)
    return size


def check_frame_width(width: int, dimension: int) -> None:
    """Refuse more orthogonal neurons than there are axes."""
    if width > dimension:
        msg = f"Argument `width` must be at most {dimension}, the dimension, for the stiefel student, but is {width}."
        raise ValueError(msg)


def checked_norm(given: object, kind: str, width: int) -> float:
    """Return the norm of the neurons at the start, which is 1 for the spherical student."""
    norm = default_norm(kind, width) if given is None else checked_number(given, "initial_norm", positive=True)
    if not 0 < norm * norm < np.inf:
        msg = f"Argument `initial_norm` must have a square within float64, but is {norm}."
        raise ValueError(msg)
    if kind == "spherical" and norm not in (SMALL_NORM, UNIT_NORM):
        msg = f"Argument `initial_norm` must be 1 for the spherical student, but is {norm}."
        raise ValueError(msg)
    return UNIT_NORM if kind == "spherical" else norm


def check_one_start(kind: str, width: int, weights: object, overlaps: object, norm: float, seed: int) -> None:
    """Refuse more than one description of the start."""
    if weights is not None and overlaps is not None:
        msg = "Argument `initial_overlaps` must be absent when `initial_weights` is given, but both are given."
        raise ValueError(msg)
    if kind == NETWORK and overlaps is not None:
        msg = "Argument `initial_overlaps` must be absent where `student` is a Student; give `initial_weights`."
        raise ValueError(msg)
    if weights is None and overlaps is None:
        return
    given = "initial_weights" if overlaps is None else "initial_overlaps"
    # The seed of a network draws its biases too.
    norms, seeds = ("initial_norm", norm, default_norm(kind, width)), ("seed", seed, seed * (kind == NETWORK))
    for name, value, unset in (norms, seeds):
        if value != unset:
            msg = f"Argument `{name}` must be absent when `{given}` is given, but is {value}."
            raise ValueError(msg)


def check_inputs(inputs: object, kind: str, overlaps: object, teacher: Teacher, width: int, dimension: int) -> None:
    """Refuse inputs of another student or dimension, and a start that says nothing of their axes."""
    if inputs is None:
        return
    if not isinstance(inputs, Inputs):
        msg = f"Argument `inputs` must be an Inputs, or None for isotropic ones, but is {shown(inputs)}."
        raise TypeError(msg)
    if kind != "homogeneous":
        msg = f"Argument `inputs` must be None for the {kind} student, but is {inputs!r}."
        raise ValueError(msg)
    if overlaps is not None:
        msg = "Argument `initial_overlaps` must be absent where `inputs` is given; give `initial_weights`."
        raise ValueError(msg)
    inputs.check_dimension(dimension)
    inputs.axes(dimension, teacher.span, width)


def checked_given_weights(given: Any, student: str | Student, teacher: Teacher, width: int, dimension: int) -> Array:
    """Return given starting weights."""
    if isinstance(student, Student):
        return checked_network_weights(given, student, dimension, teacher.span)
    weights = checked_weights(given, width, dimension)
    if student == "spherical":
        check_unit_lengths("initial_weights", np.sum(weights**2, axis=1))
    if student == FRAME:
        check_orthogonal("initial_weights", weights @ weights.T)
    return weights


def checked_given_overlaps(given: Any, kind: str, teacher: Teacher, width: int, dimension: int) -> Overlaps:
    """Return given starting overlaps."""
    checked = checked_overlaps(given, teacher, width, dimension)
    if kind == "spherical":
        check_unit_lengths("initial_overlaps", checked[2])
    if kind == FRAME:
        root = np.sqrt(checked[2])
        check_orthogonal("initial_overlaps", root[:, None] * checked[1] * root)
    return checked
