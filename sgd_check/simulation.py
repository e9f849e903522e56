"""The experiment's public call: checks, plan, the loop over looks, and the labelled result.

Knows the problem, the plan and that an engine advances and measures; nothing of how an engine samples.
"""

from __future__ import annotations

import sys
import time as clock
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem import Problem
from dynamics.teacher import checked_integer
from sgd_check.engines import DEFAULT_ENGINE, EngineOptions, SpanEngine, make_engine
from sgd_check.plan import make_plan
from sgd_check.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.schedule import SaveAt
    from sgd_check.engines import Engine
    from sgd_check.plan import LearningRate, Plan

# Between two looks the clock, the progress bar and Ctrl-C are served after so many steps at first, and then about this
# often, in seconds; how a run is cut changes no bit of it.
TICK_STEPS = 512
TICK_SECONDS = 0.1
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Outcome:
    """How far a run got and why it ended there."""

    end_step: int
    stop_reason: str
    wall_seconds: float


def simulate(
    problem: Problem,
    *,
    learning_rate: LearningRate,
    steps: int,
    seeds: int | Sequence[int],
    engine: str = DEFAULT_ENGINE,
    save_at: SaveAt | None = None,
    batch_size: int = 1,
    device: str = "auto",
    dtype: str = "auto",
    progress: bool | None = None,
    max_runtime: float | None = None,
) -> xr.Dataset:
    r"""Run online SGD on fresh Gaussian samples, one run per seed, all from the problem's one start.

    .. math:: w_i \leftarrow w_i - \eta\, e\, \nabla_{w_i} f(x), \qquad e = f(x) - f^*(x) - \tau\xi,
       \quad x \sim N(0, I_d)

    Parameters
    ----------
    problem : Problem
        What is learned; its start is the start of every run.
    learning_rate : float or callable
        Step size η > 0, or a function of the step (0, 1, …) that is tabulated once, such as `power_law_decay` or
        `piecewise` of `sgd_check.schedules`. Dimensionless.
    steps : int
        Number of SGD steps.
    seeds : int or sequence of int
        How many runs (seeds 0, 1, …), or the seeds themselves, distinct and below 2^32. They draw samples, never
        the start. On the processor of one machine a seed gives the same bits alone, beside others and on any number of
        threads.
    engine : {"projected", "torch", "diffusion"}
        "projected" draws only the projections of the samples that SGD sees: the law of SGD in R^d, at a cost that does
        not depend on d, for every d ≥ m + the number of axes that the teacher spans. "torch" draws the samples in R^d,
        for committees too.
        "diffusion" is the limit of small and many steps, which takes thousands to billions of them at once, for up to
        four neurons; `attrs["small_steps"]` says whether the limit holds. Its bits, not its law, depend on `save_at`.
    save_at : SaveAt, optional
        Times Σ η of the records, each rounded to the nearest step. By default step 0 and, over the last four decades of
        steps, twelve records per e-fold.
    batch_size : int, default 1
        Fresh samples per step.
    device : {"auto", "cpu", "cuda"}
        "projected" and "diffusion" run on the processor. For "torch", "auto" takes CUDA where there is one. The samples
        of a seed differ between engines and between devices.
    dtype : {"auto", "float32", "float64"}
        Precision of weights and samples; float32 by default for "torch", float64 alone for the others. Records are
        float64.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal.
    max_runtime : float, optional
        Wall-clock budget in seconds; what was recorded until then is kept.

    Returns
    -------
    Dataset
        `teacher_overlap` (seed, time, neuron, direction), `student_overlap` (seed, time, neuron, neuron_2),
        `squared_norm` (seed, time, neuron), `loss` (seed, time), `emergence_time` and `learned_time` (seed, direction;
        NaN if never), `blown_up` (seed), `censored` (seed, direction); coordinates `time` and `step`. Records that were
        not reached, and those of a run that blew up, are NaN. `attrs["learning_rate"]` is η, or "schedule" for a
        function of the step; `attrs["effective_learning_rate"]` is Σ η²/Σ η for both. `attrs["stop_reason"]` is
        "reached_end", "interrupted", "max_runtime" or "blown_up" (every run did).

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
    is the exact population loss of the link's Hermite series. A run blows up when its squared norms are not finite or
    sum to over a thousand times the weight of teacher and start; it is NaN from then on, and the others go on.

    Polynomials and formulas are simulated as they are, callables by their Hermite series, and by "diffusion" all that
    is no polynomial by the series whose noise is most like its own (`attrs["simulated_link"]`).
    One step of one seed costs O(m² + m P) operations by "projected", O(B m² + B m P + m³) with minibatches, and the
    cores share the seeds; by "torch" all seeds together cost about twenty calls on small tensors and, every 32 steps,
    three matrix products, O(S d (m + 32)) operations a step, O(S B m d) with minibatches.
    """
    # === check
    _check_problem(problem, engine)
    plan = make_plan(learning_rate, steps, save_at)
    options = EngineOptions(
        seeds=_checked_seeds(seeds),
        batch_size=checked_integer(batch_size, "batch_size", minimum=1),
        device=device,
        dtype=dtype,
    )
    budget = _checked_budget(max_runtime)
    # === build
    chosen = make_engine(engine, problem, options)
    limit = _limit(problem, options.batch_size)
    if limit is not None and plan.peak_rate > limit:
        warnings.warn(
            f"The learning rate {plan.peak_rate:.3g} exceeds {limit:.3g}, the limit of stability for this problem, "
            "so runs may blow up.",
            UserWarning,
            stacklevel=2,
        )
    caution = chosen.caution(plan.peak_rate, plan.steps) if isinstance(chosen, SpanEngine) else None
    if caution is not None:
        warnings.warn(caution, UserWarning, stacklevel=2)
    recorder = Recorder(problem, plan, len(options.seeds))
    # === run
    outcome = _run(chosen, plan, recorder, budget, progress)
    # === return
    attributes = {
        "engine": engine,
        **chosen.attributes,
        "learning_rate": plan.table if isinstance(plan.table, float) else "schedule",
        **({"schedule": plan.schedule} if plan.schedule else {}),
        "effective_learning_rate": plan.effective_rate,
        "learning_rate_limit": limit,
        "above_limit": limit is not None and plan.peak_rate > limit,
        "steps": plan.steps,
        "batch_size": options.batch_size,
        "stop_reason": outcome.stop_reason,
        "end_step": outcome.end_step,
        "end_time": float(plan.times(np.array([outcome.end_step]))[0]),
        "wall_seconds": outcome.wall_seconds,
        "steps_per_second": outcome.end_step / max(outcome.wall_seconds, 1e-9),
    }
    return _labelled(problem, plan, recorder, options, attributes)


