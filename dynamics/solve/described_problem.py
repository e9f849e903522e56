"""The problem that the options of `python -m dynamics.solve` describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamics.commands.options import CORRELATION, NETWORK, NETWORK_OPTIONS
from dynamics.commands.parsing import UsageError
from dynamics.solve.registry import registered

#: The model whose exponent, norm and sizes are other than those of the homogeneous student by default.
QUADRATIC = "quadratic"

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynamics.problem import Problem, Teacher
    from hermite import HermiteExpansion


def build_problem(options: Mapping[str, Any]) -> Problem:
    """Return the problem that the options describe, whose model says which student it has."""
    from dynamics.problem.checks import checked_link

    is_quadratic = options["model"] == QUADRATIC
    k = options["k"] or (2 if is_quadratic else 4)
    link = checked_link(options["activation"] or f"he{k}", "activation", options["order"])
    if options["k"] is not None and link.information_exponent != options["k"]:
        msg = (
            f"Option --k must equal the information exponent of --activation, but is {options['k']} "
            f"while {link.name} has {link.information_exponent}."
        )
        raise UsageError(msg)
    if options["model"] in NETWORK:
        return _network(options, link)
    if options["model"] in CORRELATION:
        return _correlation(options, link)
    if registered(options["model"]).students[0] == "spherical":
        return _spherical(options, link)
    return _quadratic(options, link) if is_quadratic else _homogeneous(options, link)


def _homogeneous(options: Mapping[str, Any], link: HermiteExpansion) -> Problem:
    from dynamics.problem import Inputs, Problem

    teacher = _teacher(options, 16)
    count = teacher.num_directions
    return Problem(
        activation=link,
        teacher=teacher,
        width=options["width"] or 3 * count,
        dimension=options["dimension"] or max(256, count),
        initial_norm=options["initial_norm"],
        seed=options["seed"],
        label_noise=options["label_noise"] or 0.0,
        inputs=None if options["spectrum"] is None else Inputs.power_law(options["spectrum"]),
    )


def _quadratic(options: Mapping[str, Any], link: HermiteExpansion) -> Problem:
    """Return the problem of a quadratic network, by default narrower than its teacher and in a large dimension."""
    from dynamics.problem import Problem

    teacher = _teacher(options, 256)
    width = options["width"] or 32
    return Problem(
        activation=link,
        teacher=teacher,
        width=width,
        dimension=options["dimension"] or max(10**6, teacher.num_directions),
        initial_norm=options["initial_norm"] or width**-0.25,
        seed=options["seed"],
        label_noise=options["label_noise"] or 0.0,
        student=options["student"],
    )


def _spherical(options: Mapping[str, Any], link: HermiteExpansion) -> Problem:
    """Return the problem of the spherical student, whose coefficients are mixture weights, by default equal."""
    from dynamics.problem import Problem, Teacher

    count = options["directions"] or 1
    given = options["coefficients"] is not None
    teacher = _teacher(options, count) if given else Teacher([1.0 / count] * count)
    return Problem(
        activation=link,
        teacher=teacher,
        width=1,  # any: the mean field is that of infinite width
        dimension=options["dimension"] or max(64, teacher.num_directions + 1),
        seed=options["seed"],
        student="spherical",
        teacher_activation=options["teacher_activation"],
    )


def _correlation(options: Mapping[str, Any], link: HermiteExpansion) -> Problem:
    """Return the problem of one neuron and one direction, by default of weight 1."""
    from dynamics.problem import Problem, Teacher

    count = options["directions"] or 1
    return Problem(
        activation=link,
        teacher=Teacher([1.0] * count if options["coefficients"] is None else options["coefficients"]),
        width=1,
        dimension=options["dimension"] or 256,
        seed=options["seed"],
        label_noise=options["label_noise"] or 0.0,
        student="spherical",
        teacher_activation=options["teacher_activation"],
        objective="correlation",
        smoothing=options["smoothing"] or 0.0,
    )


def _network(options: Mapping[str, Any], link: HermiteExpansion) -> Problem:
    from dynamics.problem import Problem, Student, Teacher

    said = {option.key: options[option.key] for option in NETWORK_OPTIONS if options[option.key] is not None}
    student = Student(activation=link, width=options["width"] or 8, **said)
    teacher = Teacher.polynomial(options["teacher"]) if options["teacher"] is not None else _teacher(options, 2)
    return Problem(
        student=student,
        teacher=teacher,
        dimension=options["dimension"] or max(256, teacher.span),
        initial_norm=options["initial_norm"],
        seed=options["seed"],
        label_noise=options["label_noise"] or 0.0,
        teacher_activation=options["teacher_activation"],
    )


def _teacher(options: Mapping[str, Any], directions: int) -> Teacher:
    """Return the teacher of units along the axes."""
    from dynamics.problem import Teacher

    count = options["directions"] or directions
    if options["coefficients"] is not None:
        return Teacher(options["coefficients"])
    if options["ratio"] is not None:
        return Teacher.geometric(count, options["ratio"])
    return Teacher.power_law(count, 1.0 if options["beta"] is None else options["beta"])
