"""`sgd_check.compare`, and `sgd_check.check`: plan, predict, simulate and compare in one call.

*By times* the learning rate follows from the limit of stability and the expected delay and scatter. *By curves* eight
pilot runs with samples of their own are made at smaller and smaller learning rates, until the very test that will be
made would see an error of 30 % in time in all curves that move. Where the bands of theory have the scatter, no runs are
made at learning rates at which it hides such an error, nor at one at which it is known of all curves and shows them.

At the step size of the check the equation of the mean step is sharper than the flow. But it is computed from the
problem, and a wrong prediction would go untested behind it: it stands in only where no time, start or curve differs
from the given one by more than the delay by the step size and half of a visible error explain.
"""

from __future__ import annotations

import json
import os
import time as clock
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

import dynamics
from dynamics.commands import duration
from dynamics.problem import (
    Problem,
    SaveAt,
    check_choice,
    checked_integer,
    checked_number,
    is_correlation,
    is_frame,
    is_network,
    is_spherical,
    needs_points,
)
from dynamics.problem.checks import require
from dynamics.problem.hints import with_hints
from dynamics.problem.optimizers import PLAIN, SGD, Optimizer, checked_optimizer
from dynamics.runs import RunFile, also_interrupted, uninterrupted
from dynamics.runs.trackers import part_of_work
from dynamics.solve import StepSettings, make_system
from dynamics.solve.arguments import ProblemArguments
from dynamics.solve.reused_data import ANSWER as REUSED
from dynamics.theory.learning_rates import resolved_rate, stable_rate
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, warn
from sgd_check.engines import Engine, EngineOptions, SpanEngine, make_engine
from sgd_check.engines.registry import EngineName
from sgd_check.simulations.plan import make_plan, stability_limit
from sgd_check.simulations.simulation import checked_engine, checked_options, checked_steps, simulate
from sgd_check.verdicts import curves
from sgd_check.verdicts.bands import LARGEST_RATIO, deviations
from sgd_check.verdicts.bands import TOLERANCE as SCATTER_TOLERANCE
from sgd_check.verdicts.expectation import expectation, predicted_times
from sgd_check.verdicts.kernel import ANSWER as KERNEL
from sgd_check.verdicts.kernel import kernel_verdict
from sgd_check.verdicts.mean_field import width_verdict
from sgd_check.verdicts.path_tests import interpolated
from sgd_check.verdicts.recovery import ANSWER as RECOVERY
from sgd_check.verdicts.recovery import estimate_verdict
from sgd_check.verdicts.reused_data import predict_reused, reused_verdict
from sgd_check.verdicts.starts import start_apart
from sgd_check.verdicts.times import against_runs, against_theory
from sgd_check.verdicts.verdict import (
    FEWEST_RUNS,
    VISIBLE_ERROR,
    check_prediction,
    checked_rate,
    checked_simulations,
    decided_by_curves,
    has_step,
    optimizer_of,
    reach_in_errors,
    tell_alike,
    with_emergence,
)

DEFAULT_SEEDS = 32
THEORIES = ("auto", "finite-step", "flow")
#: The learning rate by default: part of the limit of stability, largest delay, and the least part that is tried.
LIMIT_SHARE, LARGEST_DELAY, SMALLEST_SHARE = 0.1, 0.04, 1e-6
#: Length of the runs over the last time that is checked.
HORIZON_FACTOR = 2.5
#: Steps that are timed at first, at a rate without effect.
BURST_STEPS, BURST_RATE = 300, 1e-12
LARGEST_GAP = 0.5 * float(np.log1p(VISIBLE_ERROR))
#: Part of the range of a curve by which the equation of finite steps may differ from the flow at the same time.
LARGEST_CURVE_GAP = 0.05
#: Seconds of simulation for as many curves and directions as they reach, and for the first direction.
LONG_SECONDS, AFFORDABLE_SECONDS = 60.0, 600.0
PILOT_SEEDS = tuple(range(2**31, 2**31 + 8))
PILOT_FACTOR = 2
#: Learning rates that a pilot tries at most. Cost ends it before, unless steps cost nothing.
MOST_RATES = 24
#: The scatter of eight runs is uncertain by a quarter; the band of the equation of finite steps grows with its square.
SCATTER_MARGIN, STEPPED_MARGIN = 1.25, 1.15
#: Largest effect of the step size on a curve, and scatter of runs, in parts of its range, for an extrapolation.
PILOT_EFFECT, EXTRAPOLATED_LIMIT = 0.1, 0.15
#: Power that pilot runs have to promise, so that the check has 0.8.
PILOT_POWER = 0.9
#: Part of the band around the equation of finite steps that the mean of the pilot may use up.
PILOT_BAND = 0.75
#: Runs are made more of by this factor at most, and by this margin over those needed, whose scatter is uncertain.
MOST_TIMES, MORE_MARGIN = 16.0, 1.2
#: Part of the rate of false alarms at which runs refute a theory before more of them are made.
SURE = 0.01
#: Students of which theory has the scatter of runs, and the numbers of a state up to which it takes seconds.
WITH_BANDS, MOST_NUMBERS = ("homogeneous", "committee", "network"), 26
#: A level that rounding alone does not reach, and how far times and ends may be apart by rounding.
ROUNDING, SAME = 1e-6, 1.0 + 1e-9


