"""Command line: `python -m dynamics.solve --k 4 --beta 1.0`, one answer to one problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dynamics.commands import options as table
from dynamics.commands import parsing
from dynamics.commands.options import (
    CORRELATION,
    MEAN_FIELD,
    NETWORK,
    NETWORKS,
    OPTIONS,
    REUSED,
    Option,
    Values,
    plain,
    switch,
)
from dynamics.commands.program import exit_code_of, run_program
from dynamics.signals import heard, stop_if_heard
from dynamics.solve.registry import Answer, registered
from hermite.program import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, UsageError, require_usage, say, tell
from hermite.text.messages import refuse, suggestion

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem import Inputs, Mixture, Optimizer, Problem, Teacher
    from dynamics.problem.saved_times import SaveAt
    from dynamics.report.findings import Findings
    from dynamics.runs.run_file import RunFile
    from hermite import HermiteExpansion

#: Text of `-h`: five questions, each with a command.
SHORT = """\
usage: python -m dynamics.solve [options]

Predict and integrate how a two-layer network learns the directions of a teacher.

When is each of 16 directions of a power-law teacher learned?
  python -m dynamics.solve --k 4 --beta 1.0
When does a relu network, or one of my own activation, learn each part of a polynomial?
  python -m dynamics.solve --teacher "x1 + x1*x2" --activation relu --width 32 --rates mean-field
After how many samples of SGD is direction 2 learned, at a tenth of the largest stable rate?
  python -m dynamics.solve --k 4 --coefficients 0.8,0.6 --learning-steps 2
What do steps of finite size, momentum or Adam change?
  python -m dynamics.solve --activation erf --second-layer fixed --momentum 0.9 --learning-rate 0.1x
Does SGD agree?
  python -m dynamics.solve --k 4 --coefficients 0.8,0.6 --width 8 --dimension 16 --output small.nc
  python -m sgd_check.run small.nc

  --activation LINK      link sigma: relu, erf, tanh, he3, or an expression in z   --k K  or h_k [4]
  --directions P         directions of the teacher [16]   --beta BETA  decay, a_p ~ p^-beta [1]
  --width M              neurons [3 P]                    --dimension D  of the inputs [max(256, P)]
  --learning-rate ETA    step of SGD, a number or 0.1x [none: the flow]   --t-max T  last time
  --output FILE          dataset to write                 --dry-run  memory and time, run nothing

`python -m dynamics.solve --help` lists all options.
"""
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
  python -m dynamics.solve --objective logistic --labels sign --flip 0.1 --activation erf --directions 1
      a network that learns a class, flipped in one of ten samples, by cross-entropy; with --mixture xor of clusters
  python -m dynamics.solve --objective correlation --smoothing 4 --k 4 --dimension 256
      one neuron on the sphere and one direction, in a landscape that is smoothed

  python -m dynamics.solve --samples 4d --epochs 16 --label-noise 0.4
      a neuron that sees the same samples again in every epoch: test and training loss, and the best epoch

  python -m dynamics.solve --resume small.nc
      go on with a run that was interrupted, killed or out of time; its file and figure are replaced

exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted
"""


LEARNING_STEPS = Option(
    "learning-steps", table.integers,
    "numbers of directions; tells and stores after how many steps and samples of SGD each emerges and is learned, with "
    "the interval of 95 percent of runs, at the answer's learning rate or a tenth of the largest stable one", "P,P,...",
    models=(*table.HOMOGENEOUS, *CORRELATION), group="answer")  # fmt: skip
STEP_DRAWS = Option(
    "step-draws", table.positive_integer, "number of runs to draw for the intervals of --learning-steps, from 39 on "
    "[as many as a minute has, 39 to 128, where leading order is not enough]", "N",
    models=(*table.HOMOGENEOUS, *CORRELATION), group="answer")  # fmt: skip
