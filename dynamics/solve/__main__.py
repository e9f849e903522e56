"""Command line: `python -m dynamics.solve --k 4 --beta 1.0`, one answer to one problem."""

from __future__ import annotations

import gc
import inspect
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dynamics.commands.options import (
    CONFIG,
    CORRELATION,
    CSV,
    JSON,
    NETWORK,
    NO_PLOT,
    NO_PROGRESS,
    OPTIONS,
    OVERWRITE,
    PLOT,
    QUIET,
    STYLE,
    Option,
)
from dynamics.commands.parsing import (
    EXIT_DONE,
    EXIT_FAILED,
    Parser,
    UsageError,
    as_typed,
    check_targets,
    chosen_figure,
    command_parser,
    completed,
    exit_code_of,
    read_option,
    say,
    tell,
)
from dynamics.commands.readers import plain, switch
from dynamics.solve.described_problem import build_problem
from dynamics.solve.end import solve_and_report
from dynamics.solve.registry import registered
from dynamics.solve.resume import resume_from_file
from hermite.text.command_line import run_program
from hermite.text.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.report.findings import Findings
    from dynamics.runs.run_file import RunFile
    from dynamics.solve.registry import Answer

EXAMPLES = """\
examples:
  python -m dynamics.solve --k 4 --beta 1.0
      sixteen directions of a power-law teacher, learned one after the other; writes a dataset and a figure
  python -m dynamics.solve --k 4 --coefficients 0.8,0.6 --width 8 --dimension 16 --output small.nc
      a small problem that `python -m sgd_check.run small.nc` checks in half a minute
  python -m dynamics.solve --model mean-field --k 4 --dimension 64
      the law of the neurons of an infinitely wide network on the sphere, flowing to the poles
  python -m dynamics.solve --model quadratic --directions 1024 --beta 1 --width 64 --dimension 1e9
      a quadratic network, exactly and at any dimension: alignments, the loss and its power law
  python -m dynamics.solve --teacher "x1 + x1*x2 + x1*x2*x3" --activation h2+h3 --width 32 --biases fixed --scale 1/m
      any two-layer network, here on a staircase: each component of the polynomial is learned after the one before
  python -m dynamics.solve --objective correlation --smoothing 4 --k 4 --dimension 256
      one neuron on the sphere and one direction, in a landscape that is smoothed

  python -m dynamics.solve --resume small.nc
      go on with a run that was interrupted, killed or out of time; its file and figure are replaced

exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted
"""


#: What only a command line has.
COMMAND_OPTIONS = (
    CONFIG,
    Option("resume", plain, "go on with the unfinished run in a file, and complete it", "FILE"),
    Option("output", plain, "dataset to write [a free name made of the parameters]", "FILE"),
    PLOT,
    NO_PLOT,
    STYLE,
    CSV,
    OVERWRITE,
    Option("dry-run", switch, "print the estimated memory and operations, run nothing"),
    JSON,
    QUIET,
    NO_PROGRESS,
)
#: Options that another makes meaningless.
EXCLUDED = {
    "coefficients": ("beta", "ratio", "directions"),
    "ratio": ("beta",),
    "teacher": ("beta", "ratio", "directions", "coefficients", "teacher_activation"),
}


def build_parser() -> Parser:
    """Return the parser; building it imports nothing heavy."""
    description = "Predict and integrate how a two-layer network learns the directions of a teacher."
    parser = command_parser("dynamics.solve", description, EXAMPLES)
    parser.add_options((*OPTIONS, *COMMAND_OPTIONS))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _run(build_parser().values(arguments)), interrupted="interrupted")


def _run(given: Mapping[str, Any]) -> int:
    """Go on with a run, or solve a problem; return the exit code."""
    try:
        if given["resume"]:
            return resume_from_file(given, _find)
        given = completed(given, (*OPTIONS, *COMMAND_OPTIONS))
        if given["resume"]:
            msg = "Option --resume must be typed as a flag, but is in the file of --config."
            raise UsageError(msg)
        return _solve(given, _options(given))
    except MemoryError as error:
        say(f"error: The run needs more memory than there is ({error}); see --dry-run.")
        return EXIT_FAILED


