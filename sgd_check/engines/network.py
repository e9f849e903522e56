"""What moves in a network f = s Σ_i v_i σ(w_i·x + b_i), as every engine reads it from a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.problem import Student, is_correlation

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array


class Network(NamedTuple):
    """Start and motion of a network.

    Weights W (m, D), second layer v (m,) and biases b (m,) at the start; the scale s, the rates ε of w, v and b, the
    decays κ of w and v; `lengths` are the |w_i| (m,) that are kept on the sphere, or None.
    """

    weights: Array
    second_layer: Array
    bias: Array
    scale: float
    rates: tuple[float, float, float]
    decay: tuple[float, float]
    lengths: Array | None


def network_of(problem: Problem) -> Network:
    """Return what moves, or raise one sentence if a step is not that of the loss: the link has a jump."""
    student, start = problem.student, problem.network_start()
    if not isinstance(student, Student):
        msg = f"Argument `problem` must have a Student, but has the {problem.kind} student."
        raise TypeError(msg)
    rates = student.learning_rates
    if rates[0] > 0 or rates[2] > 0:
        check_no_jump(problem)
    lengths = np.linalg.norm(start.weights, axis=1) if student.first_layer == "sphere" else None
    return Network(start.weights, start.second_layer, start.bias, student.output_scale, rates, student.decay, lengths)


def check_no_jump(problem: Problem) -> None:
    """Refuse a link that has a jump where its argument is trained."""
    if has_jump(problem.activation):
        msg = (
            f"Argument `problem` must have a link without jumps where its argument is trained, since a sample has no "
            f"gradient at a jump, but has {problem.activation.name}."
        )
        raise ValueError(msg)


def has_jump(link: HermiteExpansion) -> bool:
    """Return whether a formula has jumps; a callable counts as having none.

    Examples
    --------
    >>> import hermite
    >>> has_jump(hermite.expand("sign")), has_jump(hermite.expand("relu"))
    (True, False)
    """
    import sympy

    expression = None if link.is_polynomial else link.expression
    if expression is None:
        return False
    return bool(sympy.diff(expression, *expression.free_symbols).has(sympy.DiracDelta))


def has_callable(problem: Problem) -> bool:
    """Return whether a callable is simulated as it is, tabulated, though no file holds it."""
    units = problem.teacher.units(problem.teacher_link)
    links = [problem.activation, *(unit.link for unit in units)]
    is_tabulated = problem.kind == "network" or is_correlation(problem)
    return is_tabulated and any(not link.is_polynomial and link.expression is None for link in links)