KERNEL = Option(
    "kernel", plain, "also draw what a kernel learns of the same teacher, the tangent kernel of a wide network with "
    "this link or that of its features, online on the sphere; tells how many times fewer samples SGD needs", "NAME",
    choices=("ntk", "features"), models=(*table.HOMOGENEOUS, *NETWORK), group="answer")  # fmt: skip
#: Learning rate of SGD for an answer that has none.
SHARE = "0.1x"
COMMAND_OPTIONS = (
    table.CONFIG,
    Option("resume", plain, "go on with the unfinished run in a file, and complete it", "FILE", group="running"),
    Option("output", plain, "dataset to write [a free name made of the parameters]", "FILE", group="output"),
    *table.FIGURES,
    table.OVERWRITE,
    LEARNING_STEPS,
    STEP_DRAWS,
    KERNEL,
    Option("dry-run", switch, "print the estimated memory and operations, run nothing", group="running"),
    *table.SHOWN,
)
ALL_OPTIONS = (*OPTIONS, *COMMAND_OPTIONS)
#: Options that another makes meaningless.
EXCLUDED = {
    "coefficients": ("beta", "ratio", "directions"),
    "ratio": ("beta",),
    "teacher": ("beta", "ratio", "directions", "coefficients", "teacher_activation"),
}
#: Model -> directions of its teacher, and functions of these that give its width and its dimension, by default.
SIZES: dict[str, tuple[int, Callable[[int], int], Callable[[int], int]]] = {
    "quadratic": (256, lambda _: 32, lambda P: max(10**6, P)),
    "network": (2, lambda _: 8, lambda P: max(256, P)),
    "mean-field": (1, lambda _: 1, lambda P: max(64, P + 1)),  # its width is infinite whatever the problem has
    "correlation": (1, lambda _: 1, lambda _: 256),
    "reused-data": (1, lambda _: 1, lambda P: max(256, P)),
}
USUAL_SIZES = (16, lambda P: 3 * P, lambda P: max(256, P))
QUADRATIC, COMMITTEE = "quadratic", "committee"


def build_parser() -> parsing.Parser:
    """Return the parser; building it imports nothing heavy."""
    about = "Predict and integrate how a two-layer network learns the directions of a teacher."
    return parsing.command_parser("dynamics.solve", about, EXAMPLES, ALL_OPTIONS, short_help=SHORT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _run(build_parser().values(arguments)))


def _run(typed: Mapping[str, object]) -> int:
    """Solve a new problem, or resume a run, as the command line says; return the exit code."""
    try:
        if typed["resume"]:
            return _resume(typed)
        typed = parsing.completed(typed, ALL_OPTIONS)
        require_usage(not typed["resume"], "Option --resume must be typed as a flag, but is in the file of --config.")
        return _solve(typed, _options(typed))
    except MemoryError as error:
        cause = f" ({error})" if str(error) else ""
        say(f"error: The run needs more memory than there is{cause}; see --dry-run.")
        return EXIT_FAILED


# --- options ------------------------------------------------------------------------------------------------


def _options(typed: Mapping[str, object]) -> Mapping[str, object]:
    """Return the checked values of all options by key, with the model that some options imply."""
    if typed["model"] is None:  # options of one model alone imply it
        implied = [option.models for option in OPTIONS if typed[option.key] not in (None, False)]
        implied = [CORRELATION] if typed["objective"] == CORRELATION[0] and not _is_network(typed) else implied
        implied += [NETWORKS] if _is_network(typed) else []
        kinds = (REUSED, NETWORKS, CORRELATION)
        implied = [NETWORKS if models == NETWORK else models for models in implied]
        typed = {**typed, "model": next((models[0] for models in kinds if models in implied), None)}
        if typed["student"] == COMMITTEE and typed["model"] is None:
            typed = {**typed, "model": NETWORK[0]}
    values: dict[str, Any] = {}
    for option in sorted(OPTIONS, key=lambda option: option.name != "model"):
        values[option.key] = parsing.value_of(option, typed)
        _require_absent(option, typed[option.key], values["model"])
    _check_student(values, typed)
    values["optimizer"] = _optimizer(values)
    if values["model"] in REUSED:
        values = _epochs(values)
    objective = "correlation" if values["model"] in CORRELATION else "squared"
    require_usage(
        values["objective"] in (None, objective) or values["model"] in NETWORK,
        f"Option --objective must be {objective} for --model {values['model']}, but is {values['objective']}.",
    )
    for chosen, needless in ((chosen, key) for chosen, keys in EXCLUDED.items() for key in keys):
        flag = f"--{needless.replace('_', '-')}"
        require_usage(
            values[chosen] is None or values[needless] is None,
            f"Option {flag} must be absent when --{chosen} is given, but is {values[needless]}.",
        )
    return MappingProxyType(values)


