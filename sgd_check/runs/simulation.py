"""`sgd_check.simulate`: check, plan, run and label online SGD."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem import check_switch, is_correlation
from dynamics.runs import as_run_file
from sgd_check.engines import SpanEngine, make_engine
from sgd_check.engines.network import has_callable
from sgd_check.runs.checks import check_records, checked_budget, checked_engine, checked_options
from sgd_check.runs.loop import Reached, run_with_file
from sgd_check.runs.observables import keeps_vectors
from sgd_check.runs.plan import make_plan, stability_limit
from sgd_check.runs.recording import Recorder

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem, SaveAt
    from dynamics.runs import RunFile
    from sgd_check.engines import Engine, EngineOptions
    from sgd_check.runs.plan import LearningRate, Plan

#: Settings that are attributes of the dataset too.
IN_ATTRIBUTES = (
    "engine",
    "learning_rate",
    "effective_learning_rate",
    "steps",
    "batch_size",
    "training_samples",
)


def simulate(
    problem: Problem,
    *,
    learning_rate: LearningRate,
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
    gradient of the smoothed σ(w·x) along the sphere. The neurons of the student "stiefel" take the step along the
    tangential part of the gradient and then the polar factor of where it leads, U ← (YYᵀ)^(−½) Y with U = W/σ0, so that
    they stay orthogonal and of one length. A `Student` moves its layers by η ε_w, η ε_v and η ε_b times their
    gradients, all from the parameters before the step, and by its decay; on the sphere the step of w_i is the
    tangential part of the gradient, and |w_i| is then brought back to its starting value.

    Parameters
    ----------
    problem : Problem
        What is learned; its start is the start of every run.
    learning_rate : float or callable
        Step size η > 0, or a function of the step (0, 1, …) that is tabulated once, such as `power_law_decay` or
        `piecewise` of `sgd_check.engines.schedules`. Dimensionless.
    steps : int
        Number of SGD steps.
    seeds : int or sequence of int
        How many runs (seeds 0, 1, …), or the seeds themselves, distinct and below 2^32. They draw samples, never
        the start. On the processor of one machine a seed gives the same bits alone, beside others and on any number of
        threads.
    engine : {"auto", "projected", "torch", "diffusion", "scalar"}
        "projected" draws only the projections of the samples that SGD sees: the law of SGD in R^d, at a cost that does
        not depend on d, for every d ≥ m + the number of axes that the teacher spans, for any `Student` too. "torch"
        draws the samples in R^d, for every student.
        "diffusion" is the limit of small and many steps, which takes thousands to billions of them at once, for up to
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
        Precision of weights and samples; float32 by default for "torch", float64 alone for the others, whose dimension
        may be so large that a step is below the rounding of float32. Records are float64.
    starts : sequence of int, optional
        Spherical student only: seeds of the starts, one per run. Run s starts from
        ``dynamics.coupled_problem(problem, problem.width, starts[s])``, so that runs of equal entries share a start,
        and networks of other widths start from the first rows of the same matrix. By default all runs start from the
        problem's own start.
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
        `squared_norm` (seed, time, neuron); for the spherical student `neuron_vector` (seed, time, neuron, flow_axis),
        the neurons in R^d, the teacher's axes first, in place of `student_overlap`, and `start_seed` (seed) where
        `starts` are given; `loss` (seed, time), `emergence_time` and `learned_time` (seed, direction;
        NaN if never, and of learned times where the link has no degree from 3 on, as their attribute `undefined` says),
        `blown_up` (seed), `censored` (seed, direction). Of a `Student` also `second_layer` and `bias`
        (seed, time, neuron) and, of a polynomial teacher, `component` (seed, time, component_name), f_α, and
        `component_learned_time` (seed, component_name), f_α/f*_α ≥ ½, in place of `learned_time`; its directions are
        the teacher's axes, at the level of `dynamics.solve_network`. Of the student "stiefel" `alignment` (seed, time,
        direction) and `aligned_time` (seed, direction), of the span of its neurons, stand in place of all that is per
        neuron and of `emergence_time`. Coordinates `time` and `step`. Records that were
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
    is the exact population loss of the link's Hermite series, of a `Student` that of the link itself, NaN where
    `dynamics.solve_network` refuses the problem. A run blows up when its squared norms, with v_i² and b_i² of a
    `Student`, are not finite or sum to over a thousand times the weight of teacher and start; it is NaN from then on,
    and the others go on. For a `Student` no limit of stability of the learning rate is known.

    Polynomials and formulas are simulated as they are, callables by their Hermite series, those of a `Student` by a
    table on [−32, 32] and its tangents beyond, and by "diffusion" all that is no polynomial by the series whose noise
    is most like its own (`attrs["simulated_link"]`). Runs with a table cannot be resumed from a file.
    One step of one seed costs O(m² + m P) operations by "projected", O(B m² + B m P + m³) with minibatches, and the
    cores share the seeds; by "torch" all seeds together cost about twenty calls on small tensors and, every 32 steps,
    three matrix products, O(S d (m + 32)) operations a step, O(S B m d) with minibatches.
    """
    engine = checked_engine(problem, engine)
    plan = make_plan(learning_rate, steps, save_at)
    check_switch("progress", progress, optional=True)
    options = checked_options(
        problem,
        seeds=seeds,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        starts=starts,
        training_samples=training_samples,
    )
    budget, file = checked_budget(max_runtime), as_run_file(checkpoint)
    check_records(problem, len(options.seeds), plan.recorded.size)
    simulation = Simulation(problem, plan, engine, options, make_engine(engine, problem, options))
    for warning in simulation.warnings():
        warnings.warn(warning, UserWarning, stacklevel=2)
    return simulation.run(file, budget=budget, progress=progress)