def compare(
    prediction: xr.Dataset, simulation: xr.Dataset | Sequence[xr.Dataset], *, false_alarm_rate: float = 0.01
) -> xr.DataTree:
    r"""Hold simulated emergence times, and the loss, against predicted ones.

    Against **one predicted time** per direction that the prediction says emerges, the null hypothesis is

    .. math:: E \ln\frac{T_{\mathrm{SGD}}}{T_p} \in
        \begin{cases}
        \ln(1 + \varphi_p) - s_p^2/2 \pm (0.02 + s_p^4/2) & \text{isolated direction} \\
        [-s_p^2/2,\; 2 \ln(1 + \delta_p)] & \text{else, flow} \\
        [-s_p^2,\; 2 \varphi_p] & \text{else, finite-step equation} \end{cases}

    with δ_p and s_p the relative delay and scatter that the step size causes at leading order, and φ_p the part of the
    delay that the predicted time lacks (`docs/verdict_tests.md`, also for what follows). A fifth of the rate is for
    what does not depend on times. Learned times are tested in the same way where theory knows what steps do to them. Of
    a direction that theory puts beyond the runs, or never, the number of runs that have it is tested. "Agree" is said
    if every time, 30 % later still within the runs, is tested on both sides and such an error would have been seen.

    **By curves** this is decided for information exponents up to 2 and for networks: the loss, and the learned masses,
    of a network its components or sensitivity, are tested at up to eight times each, and the times beside them,

    .. math:: |E x(t_k) - y(t_k)| \le R \Big(0.02 + 3 \max_k \frac{\Delta_k^2}{R^2}\Big),

    y the theory, R its range, and Δ the remaining effect of the step size. A flow needs runs at two learning rates;
    held against one alone it can be agreed with, not refuted. "Agree" is said if theory with times 30 % longer or
    shorter would have been refuted by every curve that moves, and if, where theory predicts emergences, the runs have
    one that is predicted well before their end.

    If the prediction has the scatter of single runs, by `bands` of `dynamics.solve_overlaps` and others, their standard
    deviations of loss, overlaps and squared norms are tested by χ² too, within 10 %, while R is at most 0.15.

    Against **a sample of predicted runs**, such as another engine's, the null hypothesis is that both have one law:
    log-rank tests of the times, with censoring, and rank tests of the loss, each family at half of the rate.

    Against **samples that are used again**, `dynamics.solve_reused_data`, test and train loss, overlaps and squared
    norms are tested by curves. "Agree" is said if the theory of fresh samples would have been refuted too.

    Against **a mean field**, `simulation` has one dataset for each of two or more widths m, of the spherical student,
    with two or more runs from every one of the same `starts`. The null hypothesis is that the squared distance in
    function space, without the noise of SGD, falls as

    .. math:: E(f_m - f_\infty)^2 \sim m^x, \qquad x \in -1 \pm 0.15

    averaged over log time while the loss of the mean field falls from half to a tenth. "Agree" is said only where an
    exponent of −1/2 would have been seen.

    Against **the law of an estimator**, `dynamics.predict_recovery`, `simulation` is a result of
    `sgd_check.estimate_direction`, and the mean of the squared overlap is tested.

    Against **the theory of a kernel**, `dynamics.predict_kernel`, `simulation` is a result of
    `sgd_check.estimate_kernel` with 12 draws or more. The mean error at up to six numbers of samples, relative to
    theory, may be off by 0.01 online and by 3/d for limits (Gaussian inputs 4/d); the test allows for heavy tails.

    Parameters
    ----------
    prediction : Dataset
        Any answer with `emergence_time(direction)`, or of the student "stiefel" `aligned_time(direction)`, such as
        `dynamics.solve_overlaps` (the exact flow, or with `learning_rate` the finite-step equation) or
        `dynamics.predict_emergence` (pairs alone); a result of `simulate` with other seeds or by another engine; or
        `dynamics.solve_mean_field`, saved at times at which the simulations have records, with time 0 and
        ``tracers=dynamics.laws.chaos.coupled_tracers(problem, m, starts)`` for the largest m if neurons are to be
        followed.
    simulation : Dataset or sequence of Dataset
        Result of `sgd_check.simulate` for the same problem; two at different learning rates for a flow that is judged
        by its curves; for a mean field one for each width.
    false_alarm_rate : float, default 0.01
        Probability, in (0, 1), of "disagree" if the theory holds.

    Returns
    -------
    DataTree
        /prediction and /simulation as given (of two simulations the one of smaller steps is /finer; for a mean field
        /simulation/width_m), and /comparison. `dynamics.runs.variables` lists variables and units. The attrs hold
        `verdict` ("agree", "disagree" or "undecided"), `false_alarm_rate`, `reasons`, `theory` ("flow", "finite step",
        "sample", "mean field", "law of recovery", "theory of kernels" or "reused data"), `loss_statement`, and the
        counts of runs; `decided_by` is "curves" where they decide, `runs_needed` how many runs would have seen an error
        of 30 % in all that is awaited (inf: no number). Runs that blew up are excluded and counted. NaN: not tested.
        `evidence` and `evidence_…` (row) hold one row for each test, from which the verdict follows.

        Per direction among others: `emergence_ratio` (by seed), the tested `emergence_time` with its band `band_low` to
        `band_high` of `mean_log_ratio`, `z_score`, `direction_p_value`, `early_power` and `late_power` (to see a time
        predicted 30 % too late or too early), and `visible_error`, the least relative error of the predicted time that
        is seen to either side with probability 0.8. `p_value` is the global one, `loss_p_value` that of the loss,
        `path_p_value` that of what does not depend on times. For a mean field the variables are those of
        `dynamics.propagation_of_chaos` over the starts (as `seed`); `mean_gap_exponent` is tested.

    Raises
    ------
    TypeError, ValueError
        If the two are no datasets that answer the same problem from the same start; if the prediction has a step size
        or seeds of its own, also if learning rate, batch size or label noise differ, or runs of one engine share seeds.

    Examples
    --------
    >>> import dynamics
    >>> start = ([[0.5]], [[1.0]], [0.01])
    >>> teacher = dynamics.Teacher([1.0])
    >>> problem = dynamics.Problem(activation="he3", teacher=teacher, width=1, dimension=8, initial_overlaps=start)
    >>> from sgd_check import simulate
    >>> runs = simulate(problem, learning_rate="0.02x", steps=20000, seeds=16, progress=False)
    >>> flow = dynamics.solve_overlaps(problem, learning_rate=runs.attrs["learning_rate"], progress=False)
    >>> tree = compare(flow, runs)
    >>> tree["comparison"].attrs["verdict"]
    'agree'
    """
    rate = checked_rate(false_alarm_rate)
    answer = prediction.attrs.get("answer") if isinstance(prediction, xr.Dataset) else None
    if answer == "mean-field":
        return width_verdict(prediction, simulation, rate)
    if answer == RECOVERY:
        return estimate_verdict(prediction, simulation, rate)
    if answer == KERNEL:
        return kernel_verdict(prediction, simulation, rate)
    if answer == REUSED:
        return reused_verdict(prediction, simulation, rate)
    problem, simulations = checked_simulations(prediction, simulation)
    inputs = prediction.attrs.get("inputs_from")
    require(
        all(runs.attrs.get("inputs_from") == inputs for runs in simulations),
        "Argument `simulation` must have the inputs of the prediction, Gaussian ones or the same rows, but has others; "
        "`sgd_check.check_inputs` holds runs on rows against Gaussian theory.",
    )
    prediction, sampled = with_emergence(prediction), "seed" in prediction.dims
    if decided_by_curves(problem, optimizer_of(simulations[0])) and not sampled:
        return curves.curve_verdict(problem, prediction, simulations, rate)
    return (against_runs if sampled else against_theory)(problem, prediction, simulations[0], rate)