def _run(engine: Engine, plan: Plan, recorder: Recorder, budget: float, progress: bool | None) -> Outcome:
    """Advance from look to look until the end, the budget, an interruption, or until every run blew up."""
    from tqdm import tqdm

    started = clock.perf_counter()
    step, reason, tick = 0, "reached_end", TICK_STEPS
    hidden = None if progress is None else not progress
    with engine.running(), tqdm(total=plan.steps, file=sys.stderr, disable=hidden, leave=False, unit="step") as bar:
        try:
            for look in plan.looked_at.tolist():
                at = step
                if isinstance(engine, SpanEngine):
                    if engine.advance_span(look - at, plan.span(at, look), started + budget):
                        at = look
                    bar.update(at - step)
                else:
                    while at < look and (begun := clock.perf_counter()) - started < budget:
                        ahead = min(at + tick, look)
                        engine.advance(plan.rates(at, ahead))
                        if ahead - at == tick and clock.perf_counter() - begun < 0.5 * TICK_SECONDS:
                            tick *= 2
                        bar.update(ahead - at)
                        at = ahead
                if at < look:
                    reason = "max_runtime"
                    break
                step = look
                engine.freeze(recorder.look(step, engine))
                if recorder.blown_up.all():
                    reason = "blown_up"
                    break
        except KeyboardInterrupt:
            reason = "interrupted"
    return Outcome(step, reason, clock.perf_counter() - started)


