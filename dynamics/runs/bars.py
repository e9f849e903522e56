"""Progress bars: who sees them, and how all of them are opened."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

#: Seconds after which a notebook, which keeps what was written to it, shows a bar that nobody asked for.
NOTEBOOK_DELAY = 1.0


def bar_settings(progress: bool | None) -> dict[str, Any]:
    """Return arguments of tqdm: shown as `progress` says; None: where stderr is a terminal or that of a notebook."""
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    is_seen = sys.stderr is not None and (sys.stderr.isatty() or in_notebook)
    return {
        "file": sys.stderr,
        "disable": not is_seen if progress is None else not progress,
        "leave": False,
        "delay": NOTEBOOK_DELAY if in_notebook and progress is None else 0.0,
    }


def open_bar(settings: dict[str, Any], **options: Any) -> Any:
    """Return a bar of tqdm with the settings of `bar_settings` and further arguments, such as `total` and `unit`."""
    return _kind_of_bar()(**options, **settings)


@cache
def _kind_of_bar() -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        #: Without the thread that refreshes bars of loops that stand still, and that would outlive them.
        monitor_interval = 0

    return Bar
