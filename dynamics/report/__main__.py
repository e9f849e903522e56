"""Command line: `python -m dynamics.report run.nc`, any result file as one HTML page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from dynamics.commands import parsing
from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, UsageError, as_typed
from dynamics.commands.program import run_program

EXAMPLES = """\
examples:
  python -m dynamics.report run.nc                 writes run.html
  python -m dynamics.report check.nc --open        writes check.html and shows it in the browser
  python -m dynamics.report run.nc --animate run.gif
      also shows how neurons move onto the directions
  python -m dynamics.report run.nc --output today.html --overwrite

Any result file will do: a solve, a comparison with SGD, a simulation, a study, a sweep, a run that has not ended. The
page needs nothing beside it: figures are inside, and nothing is loaded from anywhere.

stdout holds the names of the files, stderr everything else. exit codes: 0 done, 1 no page could be written, 2 usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    unwritten = "interrupted before the page was written"
    return parsing.exit_code_of(lambda: _report(build_parser().parse_args(arguments)), interrupted=unwritten)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = parsing.command_parser("dynamics.report", "Write one self-contained HTML page on a result.", EXAMPLES)
    add = parser.add_argument
    add("result", metavar="FILE", help="netCDF file that this program has written")
    add("--output", metavar="FILE", help="page to write [beside the result, ending in .html]")
    add("--animate", metavar="FILE", help="also write neurons moving onto directions, .gif, or .mp4 if ffmpeg is there")
    add("--overwrite", action="store_true", help="replace existing files")
    add("--open", action="store_true", help="show the page in the browser")
    return parser


def _report(parsed: argparse.Namespace) -> int:
    """Write the page that the command line asks for, and return the exit code."""
    from dynamics.report.animation import animate
    from dynamics.report.page import check_page, read_result, write_page
    from dynamics.runs.storage import StorageError, main_part

    source = Path(parsed.result)
    parsing.check_names_a_file("Argument FILE", source)
    output = Path(parsed.output) if parsed.output else source.with_suffix(".html")
    try:
        target = check_page(output, source, overwrite=parsed.overwrite)
    except StorageError as error:
        raise UsageError(as_typed(error, (), path="--output")) from None
    try:
        result, resumable = read_result(source)
    except StorageError as error:
        raise UsageError(as_typed(error, (), path="FILE")) from None
    try:
        if parsed.animate:
            animate(main_part(result), parsed.animate, overwrite=parsed.overwrite)
    except (StorageError, ValueError) as error:
        raise UsageError(as_typed(error, (), path="--animate", dataset="FILE")) from None
    try:
        write_page(result, target, source, resumable=resumable, overwrite=parsed.overwrite)
    except StorageError as error:
        parsing.say(f"error: {error}")
        return EXIT_FAILED
    parsing.tell(str(target))
    if parsed.animate:
        parsing.tell(parsed.animate)
    if parsed.open:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
    return EXIT_DONE


if __name__ == "__main__":
    run_program(main)
