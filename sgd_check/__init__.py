"""The experiment: online SGD on sampled data, held against the theory's prediction.

Names are resolved lazily (PEP 562), so that `import sgd_check` loads neither torch nor xarray.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgd_check.comparison import compare as compare
    from sgd_check.plotting import plot_comparison as plot_comparison
    from sgd_check.plotting import plot_times as plot_times
    from sgd_check.schedules import piecewise as piecewise
    from sgd_check.schedules import power_law_decay as power_law_decay
    from sgd_check.simulation import simulate as simulate

_HOME = {
    "compare": "sgd_check.comparison",
    "piecewise": "sgd_check.schedules",
    "plot_comparison": "sgd_check.plotting",
    "plot_times": "sgd_check.plotting",
    "power_law_decay": "sgd_check.schedules",
    "simulate": "sgd_check.simulation",
}

__all__ = ["compare", "piecewise", "plot_comparison", "plot_times", "power_law_decay", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module 'sgd_check' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