def _is_network(typed: Mapping[str, object]) -> bool:
    """Return whether the objective is one of networks alone."""
    return typed["objective"] not in (None, "squared", CORRELATION[0])


def _check_student(values: Values, typed: Mapping[str, object]) -> None:
    """Refuse a student that the model does not have, and options that set the second layer of a committee."""
    model, student = values["model"], values["student"]
    takers = {"stiefel": QUADRATIC, COMMITTEE: NETWORK[0]}
    require_usage(
        takers.get(student, model) == model,
        f"Option --student must be one of another model for --model {model}, but is {student}.",
    )
    require_usage(
        model not in NETWORK or typed["student"] in (None, COMMITTEE),
        f"Option --student must be {COMMITTEE} or absent for --model {model}, but is {student}.",
    )
    for key in ("second_layer", "initial_second_layer") if student == COMMITTEE else ():
        flag = f"--{key.replace('_', '-')}"
        require_usage(
            typed[key] is None,
            f"Option {flag} must be absent for --student {COMMITTEE}, whose v_i are 1, but is {typed[key]}.",
        )


def _epochs(values: Values) -> dict[str, object]:
    """Return the options of samples that are used again, with their defaults and the number of steps."""
    require_usage(
        values["samples"] is not None, "Option --samples must be given for --model reused-data, but is absent."
    )
    defaults = {**registered(values["model"]).defaults(), "learning_rate": 1.0, "epochs": 16}
    completed = {**values, **{name: defaults[name] for name in values.keys() & defaults if values[name] is None}}
    if completed["activation"] is None and completed["k"] is None:
        completed["activation"] = "erf"
    return completed | {"steps": completed["epochs"] * completed["batches_per_epoch"]}


def _optimizer(values: Values) -> Optimizer | None:
    """Return the optimizer of the options, None without; --momentum and --average are those of SGD."""
    text = values["optimizer"]
    settings = {name: values[name] for name in ("momentum", "average") if values[name] is not None}
    if text is None and not settings:
        return None
    from dynamics.problem.optimizers import SGD, checked_optimizer

    require_usage(
        not settings or text in (None, SGD.name),
        f"Option --{next(iter(settings), '')} must be absent for --optimizer {text}, which holds all of its settings.",
    )
    try:
        return SGD(**settings) if settings else checked_optimizer(text)
    except (TypeError, ValueError) as error:
        raise UsageError(parsing.as_typed(error, OPTIONS)) from None


def _require_absent(option: Option, text: object, model: str) -> None:
    """Raise UsageError if an option is typed that `model` does not have."""
    require_usage(
        text in (None, False) or model in option.models,
        f"Option --{option.name} must be absent for --model {model}, but is {text}.",
    )


