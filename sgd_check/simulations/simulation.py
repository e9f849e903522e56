"""`sgd_check.simulate` and `sgd_check.resume`: check, plan, run and label online SGD, or go on with it from a file."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import (
    Optimizer,
    Problem,
    SaveAt,
    check_fields,
    check_memory,
    check_switch,
    checked_integer,
    checked_integers,
    checked_number,
    checked_optimizer,
    checked_seeds,
    decouples,
    is_correlation,
    is_frame,
    needs_points,
)
from dynamics.problem.checks import is_same
from dynamics.problem.hints import with_hints
from dynamics.problem.optimizers import keeps_average
from dynamics.problem.rows import Rows
from dynamics.problem.student import HOMOGENEOUS, SPHERICAL
from dynamics.runs import (
    DEFAULT_SECONDS,
    Begun,
    RunFile,
    StopReason,
    StorageError,
    as_run_file,
    labelled_arrays,
    reopened,
    uninterrupted,
)
from dynamics.runs.trackers import MaxRuntime, Run, StepProgress, Tracker
from dynamics.theory import check_quadratic
from dynamics.theory.schedules import resolved_schedule
from dynamics.threads import in_worker
from hermite.text.messages import refuse, require, shown, warn
from sgd_check.engines import ENGINES, Engine, EngineOptions, SpanEngine, engine_of, make_engine
from sgd_check.engines.problem_forms import has_callable
from sgd_check.engines.registry import EngineName, RunBatch
from sgd_check.simulations.plan import LearningRate, Plan, make_plan, stability_limit
from sgd_check.simulations.recording import Looks, Recorder, keeps_vectors

if TYPE_CHECKING:
    import xarray as xr

RECORD_LIMIT = 16 * 2**30


def checked_engine(
    problem: object, engine: str, optimizer: object = None, *, reused: bool = False, in_rows: bool = False
) -> EngineName:
    """Return the name of an engine, "auto" resolved; refuse problems, reused samples and rows that it cannot take."""
    if not isinstance(problem, Problem):
        refuse(f"Argument `problem` must be a Problem, but is {type(problem).__name__}.", error=TypeError)
    chosen = checked_optimizer(optimizer)
    name = engine_of(problem, chosen) if isinstance(engine, str) and engine == "auto" else engine
    if reused and not is_correlation(problem) and isinstance(engine, str) and engine in (*ENGINES, "auto"):
        name = REUSING
        require(
            engine in (REUSING, "auto"),
            f"Argument `engine` must be {REUSING!r} or 'auto' beside `training_samples`, since the weights depend on "
            f"all coordinates of samples that come again, but is {engine!r}.",
        )
    if in_rows and isinstance(engine, str) and engine in (*ENGINES, "auto"):
        name = REUSING
        require(
            engine in (REUSING, "auto"),
            f"Argument `engine` must be {REUSING!r} or 'auto' beside `inputs_from`, since others take Gaussian inputs "
            f"alone, but is {engine!r}.",
        )
    declared = ENGINES.get(name) if isinstance(name, str) else None
    if declared is not None:
        check_fields(problem, declared.fields, f"for engine {name!r}")
        require(
            problem.objective == declared.objective or needs_points(problem),
            f"Argument `problem` must have `objective` {declared.objective!r} for engine {name!r}, but has "
            f"{problem.objective!r}.",
        )
        require(
            declared.fits(problem),
            f"Argument `engine` must be 'torch' for the objective {problem.objective!r}, but is {name!r}.",
        )
    able = [repr(name) for name, declaration in ENGINES.items() if declaration.takes(problem)]
    require(
        problem.kind in (declared.students if declared else (HOMOGENEOUS,)),
        f"Argument `problem` must have the homogeneous student for engine {engine!r}, but has the {problem.kind} "
        f"student, which {'engine' if len(able) == 1 else 'engines'} {' and '.join(able)} "
        f"{'simulates' if len(able) == 1 else 'simulate'}.",
    )
    return cast("EngineName", name)


def checked_options(
    problem: Problem,
    *,
    seeds: object,
    batch_size: int,
    device: str,
    dtype: str,
    starts: Sequence[int] | None = None,
    training_samples: int | str | None = None,
    reshuffle: bool = True,
    optimizer: object = None,
) -> EngineOptions:
    """Return the checked options of an engine: seeds, batch size, samples that are used again, starts, optimizer.

    Names of devices and precisions are checked by the engine later. ValueError is raised for options that a problem
    does not have: batches of frames; `starts`, one per run, of other students than spherical ones or of a given start;
    `training_samples` of correlations, other losses, classes and mixtures, or that are no multiple of the batch size;
    `reshuffle` False without them.
    """
    chosen, batch = checked_seeds(seeds), checked_integer(batch_size, "batch_size", minimum=1)
    if is_frame(problem):
        check_quadratic(problem)
        require(batch == 1, f"Argument `batch_size` must be 1 for the stiefel student, but is {batch}.")
    check_memory("batch_size", batch, batch * (problem.width + problem.teacher.span))
    check_switch("reshuffle", reshuffle)
    require(
        reshuffle or training_samples is not None,
        "Argument `reshuffle` must be True without `training_samples`, since fresh samples have no order, but is "
        "False.",
    )
    if starts is not None:
        require(
            problem.kind == SPHERICAL, f"Argument `starts` must be None for the {problem.kind} student, but is not."
        )
        require(problem.start_is_random, "Argument `starts` must be None for a problem with a given start, but is not.")
        starts = checked_integers(starts, "starts", "a sequence of integers")
        require(
            len(starts) == len(chosen),
            f"Argument `starts` must have one entry for each of the {len(chosen)} runs, but has {len(starts)}.",
        )
    if training_samples is not None:
        require(
            not is_correlation(problem),
            "Argument `training_samples` must be None for the objective 'correlation', but is not.",
        )
        require(
            not needs_points(problem),
            "Argument `training_samples` must be None for another loss than the squared one, labels that are classes, "
            "or a Mixture, but is not.",
        )
        training_samples = count = _sample_count(training_samples, problem.dimension)
        require(
            count % batch == 0,
            f"Argument `training_samples` must be a multiple of `batch_size`, {batch}, but is {count}.",
        )
    return EngineOptions(
        seeds=chosen,
        batch_size=batch,
        device=device,
        dtype=dtype,
        starts=starts,
        training_samples=training_samples,
        reshuffle=reshuffle,
        optimizer=checked_optimizer(optimizer),
    )


def checked_rows(inputs_from: object, problem: Problem, options: EngineOptions) -> Rows | None:
    """Return the source of inputs that are not Gaussian, None if there is none; refuse what runs on it do not know."""
    if inputs_from is None:
        return None
    rows = Rows.of(inputs_from)
    require(
        options.training_samples is None,
        "Argument `training_samples` must be None beside `inputs_from`, whose rows are used again already, but is "
        f"{options.training_samples}.",
    )
    require(
        not options.optimizer.sees_axes,
        f"Argument `optimizer` must not depend on the axes beside `inputs_from`, but is {options.optimizer}.",
    )
    require(
        not needs_points(problem),
        "Argument `inputs_from` must be None for another loss than the squared one, labels that are classes, or a "
        "Mixture, but is not.",
    )
    rows.check(problem)
    return rows


def check_enough_rows(rows: Rows, steps: int, batch: int) -> None:
    """Refuse rows that are used once if there are fewer than samples."""
    count = rows.count
    require(
        count is None or rows.resample or steps * batch <= count,
        f"Argument `steps` must take at most {count} samples, since each of so many rows is used once, but takes "
        f"{steps * batch}.",
    )


def _sample_count(samples: int | str, dimension: int) -> int:
    """Return the number of samples that a number or a text such as "1.5d" states."""
    from dynamics.solve.reused_data import samples_of

    if not isinstance(samples, str):
        return checked_integer(samples, "training_samples", minimum=1)
    count = samples_of(samples, dimension) * dimension
    require(
        abs(count - round(count)) < 1e-9 * count,
        f"Argument `training_samples` must be a whole number, but is {samples!r} = {count:g}.",
    )
    return round(count)


def checked_steps(steps: int | None, passes: object, options: EngineOptions) -> int:
    """Return the number of steps, given by `steps` or by a number of passes over the samples."""
    if passes is None:
        if steps is None:
            refuse("Argument `steps` must be given, or `passes` beside `training_samples`, but is None.")
        return steps
    require(steps is None, f"Argument `steps` must be absent beside `passes`, but is {shown(steps)}.")
    count, samples = checked_integer(passes, "passes", minimum=1), options.training_samples
    if samples is None:
        refuse(f"Argument `passes` must be absent without `training_samples`, but is {count}.")
    return count * (samples // options.batch_size)


def checked_budget(max_runtime: object) -> float:
    """Return the budget of run time in seconds, infinity for None."""
    return float("inf") if max_runtime is None else checked_number(max_runtime, "max_runtime", positive=True)


def check_records(problem: Problem, runs: int, records: int) -> None:
    """Refuse runs whose records do not fit into memory."""
    row_size = problem.dimension if keeps_vectors(problem) else problem.width
    size = 8 * runs * records * problem.width * (problem.num_directions + row_size + 1)
    require(
        size <= RECORD_LIMIT,
        f"Argument `save_at` must have records that fit in {RECORD_LIMIT / 2**30:.0f} GiB, but {records} times of "
        f"{runs} runs need {size / 2**30:.1f} GiB.",
    )


#: Parts of a checkpoint.
ENGINE, RECORDER = "engine", "recorder"
#: The engine of samples that are used again.
REUSING = "torch"


class _SgdRun(Run):
    """Runs of SGD side by side; `look` is the step of the last look, `step` the number of steps taken."""

    def __init__(self, engine: RunBatch, plan: Plan, records: Looks, begun: Begun | None, *, resumable: bool) -> None:
        """Begin the runs of `engine` at step 0, or where `begun`, a stored state, left them.

        `records` are looked at at the steps that `plan` observes; a run is `resumable` if asked to be and the engine
        is.
        """
        super().__init__()
        self.end, self.look, self.step, self._resumable = plan.steps, -1, 0, resumable and engine.resumable
        self._engine, self._plan, self._records, before = engine, plan, records, 0.0
        if begun is not None:
            before = self._restored(begun)
        self._looks = plan.observed[plan.observed > self.look].tolist()[::-1]
        self._began = clock.perf_counter() - before

    @property
    def seconds(self) -> float:
        """Seconds that the steps took."""
        return clock.perf_counter() - self._began

    @property
    def time(self) -> float:
        """Number of steps taken so far."""
        return self.step

    @property
    def over(self) -> bool:
        """Whether no step is left at which runs are observed."""
        return not self._looks

    @property
    def at_record(self) -> bool:
        """Whether the next step at which runs are observed is reached."""
        return not self.over and self.step >= self._looks[-1]

    def take(self) -> StopReason | None:
        """Take a block of steps, at most to the next observation; return the reason of a stop in between, else None."""
        last, engine, began = self._looks[-1], self._engine, clock.perf_counter()
        if isinstance(engine, SpanEngine):
            rates = self._plan.span(self.step, last)
            if not engine.advance_span(last - self.step, rates, lambda: self.asked_to_stop() is not None):
                return self.urgent
        else:
            last = min(self.step + self.steps, last)
            engine.advance(self._plan.rates(self.step, last))
            self.adapt(clock.perf_counter() - began, full=last - self.step == self.steps)
        self.step = last
        return None

    def record(self) -> str | None:
        """Observe the runs and freeze those that ended; return "blown_up" if all runs blew up, else None."""
        look = self._looks.pop()
        self.intact = False
        self._engine.freeze(self._records.observe(look, self._engine))
        self.intact, self.look = True, look
        return "blown_up" if self._records.blown_up.all() else None

    def snapshot(self) -> _SgdRun:
        """Return the run itself, whose state is written as it is."""
        return self

    def parts(self) -> dict[str, xr.Dataset]:
        """Return the parts of a checkpoint; none during a look, or if the runs cannot be resumed."""
        import xarray as xr

        if not (self._resumable and self.intact):
            return {}
        place = {"look": self.look, "step": self.step, "seconds": self.seconds}
        return {
            ENGINE: xr.Dataset(labelled_arrays(self._engine.state()), attrs=place),
            RECORDER: xr.Dataset(labelled_arrays(self._records.state())),
        }

    def _restored(self, begun: Begun) -> float:
        """Restore the state of a checkpoint and return the seconds that led to it; refuse one of other runs."""
        try:
            with self._engine.running():
                self._engine.restore(arrays_of(begun.parts[ENGINE]))
            self._records.restore(arrays_of(begun.parts[RECORDER]), arrays_of(begun.dataset))
            place = begun.parts[ENGINE].attrs
            self.look, self.step = int(place["look"]), int(place["step"])
            return float(place["seconds"])
        except (KeyError, TypeError, ValueError, NotImplementedError) as error:
            refuse(f"Argument `checkpoint` must be of the same runs, but is not ({error}).")


def arrays_of(dataset: xr.Dataset) -> dict[str, NDArray[np.generic]]:
    """Return the variables of a dataset by name."""
    return {str(name): array.to_numpy() for name, array in dataset.data_vars.items()}


def run_with_file(
    engine: RunBatch,
    plan: Plan,
    records: Looks,
    file: RunFile,
    labelled: Callable[[_SgdRun, str], xr.Dataset],
    *,
    budget: float,
    progress: bool | None,
    resumable: bool = True,
) -> xr.Dataset:
    """Take the steps, from those of a checkpoint in the file on, and return the dataset, which is written to the file.

    SolveInterrupted is raised if the caller was interrupted. `labelled` makes a dataset of a run, with its records so
    far, and the reason of its end. Runs that are not `resumable` leave no checkpoint.
    """
    run = _SgdRun(engine, plan, records, file.begun, resumable=resumable)

    def followed() -> xr.Dataset:
        """Return the dataset of the runs at their end, after writing it to their file."""
        trackers: list[Tracker] = [] if progress is False else [StepProgress(force=bool(progress))]
        trackers += [] if np.isinf(budget) else [MaxRuntime(budget)]
        if engine.resumable:
            trackers += file.trackers(lambda _: (labelled(run, StopReason.UNFINISHED), run.parts()))
        with engine.running():
            reason = run.follow(trackers)
        if run.over and reason == StopReason.MAX_RUNTIME:
            reason = StopReason.REACHED_END
        dataset, goes_on = labelled(run, str(reason)), reason in (StopReason.INTERRUPTED, StopReason.MAX_RUNTIME)
        file.close(dataset, run.parts() if goes_on and file.has_path else {}, resumable=goes_on)
        return dataset

    return uninterrupted(in_worker(followed))


@with_hints
def simulate(
    problem: Problem,
    *,
    learning_rate: LearningRate | str,
    steps: int | None = None,
    seeds: int | Sequence[int],
    engine: EngineName = "auto",
    save_at: SaveAt | None = None,
    batch_size: int = 1,
    device: str = "auto",
    dtype: str = "auto",
    starts: Sequence[int] | None = None,
    training_samples: int | str | None = None,
    passes: int | None = None,
    reshuffle: bool = True,
    optimizer: Optimizer | str | None = None,
    inputs_from: Any = None,
    progress: bool | None = None,
    max_runtime: float | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Run online SGD on fresh Gaussian samples, or on rows, one run per seed, all from the problem's one start.

    .. math:: w_i \leftarrow w_i - \eta\, e\, \nabla_{w_i} f(x), \qquad e = f(x) - f^*(x) - \tau\xi,
       \quad x \sim N(0, I_d)

    For the spherical student the step is η m times the tangential part of the gradient, and ends on the sphere; for its
    objective "correlation" it is w ← (w + η u)/|w + η u|, u the mean over the batch of the labels f*(x) + τξ times the
    gradient of the smoothed σ(w·x) along the sphere. The student "stiefel" takes the step along the tangential part of
    the gradient and then the polar factor of where it leads. A `Student` moves its layers by η ε_w, η ε_v and η ε_b
    times their gradients, all from the parameters before the step, and by its decay; on the sphere the step of w_i is
    along the tangential part of its gradient, and |w_i| is then brought back to its start.

    Parameters
    ----------
    problem : Problem
        What is learned; its start is the start of every run.
    learning_rate : float, str or callable
        Step size η > 0, dimensionless; text such as "0.1x", that share of `dynamics.learning_rate_limit`; a schedule
        such as `dynamics.cosine`, or its text such as "cosine(0.01, 100000)"; or any function of the step (0, 1, …).
    steps : int, optional
        Number of SGD steps; absent beside `passes`.
    seeds : int or sequence of int
        How many runs (seeds 0, 1, …), or the seeds themselves, distinct and below 2^32. They draw samples, never the
        start. On one processor a seed gives the same bits alone, beside others and on any number of threads.
    engine : {"auto", "projected", "torch", "diffusion", "scalar"}
        "projected" draws only the projections of the samples that SGD sees: the law of SGD in R^d, at a cost that does
        not depend on d, for d ≥ m + the number of axes that the teacher spans, with a further m for momentum and one
        for an average. "torch" draws the samples in R^d, for every student and optimizer. "diffusion" is the limit of
        small and many steps for up to four neurons; `attrs["small_steps"]` says whether it holds. Its bits, not its
        law, depend on `save_at`. "scalar" is for the objective "correlation", exact in law, for d ≥ 2, or 3 with
        batches or `ZerothOrder`. "auto" is the first of them that takes the problem and the optimizer.
    save_at : SaveAt, optional
        Times Σ η of the records, each rounded to the nearest step. By default step 0 and twelve records per e-fold over
        the last four decades of steps.
    batch_size : int, default 1
        Fresh samples per step.
    device : {"auto", "cpu", "cuda"}
        For "torch" alone, where "auto" takes CUDA if there is one. The samples of a seed differ between engines and
        between devices.
    dtype : {"auto", "float32", "float64"}
        Precision of weights and samples: float32 by default for "torch", float64 alone for the others. Records are
        float64.
    starts : sequence of int, optional
        Spherical student only: seeds of the starts, one per run; they replace the problem's start. Run s starts from
        ``dynamics.coupled_problem(problem, problem.width, starts[s])``: networks of other widths start from the first
        rows of the same matrix.
    training_samples : int or str, optional
        Draw n samples once per seed, a number or text such as "1.5d", and use them again, each once per epoch; a
        multiple of `batch_size`, full-batch gradient descent if equal. This takes "torch", which draws n + m + the
        teacher's axes coordinates if these are fewer than d, the same law. Not for the objective "correlation".
    passes : int, optional
        Number of epochs over `training_samples`, which gives `steps` = `passes` n / `batch_size`.
    reshuffle : bool, default True
        Whether every epoch has new batches; with False the samples are parted once, as `dynamics.solve_reused_data`
        does by default, and the batches are taken in turn.
    optimizer : dynamics.SGD, ZerothOrder, Adam, RMSprop or SignSGD, optional
        What a step does with the gradient, or its text such as "SGD(momentum=0.9)"; plain SGD by default. `Adam`,
        `RMSprop` and `SignSGD` move each coordinate by itself and take one sample per step. For them the seed draws
        axes with coordinates of order 1/√d for teacher and start; a teacher with `directions` along coordinate axes is
        refused, since they learn it at another speed.
    inputs_from : dynamics.Rows, path, array_like, DataFrame, str or callable, optional
        Rows of a matrix, or a law, instead of Gaussian samples, by "torch": `dynamics.Rows`, or what that takes first.
        The loss is then the mean over at most 4096 of these rows; learned masses and components are those that
        Gaussian inputs give to the overlaps. Not with `training_samples`, mixtures, other losses than the squared one,
        and `Adam`, `RMSprop` and `SignSGD`.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.
    max_runtime : float, optional
        Wall-clock budget in seconds; what was recorded until then is kept.
    checkpoint : path or RunFile, optional
        File that holds the result in the end and, every 30 seconds until then, what was recorded. `sgd_check.resume`
        goes on from it if the runs end early, by "projected", "scalar" and, but for its fused kernel, the spherical
        student, samples that are reused and optimizers other than plain SGD, "torch".

    Returns
    -------
    Dataset
        `teacher_overlap` (seed, time, neuron, direction), `student_overlap` (seed, time, neuron, neuron_2),
        `squared_norm` (seed, time, neuron), population `loss` (seed, time), with `training_samples` that of these,
        `train_loss` (seed, time), `emergence_time` and `learned_time` (seed, direction; NaN if never, and of learned
        times where the link has no degree from 3 on, as their attribute `undefined` says), `blown_up` (seed),
        `censored` (seed, direction); coordinates `time` and `step`. Records that were not reached, and those of a run
        that blew up, are NaN.

        The spherical student has `neuron_vector` (seed, time, neuron, flow_axis), the neurons in R^d, the teacher's
        axes first, which replaces `student_overlap`, and `start_seed` (seed) with `starts`. A `Student` also has
        `second_layer` and `bias` (seed, time, neuron) and, of a polynomial teacher, `component` (seed, time,
        component_name), f_α, and `component_learned_time` (seed, component_name), f_α/f*_α ≥ ½, instead of
        `learned_time`; its directions are the teacher's axes, at the level of `dynamics.solve_network`. The student
        "stiefel" has `alignment` (seed, time, direction) and `aligned_time` (seed, direction), of the span of its
        neurons, instead of `emergence_time` and all that is per neuron.

        `attrs["learning_rate"]` is η, or "schedule" for a function; `attrs["effective_learning_rate"]` is Σ η²/Σ η.
        `attrs["stop_reason"]` is "reached_end", "interrupted", "max_runtime" or "blown_up" (every run did).

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
    Emergence is looked for at steps 2 % apart and located between them in log time. The loss is that of the link's
    Hermite series, of a `Student` that of the link itself, NaN where `dynamics.solve_network` refuses the problem. A
    run blows up when its squared norms, with v_i² and b_i² of a `Student`, are not finite or sum to over a thousand
    times the weight of teacher and start. No warning says that a rate is above the limit of a `Student`.

    Polynomials and formulas are simulated as they are, callables by their Hermite series, those of a `Student` by a
    table on [−32, 32] and its tangents beyond, and by "diffusion" all that is no polynomial by the series whose noise
    is most like its own (`attrs["simulated_link"]`). Runs with a table, and on rows of an array or draws of a function,
    cannot be resumed from a file. One step costs
    O(m² + m P) operations by "projected", O(B m² + B m P + m³) with minibatches, and O(d (m + 32)) by "torch",
    O(B m d) with minibatches.

    Examples
    --------
    >>> import dynamics
    >>> start = ([[0.5]], [[1.0]], [0.01])
    >>> teacher = dynamics.Teacher([1.0])
    >>> problem = dynamics.Problem(activation="he3", teacher=teacher, width=1, dimension=8, initial_overlaps=start)
    >>> runs = simulate(problem, learning_rate="0.1x", steps=8000, seeds=4, progress=False)
    >>> dict(runs.teacher_overlap.sizes)
    {'seed': 4, 'time': 92, 'neuron': 1, 'direction': 1}
    >>> bool((runs.loss.isel(time=-1) < 0.2 * runs.loss.isel(time=0)).all())
    True
    """
    name = checked_engine(
        problem, engine, optimizer, reused=training_samples is not None, in_rows=inputs_from is not None
    )
    check_switch("progress", progress, optional=True)
    options = checked_options(
        problem,
        seeds=seeds,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        starts=starts,
        training_samples=training_samples,
        reshuffle=reshuffle,
        optimizer=optimizer,
    )
    rows = checked_rows(inputs_from, problem, options)
    options = replace(options, rows=rows)
    steps = checked_steps(steps, passes, options)
    if rows is not None:
        check_enough_rows(rows, steps, options.batch_size)
    rates = resolved_schedule(problem, learning_rate, options.batch_size, options.optimizer)
    plan = make_plan(rates, steps, save_at)
    budget, file = checked_budget(max_runtime), as_run_file(checkpoint)
    check_records(problem, len(options.seeds), plan.recorded.size)
    stepper = make_engine(name, problem, options)
    limit, peak = stability_limit(problem, options.batch_size, options.optimizer), plan.peak_rate
    too_large = limit is not None and peak > limit
    caution = stepper.caution(peak, plan.steps) if isinstance(stepper, SpanEngine) else None
    if too_large and is_frame(problem):
        warn(
            f"The learning rate {peak:.3g} exceeds {limit:.3g}, above which noise keeps the neurons from every "
            "direction."
        )
    elif too_large:
        warn(
            f"The learning rate {peak:.3g} exceeds {limit:.3g}, the limit of stability for this problem, so runs may "
            "blow up."
        )
    if caution is not None:
        warn(caution)
    reused = options.training_samples is not None
    averages = keeps_average(options.optimizer)
    losses = [name for name, kept in (("average_loss", averages), ("train_loss", reused)) if kept]
    records = Recorder(problem, plan, len(options.seeds), others=losses, by_rows=rows is not None)
    shared: dict[str, Any] = {
        "engine": name,
        "learning_rate": plan.table if isinstance(plan.table, float) else "schedule",
        "effective_learning_rate": plan.effective_rate,
        "steps": plan.steps,
        "batch_size": options.batch_size,
        "training_samples": options.training_samples,
        **({"reshuffle": options.reshuffle} if reused else {}),
        **({} if optimizer is None else {"optimizer": str(options.optimizer)}),
    }
    if rows is not None:
        shared["inputs_from"] = rows.stored or repr(rows)
    of_limit = {"learning_rate_limit": limit, "above_limit": too_large}
    labelled = partial(_labelled, problem, plan, options, stepper, records, shared, of_limit)
    # A problem with a callable differs after a file has been read, so such runs leave no checkpoint.
    resumable = not has_callable(problem) and (rows is None or rows.stored is not None)
    return run_with_file(stepper, plan, records, file, labelled, budget=budget, progress=progress, resumable=resumable)


