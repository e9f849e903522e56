"""`python -m dynamics.solve --resume run.nc`: everything but what is shown, and for how long, is said in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamics.commands.options import OPTIONS
from dynamics.commands.parsing import UsageError, chosen_figure, read_option
from dynamics.solve.end import solve_and_report

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from dynamics.commands.end import Telling

__all__ = ["resume_from_file"]

#: What may stand beside --resume; the rest is in the file.
BESIDE_RESUME = ("resume", "max-runtime", "checkpoint-every", "plot", "no-plot", "json", "quiet", "no-progress")


def resume_from_file(parsed: dict[str, Any], find: Callable[[xr.Dataset], Telling | None]) -> int:
    """Go on with the run in a file, and print what `find` says that the answer shows; return the exit code.

    Raises
    ------
    UsageError
        For what must not stand beside the file, or if it holds no run that can go on.
    """
    from dynamics.runs.run_file import reopened
    from dynamics.runs.storage import StorageError, check_target
    from dynamics.solve.resumption import resume

    given = [name for name, value in parsed.items() if value and name.replace("_", "-") not in BESIDE_RESUME]
    if given:
        msg = f"Option --{given[0].replace('_', '-')} must be absent beside --resume, but is given."
        raise UsageError(msg)
    budget, every = _value(parsed, "max-runtime"), _value(parsed, "checkpoint-every")
    hidden = parsed["quiet"] or parsed["no_progress"]
    try:
        file = reopened(parsed["resume"], every=every, keeps_result=False)
        figure = chosen_figure(
            parsed["plot"], file.target, no_plot=parsed["no_plot"], json=parsed["json"], quiet=parsed["quiet"]
        )
        if figure is not None:
            check_target(figure, overwrite=True)
        return solve_and_report(
            lambda: resume(file, progress=False if hidden else None, max_runtime=budget), file, figure, parsed, find
        )
    except StorageError as error:
        raise UsageError(str(error)) from None


def _value(parsed: dict[str, Any], name: str) -> Any:
    option = next(option for option in OPTIONS if option.name == name)
    text = parsed[name.replace("-", "_")]
    return option.default if text is None else read_option(option, text)
