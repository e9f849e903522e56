"""What the registry asks before an answer is computed: whether it is refused, and its default times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamics.problem import is_correlation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt


def check_overlaps(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse a flow beyond the memory, contradictory settings of its steps, and a link without exact moments."""
    from dynamics.problem.problem import check_flow_memory
    from dynamics.solve.step_settings import checked_step, make_system

    check_flow_memory(problem, keep=options["keep"], times=options["save"][1])
    step = checked_step(*(options[name] for name in ("learning_rate", "method", "step_theory", "batch_size")))
    if step.step_theory is not None:
        make_system(problem, step)


def check_decoupled(problem: Problem, _options: Mapping[str, Any]) -> None:
    """Refuse a problem whose directions are not learned apart from each other."""
    from dynamics.theory.prediction import check_decouples

    check_decouples(problem)


def check_quadratic_network(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse a link other than h_2, and a network beyond the memory."""
    from dynamics.solve.quadratic import check_quadratic_memory
    from dynamics.theory.quadratic import check_quadratic

    check_quadratic(problem)
    check_quadratic_memory(problem, options["save"][1])


def check_mean_field(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse a teacher of too many axes, and particles that cannot stand for the isotropic law."""
    from dynamics.equations.mean_field.checks import check_axes, checked_particles, checked_quadrature

    check_axes(problem)
    checked_particles(problem, options["particles"], checked_quadrature(problem, options["quadrature"]))


def check_network(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse what exceeds the memory, contradictory settings, unknown means, and neurons that start alike."""
    from dynamics.problem.problem import check_flow_memory
    from dynamics.solve.network import network_step, network_system

    check_flow_memory(problem, keep=options["keep"], times=options["save"][1])
    names = ("learning_rate", "method", "step_theory", "batch_size")
    network_system(problem, network_step(problem, *(options[name] for name in names)))


def check_correlation(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse a link of which the means are not known."""
    from dynamics.solve.correlation import correlation_system

    correlation_system(problem, *(options[name] for name in ("learning_rate", "step_theory", "batch_size")))


def flow_schedule(problem: Problem) -> SaveAt:
    """Return the times that the flow of overlaps saves by default, by the predicted times where theory has them."""
    from dynamics.theory.prediction import default_schedule, predict

    has_pairs = problem.information_exponent > 2 or is_correlation(problem)
    return default_schedule(problem, predict(problem) if has_pairs else None)
