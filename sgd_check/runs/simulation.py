"""`sgd_check.simulate` and `sgd_check.resume`: check, plan, run and label online SGD, or go on with it from a file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem import (
    Problem,
    check_fields,
    check_memory,
    check_switch,
    checked_integer,
    checked_integers,
    checked_number,
    checked_seeds,
    decouples,
    is_correlation,
    is_frame,
)
from dynamics.problem.student import COMMITTEE, HOMOGENEOUS, SPHERICAL
from dynamics.runs import DEFAULT_SECONDS, RunFile, StorageError, as_run_file, reopened
from dynamics.theory import check_quadratic
from dynamics.theory.learning_rates import resolved_rate
from hermite.text.messages import require, shown
from sgd_check.engines import ENGINES, EngineOptions, SpanEngine, engine_of, make_engine
from sgd_check.engines.problem_forms import has_callable
from sgd_check.runs.plan import make_plan, stability_limit
from sgd_check.runs.recording import Recorder, keeps_vectors
from sgd_check.runs.stepping import Reached, run_with_file

if TYPE_CHECKING:
    import os

    import xarray as xr

    from dynamics.problem import SaveAt
    from sgd_check.engines import Engine
    from sgd_check.runs.plan import LearningRate, Plan

RECORD_LIMIT = 16 * 2**30


def checked_engine(problem: object, engine: str) -> str:
    """Return the name of an engine, "auto" resolved; refuse students, fields and objectives that it does not know."""
    if not isinstance(problem, Problem):
        msg = f"Argument `problem` must be a Problem, but is {type(problem).__name__}."
        raise TypeError(msg)
    name = engine_of(problem) if isinstance(engine, str) and engine == "auto" else engine
    declared = ENGINES.get(name) if isinstance(name, str) else None
    if declared is not None:
        check_fields(problem, declared.fields, f"for engine {name!r}")
        need = f"Argument `problem` must have `objective` {declared.objective!r} for engine {name!r}"
        require(problem.objective == declared.objective, f"{need}, but has {problem.objective!r}.")
    names = [repr(name) for name, other in ENGINES.items() if other.takes(problem)]
    which = f"engine {names[0]} simulates" if len(names) == 1 else f"engines {' and '.join(names)} simulate"
    need = f"Argument `problem` must have the homogeneous student for engine {engine!r}"
    takes = problem.kind in (declared.students if declared else (HOMOGENEOUS,))
    require(takes, f"{need}, but has the {problem.kind} student, which {which}.")
    return name


def checked_options(
    problem: Problem,
    *,
    seeds: object,
    batch_size: int,
    device: str,
    dtype: str,
    starts: Sequence[int] | None = None,
    training_samples: int | None = None,
) -> EngineOptions:
    """Return the checked options of an engine; the engine checks names of devices and precisions itself."""
    chosen, samples = checked_seeds(seeds), checked_integer(batch_size, "batch_size", minimum=1)
    if is_frame(problem):
        check_quadratic(problem)
        require(samples == 1, f"Argument `batch_size` must be 1 for the stiefel student, but is {samples}.")
    check_memory("batch_size", samples, samples * (problem.width + problem.teacher.span))
    return EngineOptions(
        seeds=chosen,
        batch_size=samples,
        device=device,
        dtype=dtype,
        starts=checked_starts(starts, problem, len(chosen)),
        training_samples=checked_training_samples(training_samples, problem, samples),
    )


def checked_budget(max_runtime: object) -> float:
    """Return the seconds of a budget, infinite if there is none."""
    return float("inf") if max_runtime is None else checked_number(max_runtime, "max_runtime", positive=True)


def checked_starts(starts: Sequence[int] | None, problem: Problem, runs: int) -> tuple[int, ...] | None:
    """Return the seeds of the starts, one per run, or None if all runs start from the problem's own."""
    if starts is None:
        return None
    _check_kind("starts", problem, (SPHERICAL,))
    given = "Argument `starts` must be None for a problem with a given start, but is not."
    require(problem.start_is_random, given)
    chosen = checked_integers(starts, "starts", "a sequence of integers")
    other = f"Argument `starts` must have one entry for each of the {runs} runs, but has {len(chosen)}."
    require(len(chosen) == runs, other)
    return chosen


