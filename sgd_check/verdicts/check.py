"""`sgd_check.check`: predict, simulate and compare in one call, with the choices of `python -m sgd_check.run`."""

from __future__ import annotations

import time as clock
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import xarray as xr

import dynamics
from dynamics.problem import checked_integer, checked_number, is_correlation, is_spherical
from dynamics.runs import also_interrupted
from hermite.text.messages import not_a_choice
from sgd_check.runs.simulation import checked_engine, checked_options, simulate
from sgd_check.verdicts.alignment import checked_rate, decided_by_curves, with_emergence
from sgd_check.verdicts.check_plan import (
    DEFAULT_SEEDS,
    THEORIES,
    engine_for,
    plan_and_time,
    plan_by_curves,
    prediction_to_test,
    seconds_left,
    simulate_for_curves,
)
from sgd_check.verdicts.comparison import compare

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from dynamics.problem import Problem, SaveAt
    from dynamics.runs import RunFile


def check(
    problem: Problem,
    *,
    learning_rate: float | None = None,
    steps: int | None = None,
    directions: int | None = None,
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    engine: str | None = None,
    theory: str = "auto",
    false_alarm_rate: float = 0.01,
    save_at: SaveAt | None = None,
    batch_size: int = 1,
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
    learning_rate : float, optional
        Step size η > 0, dimensionless. By default the largest one, up to a tenth of the limit of stability, at which
        every checked direction has an expected delay of at most 4 % and scatters so little that an error of 30 % in its
        predicted time would be seen; where curves decide (see `compare`), by pilot runs, so that such an error would be
        seen in every curve.
    steps : int, optional
        Number of SGD steps. By default up to 2.5 times the last emergence of the checked directions, or until the
        curves have made nine tenths of their way, and 30 % longer.
    directions : int, optional
        Choose learning rate and steps for so many directions, the first to emerge. By default for as many as ten
        minutes of simulation allow, which is measured on this machine: give it, or `learning_rate` and `steps`, for
        choices that do not depend on its speed.
    seeds : int or sequence of int, default 32
        How many runs, or the seeds themselves.
    engine : {"projected", "torch", "diffusion", "scalar"}, optional
        As of `simulate`; by default "auto".
    theory : {"auto", "finite-step", "flow"}
        What is tested: "flow" (allowing the delay by the step size), "finite-step" (the equation of the mean step at
        the learning rate of the runs, sharper since it has that delay), or "auto": "finite-step" where it can be solved
        and is no farther from the flow than the step size explains.
    false_alarm_rate : float, default 0.01
        Probability, in (0, 1), of "disagree" if the theory holds.
    save_at : SaveAt, optional
        Times Σ η of the runs' records, as of `simulate`.
    batch_size : int, default 1
        Fresh samples per step.
    device : {"auto", "cpu", "cuda"}
        As of `simulate`.
    dtype : {"auto", "float32", "float64"}
        As of `simulate`.
    progress : bool, optional
        Show bars on stderr; by default if it is a terminal or a notebook.
    max_runtime : float, optional
        Wall-clock budget of the simulation in seconds; what was recorded until then is compared.
    checkpoint : path or RunFile, optional
        File of the simulation, as of `simulate`.

    Returns
    -------
    DataTree
        /prediction (what was tested), /simulation and /comparison as of `compare`, whose attrs hold `verdict`
        ("agree", "disagree" or "undecided") and `reasons`; and /given, the flow, where the finite-step equation was
        tested in its place. Where curves decide and the flow is tested, /finer has as many runs at half of the
        learning rate.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given. Among others, if the student is spherical; if nothing emerges in
        the prediction and `steps` is not given; if theory gives no safe learning rate and none is given; with
        `theory="finite-step"` if that equation has no solution here.
    SolveError
        If the flow cannot be integrated.
    SolveInterrupted
        A KeyboardInterrupt, after Ctrl-C; its `dataset` is the flow, or the tree of what the runs had reached.

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
    name = _checked_engine(problem, engine)
    if theory not in THEORIES:
        raise ValueError(not_a_choice("Argument `theory`", theory, THEORIES))
    options = checked_options(problem, seeds=seeds, batch_size=batch_size, device=device, dtype=dtype)
    choice = {
        "learning_rate": _if_given("learning_rate", learning_rate, checked_number, positive=True),
        "steps": _if_given("steps", steps, checked_integer, minimum=1),
        "false_alarm_rate": checked_rate(false_alarm_rate),
    }
    count = _if_given("directions", directions, checked_integer, minimum=1)
    prediction = with_emergence(dynamics.solve_problem(problem, progress=progress))
    if decided_by_curves(problem):
        plan, _ = plan_by_curves(prediction, name, options, **choice, theory=theory)
    else:
        ready = engine_for(prediction, name, options, **choice)
        plan, _ = plan_and_time(prediction, ready, options, directions=count, **choice)
    words = {"given": "the prediction", "option": 'theory="finite-step"'}
    tested = prediction_to_test(
        prediction, plan, options.batch_size, theory=theory, progress=progress, say=_warn, **words
    )
    started = clock.perf_counter()

    def simulate_at(rate: float, count: int, first: bool) -> xr.Dataset:
        run = partial(
            simulate,
            problem,
            learning_rate=rate,
            steps=count,
            seeds=options.seeds,
            engine=name,
            save_at=save_at,
            batch_size=options.batch_size,
            device=device,
            dtype=dtype,
            progress=progress,
            max_runtime=max_runtime if first else seconds_left(max_runtime, started),
            checkpoint=checkpoint if first else None,
        )
        return also_interrupted(run)

    simulations = simulate_for_curves(tested, plan, simulate_at)
    runs = simulations if len(simulations) > 1 else simulations[0]
    tree = compare(tested, runs, false_alarm_rate=false_alarm_rate)
    if tested is not prediction:
        tree["given"] = xr.DataTree(prediction)
    if simulations[-1].attrs["stop_reason"] == "interrupted":
        msg = "The check was interrupted; what was computed is the attribute `dataset` of this exception, a DataTree."
        raise dynamics.SolveInterrupted(msg, tree)
    return tree


def _checked_engine(problem: Problem, engine: str | None) -> str:
    """Return the engine's name, or say in one sentence why the problem cannot be checked."""
    if is_spherical(problem) and not is_correlation(problem):
        msg = (
            "Argument `problem` must not have the spherical student, whose mean field is held against networks of "
            "several widths: by `sgd_check.compare`, or by `python -m sgd_check.run` for a file of the mean field."
        )
        raise ValueError(msg)
    return checked_engine(problem, "auto" if engine is None else engine)


def _if_given(name: str, given: Any, checked: Callable[..., Any], **bound: Any) -> Any:
    """Return a checked number, or None where it is left to the program."""
    return None if given is None else checked(given, name, **bound)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, UserWarning, stacklevel=4)