def _labelled(
    problem: Problem,
    plan: Plan,
    options: EngineOptions,
    engine: Engine,
    records: Recorder,
    shared: dict[str, Any],
    of_limit: dict[str, Any],
    run: _SgdRun,
    reason: str,
) -> xr.Dataset:
    """Return the records so far as a dataset, also of an interrupted run, with predictions where they are closed.

    `shared` holds arguments of the call and `of_limit` the limit of stability, both of which become attributes; `run`
    knows the steps and seconds so far, and `reason` says why it ended. Beside attributes the arguments are stored such
    that `resume` can repeat the call.
    """
    from dynamics.runs import make_dataset, prediction_values
    from dynamics.theory import predict

    times, neurons, end = plan.times(plan.recorded), np.arange(problem.width), max(run.look, 0)
    components = () if needs_points(problem) else problem.teacher.components
    recorded, seconds = records.values(), run.seconds
    is_predicted = is_correlation(problem) or decouples(problem)  # without integration
    return make_dataset(
        {
            **recorded,
            **(prediction_values(predict(problem)) if is_predicted else {}),
            **({} if options.starts is None else {"start_seed": np.array(options.starts, dtype=np.int64)}),
            **({"teacher_component": [component.value for component in components]} if components else {}),
        },
        problem=problem,
        title="Online SGD on Gaussian samples" if options.rows is None else f"Online SGD on {options.rows.name}",
        coords={
            "time": times,
            "step": plan.recorded,
            "seed": np.array(options.seeds, dtype=np.int64),
            "neuron": neurons,
            **({} if keeps_vectors(problem) else {"neuron_2": neurons}),
            **({"class": np.arange(problem.num_outputs)} if problem.num_outputs > 1 else {}),
            **({"component_name": [component.name for component in components]} if components else {}),
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
            "wall_seconds": seconds,
            "steps_per_second": end / max(seconds, 1e-9),
        },
        leading=("seed",),
        with_leading=[name for name in recorded if name not in records.OF_RUNS],
    )