def _options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options by name, read and checked; what is not given has its default."""
    values: dict[str, Any] = {}
    given = {**given, "model": _implied_model(given) if given["model"] is None else given["model"]}
    for option in sorted(OPTIONS, key=lambda option: option.name != "model"):
        text = given[option.key]
        read = option.default if text is None else text
        values[option.key] = None if read is None else read_option(option, read)
        if text is not None and values["model"] not in option.models:
            msg = f"Option --{option.name} must be absent for --model {values['model']}, but is {text}."
            raise UsageError(msg)
    objective = "correlation" if values["model"] in CORRELATION else "squared"
    if values["objective"] not in (None, objective):
        msg = f"Option --objective must be {objective} for --model {values['model']}, but is {values['objective']}."
        raise UsageError(msg)
    for chosen, others in EXCLUDED.items():
        for name in others if values[chosen] is not None else ():
            if values[name] is not None:
                msg = (
                    f"Option --{name.replace('_', '-')} must be absent when --{chosen} is given, but is {values[name]}."
                )
                raise UsageError(msg)
    return MappingProxyType(values)


def _implied_model(given: Mapping[str, Any]) -> str | None:
    """Return the model of which something is said that others do not take, where no model is chosen."""
    if given["objective"] == CORRELATION[0]:
        return CORRELATION[0]
    said = {option.key for option in OPTIONS if given[option.key] is not None}
    models = (NETWORK, CORRELATION)
    return next(
        (only[0] for only in models for option in OPTIONS if option.models == only and option.key in said), None
    )


def _solve(given: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    from dynamics.runs.storage import free_name

    answer = registered(options["model"])
    try:
        problem = build_problem(options)
        _check_answer(answer, problem, options)
        output = Path(given["output"]) if given["output"] is not None else free_name(_stem(problem, options), ".nc")
        figure = chosen_figure(given, output)
        save_at = _schedule(answer, problem, options)
    except (TypeError, ValueError, ImportError) as error:
        raise UsageError(as_typed(error, OPTIONS, **_of_teacher(options))) from None
    if not given["dry_run"]:
        check_targets(given, output, figure)
    if given["dry_run"]:
        from dynamics.solve.estimate import estimate

        tell(estimate(problem, options["model"], options["keep"], save_at, options["particles"]))
        return EXIT_DONE
    from dynamics.runs.run_file import RunFile

    file = RunFile(output, options["checkpoint_every"], overwrite=given["overwrite"], keeps_result=False)
    return solve_and_report(lambda: _question(given, options, problem, save_at, file), file, figure, given, _find)


def _of_teacher(options: Mapping[str, Any]) -> dict[str, str]:
    """Return what was typed for arguments that no option has the name of."""
    listed = {} if options["coefficients"] is None else {"teacher": "--coefficients"}
    return {"num_directions": "--directions", "inputs": "--spectrum", "text": "--teacher", **listed}


def _find(answer: xr.Dataset) -> Findings | None:
    from dynamics.report.findings import find_findings

    return find_findings(answer)


def _check_answer(answer: Answer, problem: Problem, options: Mapping[str, Any]) -> None:
    """Raise what an answer has against the problem, the method or what the method needs."""
    resolve_name(answer.check)(problem, options)
    method, menu = options["method"], dict.fromkeys(("auto", *answer.methods))
    if answer.methods and method not in menu:
        msg = f"Option --method must be one of {', '.join(menu)} for {answer.name}, but is {method!r}."
        raise UsageError(msg + suggestion(method, menu))
    if method == "sundials":  # both say so if the extra is missing
        from dynamics.integrators import check_method

        check_method(method)
    if options["device"] is not None:
        from dynamics.integrators.large_flow.device.device import load_torch

        load_torch(options["device"])


def _question(
    given: Mapping[str, Any], options: Mapping[str, Any], problem: Problem, save_at: SaveAt | None, file: RunFile
) -> xr.Dataset:
    """Return the answer of the chosen model, whose function takes the options that have its arguments' names."""
    answer = registered(options["model"])
    solve = answer.solve()
    known = inspect.signature(solve).parameters
    own = {
        "save_at": save_at,
        "method": answer.methods[0] if answer.methods and options["method"] == "auto" else options["method"],
        "error_estimate": {"auto": None, "yes": True, "no": False}[options["error_estimate"]],
        "progress": False if given["quiet"] or given["no_progress"] else None,
        "checkpoint": file,
    }
    dataset: xr.Dataset = solve(problem, **{key: value for key, value in {**options, **own}.items() if key in known})
    return dataset


def _schedule(answer: Answer, problem: Problem, options: Mapping[str, Any]) -> SaveAt | None:
    """Return the SaveAt of the options, or None for the documented default."""
    from dynamics.problem.schedule import DEFAULT_COUNT, SaveAt

    kind, count = options["save"]
    if options["t_max"] is None and options["t_min"] is None and (kind, count) == ("geometric", DEFAULT_COUNT):
        return None
    default = resolve_name(answer.schedule)(problem)
    last = options["t_max"] or float(default.times[-1])
    if kind == "linear":
        return SaveAt.linear(options["t_min"] or 0.0, last, count)
    first = options["t_min"] or min(float(default.times[0]), last / 100.0)
    return SaveAt.geometric(first, last, count)


def _stem(problem: Problem, options: Mapping[str, Any]) -> str:
    """Return a file name that tells the parameters, ending in a short hash of all of them."""
    import hashlib
    import json

    everything = json.dumps(
        [problem.parameters(), {key.replace("_", "-"): repr(value) for key, value in options.items()}]
    )
    digest = hashlib.sha256(everything.encode()).hexdigest()[:6]
    link = "".join(c if c.isalnum() else "_" for c in problem.activation.name)[:24]
    beta = "" if problem.teacher.beta is None else f"-beta{problem.teacher.beta:g}"
    width = "" if problem.kind == "spherical" else f"-m{problem.width}"
    sizes = f"P{problem.num_directions}{width}-d{problem.dimension}"
    return f"{options['model']}-{link}{beta}-{sizes}-{digest}"


if __name__ == "__main__":
    # A short program that loads large libraries: collecting cycles among them costs a tenth of the whole.
    gc.disable()
    run_program(main)
