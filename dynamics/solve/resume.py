"""`python -m dynamics.solve --resume run.nc`: all options but those of display and running time are in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamics.commands.options import OPTIONS
from dynamics.commands.parsing import UsageError, as_typed, check_targets, chosen_figure, read_option
from dynamics.solve.end import solve_and_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import xarray as xr

    from dynamics.commands.end import Telling

#: What may stand beside --resume; the rest is in the file.
BESIDE_RESUME = (
    *("resume", "max_runtime", "checkpoint_every"),
    *("plot", "no_plot", "style", "csv", "json", "quiet", "no_progress"),
)


def resume_from_file(given: Mapping[str, Any], find: Callable[[xr.Dataset], Telling | None]) -> int:
    """Go on with the run in a file, and show the answer as `solve_and_report` does; return the exit code."""
    from dynamics.runs.run_file import reopened
    from dynamics.runs.storage import StorageError
    from dynamics.solve.resumption import resume

    for name, value in given.items():
        if value and name not in BESIDE_RESUME:
            msg = f"Option --{name.replace('_', '-')} must be absent beside --resume, but is given."
            raise UsageError(msg)
    budget, every = _value(given, "max_runtime"), _value(given, "checkpoint_every")
    hidden = given["quiet"] or given["no_progress"]
    try:
        file = reopened(given["resume"], every=every, keeps_result=False)
        figure = chosen_figure(given, file.target)
        check_targets({"overwrite": True, "csv": given["csv"]}, None, figure)
        return solve_and_report(
            lambda: resume(file, progress=False if hidden else None, max_runtime=budget),
            file,
            figure,
            given,
            find,
        )
    except StorageError as error:
        raise UsageError(as_typed(error, OPTIONS, path="--resume")) from None


def _value(given: Mapping[str, Any], key: str) -> Any:
    option = next(option for option in OPTIONS if option.key == key)
    text = option.default if given[key] is None else given[key]
    return None if text is None else read_option(option, text)
