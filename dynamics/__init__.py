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
    from dynamics.committee import solve_committee as solve_committee
    from dynamics.flow import solve_overlaps as solve_overlaps
    from dynamics.one_step import OneStepMoments as OneStepMoments
    from dynamics.one_step import moments_of_overlaps as moments_of_overlaps
    from dynamics.one_step import one_step_moments as one_step_moments
    from dynamics.outcome import SolveError as SolveError
    from dynamics.outcome import SolveInterrupted as SolveInterrupted
    from dynamics.plotting import plot_emergence as plot_emergence
    from dynamics.plotting import plot_emergence_times as plot_emergence_times
    from dynamics.plotting import plot_loss as plot_loss
    from dynamics.problem import Problem as Problem
    from dynamics.schedule import SaveAt as SaveAt
    from dynamics.step_size import learning_rate_limit as learning_rate_limit
    from dynamics.storage import StorageError as StorageError
    from dynamics.storage import load as load
    from dynamics.storage import save as save
    from dynamics.teacher import Teacher as Teacher

_HOME = {
    "OneStepMoments": "dynamics.one_step",
    "Problem": "dynamics.problem",
    "SaveAt": "dynamics.schedule",
    "SolveError": "dynamics.outcome",
    "SolveInterrupted": "dynamics.outcome",
    "StorageError": "dynamics.storage",
    "Teacher": "dynamics.teacher",
    "fit_power_law": "dynamics.analysis",
    "learning_rate_limit": "dynamics.step_size",
    "load": "dynamics.storage",
    "moments_of_overlaps": "dynamics.one_step",
    "one_step_moments": "dynamics.one_step",
    "plot_emergence": "dynamics.plotting",
    "plot_emergence_times": "dynamics.plotting",
    "plot_loss": "dynamics.plotting",
    "predict_emergence": "dynamics.answers",
    "save": "dynamics.storage",
    "solve_committee": "dynamics.committee",
    "solve_decoupled": "dynamics.answers",
    "solve_overlaps": "dynamics.flow",
}

__all__ = [
    "OneStepMoments",
    "Problem",
    "SaveAt",
    "SolveError",
    "SolveInterrupted",
    "StorageError",
    "Teacher",
    "fit_power_law",
    "learning_rate_limit",
    "load",
    "moments_of_overlaps",
    "one_step_moments",
    "plot_emergence",
    "plot_emergence_times",
    "plot_loss",
    "predict_emergence",
    "save",
    "solve_committee",
    "solve_decoupled",
    "solve_overlaps",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module 'dynamics' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