def resume(
    path: str | os.PathLike[str] | RunFile,
    *,
    learning_rate: LearningRate | str | None = None,
    progress: bool | None = None,
    max_runtime: float | None = None,
    every: float = DEFAULT_SECONDS,
) -> xr.Dataset:
    """Go on with a simulation that was interrupted, killed or out of time: bit for bit as if it had never stopped.

    Parameters
    ----------
    path : path
        File that `simulate`, here or in `sgd_check.tokens`, with `checkpoint` left unfinished.
    learning_rate : callable, optional
        The function of the step that was given to `simulate`; absent for a number or a schedule.
    progress, max_runtime : optional
        As of `simulate`, of this part alone.
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

    Examples
    --------
    >>> import tempfile
    >>> import dynamics
    >>> start = ([[0.5]], [[1.0]], [0.01])
    >>> teacher = dynamics.Teacher([1.0])
    >>> problem = dynamics.Problem(activation="he3", teacher=teacher, width=1, dimension=8, initial_overlaps=start)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = {"learning_rate": "0.1x", "steps": 4000, "seeds": 2, "progress": False}
    ...     begun = simulate(problem, **given, max_runtime=1e-9, checkpoint=f"{folder}/runs.nc")
    ...     whole = resume(f"{folder}/runs.nc", progress=False)
    >>> begun.attrs["stop_reason"], whole.loss.equals(simulate(problem, **given).loss)
    ('max_runtime', True)
    """
    file = path if isinstance(path, RunFile) else reopened(path, every=every)
    begun = file.begun
    if begun is None or begun.answer != "simulation":
        answer = None if begun is None else begun.answer
        refuse(f"File {str(file.target)!r} must hold a simulation, but its answer is {answer!r}.", error=StorageError)
    # Settings of the file that are no arguments of the call.
    derived = ("effective_learning_rate", "schedule_digest", "save_at")
    settings = {name: value for name, value in begun.settings.items() if name not in derived}
    varies, rates = settings["learning_rate"] == "schedule", learning_rate
    if varies and isinstance(begun.problem, Problem):
        source = rates if rates is not None else begun.dataset.attrs.get("schedule")
        # A schedule is made again from its text; files of other functions have no text, or one that is no schedule.
        with suppress(*((TypeError, ValueError) if rates is None else ())):
            rates = cast(
                "LearningRate | None",
                resolved_schedule(begun.problem, source, settings["batch_size"], settings.get("optimizer")),
            )
    if varies:
        require(
            rates is not None,
            f"Argument `learning_rate` must be the function given to `simulate`, but is {shown(learning_rate)}.",
        )
        plan, mean = make_plan(rates, settings["steps"], None), begun.settings["effective_learning_rate"]
        require(
            is_same(plan.effective_rate, mean),
            f"Argument `learning_rate` must have the mean {mean} over flow time, but has {plan.effective_rate}.",
        )
        require(
            begun.settings.get("schedule_digest", plan.digest) == plan.digest,  # older files have only the mean
            "Argument `learning_rate` must be that of `simulate` at every step, but is another one of the same mean.",
        )
        settings["learning_rate"] = rates
    else:
        require(
            rates is None,
            f"Argument `learning_rate` must be absent, since the file holds a number, but is {shown(learning_rate)}.",
        )
    settings |= {"progress": progress, "max_runtime": max_runtime, "checkpoint": file}
    try:
        if isinstance(begun.problem, Problem):
            return simulate(begun.problem, save_at=begun.save_at, **settings)
        # In a room above this one.
        return cast("xr.Dataset", resolve_name("sgd_check.tokens.simulation:simulate")(begun.problem, **settings))
    except (TypeError, ValueError) as error:
        refuse(
            f"File {str(file.target)!r} must hold a simulation that can be resumed, but does not: {error}",
            error=StorageError,
        )