def build_problem(options: Values, *, progress: bool | None = None) -> Problem:
    """Return the problem that the options describe; the student is that of the model.

    `progress` shows a bar while the width of top:COUNT is found; None where stderr is a terminal or a notebook.
    """
    from dynamics.problem import Mixture, Problem, Student, Teacher
    from dynamics.problem.checks import ARRAYS_OF_FLOW, check_memory, checked_link, flow_numbers

    model = options["model"]
    k = options["k"] or (2 if model == QUADRATIC else 4)
    text = options["activation"] or f"he{k}"
    link = (
        _tabulated(text, options["order"])
        if text.startswith("@")
        else checked_link(text, "activation", options["order"])
    )
    require_usage(
        options["k"] is None or link.information_exponent == options["k"],
        f"Option --k must equal the information exponent of --activation, but is {options['k']} "
        f"while {link.name} has {link.information_exponent}.",
    )
    directions, usual_width, usual_dimension = SIZES.get(model, USUAL_SIZES)
    inputs, teacher = _inputs(options), None
    if isinstance(inputs, Mixture) and options["labels"] in (None, "cluster"):
        for key in ("teacher", "directions", "coefficients", "beta", "ratio", "teacher_activation"):
            require_usage(
                options[key] is None,
                f"Option --{key.replace('_', '-')} must be absent where labels are those of clusters, but is "
                f"{options[key]}.",
            )
    elif options["teacher"] is not None:
        teacher = Teacher.polynomial(options["teacher"])
    else:
        count = options["directions"] or directions
        check_memory("num_directions", count, ARRAYS_OF_FLOW * count)
        if model in table.OVERLAPS and options["width"] is None and options["coefficients"] is None:
            check_memory("num_directions", count, flow_numbers(usual_width(count), count, full=False, times=0))
        teacher = _teacher(options, count)
    span = inputs.span if teacher is None and isinstance(inputs, Mixture) else teacher.span if teacher else 1
    width = _width(options["width"], teacher, link, model, progress) or usual_width(span)
    if model in NETWORKS:
        layers = {
            option.key: options[option.key] for option in table.NETWORK_OPTIONS if options[option.key] is not None
        }
        if options["student"] == COMMITTEE:
            layers |= {"second_layer": "fixed", "initial_second_layer": [1.0] * width}
        student: dict[str, Any] = {"student": Student(activation=link, width=width, **layers)}
    else:
        kind = options["student"] if model == QUADRATIC else registered(model).students[0]
        student = {"activation": link, "width": width, "student": kind}
    return Problem(
        **student,
        teacher=teacher,
        dimension=options["dimension"] or _dimension_of(inputs) or usual_dimension(span),
        initial_norm=options["initial_norm"] or (width**-0.25 if model == QUADRATIC else None),
        seed=options["seed"],
        label_noise=options["label_noise"] or 0.0,
        inputs=inputs,
        teacher_activation=options["teacher_activation"],
        objective=options["objective"] or ("correlation" if model in CORRELATION else "squared"),
        labels=options["labels"],
        flip=options["flip"] or 0.0,
        threshold=options["threshold"] or 0.0,
        smoothing=options["smoothing"] or 0.0,
        emergence_level=options["emergence_level"],
    )


def _width(
    width: int | str | None, teacher: Teacher | None, link: HermiteExpansion, model: str, progress: bool | None
) -> int | None:
    """Return the number of neurons that is asked for, None if none is; of top:COUNT by draws of random starts."""
    if not isinstance(width, str):
        return width
    require_usage(
        teacher is not None and model in table.HOMOGENEOUS and link.information_exponent >= 3,
        f"Option --width must be a number for --model {model} and a link of information exponent "
        f"{link.information_exponent}, since greedy matching begins at 3, but is {width}.",
    )
    from dynamics.laws.layerwise import resolved_width

    assert teacher is not None
    return resolved_width(width, teacher, link, progress=progress)


def _inputs(options: Values) -> Inputs | Mixture | None:
    """Return the inputs that the options describe: a spectrum, clusters, or None for isotropic ones."""
    from dynamics.problem import Inputs, Mixture

    kind = options["mixture"]
    require_usage(
        options["snr"] is None or kind is not None,
        f"Option --snr must be absent without --mixture, but is {options['snr']}.",
    )
    source = options["spectrum_from"]
    if kind is not None:
        for key in ("spectrum", "spectrum_from"):
            require_usage(
                options[key] is None,
                f"Option --{key.replace('_', '-')} must be absent when --mixture is given, but is {options[key]}.",
            )
        return (Mixture.two if kind == "two" else Mixture.xor)(snr=options["snr"] or 1.0)
    require_usage(
        source is None or options["spectrum"] is None,
        f"Option --spectrum must be absent when --spectrum-from is given, but is {options['spectrum']}.",
    )
    if source is not None:
        return Inputs.from_data(source)
    return None if options["spectrum"] is None else Inputs.power_law(options["spectrum"])