def checked_training_samples(training_samples: object, problem: Problem, batch_size: int) -> int | None:
    """Return the number of samples that a run reuses, or None if every step has fresh ones."""
    if training_samples is None:
        return None
    _check_kind("training_samples", problem, (SPHERICAL, COMMITTEE))
    none = "Argument `training_samples` must be None for the objective 'correlation', but is not."
    require(not is_correlation(problem), none)
    count = checked_integer(training_samples, "training_samples", minimum=1)
    multiple = f"Argument `training_samples` must be a multiple of `batch_size`, {batch_size}, but is {count}."
    require(count % batch_size == 0, multiple)
    return count


def check_records(problem: Problem, runs: int, records: int) -> None:
    """Refuse runs whose records do not fit into memory."""
    beside = problem.dimension if keeps_vectors(problem) else problem.width
    need = 8 * runs * records * problem.width * (problem.num_directions + beside + 1)
    most = f"Argument `save_at` must have records that fit in {RECORD_LIMIT / 2**30:.0f} GiB"
    require(need <= RECORD_LIMIT, f"{most}, but {records} times of {runs} runs need {need / 2**30:.1f} GiB.")


def _check_kind(name: str, problem: Problem, kinds: tuple[str, ...]) -> None:
    need = f"Argument `{name}` must be None for the {problem.kind} student, but is not."
    require(problem.kind in kinds, need)


