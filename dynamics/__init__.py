"""The theory's prediction: emergence of teacher directions in two-layer networks trained on Gaussian data.

Names are resolved lazily (PEP 562), so that `import dynamics` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamics.analysis import fit_power_law as fit_power_law
    from dynamics.answers import predict_emergence as predict_emergence
    from dynamics.answers import solve_decoupled as solve_decoupled
    from dynamics.chaos import propagation_of_chaos as propagation_of_chaos
    from dynamics.committee import solve_committee as solve_committee
    from dynamics.coupling import solve_coupling as solve_coupling
    from dynamics.flow import solve_overlaps as solve_overlaps
    from dynamics.laws.finite_size import finite_size as finite_size
    from dynamics.laws.frontier import compute_frontier as compute_frontier
    from dynamics.laws.scaling import scaling_study as scaling_study
    from dynamics.laws.transfer import transfer_study as transfer_study
    from dynamics.mean_field import solve_mean_field as solve_mean_field
    from dynamics.one_step import OneStepMoments as OneStepMoments
    from dynamics.one_step import moments_of_overlaps as moments_of_overlaps
    from dynamics.one_step import one_step_moments as one_step_moments
    from dynamics.outcome import SolveError as SolveError
    from dynamics.outcome import SolveInterrupted as SolveInterrupted
    from dynamics.pages.document import write_report as write_report
    from dynamics.plotting import plot_emergence as plot_emergence
    from dynamics.plotting import plot_emergence_times as plot_emergence_times
    from dynamics.plotting import plot_loss as plot_loss
    from dynamics.plotting_chaos import plot_chaos as plot_chaos
    from dynamics.plotting_particles import plot_particles as plot_particles
    from dynamics.problem import Problem as Problem
    from dynamics.resumption import resume as resume
    from dynamics.run_file import RunFile as RunFile
    from dynamics.schedule import SaveAt as SaveAt
    from dynamics.spherical import coupled_problem as coupled_problem
    from dynamics.spherical import solve_spherical as solve_spherical
    from dynamics.step_size import learning_rate_limit as learning_rate_limit
    from dynamics.storage import StorageError as StorageError
    from dynamics.storage import load as load
    from dynamics.storage import save as save
    from dynamics.sweeps import sweep as sweep
    from dynamics.teacher import Teacher as Teacher

_HOME = {
    "OneStepMoments": "dynamics.one_step",
    "Problem": "dynamics.problem",
    "RunFile": "dynamics.run_file",
    "SaveAt": "dynamics.schedule",
    "SolveError": "dynamics.outcome",
    "SolveInterrupted": "dynamics.outcome",
    "StorageError": "dynamics.storage",
    "Teacher": "dynamics.teacher",
    "compute_frontier": "dynamics.laws.frontier",
    "coupled_problem": "dynamics.spherical",
    "finite_size": "dynamics.laws.finite_size",
    "fit_power_law": "dynamics.analysis",
    "learning_rate_limit": "dynamics.step_size",
    "load": "dynamics.storage",
    "moments_of_overlaps": "dynamics.one_step",
    "one_step_moments": "dynamics.one_step",
    "plot_chaos": "dynamics.plotting_chaos",
    "plot_emergence": "dynamics.plotting",
    "plot_emergence_times": "dynamics.plotting",
    "plot_loss": "dynamics.plotting",
    "plot_particles": "dynamics.plotting_particles",
    "predict_emergence": "dynamics.answers",
    "propagation_of_chaos": "dynamics.chaos",
    "resume": "dynamics.resumption",
    "save": "dynamics.storage",
    "scaling_study": "dynamics.laws.scaling",
    "solve_committee": "dynamics.committee",
    "solve_coupling": "dynamics.coupling",
    "solve_decoupled": "dynamics.answers",
    "solve_mean_field": "dynamics.mean_field",
    "solve_overlaps": "dynamics.flow",
    "solve_spherical": "dynamics.spherical",
    "sweep": "dynamics.sweeps",
    "transfer_study": "dynamics.laws.transfer",
    "write_report": "dynamics.pages.document",
}

__all__ = [
    "OneStepMoments",
    "Problem",
    "RunFile",
    "SaveAt",
    "SolveError",
    "SolveInterrupted",
    "StorageError",
    "Teacher",
    "compute_frontier",
    "coupled_problem",
    "finite_size",
    "fit_power_law",
    "learning_rate_limit",
    "load",
    "moments_of_overlaps",
    "one_step_moments",
    "plot_chaos",
    "plot_emergence",
    "plot_emergence_times",
    "plot_loss",
    "plot_particles",
    "predict_emergence",
    "propagation_of_chaos",
    "resume",
    "save",
    "scaling_study",
    "solve_committee",
    "solve_coupling",
    "solve_decoupled",
    "solve_mean_field",
    "solve_overlaps",
    "solve_spherical",
    "sweep",
    "transfer_study",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module 'dynamics' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