def _labelled(
    problem: Problem, plan: Plan, recorder: Recorder, options: EngineOptions, attributes: dict[str, Any]
) -> xr.Dataset:
    from dynamics.dataset import make_dataset, prediction_values

    predicted = _prediction(problem)
    times = plan.times(plan.recorded)
    return make_dataset(
        {**recorder.values(), **({} if predicted is None else prediction_values(predicted))},
        problem=problem,
        title="Online SGD on Gaussian samples",
        coords={
            "time": times,
            "step": plan.recorded,
            "seed": np.array(options.seeds, dtype=np.int64),
            "neuron": np.arange(problem.width),
            "neuron_2": np.arange(problem.width),
        },
        solver={
            "answer": "simulation",
            "engine": attributes["engine"],
            "learning_rate": attributes["learning_rate"],
            "effective_learning_rate": plan.effective_rate,
            "steps": plan.steps,
            "save_at": {"count": times.size, "first": float(times[0]), "last": float(times[-1])},
            "seeds": list(options.seeds),
            "batch_size": options.batch_size,
            "dtype": attributes["dtype"],
        },
        attributes=attributes,
        leading=("seed",),
        with_leading=recorder.WITH_SEED,
    )


def _prediction(problem: Problem) -> Any:
    """Return the prediction that needs no integration, or None where there is none (k ≤ 2)."""
    from dynamics import prediction

    try:
        return prediction.predict(problem)
    except ValueError:
        return None


def _limit(problem: Problem, batch_size: int) -> float | None:
    """Return the limit of stability, or None where theory gives none; a batch of B divides the noise by B."""
    from dynamics import prediction

    try:
        return batch_size * float(prediction.learning_rate_limit(problem))
    except ValueError:
        return None


def _check_problem(problem: object, engine: str) -> None:
    if not isinstance(problem, Problem):
        msg = f"Argument `problem` must be a Problem, but is {type(problem).__name__}."
        raise TypeError(msg)
    allowed = ("homogeneous", "committee") if engine == "torch" else ("homogeneous",)
    if problem.student not in allowed:
        msg = (
            f"Argument `problem` must have the {' or the '.join(allowed)} student for engine {engine!r}, but has the "
            f"{problem.student} student."
        )
        raise ValueError(msg)


def _checked_seeds(seeds: object) -> tuple[int, ...]:
    if isinstance(seeds, (int, np.integer)):
        return tuple(range(checked_integer(seeds, "seeds", minimum=1)))
    try:
        chosen = tuple(checked_integer(seed, "seeds", minimum=0) for seed in seeds)  # type: ignore[attr-defined]
    except TypeError:
        msg = f"Argument `seeds` must be a number of runs or a sequence of integers, but is {seeds!r}."
        raise TypeError(msg) from None
    if not chosen:
        msg = "Argument `seeds` must name at least one seed, but is empty."
        raise ValueError(msg)
    if len(set(chosen)) < len(chosen):
        msg = "Argument `seeds` must be distinct, since equal seeds give equal runs, but has repetitions."
        raise ValueError(msg)
    if max(chosen) > LARGEST_SEED:
        msg = f"Argument `seeds` must stay below 2^32, but has {max(chosen)}."
        raise ValueError(msg)
    return chosen


def _checked_budget(max_runtime: object) -> float:
    if max_runtime is None:
        return float("inf")
    if isinstance(max_runtime, bool) or not isinstance(max_runtime, (int, float)):
        msg = f"Argument `max_runtime` must be a number of seconds, but is {max_runtime!r}."
        raise TypeError(msg)
    if not max_runtime > 0:
        msg = f"Argument `max_runtime` must be a positive number of seconds, but is {max_runtime}."
        raise ValueError(msg)
    return float(max_runtime)