@with_hints
def check(
    problem: Problem,
    *,
    learning_rate: float | str | None = None,
    steps: int | None = None,
    t_max: float | None = None,
    directions: int | None = None,
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    engine: EngineName | None = None,
    theory: Literal["auto", "flow", "finite-step"] = "auto",
    false_alarm_rate: float = 0.01,
    save_at: SaveAt | None = None,
    batch_size: int = 1,
    training_samples: int | str | None = None,
    passes: int | None = None,
    reshuffle: bool = True,
    optimizer: Optimizer | str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: bool | None = None,
    max_runtime: float | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.DataTree:
    r"""Predict how a network learns, run online SGD on sampled data, and say whether the two agree.

    The prediction is the exact flow of the overlaps (`dynamics.solve_overlaps`, for committees
    `dynamics.solve_committee`, for frames `dynamics.solve_quadratic`) from the problem's one start. The runs are those
    of `simulate`,

    .. math:: w_i \leftarrow w_i - \eta\, e\, \nabla_{w_i} f(x), \qquad e = f(x) - f^*(x) - \tau\xi,
       \quad x \sim N(0, I_d),

    one per seed, all from that start, and the test of their times of emergence is that of `compare`:

    .. math:: E \ln\frac{T_{\mathrm{SGD}}}{T_p} \in [\text{low}_p, \text{high}_p] \quad \text{for every direction } p,

    with the band that the step size η allows at leading order. `python -m sgd_check.run FILE` makes the same choices.

    Parameters
    ----------
    problem : Problem
        With the homogeneous student, a network, a committee, the student "stiefel", whose times are those of alignment,
        or the objective "correlation"; of a committee of information exponent 3 or more a learning rate is needed. The
        spherical student has otherwise a mean field, which is held against networks of several widths: see `compare`.
    learning_rate : float or str, optional
        Step size η > 0, dimensionless; text such as "0.1x" is that share of the limit of stability. By default the
        largest one, up to a tenth of the limit, at which every checked direction has an expected delay of at most 4 %
        and an error of 30 % in its predicted time would be seen; where curves decide (see `compare`), by the scatter of
        theory, and pilot runs where theory lacks it.
    steps : int, optional
        Number of SGD steps. By default up to 2.5 times the last emergence of the checked directions. Where curves
        decide, until the last direction that a minute of simulation reaches would have emerged if it were 30 % late, or
        ten minutes for the first one; or until all curves have made nine tenths of their way, and 30 % longer.
    t_max : float, optional
        Flow time Σ η at which the runs end, dimensionless, whatever it costs; not beside both of these.
    directions : int, optional
        Choose learning rate and steps for so many directions, the first to emerge. By default for as many as ten
        minutes of simulation on this machine allow.
    theory : {"auto", "finite-step", "flow"}
        What is tested: "flow" (allowing the delay by the step size), "finite-step" (the equation of the mean step at
        the learning rate of the runs, which has that delay), or "auto": "finite-step" where it can be solved and is no
        farther from the flow than the step size explains.
    false_alarm_rate : float, default 0.01
        Probability, in (0, 1), of "disagree" if the theory holds.
    optimizer : dynamics.SGD, ZerothOrder, Adam, RMSprop or SignSGD, optional
        What a step does with the gradient; plain SGD by default. The equation of its steps is tested, by curves. Adam,
        RMSprop and sign SGD need `learning_rate`, and `steps` or `t_max`.
    training_samples, passes, reshuffle
        Of runs on samples that are used again, as of `simulate`. The prediction is `dynamics.solve_reused_data` with
        these samples and batches. `learning_rate` is needed, and `passes` or `steps`.
    seeds, engine, save_at, batch_size, device, dtype, progress, max_runtime, checkpoint
        As of `simulate`, with 32 seeds and the engine "auto" by default. Records within `max_runtime` are compared. If
        the check chooses `learning_rate` or `steps`, a number of seeds is a first one: up to 16 times as many are made,
        within ten minutes, if these would show an error that could have gone unseen.

    Returns
    -------
    DataTree
        /prediction (what was tested), /simulation and /comparison as of `compare`; and /given, the flow, where the
        finite-step equation of plain SGD was tested in its place. Where curves decide and the flow is tested, /finer
        has as many runs at half of the learning rate.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given. Among others, if nothing emerges in the prediction and `steps` is
        not given; if theory gives no safe learning rate and none is given; with `theory="finite-step"` if that equation
        has no solution here.
    SolveError
        If the flow cannot be integrated.
    SolveInterrupted
        A KeyboardInterrupt, after Ctrl-C; its `dataset` is the DataTree of what was computed, with /finite_step or
        /pilot too if it came in the equation or in pilot runs.

    Warns
    -----
    UserWarning
        As `simulate`; and if "auto" tests the flow, why the finite-step equation is not tested.

    Examples
    --------
    >>> import dynamics
    >>> teacher = dynamics.Teacher([1.0])
    >>> start = ([[0.5]], [[1.0]], [0.01])
    >>> problem = dynamics.Problem(activation="he3", teacher=teacher, width=1, dimension=8, initial_overlaps=start)
    >>> tree = check(problem, directions=1, seeds=16, progress=False)
    >>> tree["comparison"].attrs["verdict"], tree["comparison"].attrs["theory"]
    ('agree', 'finite step')
    """
    require(
        not is_spherical(problem) or is_correlation(problem),
        "Argument `problem` must not have the spherical student, whose mean field is held against networks of "
        "several widths: by `sgd_check.compare`, or by `python -m sgd_check.run` for a file of the mean field.",
    )
    chosen, reused = checked_optimizer(optimizer), training_samples is not None
    name = checked_engine(problem, "auto" if engine is None else engine, chosen, reused=reused)
    check_choice("theory", theory, THEORIES)
    options = checked_options(
        problem,
        seeds=seeds,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        training_samples=training_samples,
        reshuffle=reshuffle,
        optimizer=optimizer,
    )
    rate = resolved_rate(problem, learning_rate, options.batch_size, optimizer=chosen)
    steps = None if steps is None else checked_integer(steps, "steps", minimum=1)
    if reused or passes is not None:
        steps = checked_steps(steps, passes, options)
        _check_reused(chosen, rate, theory, ends=(directions, t_max))
    t_max = None if t_max is None else checked_number(t_max, "t_max", positive=True)
    level = checked_rate(false_alarm_rate)
    count = None if directions is None else checked_integer(directions, "directions", minimum=1)
    require(
        chosen.is_plain or theory != "flow",
        f"Argument `theory` must not be 'flow' for {chosen}, of which the equation of its steps is tested.",
    )
    require(
        (rate is not None and (steps is not None or t_max is not None)) or not chosen.sees_axes,
        f"Arguments `learning_rate`, and `steps` or `t_max`, must be given for {chosen}, which has no flow.",
    )
    _check_ends(rate, steps, t_max)
    tree, ended = xr.DataTree(), "interrupted"
    try:
        if reused and rate is not None and steps is not None:
            prediction = predict_reused(problem, options, rate, steps, progress)
            plan = CheckPlan(problem, rate, steps)
        elif chosen.sees_axes and rate is not None:  # no flow tells its times
            plan = CheckPlan(problem, rate, steps or int(np.ceil((t_max or 0.0) / rate / SAME)), optimizer=chosen)
            prediction = solve_finite_step(plan, options.batch_size, progress=progress)
        else:
            with part_of_work("flow"):
                prediction = with_emergence(dynamics.solve_problem(problem, progress=progress))
        tree = xr.DataTree.from_dict({"/prediction": prediction})
        if not (reused or chosen.sees_axes):
            plan, _ = plan_check(
                in_time_of(chosen, prediction),
                name,
                options,
                learning_rate=rate,
                steps=steps,
                t_max=t_max,
                directions=count,
                theory=theory,
                false_alarm_rate=level,
                progress=progress,
            )
            plan = replace(plan, flexible=plan.flexible and isinstance(seeds, int))
        tree, ended = carry_out(
            plan,
            prediction,
            name,
            options,
            theory=theory,
            say=warn,
            words=("the prediction", 'theory="finite-step"', "t_max"),
            false_alarm_rate=level,
            max_runtime=max_runtime,
            checkpoint=checkpoint,
            save_at=save_at,
            progress=progress,
        )
    except dynamics.SolveInterrupted as stop:
        # The flow itself, or pilot runs or the equation, which stand beside the flow.
        branch = "pilot" if stop.dataset.attrs["answer"] == "simulation" else "finite_step" if tree else "prediction"
        tree[branch] = xr.DataTree(stop.dataset)
    except KeyboardInterrupt:  # between two parts
        pass
    if ended == "interrupted":
        msg = f"The check was interrupted, with {', '.join(tree) or 'nothing'} in its DataTree"
        raise dynamics.SolveInterrupted(msg, tree)
    return tree


def _check_ends(rate: float | None, steps: int | None, t_max: float | None) -> None:
    """Raise ValueError if learning rate, steps and end in flow time `t_max` are all given: two determine the third."""
    require(
        rate is None or steps is None or t_max is None,
        "Argument `t_max` must be absent beside `learning_rate` and `steps`, whose product it is.",
    )


def _check_reused(chosen: Optimizer, rate: float | None, theory: str, ends: tuple[object, object]) -> None:
    """Refuse arguments that do not apply to a check on samples that are used again; `ends` are directions and t_max."""
    require(
        ends == (None, None),
        "Arguments `directions` and `t_max` must be absent beside `training_samples`, but are not.",
    )
    require(rate is not None, "Argument `learning_rate` must be given beside `training_samples`, but is None.")
    require(
        chosen.is_plain,
        "Argument `optimizer` must be plain SGD beside `training_samples`, the theory of which knows no other, but is "
        f"{chosen}.",
    )
    require(theory == "auto", f"Argument `theory` must be 'auto' beside `training_samples`, but is {theory!r}.")


def in_time_of(optimizer: Optimizer, flow: xr.Dataset) -> xr.Dataset:
    """Return the flow in the time η · step of an optimizer; momentum β makes all times 1 − β times as long."""
    if not isinstance(optimizer, SGD) or optimizer.amplification == 1.0:
        return flow
    faster = optimizer.amplification
    times = {name: flow[name] / faster for name in flow.data_vars if str(name).endswith(("_time", "_time_error"))}
    return flow.assign_coords(time=flow["time"] / faster).assign(times)


def carry_out(
    plan: CheckPlan,
    prediction: xr.Dataset,
    engine: EngineName,
    options: EngineOptions,
    *,
    theory: str,
    say: Callable[[str], None],
    words: tuple[str, str, str],
    false_alarm_rate: float,
    max_runtime: float | None,
    checkpoint: str | os.PathLike[str] | RunFile | None,
    progress: bool | None,
    save_at: SaveAt | None = None,
    announce: Callable[[str], object] = str,
) -> tuple[xr.DataTree, str]:
    """Simulate a plan, compare, and return the tree and the stop reason of the last simulation.

    If an error of 30 % could have gone unseen, a plan that the check chose itself makes as many runs more as show it,
    as far as ten minutes reach. `announce` takes a sentence on a simulation that follows. `words` name in sentences the
    given prediction, the argument that tests the finite-step equation, and the one that sets the end; `say` takes the
    sentence why theory "auto" tests the given prediction.
    """
    tested = prediction_to_test(prediction, plan, options.batch_size, progress, theory=theory, say=say, words=words[:2])
    started, runs = clock.perf_counter(), list[xr.Dataset]()

    def run(
        rate: float,
        steps: int,
        seeds: Sequence[int],
        seconds: float | None,
        before: int = 0,
        after: int = 0,
        file: str | os.PathLike[str] | RunFile | None = None,
    ) -> None:
        """Simulate some seeds, and add their dataset to `runs`."""
        with part_of_work("runs", before, after):
            simulation = partial(
                simulate,
                plan.problem,
                learning_rate=rate,
                steps=steps,
                seeds=seeds,
                engine=engine,
                save_at=save_at,
                batch_size=options.batch_size,
                device=options.device,
                dtype=options.dtype,
                training_samples=options.training_samples,
                reshuffle=options.reshuffle,
                optimizer=None if plan.optimizer.is_plain else plan.optimizer,
                progress=progress,
                max_runtime=seconds,
                checkpoint=file,
            )
            runs.append(also_interrupted(simulation))

    needs_two = decided_by_curves(plan.problem, plan.optimizer) and not has_step(tested)
    try:
        second = 2 * plan.steps if needs_two else 0
        run(plan.learning_rate, plan.steps, options.seeds, max_runtime, after=second, file=checkpoint)
        if needs_two and runs[0].attrs["stop_reason"] == "reached_end":
            announce(f"Then {second} steps at half of the learning rate, so that the effect of the step size is known.")
            budget = None if max_runtime is None else max(max_runtime - (clock.perf_counter() - started), 1e-3)
            run(0.5 * plan.learning_rate, second, options.seeds, budget, before=plan.steps)
        tree = compare(tested, runs if len(runs) > 1 else runs[0], false_alarm_rate=false_alarm_rate)
        ended = str(runs[-1].attrs["stop_reason"])
        longest = min(AFFORDABLE_SECONDS, np.inf if max_runtime is None else max_runtime)
        while ended == "reached_end":
            spent = clock.perf_counter() - started
            more = further_runs(plan, tree["comparison"].to_dataset(), runs, spent, longest - spent)
            if not more:
                break
            last, first = max(runs[0]["seed"].values.tolist()) + 1, list(runs)
            announce(f"Then {more} runs more, so that an error of {100 * VISIBLE_ERROR:.0f} % would be seen.")
            for part in first:
                run(part.attrs["learning_rate"], int(part.attrs["steps"]), range(last, last + more), longest - spent)
            added, runs = runs[len(first) :], first
            reasons = {str(part.attrs["stop_reason"]) for part in added}
            if reasons != {"reached_end"}:  # the first runs and their comparison stay
                ended = "interrupted" if "interrupted" in reasons else ended
                break
            runs = [with_runs(part, more_of_part) for part, more_of_part in zip(first, added, strict=True)]
            tree = compare(tested, runs if len(runs) > 1 else runs[0], false_alarm_rate=false_alarm_rate)
    except KeyboardInterrupt:
        if not runs:
            raise
        branches = dict(zip(("/simulation", "/finer"), runs, strict=False))
        tree, ended = xr.DataTree.from_dict({"/prediction": tested, **branches}), "interrupted"
    if "comparison" in tree and tree["comparison"].attrs["verdict"] == "undecided" and plan.beyond:
        tree["comparison"].attrs["reasons"] += f" {plan.costs(words[2])}"
    if tested is not prediction and plan.optimizer.is_plain:
        tree["given"] = xr.DataTree(prediction)
    return tree, ended


def further_runs(
    plan: CheckPlan, comparison: xr.Dataset, simulations: Sequence[xr.Dataset], spent: float, seconds: float
) -> int:
    """Return the number of further runs that show an error of 30 %, 0 if they take longer than the seconds left.

    The number follows from the scatter of the runs, not from their mean, so that the final test keeps its level. A
    theory that is refuted at a hundredth of that level stays refuted, and needs no further runs.
    """
    attrs, runs = comparison.attrs, simulations[0].sizes["seed"]
    needed = float(attrs["runs_needed"]) if "runs_needed" in attrs else np.inf
    ended = all(part.attrs["stop_reason"] == "reached_end" for part in simulations)
    refuted = float(comparison["p_value"]) < SURE * float(attrs["false_alarm_rate"])
    if not plan.flexible or refuted or not ended or not runs < needed <= MOST_TIMES * runs:
        return 0
    more = int(np.ceil(MORE_MARGIN * needed)) - runs
    return more if spent * more / runs <= seconds else 0


def with_runs(simulation: xr.Dataset, added: xr.Dataset) -> xr.Dataset:
    """Return a simulation with the runs of another one of the same plan appended."""
    names = [name for name, array in simulation.data_vars.items() if "seed" in array.dims]
    parts = [part[names] for part in (simulation, added)]
    drawn = xr.concat(parts, "seed", data_vars="minimal", coords="minimal", compat="override", join="override")
    both = simulation.drop_dims("seed").assign_coords(seed=drawn["seed"]).assign(drawn.data_vars)
    stored = json.loads(simulation.attrs["parameters"])
    stored["solver"]["seeds"] = both["seed"].values.tolist()
    seconds = sum(float(part.attrs["wall_seconds"]) for part in (simulation, added))
    return both.assign_attrs(simulation.attrs | {"parameters": json.dumps(stored), "wall_seconds": seconds})


class NoFiniteStepError(ValueError):
    """The finite-step equation has no solution to test; the sentence gives the cause."""


def solve_finite_step(plan: CheckPlan, batch_size: int, *, progress: bool | None, bands: bool = False) -> xr.Dataset:
    """Return the solution of the finite-step equation at the learning rate and the records of the runs of a check.

    With `bands` it says how far single runs scatter, where theory has that and it is cheap. Raises NoFiniteStepError if
    the link has no exact moments, or the solution fails or takes longer than two minutes.
    """
    problem = plan.problem
    require(
        not is_frame(problem),
        "The mean step of frames of orthogonal neurons does not close.",
        error=NoFiniteStepError,
    )
    require(
        not (isinstance(problem.student, dynamics.Student) and problem.student.first_layer == "sphere"),
        "Neurons that keep their length have none at finite d, since their mean step divides by a random length.",
        error=NoFiniteStepError,
    )
    schedule = make_plan(plan.learning_rate, plan.steps, None)
    plain = plan.optimizer.is_plain
    whole = is_network(problem) or is_correlation(problem) or not plain
    solve: Callable[..., xr.Dataset] = dynamics.solve_problem if whole else dynamics.solve_overlaps
    try:
        if not whole:  # refuses a link without exact moments before the flow warns of its series
            make_system(problem, StepSettings(plan.learning_rate, "finite-d", batch_size))
        with warnings.catch_warnings(), part_of_work("mean steps"):
            # The simulation warns of a rate beyond the limit too, and the prediction of components never found.
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.filterwarnings("ignore", "No neuron ever carries", UserWarning)
            asked: ProblemArguments = {
                "learning_rate": plan.learning_rate,
                "step_theory": "infinite-d" if plan.optimizer.closes_in_the_limit else "finite-d",
                "save_at": SaveAt.at(schedule.times(schedule.recorded)),
                "progress": progress,
                "max_runtime": 120.0,  # its right-hand side grows like the fourth power of the width
                "on_failure": "return",
                "error_estimate": False,
                "batch_size": batch_size,
                "optimizer": None if plain else plan.optimizer,
            }
            if bands and plain and _has_bands(problem):
                asked["bands"] = True
            solution = solve(problem, **asked)
    except (TypeError, ValueError) as error:
        raise NoFiniteStepError(str(error)) from None
    reason = uninterrupted(solution).attrs["stop_reason"]
    require(
        reason == "reached_end",
        f"The finite-step equation stopped at time {solution.attrs['end_time']:.3g} ({reason}).",
        error=NoFiniteStepError,
    )
    return solution


def _has_bands(problem: Problem) -> bool:
    """Return whether theory has bands of single runs of plain SGD, in seconds."""
    m, r = problem.width, problem.teacher.span
    numbers = m * r + m * (m + 1) // 2 + 2 * m * is_network(problem)
    has_theory = problem.kind in WITH_BANDS and problem.covariance is None and len(problem.phases()) == 1
    return has_theory and m + r <= problem.dimension and numbers <= MOST_NUMBERS


def prediction_to_test(
    prediction: xr.Dataset,
    plan: CheckPlan,
    batch_size: int,
    progress: bool | None,
    *,
    theory: str,
    say: Callable[[str], None],
    words: tuple[str, str],
) -> xr.Dataset:
    """Return the prediction to test: the given one, or the finite-step equation at the learning rate of the runs.

    The times of the equation may be earlier by half of a visible error, and later by as much or by twice the expected
    delay. A direction that one of the two does not see emerge counts as due at their common end, at the earliest. Loss
    and other curves may differ by 5 % of their range beyond what such times explain.
    """
    if theory == "flow" or has_step(prediction):
        return prediction
    subject, option = words
    try:
        by_curves = decided_by_curves(plan.problem, plan.optimizer)
        solution = solve_finite_step(plan, batch_size, progress=progress, bands=by_curves)
    except NoFiniteStepError as error:
        if theory == "finite-step" or not plan.optimizer.is_plain:
            raise
        say(f"The times in {subject} are tested, without the finite-step equation: {error}")
        return prediction
    if theory == "finite-step" or not plan.optimizer.is_plain:
        return solution
    both = (prediction, solution)
    end = min(float(part["time"].values[-1]) for part in both if "time" in part.coords)
    times = [np.asarray(part["emergence_time"].values, dtype=np.float64) for part in both]
    predicted, solved = (np.clip(np.where(np.isfinite(part), part, end), 1e-300, end) for part in times)
    delay = expectation(plan.problem, prediction, plan.learning_rate / batch_size).delay
    late = np.maximum(LARGEST_GAP, 2.0 * np.log1p(np.where(np.isfinite(delay), delay, 0.0)))
    gap = np.log(solved / predicted)
    excess = np.maximum(gap - late, -gap - LARGEST_GAP)
    worst = int(np.argmax(excess))
    difference = f"time than {subject} for direction {worst + 1}" if excess[worst] > 0 else ""
    if not difference:
        curve = _curve_apart(plan.problem, prediction, solution, float(late.max(initial=LARGEST_GAP)))
        difference = f"{curve} than {subject}" if curve else ""
    if not difference:
        return solution
    say(f"The finite-step equation has another {difference}, so {subject} is tested; {option} tests the equation.")
    return prediction


def _curve_apart(problem: Problem, prediction: xr.Dataset, solution: xr.Dataset, late: float) -> str:
    """Return the name of a curve of the prediction that the finite-step solution lacks; empty if it has them all.

    A curve may be earlier by half of a visible error, and later by `late`, in the logarithm of time.
    """
    if off := start_apart(problem, prediction, solution, LARGEST_CURVE_GAP):
        return off
    if any("time" not in part.coords or "loss" not in part for part in (prediction, solution)):
        return ""
    kept, solved = known_times(prediction), known_times(solution)
    kept = kept[(kept >= solved[0]) & (kept <= solved[-1])] if kept.size and solved.size else np.empty(0)
    theirs = {curve[:2]: curve.values for curve in curves.quantities_of(problem, solution)}
    if not kept.size:
        return ""
    moved = np.clip(kept * np.exp(np.linspace(-LARGEST_GAP, late, 17))[:, None], solved[0], solved[-1])
    for curve in curves.quantities_of(problem, prediction):
        if curve[:2] not in theirs:
            continue
        path = interpolated(prediction["time"].values, curve.values, kept)
        band = interpolated(solution["time"].values, theirs[curve[:2]], moved)
        excess = np.maximum(path - band.max(axis=0), band.min(axis=0) - path)
        if np.nanmax(excess, initial=0.0) > LARGEST_CURVE_GAP * max(float(np.ptp(band)), curve.scale):
            return f"{curve.kind} {curve.label}".strip()
    return ""


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckPlan:
    """Learning rate and steps of a check, for the `checked` first directions of those `emerging` in the prediction.

    `largest_delay` is the largest expected relative delay of a checked direction at this learning rate, inf if theory
    gives none. `beyond` is what curves leave out, with its cost.
    """

    problem: Problem
    learning_rate: float
    steps: int
    largest_delay: float = np.inf
    checked: int = 0
    emerging: int = 0
    beyond: tuple[Beyond, ...] = ()
    optimizer: Optimizer = PLAIN
    #: Whether the check chose the learning rate or the number of steps, and may choose the number of runs.
    flexible: bool = False

    def describe(self) -> str:
        """Return one line on learning rate, steps, horizon and directions."""
        horizon = f"{self.learning_rate * self.steps:.4g}"
        if decided_by_curves(self.problem, self.optimizer):
            within = f", after which {self.checked} of {self.emerging} directions have emerged" * (self.emerging > 0)
            return f"Learning rate {self.learning_rate:.4g}, {self.steps} steps, horizon {horizon}{within}."
        delay = f"{100 * self.largest_delay:.1f} %" if np.isfinite(self.largest_delay) else "unknown"
        return (
            f"Learning rate {self.learning_rate:.4g} (largest expected delay {delay}), {self.steps} steps, "
            f"horizon {horizon}, made for {self.checked} of {self.emerging} directions."
        )

    def costs(self, option: str) -> str:
        """Return sentences on the cost of further tests and the option that asks for them; empty if all is tested."""
        return " ".join(test.sentence(option) for test in self.beyond)


def plan_by_times(
    prediction: xr.Dataset,
    learning_rate: float | None = None,
    steps: int | None = None,
    *,
    batch_size: int = 1,
    seeds: int = DEFAULT_SEEDS,
    false_alarm_rate: float = 0.01,
    directions: int | None = None,
    t_max: float | None = None,
) -> CheckPlan:
    """Return the plan to check the times of a prediction: learning rate, steps, and what they reach.

    A given `learning_rate` or number of `steps` is kept. `directions` is the number of earliest directions to be
    checked, by default all that emerge, or do so until `t_max`, in flow time. The learning rate is one at which delay
    and scatter, over `seeds` runs at the rate of false alarms, hide no error of 30 %, and the steps last
    `HORIZON_FACTOR` times the latest of the chosen times, or until `t_max`. ValueError is raised where no direction
    emerges and neither `steps` nor `t_max` is given.
    """
    check_prediction(prediction)
    problem = Problem.from_dataset(prediction)
    time = expectation(problem, prediction, 1e-9).time
    emerging = int(np.isfinite(time).sum())
    until = emerging if t_max is None else max(int(np.count_nonzero(time <= t_max)), 1)
    chosen = np.argsort(time)[: min(directions or until, emerging)]  # NaN, never, is sorted last
    if learning_rate is None:
        runs = max(seeds, FEWEST_RUNS)
        factor = reach_in_errors(runs - 1, false_alarm_rate / max(chosen.size, 1)) / np.sqrt(runs)
        learning_rate = _safe_rate(problem, prediction, chosen, batch_size, factor)
    if steps is None:
        require(
            t_max is not None or emerging,
            f"Argument `steps` must be given, because no direction emerges in the prediction{_or_longer(prediction)}.",
        )
        end = HORIZON_FACTOR * float(time[chosen].max()) if t_max is None else t_max
        steps = int(np.ceil(end / learning_rate))
    delay = expectation(problem, prediction, learning_rate / batch_size).delay[chosen]
    largest = float(delay.max(initial=0.0)) if emerging else np.inf
    checked = chosen.size if t_max is None else int(np.count_nonzero(time[chosen] <= t_max))
    return CheckPlan(problem, learning_rate, steps, largest, checked, emerging)


def _or_longer(prediction: xr.Dataset) -> str:
    """Return the end of a sentence on a prediction that is too short: the time at which it ends, and the advice."""
    reached = known_times(prediction) if "time" in prediction.coords else np.empty(0)
    return f", which ends at t = {reached[-1]:.4g}; or let it last longer" if reached.size else ""


def plan_check(
    prediction: xr.Dataset,
    name: EngineName,
    options: EngineOptions,
    *,
    learning_rate: float | str | None,
    steps: int | None,
    directions: int | None,
    theory: str,
    false_alarm_rate: float,
    t_max: float | None = None,
    progress: bool | None = False,
) -> tuple[CheckPlan, float | None]:
    """Return the plan of a check and its estimated seconds, None for an engine whose cost does not grow with steps.

    The plan chooses a learning rate and a number of steps that are None.
    """
    check_prediction(prediction)
    problem = Problem.from_dataset(prediction)
    rate = resolved_rate(problem, learning_rate, options.batch_size, optimizer=options.optimizer)
    if t_max is not None and steps is not None:
        _check_ends(rate, steps, t_max)
        rate = t_max / steps
    by_curves = decided_by_curves(problem, options.optimizer)
    plan_for = partial(
        plan_by_times,
        prediction,
        rate,
        steps,
        batch_size=options.batch_size,
        seeds=len(options.seeds),
        false_alarm_rate=false_alarm_rate,
        t_max=t_max,
    )
    if not by_curves:
        plan_for(directions=1)  # refuses a problem without a plan before an engine is made
    engine = make_engine(name, problem, options)
    per_step = None if isinstance(engine, SpanEngine) else measured_seconds_per_step(engine)
    if by_curves:
        stepped = has_step(prediction)
        if not stepped and theory != "flow":
            with suppress(NoFiniteStepError):
                first_step = CheckPlan(problem, 1e-9, 1, optimizer=options.optimizer)
                solve_finite_step(first_step, options.batch_size, progress=False)
                stepped = True
        # Without an equation every step at the learning rate has two at half of it.
        seconds = (1 if stepped else 3) * (per_step or 0.0)
        pilot = Pilot(problem, prediction, name, options, false_alarm_rate, stepped, seconds, progress)
        plan, per_step = _plan_by_curves(pilot, rate, steps, directions, t_max), seconds or None
    else:
        plan = plan_for(directions=directions)
        most = np.inf if per_step is None else AFFORDABLE_SECONDS / per_step
        if directions is None and steps is None and t_max is None and plan.steps > most:
            counts = range(2, plan.checked)
            plan = plan_for(directions=1 + bisect_right(counts, most, key=lambda n: plan_for(directions=n).steps))
    flexible = rate is None or (steps is None and t_max is None)
    return replace(plan, flexible=flexible), None if per_step is None else per_step * plan.steps


def _plan_by_curves(
    pilot: Pilot, learning_rate: float | None, steps: int | None, directions: int | None, t_max: float | None
) -> CheckPlan:
    """Return the plan of a check by curves: learning rate, steps, and what tests beyond them would cost.

    `pilot` describes the check; a given `learning_rate` or number of `steps` is kept. The end is `t_max`, in flow time,
    or the time at which so many `directions` have emerged, if one of these is given; with a learning rate alone, the
    last end that runs reach within `AFFORDABLE_SECONDS`; with steps alone, that of the prediction. Pilot runs choose
    the learning rate where neither it nor steps are given, and the end where that is open too (`piloted`). Ends at
    which runs without noise would not tell an error of 30 % are left out.
    """
    prediction = pilot.prediction
    awaited, ends, seeing = list(awaited_ends(prediction).values()), list[float](), None
    if learning_rate is None or steps is None:
        last = known_times(prediction)[-1]
        *ends, late = sorted({*ends_of_curves(pilot.problem, prediction), *(end for end in awaited if end <= last)})
        # Runs without noise would tell an error until each end but the last.
        telling = [until for until in ends if _tells(pilot.problem, prediction, until)]
        ends, end = [*telling, late], t_max
        if end is None and directions is not None and awaited:
            end = awaited[min(directions, len(awaited)) - 1]
        if learning_rate is None and steps is None:
            if end is None or _tells(pilot.problem, prediction, end):
                within = ends if end is None else [*(until for until in ends if until < end), end]
                learning_rate, latest, seeing = piloted(pilot, within)
                end = latest if end is None else end
            else:  # no learning rate lets runs see what does not move yet: take that of the first end that tells
                learning_rate, _, seeing = (min(value, end) for value in piloted(pilot, ends[:1]))
        elif learning_rate is not None and end is None:
            within = pilot.affordable(learning_rate, ends, AFFORDABLE_SECONDS)
            end = within[-1] if within else first_end(prediction, ends)
        end = ends[-1] if end is None else end
        learning_rate = learning_rate or end / (steps or 1)
        steps = steps or int(np.ceil(end / learning_rate / SAME))
    reached = learning_rate * steps
    beyond = left_out(pilot, learning_rate, reached, ends, seeing or learning_rate)
    met = sum(end <= reached * SAME for end in awaited)
    optimizer = pilot.options.optimizer
    return CheckPlan(pilot.problem, learning_rate, steps, np.inf, met, len(awaited), tuple(beyond), optimizer)


def _safe_rate(problem: Problem, prediction: xr.Dataset, chosen: Integers, batch_size: int, factor: float) -> float:
    """Return the default learning rate, at which delay and scatter of times hide no error of 30 %.

    `chosen` are the numbers of the directions that are checked, and `factor` times the scatter is what the test of a
    mean over the runs sees. From `LIMIT_SHARE` of the limit of stability the rate is lowered by fifths until, for every
    direction with a finite delay, that is at most `LARGEST_DELAY` and 2 ln(1 + delay) + factor · scatter ≤ 0.8 ln 1.3.
    ValueError is raised where theory knows no limit.
    """
    try:
        limit = stable_rate(problem, batch_size)
    except ValueError as error:
        refuse(f"Argument `learning_rate` must be given, because theory gives no safe one here: {error}")
    # If a vanishing step has no finite delay, neither has a larger one: no learning rate would help.
    vanishing = expectation(problem, prediction, SMALLEST_SHARE * limit / batch_size)
    delayed = chosen[np.isfinite(vanishing.delay[chosen])]
    rate = LIMIT_SHARE * limit
    while rate > SMALLEST_SHARE * limit:
        expected = expectation(problem, prediction, rate / batch_size)
        delay, scatter = expected.delay[delayed], expected.scatter[delayed]
        # The sample's scatter is itself uncertain by a fifth at sixteen runs.
        told_apart = 2.0 * np.log1p(delay) + factor * scatter <= 0.8 * np.log1p(VISIBLE_ERROR)
        if ((delay <= LARGEST_DELAY) & told_apart).all():
            break
        rate *= 0.8
    return rate


def measured_seconds_per_step(engine: Engine, steps: int = BURST_STEPS) -> float:
    """Return the seconds of one step of all runs, timed in bursts of `steps` steps or more, which advance `engine`."""
    with engine.running():
        engine.advance(np.full(10, BURST_RATE))
        engine.measure(student=False)
        while True:
            started = clock.perf_counter()
            engine.advance(np.full(steps, BURST_RATE))
            engine.measure(student=False)
            spent = clock.perf_counter() - started
            if spent >= 0.03 or steps >= 76_800:
                return spent / steps
            steps *= 4


# --- pilot runs -------------------------------------------------------------------------------------------------------


class Pilot(NamedTuple):
    """The check that pilot runs are made for; `stepped` says whether it tests the equation of finite steps.

    `seconds` are those of a step of the check, of both simulations if there are two; 0 where cost is not in steps.
    """

    problem: Problem
    prediction: xr.Dataset
    name: EngineName
    options: EngineOptions
    false_alarm_rate: float
    stepped: bool
    seconds: float
    progress: bool | None = False

    def affordable(self, rate: float, ends: list[float], budget: float) -> list[float]:
        """Return those of the `ends`, in flow time, that a check at `rate` (η) reaches within `budget` seconds."""
        return [end for end in ends if self.seconds * end / rate <= budget]


class Beyond(NamedTuple):
    """A test of `what` beyond the plan: the `samples` of every run and the `seconds` until its time `end`.

    Both are at the learning rate of the plan if an error of 30 % is `seen` at it, else at the `rate` that pilot runs
    let expect; they are lower bounds if that is NaN.
    """

    what: str
    samples: float
    seconds: float
    end: float
    seen: bool
    rate: float = np.nan

    def sentence(self, option: str) -> str:
        """Return the cost of reaching the next emergence, and the option that asks for it."""
        size = f"{self.samples / 1e6:.2g} million" if self.samples >= 1e5 else f"{self.samples:.0f}"
        time = f": {duration(self.seconds)}" if self.seconds else ""
        about, finer = ("", "") if self.seen else ("over ", " and a smaller learning rate")
        if np.isfinite(self.rate):
            about, finer = "about ", f" and a learning rate of {self.rate:.2g}"
        return f"{self.what} would take {about}{size} samples of every run{time}; {option} {self.end:.4g}{finer}."


def awaited_ends(prediction: xr.Dataset) -> dict[int, float]:
    """Return the times at which directions emerge if they are 30 % late, by direction (from 0), in increasing order."""
    times = (1.0 + VISIBLE_ERROR) * predicted_times(prediction, "emergence_time")
    order = np.argsort(times)[: np.count_nonzero(np.isfinite(times))]
    return dict(zip(order.tolist(), times[order].tolist(), strict=True))


def ends_of_curves(problem: Problem, prediction: xr.Dataset) -> list[float]:
    """Return the times until which runs must follow the moving curves, ascending, within the prediction.

    A curve moves if its range is at least its scale; its end is 1.3 times the time at which it has gone 0.9 of its way,
    all ups and downs added. ValueError is raised where nothing moves.
    """
    ends = []
    times = np.asarray(prediction["time"].values) if "time" in prediction.coords else np.empty(0)
    for quantity in curves.quantities_of(problem, prediction):
        finite = np.isfinite(quantity.values)
        values = quantity.values[finite]
        way = np.abs(np.diff(values, prepend=values[:1])).cumsum()
        if way.size and np.ptp(values) >= quantity.scale:
            ends.append(float(times[finite][np.searchsorted(way, 0.9 * way[-1])]))
    require(
        max(ends, default=0.0) > 0.0,
        "Argument `steps` must be given with a learning rate, because nothing moves in the prediction"
        f"{_or_longer(prediction)}.",
    )
    last = float(known_times(prediction)[-1])
    return sorted({min((1.0 + VISIBLE_ERROR) * time, last) for time in ends})


def known_times(prediction: xr.Dataset) -> Array:
    """Return the saved times up to which a prediction has a finite loss, in increasing order."""
    return np.asarray(prediction["time"].values[np.isfinite(prediction["loss"].values)])


def first_end(prediction: xr.Dataset, ends: list[float]) -> float:
    """Return the first of some ends after which a direction has emerged even if it is 30 % late, or else the last."""
    awaited = next(iter(awaited_ends(prediction).values()), 0.0)
    return next((end for end in ends if end >= awaited), ends[-1])


def left_out(pilot: Pilot, rate: float, end: float, ends: list[float], seeing: float) -> list[Beyond]:
    """Return the tests of the next and the last direction that emerge beyond an end, or else of the last of `ends`."""
    seen = seeing == rate
    due = end * SAME if seen else 0.0
    named = [(f"Direction {p + 1}", time) for p, time in awaited_ends(pilot.prediction).items() if time > due]
    named = named or [("All curves", last) for last in ends[-1:] if last > due]
    tests: list[Beyond] = []
    for subject, time in dict.fromkeys([*named[:1], *named[-1:]]):
        unit = 10.0 ** (np.floor(np.log10(time)) - 2.0)  # three digits, not less than it was
        needed = seeing if np.isfinite(seeing) else rate
        samples, rounded_up = pilot.options.batch_size * np.ceil(time / needed), float(np.ceil(time / unit) * unit)
        expected = np.nan if seen or tests else seeing
        tests.append(Beyond(subject, samples, pilot.seconds * time / needed, rounded_up, seen, expected))
    return tests


def piloted(pilot: Pilot, ends: list[float]) -> tuple[float, float, float]:
    """Return the learning rate and end with which a check sees most, by pilot runs, and the rate at which it sees.

    The end is the latest one of `ends` that is seen within a minute, or that of the first emergence within ten; if
    neither is seen, the first emergence if ten minutes reach it, else as far as one minute allows, and the rate is
    extrapolated from the last pilot, NaN if there is none.
    """
    limit = stability_limit(pilot.problem, pilot.options.batch_size, pilot.options.optimizer)
    rate, best, best_end = min(ends[-1] / 500, np.inf if limit is None else 0.5 * limit), np.nan, 0.0
    first = first_end(pilot.prediction, ends)
    tried, looked = None, False
    for _ in range(MOST_RATES):
        within = pilot.affordable(rate, ends, LONG_SECONDS)
        if not within or within[-1] <= best_end:
            break
        seen, _ = _latest_seen(pilot, rate, within)
        if seen > best_end:
            best, best_end = rate, seen
        if seen == within[-1]:
            break
        rate /= PILOT_FACTOR
    for _ in range(0 if best_end >= first else MOST_RATES):
        if not pilot.affordable(rate, [first], AFFORDABLE_SECONDS):
            break
        (seen, tried), looked = _latest_seen(pilot, rate, [first]), True
        if seen:
            return rate, first, rate
        rate /= PILOT_FACTOR
    if best_end:
        return best, best_end, best
    if not pilot.affordable(PILOT_FACTOR * rate, [first], AFFORDABLE_SECONDS):
        return rate, LONG_SECONDS * rate / pilot.seconds, np.nan
    rate *= PILOT_FACTOR
    if not looked:
        return rate, first, np.nan
    tried = _pilot_runs(pilot, rate, [first]) if tried is None else tried
    shares = [PILOT_FACTOR**-halvings for halvings in range(1, MOST_RATES)]
    return rate, first, rate * next((share for share in shares if _sees(pilot, tried, first, share)), np.nan)


def _latest_seen(pilot: Pilot, rate: float, ends: list[float]) -> tuple[float, xr.Dataset | None]:
    """Return the latest of some ends until which a check at a learning rate sees an error, 0 if none, and pilot runs.

    Theory is asked for the scatter first: no runs are made until ends at which it hides such an error, and none at all,
    with None in their place, where these are all or where it shows until the last end that the check does see it.
    """
    theory = _theory_of_scatter(pilot, rate, ends[-1])
    foreseen = [None if theory is None else _foreseen(pilot, theory, end) for end in ends]
    if foreseen[-1]:
        return ends[-1], None
    open_ends = [end for end, sees in zip(ends, foreseen, strict=True) if sees is not False]
    if not open_ends:
        return 0.0, None
    runs = _pilot_runs(pilot, rate, open_ends)
    return next((end for end in reversed(open_ends) if _sees(pilot, runs, end)), 0.0), runs


def _theory_of_scatter(pilot: Pilot, rate: float, end: float) -> xr.Dataset | None:
    """Return the finite-step equation at a learning rate until `end`, with bands; None if theory has none.

    Means over points take longer than pilot runs, and are not asked.
    """
    closed = _has_bands(pilot.problem) and not needs_points(pilot.problem)
    if not (pilot.stepped and pilot.options.optimizer.is_plain and closed):
        return None
    plan = CheckPlan(pilot.problem, rate, int(np.ceil(end / rate / SAME)))
    try:
        solution = solve_finite_step(plan, pilot.options.batch_size, progress=False, bands=True)
    except NoFiniteStepError:
        return None
    return solution if "band_ratio" in solution else None


def _foreseen(pilot: Pilot, theory: xr.Dataset, end: float) -> bool | None:
    """Return whether a check until `end` would see an error of 30 %, by the scatter of theory; None if it cannot tell.

    `theory` is the finite-step equation with its bands. The check does not see the error if a curve hides it even
    though it scatters less than theory says by the tolerance of bands, or if the equation is too far from the
    prediction. It sees it if theory has the scatter of all curves that move, and of awaited times, and none hides the
    error although it scatters more by the tolerance.
    """
    times, saved = known_times(theory), known_times(pilot.prediction)
    times = times[(times > 0.0) & (times >= saved[0]) & (times <= min(end * SAME, saved[-1]))]
    ratio = interpolated(theory["time"].values, theory["band_ratio"].values, times)
    if not times.size or not (ratio <= LARGEST_RATIO).all():
        return None
    count, paths = max(len(pilot.options.seeds), FEWEST_RUNS), _paths_by_theory(pilot, theory, times, end)
    places = [curves.places_of(curve.theory) for curve, _ in paths]
    level = pilot.false_alarm_rate / max(sum(part.size for part in places), 1)
    freedom = np.full(times.size, count - 1.0)
    surely, moving = True, False
    for (curve, equation), part in zip(paths, places, strict=True):
        if not curve.moves:
            continue
        moving = True
        if curve.scatter is None:
            surely = False
            continue
        powers = []
        for spread in (curve.scatter / (1.0 + SCATTER_TOLERANCE), curve.scatter * (1.0 + SCATTER_TOLERANCE)):
            tested = curve._replace(effect=spread)
            powers.append(curves.power_of(tested, part, spread / np.sqrt(count), freedom[: spread.size], level))
        shift, band = np.abs(equation - curve.theory)[part], PILOT_BAND * curves.allowance_of(tested, part)
        # The mean of pilot runs has an error of its own.
        if powers[0] < PILOT_POWER or (shift - 2.0 / np.sqrt(len(PILOT_SEEDS)) * spread[part] > band).any():
            return False
        surely &= bool(powers[1] >= PILOT_POWER and (shift <= band).all())
    return True if surely and moving else None


def _paths_by_theory(pilot: Pilot, theory: xr.Dataset, times: Array, end: float) -> list[tuple[curves.Curve, Array]]:
    """Return the curves of a check until `end` at `times`, with the scatter of theory, None where it has none.

    Beside each stands the same quantity by the finite-step equation, `theory`. Times of events are curves of one point.
    """
    prediction, problem = pilot.prediction, pilot.problem
    saved, predicted = theory["time"].values, prediction["time"].values
    grid = np.array([times, times / (1.0 + VISIBLE_ERROR), times * (1.0 + VISIBLE_ERROR)])
    solved = {quantity[:2]: quantity.values for quantity in curves.quantities_of(problem, theory)}
    spreads = {(kind, label): spread for kind, label, _, spread in deviations(theory)}
    pairs, still = list[tuple[curves.Curve, Array]](), np.zeros(times.size)
    for kind, label, values, scale, _, _ in curves.quantities_of(problem, prediction):
        expected, *dilated = interpolated(predicted, values, grid)
        equation = interpolated(saved, solved[kind, label], times) if (kind, label) in solved else expected
        if not np.isfinite(expected).all():
            continue
        spread = spreads.get((kind, label))
        scatter = None if spread is None else interpolated(saved, spread, times)
        scatter = None if scatter is None or not np.isfinite([scatter, equation]).all() else scatter
        curve = curves.Curve(kind, label, times, expected, expected[None], still, np.array(dilated), scale)
        pairs.append((curve._replace(scatter=scatter), equation))
    late = np.log1p(VISIBLE_ERROR) * np.array([[1.0], [-1.0]])
    for name in (name for name in curves.AWAITED if tell_alike(name, (prediction, theory))):
        kind, solved_times, deviation = curves.TIMES[name][is_network(problem)], theory[name], theory.get(f"{name}_sd")
        for at, time in enumerate(np.asarray(prediction[name].values, dtype=np.float64)):
            if not 0.0 < time * (1.0 + VISIBLE_ERROR) <= end:
                continue
            log, equation = np.array([np.log(time)]), np.log(solved_times.values[at : at + 1])
            scatter = None if deviation is None else deviation.values[at : at + 1] / time
            scatter = None if scatter is None or not np.isfinite([scatter, equation]).all() else scatter
            still = np.zeros(1)
            curve = curves.Curve(kind, str(at + 1), np.array([time]), log, log[None], still, log + late, 1.0)
            pairs.append((curve._replace(scatter=scatter, awaited=True, horizon=float(np.log(end))), equation))
    return pairs


def _tells(problem: Problem, prediction: xr.Dataset, end: float) -> bool:
    """Return whether theory until `end` with times 30 % longer or shorter leaves the band of every curve that moves."""
    times, kept = np.asarray(prediction["time"].values), known_times(prediction)
    kept = kept[(kept > 0.0) & (kept <= end * SAME)]
    grid, powers = np.array([kept, kept / (1.0 + VISIBLE_ERROR), kept * (1.0 + VISIBLE_ERROR)]), []
    for quantity in curves.quantities_of(problem, prediction) if kept.size else ():
        theory, *dilated = interpolated(times, quantity.values, grid)
        if np.isfinite(theory).all():
            still, runs = np.zeros(kept.size), theory[np.newaxis]
            kind, label, scale = quantity.kind, quantity.label, quantity.scale
            curve = curves.Curve(kind, label, kept, theory, runs, still, np.array(dilated), scale)
            nothing, freedom = np.zeros(kept.size), np.full(kept.size, FEWEST_RUNS - 1.0)
            powers.append(curves.power_of(curve, curves.places_of(theory), nothing, freedom, ROUNDING))
    return _all_seen(powers)


def _all_seen(powers: list[float]) -> bool:
    """Return whether some curve moves and all moving ones have the power of pilots; the power of a still one is NaN."""
    moving = [power for power in powers if not np.isnan(power)]
    return bool(moving) and min(moving) >= PILOT_POWER


def _pilot_runs(pilot: Pilot, rate: float, ends: list[float]) -> xr.Dataset:
    """Return the runs of a pilot, of `PILOT_SEEDS`, at a learning rate until the last of `ends`, in flow time.

    They are recorded at all ends too, so that a check until each of them can be judged from the same runs.
    """
    options, last = pilot.options, [int(np.ceil(end / rate / SAME)) for end in ends]
    plan = make_plan(rate, last[-1], None)
    with warnings.catch_warnings(), part_of_work(f"pilot runs at {rate:.2g}"):
        warnings.simplefilter("ignore", UserWarning)
        return simulate(
            pilot.problem,
            learning_rate=rate,
            steps=last[-1],
            save_at=SaveAt.at(plan.times(np.union1d(plan.recorded, last))),
            seeds=PILOT_SEEDS,
            engine=pilot.name,
            batch_size=options.batch_size,
            device=options.device,
            dtype=options.dtype,
            progress=pilot.progress,
            optimizer=None if options.optimizer.is_plain else options.optimizer,
        )


def _sees(pilot: Pilot, runs: xr.Dataset, end: float, share: float = 1.0) -> bool:
    """Return whether a check until `end`, at `share` of the learning rate of pilot runs, would see an error of 30 %.

    `pilot` describes the check, `runs` are the pilot's simulation and `end` is in flow time. Curves are those over time
    and those of the times of events. The answer is False if the runs stopped early, if one was lost or lacks an awaited
    time, or if the mean of a curve that moves is too far from theory: beyond `PILOT_EFFECT` of its range for the flow,
    or `PILOT_BAND` of the tested band for the equation of finite steps. For the flow, which is tested by extrapolation
    from the rates η and η/2, scatter beyond `EXTRAPOLATED_LIMIT` of the range is too much too. Else the answer is
    whether the test of every moving curve, at its share of the rate of false alarms, sees the error with probability
    0.9.

    From the learning rate of the pilot to `share` of it the distance of the mean from theory shrinks as `share`, and
    the scatter of the runs as its root. The effect of the step size, 2 (x_η − x_{η/2}) over the runs of the check, has
    the error of that difference and that of the mean over the runs of the pilot.
    """
    if runs.attrs["stop_reason"] != "reached_end" or curves.paired_runs([runs]).size < len(PILOT_SEEDS):
        return False
    kept = runs["time"] < end + float(runs.attrs["learning_rate"]) * (1 - 1e-9)
    until = runs.sel(time=kept).assign_attrs(end_time=end * SAME)
    paths = curves.curves_over_time(pilot.problem, pilot.prediction, [until])
    paths += curves.times_as_curves(pilot.problem, pilot.prediction, [until])
    places = [curves.places_of(curve.theory, curve.saved) for curve in paths]
    level = pilot.false_alarm_rate / max(sum(part.size for part in places), 1)
    count, powers = max(len(pilot.options.seeds), FEWEST_RUNS), []
    error = np.sqrt(1.0 / len(PILOT_SEEDS) + 6.0 / count)
    for curve, part in zip(paths, places, strict=True):
        if np.isnan(curve.runs).any():
            return False  # some run lacks an awaited time
        scatter = np.sqrt(share) * curves.scatter_of(curve)
        shift = share * np.abs(curve.runs.mean(axis=0) - curve.theory)
        if pilot.stepped:
            spread = STEPPED_MARGIN * scatter
            tested = curve._replace(effect=spread)
            largest = PILOT_BAND * curves.allowance_of(tested, part)
        else:
            tested = curve._replace(effect=np.maximum(shift, SCATTER_MARGIN * scatter))
            # Twice a run at half of the learning rate less one at the whole has a variance of 3.
            spread, largest = np.sqrt(3.0) * SCATTER_MARGIN * scatter, PILOT_EFFECT * curve.range
            shown = np.max(shift + 2.0 * error * scatter)
            wide = SCATTER_MARGIN * np.max(scatter) > EXTRAPOLATED_LIMIT * curve.range
            if curve.moves and (wide or shown > curves.LARGEST_EFFECT * curve.range):
                return False
        if curve.moves and np.max(shift[part]) > largest:
            return False
        freedom = np.full(spread.size, count - 1.0)
        powers.append(curves.power_of(tested, part, spread / np.sqrt(count), freedom, level))
    return _all_seen(powers)