def _dimension_of(inputs: Inputs | Mixture | None) -> int | None:
    """Return the number of eigenvalues that were measured on rows; None for other inputs."""
    spectrum = getattr(inputs, "spectrum", None)
    return None if spectrum is None else int(spectrum.eigenvalues.size)


def _tabulated(name: str, order: int | None) -> HermiteExpansion:
    """Return the link of a table in a file."""
    from hermite import from_table

    try:
        return from_table(*table.read_pairs(name), order=order)
    except ValueError as error:
        text = str(error) if str(error).startswith("Argument") else f"Option --activation {error}."
        raise UsageError(text) from None


def _teacher(options: Values, count: int) -> Teacher:
    """Return the teacher of `count` directions that the options describe: by coefficients, a ratio, or a power law."""
    from dynamics.problem import Teacher

    if options["coefficients"] is not None:
        return Teacher(options["coefficients"])
    if options["model"] in (*MEAN_FIELD, *CORRELATION):  # mixture weights
        return Teacher([1.0 if options["model"] in CORRELATION else 1.0 / count] * count)
    if options["ratio"] is not None:
        return Teacher.geometric(count, options["ratio"])
    return Teacher.power_law(count, 1.0 if options["beta"] is None else options["beta"])


def _saved_times(answer: Answer, problem: Problem, options: Values) -> SaveAt | None:
    """Return the saved times, or None for the documented default."""
    from dynamics.problem.saved_times import DEFAULT_COUNT, SaveAt, ended_at

    kind, count = options["save"]
    if options["t_max"] is None and options["t_min"] is None and (kind, count) == ("geometric", DEFAULT_COUNT):
        return None
    default = resolve_name(answer.saved_times)(problem)
    last = options["t_max"] or float(default.times[-1])
    if kind == "linear":
        return SaveAt.linear(options["t_min"] or 0.0, last, count)
    if options["t_min"] is None and count == DEFAULT_COUNT:
        return ended_at(default, last)
    first = options["t_min"] or min(float(default.times[0]), last / 100.0)
    return SaveAt.geometric(first, last, count)


def _check_answer(answer: Answer, problem: Problem, options: Values) -> None:
    """Refuse a problem or options that the answer does not take, an unknown method, and missing extras."""
    resolve_name(f"{answer.function.partition(':')[0]}:check")(problem, options)
    method, menu = options["method"], dict.fromkeys(("auto", *answer.methods))
    if answer.methods and method not in menu:
        refuse(
            f"Option --method must be one of {', '.join(menu)} for {answer.name}, but is {method!r}."
            f"{suggestion(method, menu)}",
            error=UsageError,
        )
    if method == "sundials":
        from dynamics.integrators import check_method

        check_method(method)
    if options["device"] is not None:
        from dynamics.integrators.device import load_torch

        load_torch(options["device"])


def _counted_directions(typed: Mapping[str, object], problem: Problem, options: Values) -> tuple[int, ...]:
    """Return the directions of --learning-steps, none if quiet; refuse a problem without a learning rate."""
    numbers: tuple[int, ...] = parsing.value_of(LEARNING_STEPS, typed) or ()
    if not numbers:
        require_usage(
            typed["step_draws"] is None,
            f"Option --step-draws must be absent without --learning-steps, but is {typed['step_draws']}.",
        )
        return ()
    _require_absent(LEARNING_STEPS, typed["learning_steps"], options["model"])
    if (draws := parsing.value_of(STEP_DRAWS, typed)) is not None:
        from dynamics.solve.learning_steps import check_draws

        check_draws(draws, problem, options.get("optimizer"))
    last = problem.num_directions
    for number in numbers:
        require_usage(
            1 <= number <= last, f"Option --learning-steps must have numbers from 1 to {last}, but has {number}."
        )
    if options["learning_rate"] is None or options["method"] == "gradient-descent":
        from dynamics.theory.learning_rates import resolved_rate

        resolved_rate(problem, SHARE)
    return () if typed["quiet"] else numbers


