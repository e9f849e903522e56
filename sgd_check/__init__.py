"""The experiment: online SGD on sampled data, held against the theory's prediction.

Names are resolved lazily (PEP 562), so that `import sgd_check` loads neither torch nor xarray.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgd_check.comparison import compare as compare
    from sgd_check.plotting import plot_comparison as plot_comparison
    from sgd_check.plotting import plot_loss_band as plot_loss_band
    from sgd_check.plotting import plot_overlaps as plot_overlaps
    from sgd_check.plotting import plot_survival as plot_survival
    from sgd_check.plotting import plot_times as plot_times
    from sgd_check.resumption import resume as resume
    from sgd_check.schedules import piecewise as piecewise
    from sgd_check.schedules import power_law_decay as power_law_decay
    from sgd_check.simulation import simulate as simulate
    from sgd_check.studies.complexity import sample_complexity as sample_complexity
    from sgd_check.studies.discretisation import unstable_discretisation as unstable_discretisation
    from sgd_check.studies.figures import plot_study as plot_study
    from sgd_check.studies.step_sizes import step_size_phases as step_size_phases
    from sgd_check.studies.transfer import sgd_transfer as sgd_transfer

_HOME = {
    "compare": "sgd_check.comparison",
    "piecewise": "sgd_check.schedules",
    "plot_comparison": "sgd_check.plotting",
    "plot_loss_band": "sgd_check.plotting",
    "plot_overlaps": "sgd_check.plotting",
    "plot_survival": "sgd_check.plotting",
    "plot_study": "sgd_check.studies.figures",
    "plot_times": "sgd_check.plotting",
    "power_law_decay": "sgd_check.schedules",
    "resume": "sgd_check.resumption",
    "sample_complexity": "sgd_check.studies.complexity",
    "sgd_transfer": "sgd_check.studies.transfer",
    "simulate": "sgd_check.simulation",
    "step_size_phases": "sgd_check.studies.step_sizes",
    "unstable_discretisation": "sgd_check.studies.discretisation",
}

__all__ = [
    "compare",
    "piecewise",
    "plot_comparison",
    "plot_loss_band",
    "plot_overlaps",
    "plot_study",
    "plot_survival",
    "plot_times",
    "power_law_decay",
    "resume",
    "sample_complexity",
    "sgd_transfer",
    "simulate",
    "step_size_phases",
    "unstable_discretisation",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module 'sgd_check' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
