"""Command line: `python -m sgd_check.tokens FILE`, a prediction on tokens held against runs of the full model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.commands import (
    CONFIG,
    CSV,
    JSON,
    NO_PLOT,
    NO_PROGRESS,
    OVERWRITE,
    PLOT,
    QUIET,
    STYLE,
    Option,
    Parser,
    UsageError,
    as_typed,
    check_targets,
    chosen_figure,
    command_parser,
    completed,
    exit_code_of,
    natural_number,
    plain,
    positive,
    positive_integer,
    require,
    say,
    shown_progress,
    value_of,
)
from dynamics.commands.options import Values
from dynamics.commands.program import run_program

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.runs import RunFile

EXAMPLES = """\
examples:
  python -m dynamics.tokens composition --output prediction.nc
  python -m sgd_check.tokens prediction.nc --learning-rate 0.25 --seeds 8 --plot check.png
  python -m sgd_check.tokens prediction.nc --resume prediction-check-runs.nc
      go on with runs that were interrupted, killed or out of time

stdout holds the result, stderr everything else. exit codes: 0 done, whatever the verdict, 1 the answer is not where it
was to be, 2 usage, 130 interrupted (what was computed is kept and named)
"""
OPTIONS = (
    Option("learning-rate", positive, "step [the prediction's, else 0.25 or a 200th of the first time]", "ETA",
           group="answer"),
    Option("steps", positive_integer, "steps [to 1.15 times the last predicted time]", "N", group="answer"),
    Option("batch-size", positive_integer,
           "samples per step; half of the runs have 4 B [4; chain 32, selection 64, policy gradient 256; memory: all]",
           "B", group="answer details"),
    Option("seeds", positive_integer, "runs, an even number of at least 4 [8]", "N", group="answer"),
    Option("seed", natural_number, "first seed of the samples [0]", argument="first_seed", group="answer"),
    Option("false-alarm-rate", positive, "level of the verdict", "A", "0.01", group="answer details"),
    Option("device", plain, "where torch computes", None, "auto", ("auto", "cpu", "cuda"), group="running"),
    Option("max-runtime", positive, "wall-clock budget of the runs", "SECONDS", group="running"),
    Option("resume", plain, "go on with the runs that this command left in a file", "FILE", group="running"),
    Option("checkpoint-every", positive, "time between two versions of the file of the runs", "SECONDS", "30",
           group="running"),
    Option("output", plain, "file to write [beside FILE, ending in -check.nc]", "FILE", group="output"),
)  # fmt: skip
ALL_OPTIONS = (*OPTIONS, CONFIG, PLOT, NO_PLOT, STYLE, CSV, OVERWRITE, JSON, QUIET, NO_PROGRESS)
#: Options that the file of the runs holds, so that they must not be given with --resume.
SAID = ("learning_rate", "steps", "batch_size", "seeds", "first_seed", "device")
DEFAULT_SEEDS = 8


def build_parser() -> Parser:
    """Return the parser; building it imports nothing heavy."""
    about = "Hold a prediction on tokens against full models in torch."
    file = ("prediction", "FILE", "dataset of `python -m dynamics.tokens`")
    return command_parser("sgd_check.tokens", about, EXAMPLES, ALL_OPTIONS, file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _check(completed(build_parser().values(arguments), ALL_OPTIONS)))


def _check(values: Values) -> int:
    """Simulate, compare with the prediction and write the comparison, as the command line says.

    Return the exit code.
    """
    from dynamics.runs import StorageError, load_answer
    from sgd_check.run.run_files import finish_check, reopened_runs
    from sgd_check.tokens import compare

    asked = {option.key: value for option in OPTIONS if (value := value_of(option, values)) is not None}
    source, level, every = Path(values["prediction"]), asked.pop("false_alarm_rate"), asked.pop("checkpoint_every")
    output = Path(asked.pop("output", source.with_name(f"{source.stem}-check.nc")))
    figure, begun = chosen_figure(values, output), None
    if asked.pop("resume", None) is not None:
        begun = reopened_runs({**values, "checkpoint_every": every}, SAID)
    overwrite = values["overwrite"] or begun is not None
    settings = {**values, "false_alarm_rate": level, "checkpoint_every": every, "overwrite": overwrite}
    check_targets(settings, output, figure)

    try:
        prediction = load_answer(source)
        runs, file = _trained(prediction, asked, settings, output, begun)
        ended = runs.attrs["stop_reason"]
        try:
            tree = compare(prediction, runs, false_alarm_rate=level)
        except KeyboardInterrupt:
            import xarray as xr

            tree, ended = xr.DataTree.from_dict({"/prediction": prediction, "/simulation": runs}), "interrupted"
        return finish_check(tree, output, figure, settings, ended, file, "sgd_check.tokens")
    except (StorageError, ValueError, TypeError, ImportError) as error:
        raise UsageError(as_typed(error, OPTIONS, path="FILE", prediction="FILE")) from None


def _trained(
    prediction: xr.Dataset, asked: dict[str, Any], settings: Mapping[str, object], output: Path, begun: RunFile | None
) -> tuple[xr.Dataset, RunFile | None]:
    """Return runs, new or resumed, and their file; draws of Gaussian embeddings need no file."""
    from dynamics.problem import stored_question
    from dynamics.runs import also_interrupted
    from sgd_check.run.run_files import file_of_runs
    from sgd_check.simulations.simulation import resume
    from sgd_check.tokens import simulate

    problem: Any = stored_question(prediction)
    if "recovery" in prediction and begun is None:
        return simulate(problem, **{"seeds": DEFAULT_SEEDS, **asked}), None
    file = file_of_runs(settings, problem, output, begun)
    shown = {"progress": shown_progress(settings), "max_runtime": asked.pop("max_runtime", None)}
    if begun is not None:
        return also_interrupted(lambda: resume(file, **shown)), file
    course = _course(prediction, {"seeds": DEFAULT_SEEDS, **asked})
    if not settings["quiet"]:
        say(f"{course['steps']} steps of {course['seeds']} runs at learning rate {course['learning_rate']:g}.")
    return also_interrupted(lambda: simulate(problem, **course, **shown, checkpoint=file)), file


def _course(prediction: xr.Dataset, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the options with learning rate and number of steps, by default until 1.15 times the last learned time."""
    import numpy as np

    require(
        "progress" in prediction,
        "Argument `FILE` must be a prediction of `python -m dynamics.tokens`, but is another result.",
    )
    times = prediction["learned_time"].values
    learned = times[np.isfinite(times) & (times > 0.0)]
    first = float(learned.min(initial=np.inf))
    rate = asked.get("learning_rate") or prediction.attrs.get("learning_rate")
    rate = rate or min(0.25, first / 200)  # with fewer steps progress between two is too far from a line
    end = float(learned.max(initial=0.0)) * 1.15 or float(prediction["time"][-1])
    return {"steps": int(np.ceil(end / rate)), **asked, "learning_rate": rate}


if __name__ == "__main__":
    run_program(main)