def _checked_kernel(typed: Mapping[str, object], problem: Problem, options: Values) -> str | None:
    """Return the kernel of --kernel, None without; refuse a problem without such a kernel, or without samples."""
    name: str | None = parsing.value_of(KERNEL, typed)
    if name is None:
        return None
    _require_absent(KERNEL, name, options["model"])
    from dynamics.solve.kernel import check_kernel
    from dynamics.theory.learning_rates import resolved_rate

    check_kernel(problem, name)
    require_usage(
        options["method"] != "gradient-descent",
        "Option --kernel must be absent for --method gradient-descent, which draws no samples, but is given.",
    )
    if options["learning_rate"] is None:
        resolved_rate(problem, SHARE)
    return name


LATER = ("optimizer", "momentum", "average", "samples", "epochs", "batches_per_epoch", "reshuffle", "draws",
         "emergence_level", "layer_wise", "bands", "spectrum_from",
         *(option.key for option in table.CLASS_OPTIONS))  # fmt: skip


def _stem(problem: Problem, options: Mapping[str, object]) -> str:
    """Return a file name made of the parameters, which ends in a short hash of all of them."""
    import hashlib
    import json

    # Options that came later do not change the names of files where they are not given.
    options_in_name = {key: value for key, value in options.items() if key not in LATER or value is not None}
    everything = [problem.parameters(), {key.replace("_", "-"): repr(value) for key, value in options_in_name.items()}]
    digest = hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:6]
    link = "".join(c if c.isalnum() else "_" for c in problem.activation.name)[:24]
    beta = "" if problem.teacher.beta is None else f"-beta{problem.teacher.beta:g}"
    width = "" if options["model"] in (*MEAN_FIELD, *CORRELATION) else f"-m{problem.width}"
    return f"{options['model']}-{link}{beta}-P{problem.num_directions}{width}-d{problem.dimension}-{digest}"


# --- runs ---------------------------------------------------------------------------------------------------


def _solve(typed: Mapping[str, object], options: Values) -> int:
    """Solve the problem of the options, with a notice of compilation; return the exit code."""
    has_optimizer = options["optimizer"] is not None
    with parsing.noticed_compilation(typed, options["model"], has_optimizer=has_optimizer):
        return _solve_problem(typed, options)