#: What a learning rate above its limit does.
_UNSTABLE = "the limit of stability for this problem, so runs may blow up"
_ABOVE = {"stiefel": "above which noise keeps the neurons from every direction"}


@dataclass(frozen=True)
class Simulation:
    """A simulation that is checked and planned: it can be run once."""

    problem: Problem
    plan: Plan
    engine_name: str
    options: EngineOptions
    engine: Engine

    def warnings(self) -> list[str]:
        """Return what is to be said before the run, one sentence each."""
        peak, limit, found = self.plan.peak_rate, self._limit, []
        if limit is not None and peak > limit:
            found.append(
                f"The learning rate {peak:.3g} exceeds {limit:.3g}, {_ABOVE.get(self.problem.kind, _UNSTABLE)}."
            )
        caution = self.engine.caution(peak, self.plan.steps) if isinstance(self.engine, SpanEngine) else None
        return found if caution is None else [*found, caution]

    def run(self, file: RunFile, *, budget: float, progress: bool | None) -> xr.Dataset:
        """Take the steps, from where the file says if it does, and return the dataset, which the file then holds."""
        recorder = Recorder(self.problem, self.plan, len(self.options.seeds))

        def labelled(reached: Reached, reason: str) -> xr.Dataset:
            return self._labelled(recorder, reached, reason)

        # No checkpoint where the problem that comes back from a file is another one.
        resumable = not has_callable(self.problem)
        options: Any = {"budget": budget, "progress": progress, "resumable": resumable}
        return run_with_file(self.engine, self.plan, recorder, file, labelled, **options)

    @cached_property
    def _limit(self) -> float | None:
        return stability_limit(self.problem, self.options.batch_size)

    def _settings(self) -> dict[str, Any]:
        """Return what was asked, as `resume` asks it again."""
        plan, options = self.plan, self.options
        return {
            "engine": self.engine_name,
            "learning_rate": plan.table if isinstance(plan.table, float) else "schedule",
            "effective_learning_rate": plan.effective_rate,
            **({"schedule_digest": plan.digest} if plan.digest else {}),
            "steps": plan.steps,
            "seeds": list(options.seeds),
            "batch_size": options.batch_size,
            "dtype": str(self.engine.attributes["dtype"]),
            "device": options.device,
            "starts": None if options.starts is None else list(options.starts),
            "training_samples": options.training_samples,
        }

    def _attributes(self, settings: dict[str, Any], reached: Reached, reason: str) -> dict[str, Any]:
        plan, limit, end = self.plan, self._limit, max(reached.look, 0)
        return {
            **self.engine.attributes,
            **{name: settings[name] for name in IN_ATTRIBUTES},
            **({"schedule": plan.schedule} if plan.schedule else {}),
            "learning_rate_limit": limit,
            "above_limit": limit is not None and plan.peak_rate > limit,
            "stop_reason": reason,
            "end_step": end,
            "end_time": float(plan.times(np.array([end]))[0]),
            "wall_seconds": reached.seconds,
            "steps_per_second": end / max(reached.seconds, 1e-9),
        }

    def _labelled(self, recorder: Recorder, reached: Reached, reason: str) -> xr.Dataset:
        """Return what was recorded until now as a dataset."""
        from dynamics.runs import make_dataset

        problem, starts, settings = self.problem, self.options.starts, self._settings()
        times, neurons = self.plan.times(self.plan.recorded), np.arange(problem.width)
        components = problem.teacher.components
        return make_dataset(
            {
                **recorder.values(),
                **_predicted_values(problem),
                **({} if starts is None else {"start_seed": np.array(starts, dtype=np.int64)}),
                **({"teacher_component": [each.value for each in components]} if components else {}),
            },
            problem=problem,
            title="Online SGD on Gaussian samples",
            coords={
                "time": times,
                "step": self.plan.recorded,
                "seed": np.array(self.options.seeds, dtype=np.int64),
                "neuron": neurons,
                **({} if keeps_vectors(problem) else {"neuron_2": neurons}),
                **({"component_name": [each.name for each in components]} if components else {}),
            },
            solver={
                "answer": "simulation",
                **settings,
                "save_at": {"count": times.size, "first": float(times[0]), "last": float(times[-1])},
            },
            attributes=self._attributes(settings, reached, reason),
            leading=("seed",),
            with_leading=recorder.WITH_SEED,
        )


def _predicted_values(problem: Problem) -> dict[str, Any]:
    """Return the prediction that needs no integration; nothing where there is none (k ≤ 2, other students)."""
    from dynamics.runs import prediction_values
    from dynamics.theory import predict

    has_one = is_correlation(problem) or (problem.kind == "homogeneous" and problem.information_exponent > 2)
    return dict(prediction_values(predict(problem))) if has_one else {}