def simulate(
    problem: Problem,
    *,
    learning_rate: LearningRate | str,
    steps: int,
    seeds: int | Sequence[int],
    engine: str = "auto",
    save_at: SaveAt | None = None,
    batch_size: int = 1,
    device: str = "auto",
    dtype: str = "auto",
    starts: Sequence[int] | None = None,
    training_samples: int | None = None,
    progress: bool | None = None,
    max_runtime: float | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Run online SGD on fresh Gaussian samples, one run per seed, all from the problem's one start.

    .. math:: w_i \leftarrow w_i - \eta\, e\, \nabla_{w_i} f(x), \qquad e = f(x) - f^*(x) - \tau\xi,
       \quad x \sim N(0, I_d)

    For the spherical student the step is η m times the tangential part of the gradient, and ends on the sphere; for its
    objective "correlation" it is w ← (w + η u)/|w + η u|, u the mean over the batch of the labels f*(x) + τξ times the
    gradient of the smoothed σ(w·x) along the sphere. The student "stiefel" takes the step along the tangential part of
    the gradient and then the polar factor of where it leads, U ← (YYᵀ)^(−½) Y with U = W/σ0. A `Student` moves its
    layers by η ε_w, η ε_v and η ε_b times their gradients, all from the parameters before the step, and by its decay;
    on the sphere the step of w_i is the tangential part of the gradient, and |w_i| is then brought back to its start.

    Parameters
    ----------
    problem : Problem
        What is learned; its start is the start of every run.
    learning_rate : float, str or callable
        Step size η > 0, dimensionless; text such as "0.1x", that share of `dynamics.learning_rate_limit`; or a function
        of the step (0, 1, …) that is tabulated once, such as `power_law_decay` or `piecewise` of `sgd_check.runs.plan`.
    steps : int
        Number of SGD steps.
    seeds : int or sequence of int
        How many runs (seeds 0, 1, …), or the seeds themselves, distinct and below 2^32. They draw samples, never the
        start. On one processor a seed gives the same bits alone, beside others and on any number of threads.
    engine : {"auto", "projected", "torch", "diffusion", "scalar"}
        "projected" draws only the projections of the samples that SGD sees: the law of SGD in R^d, at a cost that does
        not depend on d, for every d ≥ m + the number of axes that the teacher spans. "torch" draws the samples in R^d,
        for every student. "diffusion" is the limit of small and many steps, thousands to billions at once, for up to
        four neurons; `attrs["small_steps"]` says whether the limit holds. Its bits, not its law, depend on `save_at`.
        "scalar" is for the objective "correlation", exact in law by a chain in the overlap alone, for every d ≥ 2, or
        3 with batches. "auto" is the first of them that takes the problem.
    save_at : SaveAt, optional
        Times Σ η of the records, each rounded to the nearest step. By default step 0 and, over the last four decades of
        steps, twelve records per e-fold.
    batch_size : int, default 1
        Fresh samples per step.
    device : {"auto", "cpu", "cuda"}
        "projected" and "diffusion" run on the processor. For "torch", "auto" takes CUDA where there is one. The samples
        of a seed differ between engines and between devices.
    dtype : {"auto", "float32", "float64"}
        Precision of weights and samples: float32 by default for "torch", float64 alone for the others, whose dimension
        may be so large that a step is below the rounding of float32. Records are float64.
    starts : sequence of int, optional
        Spherical student only: seeds of the starts, one per run; by default all start from the problem's own start.
        Run s starts from ``dynamics.coupled_problem(problem, problem.width, starts[s])``, so that runs of equal entries
        share a start, and networks of other widths start from the first rows of the same matrix.
    training_samples : int, optional
        Spherical student and committee only: draw so many samples once per seed and reuse them, each once per epoch in
        an order of its own; a multiple of `batch_size`, which gives full-batch gradient descent if equal. By default
        every step has fresh samples. The loss is that of the population in either case.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.
    max_runtime : float, optional
        Wall-clock budget in seconds; what was recorded until then is kept.
    checkpoint : path or RunFile, optional
        File that holds the result in the end and, every 30 seconds until then, what was recorded. `sgd_check.resume`
        goes on from it if the runs end early, for the engines "projected", "scalar" and, but for its fused kernel, the
        spherical student and samples that are reused, "torch".

    Returns
    -------
    Dataset
        `teacher_overlap` (seed, time, neuron, direction), `student_overlap` (seed, time, neuron, neuron_2),
        `squared_norm` (seed, time, neuron), `loss` (seed, time), `emergence_time` and `learned_time` (seed, direction;
        NaN if never, and of learned times where the link has no degree from 3 on, as their attribute `undefined` says),
        `blown_up` (seed), `censored` (seed, direction); coordinates `time` and `step`. Records that were not reached,
        and those of a run that blew up, are NaN.

        The spherical student has `neuron_vector` (seed, time, neuron, flow_axis), the neurons in R^d, the teacher's
        axes first, in place of `student_overlap`, and `start_seed` (seed) where `starts` are given. A `Student` also
        has `second_layer` and `bias` (seed, time, neuron) and, of a polynomial teacher, `component` (seed, time,
        component_name), f_α, and `component_learned_time` (seed, component_name), f_α/f*_α ≥ ½, in place of
        `learned_time`; its directions are the teacher's axes, at the level of `dynamics.solve_network`. The student
        "stiefel" has `alignment` (seed, time, direction) and `aligned_time` (seed, direction), of the span of its
        neurons, in place of all that is per neuron and of `emergence_time`.

        `attrs["learning_rate"]` is η, or "schedule" for a function of the step; `attrs["effective_learning_rate"]` is
        Σ η²/Σ η for both. `attrs["stop_reason"]` is "reached_end", "interrupted", "max_runtime" or "blown_up" (every
        run did).

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Warns
    -----
    UserWarning
        Before the run, if the learning rate exceeds the limit of stability, or if "diffusion" does not hold.

    Notes
    -----
    Emergence is looked for at steps 2 % apart and located between them in log time, whatever `save_at` says. The loss
    is the exact population loss of the link's Hermite series, of a `Student` that of the link itself, NaN where
    `dynamics.solve_network` refuses the problem. A run blows up when its squared norms, with v_i² and b_i² of a
    `Student`, are not finite or sum to over a thousand times the weight of teacher and start; it is NaN from then on,
    and the others go on. No warning says that a rate is above the limit of a `Student`: that limit takes seconds.

    Polynomials and formulas are simulated as they are, callables by their Hermite series, those of a `Student` by a
    table on [−32, 32] and its tangents beyond, and by "diffusion" all that is no polynomial by the series whose noise
    is most like its own (`attrs["simulated_link"]`). Runs with a table cannot be resumed from a file.
    One step of one seed costs O(m² + m P) operations by "projected", O(B m² + B m P + m³) with minibatches, and the
    cores share the seeds; by "torch" all seeds together cost about twenty calls on small tensors and, every 32 steps,
    three matrix products, O(S d (m + 32)) operations a step, O(S B m d) with minibatches.
    """
    engine = checked_engine(problem, engine)
    check_switch("progress", progress, optional=True)
    given: Any = {"seeds": seeds, "batch_size": batch_size, "device": device, "dtype": dtype}
    options = checked_options(problem, **given, starts=starts, training_samples=training_samples)
    rate: object = learning_rate
    if isinstance(learning_rate, str):
        rate = resolved_rate(problem, learning_rate, options.batch_size)
    plan = make_plan(rate, steps, save_at)
    budget, file = checked_budget(max_runtime), as_run_file(checkpoint)
    check_records(problem, len(options.seeds), plan.recorded.size)
    made, limit = make_engine(engine, problem, options), stability_limit(problem, options.batch_size)
    peak, above = plan.peak_rate, "the limit of stability for this problem, so runs may blow up"
    if is_frame(problem):
        above = "above which noise keeps the neurons from every direction"
    too_large = limit is not None and peak > limit
    cautions = [f"The learning rate {peak:.3g} exceeds {limit:.3g}, {above}."] if too_large else []
    for caution in [*cautions, made.caution(peak, plan.steps) if isinstance(made, SpanEngine) else None]:
        if caution is not None:
            warnings.warn(caution, UserWarning, stacklevel=2)
    recorder = Recorder(problem, plan, len(options.seeds))
    of_limit = {"learning_rate_limit": limit, "above_limit": too_large}
    labelled = partial(_labelled, problem, plan, options, engine, made, of_limit, recorder)
    # No checkpoint where the problem that comes back from a file is another one.
    resumable = not has_callable(problem)
    return run_with_file(made, plan, recorder, file, labelled, budget=budget, progress=progress, resumable=resumable)


def _labelled(
    problem: Problem,
    plan: Plan,
    options: EngineOptions,
    engine_name: str,
    engine: Engine,
    of_limit: dict[str, Any],
    recorder: Recorder,
    reached: Reached,
    reason: str,
) -> xr.Dataset:
    """Return the records until now as a dataset."""
    from dynamics.runs import make_dataset, prediction_values
    from dynamics.theory import predict

    times, neurons, end = plan.times(plan.recorded), np.arange(problem.width), max(reached.look, 0)
    components, recorded = problem.teacher.components, recorder.values()
    # The prediction that needs no integration: there is none for k ≤ 2 and other students.
    is_predicted = is_correlation(problem) or decouples(problem)
    shared = {
        "engine": engine_name,
        "learning_rate": plan.table if isinstance(plan.table, float) else "schedule",
        "effective_learning_rate": plan.effective_rate,
        "steps": plan.steps,
        "batch_size": options.batch_size,
        "training_samples": options.training_samples,
    }
    return make_dataset(
        {
            **recorded,
            **(prediction_values(predict(problem)) if is_predicted else {}),
            **({} if options.starts is None else {"start_seed": np.array(options.starts, dtype=np.int64)}),
            **({"teacher_component": [each.value for each in components]} if components else {}),
        },
        problem=problem,
        title="Online SGD on Gaussian samples",
        coords={
            "time": times,
            "step": plan.recorded,
            "seed": np.array(options.seeds, dtype=np.int64),
            "neuron": neurons,
            **({} if keeps_vectors(problem) else {"neuron_2": neurons}),
            **({"component_name": [each.name for each in components]} if components else {}),
        },
        # The arguments of the call, which `resume` repeats.
        solver={
            "answer": "simulation",
            **shared,
            **({"schedule_digest": plan.digest} if plan.digest else {}),
            "seeds": list(options.seeds),
            "dtype": str(engine.attributes["dtype"]),
            "device": options.device,
            "starts": None if options.starts is None else list(options.starts),
            "save_at": {"count": times.size, "first": float(times[0]), "last": float(times[-1])},
        },
        attributes={
            **engine.attributes,
            **shared,
            **({"schedule": plan.schedule} if plan.schedule else {}),
            **of_limit,
            "stop_reason": reason,
            "end_step": end,
            "end_time": float(plan.times(np.array([end]))[0]),
            "wall_seconds": reached.seconds,
            "steps_per_second": end / max(reached.seconds, 1e-9),
        },
        leading=("seed",),
        with_leading=[name for name in recorded if name not in recorder.OF_RUNS],
    )


#: Settings in the file that are no arguments of the call.
DERIVED = ("effective_learning_rate", "schedule_digest", "save_at")


def resume(
    path: str | os.PathLike[str] | RunFile,
    *,
    learning_rate: LearningRate | None = None,
    progress: bool | None = None,
    max_runtime: float | None = None,
    every: float = DEFAULT_SECONDS,
) -> xr.Dataset:
    """Go on with a simulation that was interrupted, killed or out of time, to its end, and complete its file.

    The states of the random generators are in the file, so the values are, bit for bit, those of a simulation that was
    never stopped.

    Parameters
    ----------
    path : path
        File that `simulate`, here or in `sgd_check.tokens`, with `checkpoint` left unfinished.
    learning_rate : callable, optional
        The function of the step that was given to `simulate`, which a file cannot hold; absent for a number.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.
    max_runtime : float, optional
        Wall-clock budget in seconds, of this part alone.
    every : float, default 30
        Seconds between two checkpoints.

    Returns
    -------
    Dataset
        As of `simulate`. `wall_seconds` counts all parts.

    Raises
    ------
    StorageError
        If the file cannot be read, or holds no simulation that can be continued.
    ValueError
        If the learning rate is missing, or is not that of the file.
    """
    file = path if isinstance(path, RunFile) else reopened(path, every=every)
    begun = file.begun
    if begun is None or begun.answer != "simulation":
        answer = None if begun is None else begun.answer
        msg = f"File {str(file.target)!r} must hold a simulation, but its answer is {answer!r}."
        raise StorageError(msg)
    settings = {name: value for name, value in begun.settings.items() if name not in DERIVED}
    varies = settings["learning_rate"] == "schedule"
    need = "the function given to `simulate`" if varies else "absent, since the file holds a number"
    other = f"Argument `learning_rate` must be {need}, but is {shown(learning_rate)}."
    require(varies == (learning_rate is not None), other)
    if varies:
        plan, mean = make_plan(learning_rate, settings["steps"], None), begun.settings["effective_learning_rate"]
        other = f"Argument `learning_rate` must have the mean {mean} over flow time, but has {plan.effective_rate}."
        require(plan.effective_rate == mean, other)
        same = begun.settings.get("schedule_digest", plan.digest) == plan.digest  # older files know the mean alone
        other = (
            "Argument `learning_rate` must be that of `simulate` at every step, but is another one of the same mean."
        )
        require(same, other)
        settings["learning_rate"] = learning_rate
    settings |= {"progress": progress, "max_runtime": max_runtime, "checkpoint": file}
    try:
        if isinstance(begun.problem, Problem):
            return simulate(begun.problem, save_at=begun.save_at, **settings)
        # In a room above this one.
        found: xr.Dataset = resolve_name("sgd_check.tokens.simulation:simulate")(begun.problem, **settings)
        return found
    except (TypeError, ValueError) as error:
        msg = f"File {str(file.target)!r} must hold a simulation that can be resumed, but does not: {error}"
        raise StorageError(msg) from error