def _solve_problem(typed: Values, options: Values) -> int:
    """Check the problem of the options, solve it or estimate its cost, and write the answer; return the exit code."""
    from dynamics.solve.dispatch import estimate

    answer = registered(options["model"])
    try:
        problem = build_problem(options, progress=parsing.shown_progress(typed))
        spectrum = None if problem.covariance is None else problem.covariance.spectrum
        _check_answer(answer, problem, options)
        output = parsing.chosen_output(typed, _stem(problem, options))
        figure = parsing.chosen_figure(typed, output)
        counted = _counted_directions(typed, problem, options)
        kernel = _checked_kernel(typed, problem, options)
        save_at = _saved_times(answer, problem, options)
        if options["model"] in REUSED:
            expected = resolve_name("dynamics.solve.reused_data:estimate")(problem, options)
        else:
            expected = estimate(problem, options["model"], options["keep"], save_at, options["particles"])
    except (TypeError, ValueError, ImportError) as error:
        coefficient_names = {} if options["coefficients"] is None else {"teacher": "--coefficients"}
        names = {
            "num_directions": "--directions",
            "inputs": "--spectrum",
            "text": "--teacher",
            "source": "--spectrum-from",
            "save_at": "--save",
        }
        names |= {"steps": "--epochs times --batches", "first": "--t-min", "last": "--t-max"}
        if options["optimizer"] is not None and typed["optimizer"] is None:
            names["optimizer"] = "--momentum" if typed["momentum"] is not None else "--average"
        names |= {} if typed["step_draws"] is None else {"draws": "--step-draws"}
        raise UsageError(parsing.as_typed(error, OPTIONS, **names, **coefficient_names)) from None
    settings = {
        "save_at": save_at,
        "method": answer.methods[0] if answer.methods and options["method"] == "auto" else options["method"],
        "error_estimate": {"auto": None, "yes": True, "no": False}[options["error_estimate"]],
        "progress": parsing.shown_progress(typed),
        "bands": options["bands"] or False,
    }
    # The function is given the options named like its arguments.
    arguments = {key: value for key, value in {**options, **settings}.items() if key in answer.defaults()}
    arguments.pop("t_max", None)  # `save_at` ends there
    parsing.check_targets(typed, output, figure)
    if spectrum is not None and not typed["quiet"]:
        parsing.say(spectrum.line())
    if typed["dry_run"]:
        tell(f"{expected}\n{_compilation(answer, problem, arguments)}")
        return EXIT_DONE
    from dynamics.runs.run_file import RunFile

    file = RunFile(output, options["checkpoint_every"], overwrite=typed["overwrite"], keeps_result=False)
    if "checkpoint" in answer.defaults():
        arguments["checkpoint"] = file
    store_steps = partial(_with_steps, counted=counted, draws=parsing.value_of(STEP_DRAWS, typed))
    store_more = store_steps if kernel is None else partial(_with_kernel, store=store_steps, kernel=kernel)
    return _finish(partial(answer.solve(), problem, **arguments), file, figure, typed, store_more)


def _compilation(answer: Answer, problem: Problem, arguments: Mapping[str, object]) -> str:
    """Return a line that tells how long a run compiles before it begins."""
    from dynamics.kernels.compilation import is_compiled
    from dynamics.runs.compiling import expected_compilation
    from dynamics.solve.integration import AnswerCall

    decouples, has_optimizer = problem.information_exponent >= 3, arguments.get("optimizer") is not None
    expected = expected_compilation(answer.name, has_optimizer=has_optimizer, decouples=decouples)
    if expected is not None and expected.functions == 0:
        return "compilation: none"
    if answer.resumes and is_compiled(AnswerCall.of(answer, problem, arguments).kind_of_question()):
        return "compilation: none, a run of this kind has compiled its functions"
    seconds_text = (
        "unknown" if expected is None else f"about {expected.seconds:.0f} s at the first run on this processor"
    )
    return f"compilation: {seconds_text}, less where other runs have compiled the same functions"


def _resume(typed: Values) -> int:
    """Go on with the run in a file, which holds all options but those of display and running time."""
    from dynamics.runs.run_file import reopened
    from dynamics.runs.storage import StorageError
    from dynamics.solve.dispatch import resume

    limits = {option.key: option for option in OPTIONS if option.key in ("max_runtime", "checkpoint_every")}
    allowed = {"resume", *limits, *(option.key for option in (*table.FIGURES, *table.SHOWN))}
    for name, value in typed.items():
        require_usage(
            not value or name in allowed,
            f"Option --{name.replace('_', '-')} must be absent beside --resume, but is given.",
        )
    budget, every = (parsing.value_of(option, typed) for option in limits.values())
    typed = {**typed, "overwrite": True}
    try:
        file = reopened(typed["resume"], every=every, keeps_result=False)
        figure = parsing.chosen_figure(typed, file.target)
        parsing.check_targets(typed, None, figure)
        solve = partial(resume, file, progress=parsing.shown_progress(typed), max_runtime=budget)
        with parsing.noticed_compilation(typed, file.begun.answer if file.begun is not None else ""):
            return _finish(solve, file, figure, typed)
    except StorageError as error:
        raise UsageError(parsing.as_typed(error, path="--resume")) from None


