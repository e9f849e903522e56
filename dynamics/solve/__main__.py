"""Command line: `python -m dynamics.solve --k 4 --beta 1.0`.

Parses first, imports after. The library is in `dynamics.solve.decoupled`; nothing imports this module.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.commands.options import OPTIONS, Option
from dynamics.commands.parsing import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Parser,
    UsageError,
    chosen_figure,
    read_option,
    read_toml,
)
from dynamics.solve.end import solve_and_report
from dynamics.solve.resume import resume_from_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.report.findings import Findings
    from dynamics.runs.run_file import RunFile

EXAMPLES = """\
examples:
  python -m dynamics.solve --k 4 --beta 1.0
      sixteen directions of a power-law teacher, learned one after the other; writes a dataset and a figure
  python -m dynamics.solve --k 4 --coefficients 0.8,0.6 --width 8 --dimension 16 --output small.nc
      a small problem that `python -m sgd_check.run small.nc` checks in half a minute
  python -m dynamics.solve --model mean-field --k 4 --dimension 64
      the law of the neurons of an infinitely wide network on the sphere, flowing to the poles

  python -m dynamics.solve --resume small.nc
      go on with a run that was interrupted, killed or out of time; its file and figure are replaced

exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser: every option of the table, and the ones that only a command line has."""
    parser = Parser(
        prog="python -m dynamics.solve",
        description="Predict and integrate how a two-layer network learns the directions of a teacher.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for option in OPTIONS:
        shown = "" if option.default is None else f" [{_show(option.default)}]"
        parser.add_argument(
            f"--{option.name}",
            default=None,
            metavar=option.metavar or None,
            help=f"{option.help}{shown}{_menu(option)}",
        )
    parser.add_argument("--config", metavar="FILE", help="TOML file of the options above; flags win over the file")
    parser.add_argument("--resume", metavar="FILE", help="go on with the unfinished run in a file, and complete it")
    parser.add_argument("--output", metavar="FILE", help="dataset to write [a free name made of the parameters]")
    parser.add_argument("--plot", metavar="FILE", help="figure to write [beside the dataset, ending in .png]")
    parser.add_argument("--no-plot", action="store_true", help="write no figure")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument("--dry-run", action="store_true", help="print the estimated memory and operations, run nothing")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        parsed = vars(build_parser().parse_args(arguments))
        if parsed["version"]:
            from dynamics.runs.provenance import DISTRIBUTION, version

            print(f"{DISTRIBUTION} {version()}")  # noqa: T201
            return EXIT_DONE
        return resume_from_file(parsed, _find) if parsed["resume"] else _solve(parsed, _options(parsed))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return EXIT_INTERRUPTED
    except MemoryError as error:
        print(f"error: The run needs more memory than there is ({error}); see --dry-run.", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED


def _options(parsed: dict[str, Any]) -> dict[str, Any]:
    """Merge defaults, the TOML file and the flags, in rising order, and check each value."""
    stored = read_toml(parsed["config"], "Option --config") if parsed["config"] else {}
    known = {option.name for option in OPTIONS}
    for name in stored:
        if name.replace("_", "-") not in known:
            msg = f"File {parsed['config']!r} must hold options of this command only, but has {name!r}."
            raise UsageError(msg)
    from_file = {name.replace("_", "-"): value for name, value in stored.items()}
    merged: dict[str, Any] = {}
    for option in sorted(OPTIONS, key=lambda option: option.name != "model"):
        flag = parsed[option.name.replace("-", "_")]
        given = flag if flag is not None else _as_text(from_file.get(option.name))
        merged[option.name] = option.default if given is None else read_option(option, given)
        if given is not None and merged["model"] not in option.models:
            msg = f"Option --{option.name} must be absent for --model {merged['model']}, but is {given}."
            raise UsageError(msg)
    for chosen, others in (("coefficients", ("beta", "ratio", "directions")), ("ratio", ("beta",))):
        for name in others if merged[chosen] is not None else ():
            if merged[name] is not None:
                msg = f"Option --{name} must be absent when --{chosen} is given, but is {merged[name]}."
                raise UsageError(msg)
    return merged


def _as_text(value: Any) -> str | None:
    if isinstance(value, list):
        return ",".join(str(entry) for entry in value)
    return None if value is None else str(value)


def _menu(option: Option) -> str:
    return f"; one of {', '.join(option.choices)}" if option.choices else ""


def _show(default: Any) -> str:
    return ":".join(map(str, default)) if isinstance(default, tuple) else str(default)


def build_problem(options: dict[str, Any]) -> Problem:
    """Return the problem that the options describe."""
    import hermite
    from dynamics.problem import Problem, Teacher

    spherical = options["model"] == "mean-field"
    link = hermite.expand(options["activation"] or f"he{options['k'] or 4}", order=options["order"])
    if options["k"] is not None and link.information_exponent != options["k"]:
        msg = (
            f"Option --k must equal the information exponent of --activation, but is {options['k']} "
            f"while {link.name} has {link.information_exponent}."
        )
        raise UsageError(msg)
    if options["coefficients"] is not None:
        teacher = Teacher(options["coefficients"])
    elif spherical:
        share = 1.0 / (options["directions"] or 1)
        teacher = Teacher([share] * (options["directions"] or 1))
    elif options["ratio"] is not None:
        teacher = Teacher.geometric(options["directions"] or 16, options["ratio"])
    else:
        beta = 1.0 if options["beta"] is None else options["beta"]
        teacher = Teacher.power_law(options["directions"] or 16, beta)
    count = teacher.num_directions
    if spherical:
        return Problem(
            activation=link,
            teacher=teacher,
            width=1,  # any: the mean field is that of infinite width
            dimension=options["dimension"] or max(64, count + 1),
            seed=options["seed"],
            student="spherical",
            teacher_activation=options["teacher-activation"],
        )
    return Problem(
        activation=link,
        teacher=teacher,
        width=options["width"] or 3 * count,
        dimension=options["dimension"] or max(256, count),
        initial_norm=options["initial-norm"],
        seed=options["seed"],
    )


def _solve(parsed: dict[str, Any], options: dict[str, Any]) -> int:
    from dynamics.runs.storage import StorageError, check_target, free_name

    try:
        problem = build_problem(options)
        _check_model(problem, options)
        if options["method"] == "sundials":  # both say so if the extra is missing
            from dynamics.integrators import check_method

            check_method(options["method"])
        if options["device"] is not None:
            from dynamics.integrators.large_flow.device.device import load_torch

            load_torch(options["device"])
        output = Path(parsed["output"]) if parsed["output"] is not None else free_name(_stem(problem, options), ".nc")
        figure = chosen_figure(
            parsed["plot"], output, no_plot=parsed["no_plot"], json=parsed["json"], quiet=parsed["quiet"]
        )
        save_at = _schedule(problem, options)
        for path in (output, figure):
            if path is not None and not parsed["dry_run"]:
                check_target(path, overwrite=parsed["overwrite"])
    except (TypeError, ValueError, ImportError, StorageError) as error:
        raise UsageError(str(error)) from None
    if parsed["dry_run"]:
        from dynamics.solve.estimate import estimate

        print(estimate(problem, options["model"], options["keep"], save_at, options["particles"]))  # noqa: T201
        return EXIT_DONE
    from dynamics.runs.run_file import RunFile

    file = RunFile(output, options["checkpoint-every"], overwrite=parsed["overwrite"], keeps_result=False)
    return solve_and_report(lambda: _question(parsed, options, problem, save_at, file), file, figure, parsed, _find)


def _find(answer: xr.Dataset) -> Findings | None:
    from dynamics.report.findings import find_findings

    return find_findings(answer)


def _check_model(problem: Problem, options: dict[str, Any]) -> None:
    """Raise what the model has against the problem or the method."""
    if options["model"] == "decoupled":
        from dynamics.theory.prediction import check_decouples

        check_decouples(problem)
    elif options["model"] == "mean-field":
        from dynamics.equations.mean_field.checks import check_axes, checked_particles, checked_quadrature
        from dynamics.solve.registry import registered

        check_axes(problem)
        checked_particles(problem, options["particles"], checked_quadrature(problem, options["quadrature"]))
        menu = ("auto", *registered("mean-field").methods)
        if options["method"] not in menu:
            msg = f"Option --method must be one of {', '.join(menu)} for mean-field, but is {options['method']!r}."
            raise UsageError(msg)
    else:
        from dynamics.solve.overlaps import check_flow_memory
        from dynamics.solve.step_settings import checked_step, make_system

        check_flow_memory(problem, options["keep"], options["save"][1])
        settings = [options[name] for name in ("learning-rate", "method", "step-theory", "batch-size")]
        step = checked_step(*settings)
        if step.step_theory is not None:
            make_system(problem, step)  # says so if the link has no exact moments


def _question(
    parsed: dict[str, Any], options: dict[str, Any], problem: Problem, save_at: Any, file: RunFile
) -> xr.Dataset:
    """Return the answer of the model that was chosen."""
    from dynamics.solve import decoupled as answers
    from dynamics.solve import mean_field
    from dynamics.solve import overlaps as flow

    if options["model"] == "decoupled":
        return answers.solve_decoupled(problem, save_at=save_at)
    watched: dict[str, Any] = {
        "progress": False if parsed["quiet"] or parsed["no_progress"] else None,
        "max_runtime": options["max-runtime"],
        "checkpoint": file,
    }
    if options["model"] == "mean-field":
        return mean_field.solve_mean_field(
            problem,
            particles=options["particles"],
            quadrature=options["quadrature"],
            save_at=save_at,
            keep=options["keep"],
            method="explicit" if options["method"] == "auto" else options["method"],
            rtol=options["rtol"],
            atol=options["atol"],
            **watched,
        )
    return flow.solve_overlaps(
        problem,
        save_at=save_at,
        keep=options["keep"],
        method=options["method"],
        rtol=options["rtol"],
        atol=options["atol"],
        learning_rate=options["learning-rate"],
        device=options["device"],
        step_theory=options["step-theory"],
        batch_size=options["batch-size"],
        error_estimate={"auto": None, "yes": True, "no": False}[options["error-estimate"]],
        **watched,
    )


def _schedule(problem: Problem, options: dict[str, Any]) -> Any:
    """Return the SaveAt of the options, or None for the documented default."""
    from dynamics.problem.schedule import DEFAULT_COUNT, SaveAt
    from dynamics.theory.horizon import default_schedule
    from dynamics.theory.prediction import predict

    kind, count = options["save"]
    if options["t-max"] is None and options["t-min"] is None and (kind, count) == ("geometric", DEFAULT_COUNT):
        return None
    if options["model"] == "mean-field":
        from dynamics.solve.mean_field import default_mean_field_schedule

        default = default_mean_field_schedule(problem)
    else:
        default = default_schedule(problem, predict(problem) if problem.information_exponent > 2 else None)
    last = options["t-max"] or float(default.times[-1])
    if kind == "linear":
        return SaveAt.linear(options["t-min"] or 0.0, last, count)
    first = options["t-min"] or min(float(default.times[0]), last / 100.0)
    return SaveAt.geometric(first, last, count)


def _stem(problem: Problem, options: dict[str, Any]) -> str:
    """Return a file name that tells the parameters, ending in a short hash of all of them."""
    import hashlib
    import json

    everything = json.dumps([problem.parameters(), {key: repr(value) for key, value in options.items()}])
    digest = hashlib.sha256(everything.encode()).hexdigest()[:6]
    link = "".join(c if c.isalnum() else "_" for c in problem.activation.name)[:24]
    beta = "" if problem.teacher.beta is None else f"-beta{problem.teacher.beta:g}"
    width = "" if options["model"] == "mean-field" else f"-m{problem.width}"
    sizes = f"P{problem.num_directions}{width}-d{problem.dimension}"
    return f"{options['model']}-{link}{beta}-{sizes}-{digest}"


if __name__ == "__main__":
    # A short program that loads large libraries: collecting cycles among them costs a tenth of the whole.
    gc.disable()
    code = main()
    from dynamics.compiler.patience import leave

    leave(code)