def _finish(
    solve: Callable[[], xr.Dataset],
    file: RunFile,
    figure: Path | None,
    typed: Mapping[str, object],
    store_steps: Callable[[xr.Dataset], xr.Dataset] | None = None,
) -> int:
    """Solve, print the findings, and write answer and figure; return the exit code.

    `store_steps` adds the steps of directions to the answer, if they are asked for.
    """
    from dynamics.report.findings import find_findings

    stop_if_heard()
    dataset, code = _computed(solve, file, typed)
    find: Callable[[xr.Dataset], Findings | None] = find_findings
    try:
        dataset = dataset if store_steps is None else store_steps(dataset)
    except KeyboardInterrupt:
        find = _interrupted

    def store() -> tuple[Path, str]:
        """Write the result to the file of the run; return its path, and why it is not the one that was asked for."""
        if not file.unfinished:  # a run that can go on is in its file already
            file.store(dataset)
        return file.target, file.trouble

    written = parsing.end_with(dataset, find, file.target, figure, typed, store=store, figure_key="figure")
    return written.code_after(code)


def _with_steps(answer: xr.Dataset, counted: Sequence[int], draws: int | None) -> xr.Dataset:
    """Return an answer with the steps of SGD until some directions emerge and are learned, as an attribute."""
    if not counted or heard():  # drawn runs would stop at once
        return answer
    from dynamics.solve.learning_steps import learning_steps, stored_steps

    rate = None if "step_theory" in answer.attrs else SHARE
    pairs = product(counted, ("emergence", "learned"))
    try:
        steps = [
            learning_steps(answer, direction=p, event=event, learning_rate=rate, draws=draws) for p, event in pairs
        ]
    except (TypeError, ValueError) as error:
        say(f"warning: {parsing.as_typed(error)}")
        return answer
    return answer.assign_attrs(stored_steps(steps))


def _with_kernel(answer: xr.Dataset, *, store: Callable[[xr.Dataset], xr.Dataset], kernel: str) -> xr.Dataset:
    """Return what `store` returns, with the curve of a kernel beside it."""
    from dynamics.solve.kernel import with_kernel

    return with_kernel(store(answer), kernel)


def _interrupted(_answer: xr.Dataset) -> Findings | None:
    """Raise KeyboardInterrupt, as a signal does that comes while findings are made."""
    raise KeyboardInterrupt


def _computed(solve: Callable[[], xr.Dataset], file: RunFile, typed: Mapping[str, object]) -> tuple[xr.Dataset, int]:
    """Return the dataset and the exit code; a run that failed or was interrupted returns its records."""
    from dynamics.runs.result import SolveError, SolveInterrupted, StopReason

    code, end = EXIT_DONE, "The run is not finished."
    with parsing.caught_warnings() as warnings:
        try:
            dataset = solve()
            if dataset.attrs.get("stop_reason") in [reason for reason in StopReason if reason.failed]:
                code, end = EXIT_FAILED, "The run failed."
        except SolveError as error:
            dataset, code, end = error.dataset, EXIT_FAILED, parsing.as_typed(error)
        except SolveInterrupted as stop:
            dataset, code, end = stop.dataset, EXIT_INTERRUPTED, f"{stop.message}."
    if code != EXIT_DONE:
        end = f"{end} What was computed is in {file.target}."
    if file.unfinished:
        words = ("python", "-m", "dynamics.solve", "--resume", str(file.target))
        resuming = parsing.retyped(words, typed, ("plot", "style", "csv"), ("no_plot", "json", "quiet", "no_progress"))
        end = f"{end} Go on with: {resuming}"
    if code != EXIT_DONE or file.unfinished:
        say(end)
    if not typed["quiet"]:
        for entry in warnings:
            if str(entry.message) != file.trouble:  # an error, which is told in the end
                say(f"warning: {parsing.as_typed(str(entry.message))}")
    return dataset, code


if __name__ == "__main__":
    run_program(main)
