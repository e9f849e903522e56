"""Studies of the laws of one teacher: all of them, the compute frontier, and how an exponent nears its limit.

Each law as measured on answers from several starts, by matched pairs or by the exact coupled flow, beside the sum
formula for the same starts, the idealised sum at this P, and the asymptotic exponent.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import duration, study_function
from dynamics.laws import scaling_laws
from dynamics.laws.scaffold import (
    Family,
    PreparedStudy,
    check_coupled,
    checked_problem,
    checked_starts,
    common_times,
    family_tasks,
    under_way,
)
from dynamics.laws.scaling_laws import ScalingLaw
from dynamics.problem import Inputs, Problem, Teacher
from dynamics.problem.checks import (
    LARGEST_INTEGER,
    JsonObject,
    checked_increasing,
    checked_integer,
    checked_list,
    checked_number,
    require,
)
from dynamics.problem.saved_times import SaveAt
from dynamics.sweeps.workers import checked_workers
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS, ideal_exponent
from dynamics.theory.learning_rates import descent_limit, warn_descent_limit

#: Neurons per direction, where the width is not varied.
WIDTH_FACTOR = 3
#: Saved times of a loss curve, of those of the frontier, and of those of a growing number of directions.
TIMES, FRONTIER_TIMES, SIZE_TIMES = 400, 300, 150
#: Decay of the eigenvalues up to which overlaps at the start get small as the dimension grows.
STEEPEST_SPECTRUM = 1.0
#: Seconds of a pair on inputs with a spectrum, d = 2048; and without time stepping, on two cores, of a pair at all
#: times and at one.
SPECTRUM_SECONDS, PAIR_SECONDS, PAIR_TIME_SECONDS = 0.055, 2e-6, 1.5e-8
#: Step size of descent in units of its limit of stability, and that of tuned steps: they change no exponent.
STEP_SHARE, TUNED_RATE = 0.25, 0.1
#: Largest width of the coupled flow by default, and curves of a frontier.
LARGEST_WIDTH = 256
ROUTES = ("coupled flow", "matched pairs", "sum formula")
FEWEST_WIDTHS = 3


class Sizes(NamedTuple):
    """Sizes of problems: default and largest numbers of directions, and dimensions per direction.

    The family over dimensions, each twice the one before, has `dimensions` of them, and at most `few` directions.
    """

    directions: int
    coupled: int
    most: int
    dimension_factor: int
    dimensions: int
    few: int


ISOTROPIC = Sizes(directions=1024, coupled=32, most=LARGEST_INTEGER, dimension_factor=4, dimensions=8, few=64)
#: Here pairs are integrated in time, and s_1/tr Σ is to be small.
SPECTRUM = Sizes(directions=64, coupled=16, most=256, dimension_factor=32, dimensions=6, few=16)


def _scaling(study: PreparedStudy, seeds: range, sizes: Sizes, workers: int) -> xr.Dataset:
    """Return the dataset of the laws after solving all problems; an interruption keeps laws of complete families."""
    rate, laws = study.settings["learning_rate"], list[ScalingLaw]()
    readings: list[Callable[[list[xr.Dataset]], list[ScalingLaw]]] = [
        lambda answers: [
            scaling_laws.loss_against_time(answers),
            scaling_laws.loss_against_samples(answers, rate),
            scaling_laws.loss_against_tuned_samples(answers, TUNED_RATE),
            scaling_laws.times_against_direction(answers),
        ],
        lambda answers: [scaling_laws.loss_against_width(answers), *scaling_laws.frontier_laws(answers, rate)],
        lambda answers: [scaling_laws.times_against_dimension(answers)],
    ]
    starts, *families = _families(study.problem, seeds, sizes)
    # With a spectrum a prediction takes seconds: the first start stands for all, and answers choose their times.
    is_quick = study.problem.inputs is None
    shared = common_times(starts if is_quick else starts[:1], TIMES)

    def with_times(problem: Problem) -> tuple[Problem, SaveAt | None]:
        return problem, common_times([problem], TIMES, reach=2.0) if is_quick else None

    timed: list[Family] = [[(start, shared) for start in starts], *(list(map(with_times, f)) for f in families)]
    with under_way(sum(map(len, timed)), study.progress) as meter:
        for family, read in zip(timed, readings, strict=True):
            tasks = family_tasks(family, coupled=study.settings["coupled"])
            laws += read([answer for answer, _ in meter.answers(tasks, workers)])
    if not laws:
        raise KeyboardInterrupt
    values, coords = scaling_laws.law_values(laws, study.problem)
    return study.dataset(meter, values, coords, wall_seconds=meter.solving, **study.settings)


def _families(problem: Problem, seeds: range, sizes: Sizes) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """Return the problem, the same at widths from P^0.25/2 to P, and of fewer directions at several dimensions."""
    count, few = problem.num_directions, min(problem.num_directions, sizes.few)
    begin, _ = scaling_laws.middle_ranks(count)
    powers = np.arange(-1.0, np.log2(count / begin) + 0.25, 0.5)
    widths = np.unique(np.rint(begin * 2.0**powers).astype(int)).tolist()
    teacher, d = Teacher.power_law(few, problem.teacher.beta or 0.0), sizes.dimension_factor // 2 * few
    dimensions = [2**i * d for i in range(sizes.dimensions)]
    fewer = replace(problem, teacher=teacher, width=WIDTH_FACTOR * few, dimension=d)
    return (
        [replace(problem, seed=seed) for seed in seeds],
        [replace(problem, width=m, seed=seed) for seed in seeds for m in widths],
        [replace(fewer, dimension=d, seed=seed) for seed in seeds for d in dimensions],
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def scaling_study(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    spectrum: float | None = None,
    directions: int | None = None,
    dimension: int | None = None,
    starts: int = 4,
    seed: int = 0,
    coupled: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Measure all scaling laws of the teacher a_p ∝ p^(−β).

    .. math:: L \propto t^{(1-2\beta)/\beta},\; n^{(1-2\beta)/\beta} \text{ at a fixed step},\;
       n^{(1-2\beta)/(2\beta)} \text{ at a tuned one},\; m^{1-2\beta},\; (m\,\text{steps})^{(1-2\beta)/(1+\beta)},
       \qquad T_p \propto p^\beta d^{k/2-1}

    On inputs with eigenvalues l^(−α) all but L(m) change: times and dimensions enter by T_p ∝ p^τ d^((1−α)(k/2−1)),
    τ = β + αk/2 instead of β.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β ≥ 0; exponents of the loss exist for β > ½ only.
    spectrum : float, optional
        Decay α of the eigenvalues of the inputs' covariance, from 0 to 1; by default inputs are isotropic. Exponents
        hold for s_1/tr Σ of at most about 0.01. A pair takes about 55 ms.
    directions, dimension : int, optional
        P ≥ 16, by default 1024 (32 for the coupled flow), and d ≥ P, by default 4 P. With `spectrum` P ≤ 256, by
        default 64 (16), and d by default 32 P.
    starts, seed : int
        Random starts of every problem, and the seed of the first.
    coupled : bool
        Integrate the exact coupled flow instead of matched pairs: P = 32 takes about a minute.
    workers : int, optional
        Number of processes of the coupled flow, by default one per core. Results do not depend on it.

    Returns
    -------
    Dataset
        `exponent` and `exponent_error` (law, source), the window of each fit, and the points: `abscissa` (law, point),
        `ordinate` (law, curve, run, point).  Errors: from the scatter over starts; of one start and of the ideal sum a
        jackknife over blocks of the curve.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.

    Examples
    --------
    >>> found = scaling_study(directions=64, starts=2, progress=False)
    >>> found.exponent.sel(law="loss-time").round(2).to_series().to_dict()
    {'measured': -1.05, 'sum formula': -1.03, 'ideal sum': -1.06, 'asymptotic': -1.0}
    """
    check_coupled(coupled, workers=workers)
    inputs, sizes = None, ISOTROPIC
    if spectrum is not None:
        alpha = checked_number(spectrum, "spectrum", positive=False, maximum=STEEPEST_SPECTRUM)
        inputs, sizes = Inputs.power_law(alpha), SPECTRUM
    if directions is None:
        directions = sizes.coupled if coupled else sizes.directions
    count = checked_integer(directions, "directions", minimum=FEWEST_DIRECTIONS, maximum=sizes.most)
    d = sizes.dimension_factor * count if dimension is None else dimension
    widest = WIDTH_FACTOR * count
    problem = checked_problem(information_exponent, beta, count, d, widest=widest, seed=seed, inputs=inputs)
    seeds = checked_starts(starts, problem.seed)
    settings: dict[str, object] = {
        "starts": len(seeds),
        "coupled": coupled,
        "learning_rate": STEP_SHARE * descent_limit(problem),
        "tuned_rate": TUNED_RATE,
    }
    processes = checked_workers(workers, alone=1) if coupled else 1  # matched pairs use all cores by themselves
    families = _families(problem, seeds[:1], sizes)  # those of all starts may be too many for a dry run
    route = "coupled flows" if coupled else "problems by matched pairs, without time stepping"
    if inputs is not None and not coupled:
        members = [member for family in families for member in family]
        pairs = sum(min(member.width, member.num_directions) for member in members) * len(seeds)
        route = f"problems by {pairs} matched pairs, about {duration(SPECTRUM_SECONDS * pairs)}"
    work = f"{sum(map(len, families)) * len(seeds)} {route}: P = {count}, {len(seeds)} starts each."
    title = "Scaling laws beside the sum formula and the asymptotic exponents"
    solve = partial(_scaling, seeds=seeds, sizes=sizes, workers=processes)
    return PreparedStudy("scaling", title, settings, problem, progress, solve, work)


# --- compute frontier -------------------------------------------------------------------------------------------------


def _frontier(study: PreparedStudy, family: list[Problem], seeds: range, coupled: list[Problem]) -> xr.Dataset:
    """Return the dataset of all widths; an interruption leaves out the coupled flow under way and later ones."""
    began, rate = clock.perf_counter(), study.settings["learning_rate"]
    widths = np.array([member.width for member in family])
    save_at, laws, flows = common_times(family, FRONTIER_TIMES), list[ScalingLaw](), list[xr.Dataset]()
    loss, spent = np.full((len(ROUTES), widths.size, len(save_at)), np.nan), np.full(widths.size, np.nan)
    starts: Family = [(replace(member, seed=seed), save_at) for member in family for seed in seeds]
    with under_way(len(starts) + len(coupled), study.progress) as meter:
        pairs = [answer for answer, _ in meter.answers(family_tasks(starts))]
        laws += scaling_laws.frontier_laws(pairs, rate)
        pair_seconds = clock.perf_counter() - began
        # Loss curves are those of the first start.
        of_first = pairs[:: len(seeds)]
        loss[1], loss[2] = ([answer[name] for answer in of_first] for name in ("loss", "predicted_loss"))
        tasks = family_tasks([(member, save_at) for member in coupled], coupled=True)
        for at, (flow, seconds) in enumerate(meter.answers(tasks)):
            loss[0, at], spent[at] = flow["loss"], seconds
            flows.append(flow)
    if not laws:
        raise KeyboardInterrupt
    if len(flows) >= FEWEST_WIDTHS:
        laws += [replace(law, name=f"{law.name}, coupled") for law in scaling_laws.frontier_laws(flows, rate)]
    values, coords = scaling_laws.law_values(laws, study.problem)
    return study.dataset(
        meter,
        values | {"loss": (("curve_of", "width"), loss), "solve_time": (("width",), spent)},
        coords | {"width": widths, "time": save_at.times, "curve_of": np.array(ROUTES)},
        beta=study.problem.teacher.beta,
        **study.settings,
        pair_seconds=pair_seconds,
        wall_seconds=clock.perf_counter() - began,
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def compute_frontier(
    *,
    information_exponent: int = 4,
    beta: float = 0.8,
    directions: int = 1024,
    dimension: int = 2048,
    widths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048),
    learning_rate: float = 0.1,
    starts: int = 4,
    seed: int = 0,
    coupled: bool = False,
    largest_width: int | None = None,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Measure loss against compute over widths, and its frontier.

    .. math:: L^*(c) = \min_m L_m(\eta c / m) \propto c^{(1-2\beta)/(1+\beta)}, \qquad m^*(c) \propto c^{1/(1+\beta)}

    asymptotically, with c = m · steps and t = η · step.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β; exponents exist for β > ½.
    directions, dimension, widths : int, int, sequence of int
        P ≥ 16, d ≥ P, and at least three increasing widths m.
    learning_rate : float
        Step η of population gradient descent, which is taken as its flow: it only scales compute.
    starts, seed : int
        Random starts of every width, for matched pairs and the sum formula, and the seed of the first.
    coupled, largest_width : bool, int, optional
        Integrate the exact coupled flow of the first start too, up to this width, by default 256.

    Returns
    -------
    Dataset
        `loss` (curve_of, width, time) of the first start, `exponent` (law, source) with `exponent_error`, the points of
        the frontiers as `abscissa` and `ordinate`, and `solve_time` (width), the seconds of each coupled flow.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.

    Examples
    --------
    >>> found = compute_frontier(directions=16, dimension=32, widths=(2, 4, 8), starts=1, progress=False)
    >>> dict(found.loss.sizes), found.exponent.sel(source="asymptotic").values.round(2).tolist()
    ({'curve_of': 3, 'width': 3, 'time': 300}, [-0.33, 0.56])
    """
    chosen = checked_increasing(widths, "widths", minimum=1, fewest=FEWEST_WIDTHS)
    check_coupled(coupled, largest_width=largest_width)
    problem = checked_problem(
        information_exponent, beta, directions, dimension, widest=chosen[-1], seed=seed, fewest=FEWEST_DIRECTIONS
    )
    seeds = checked_starts(starts, problem.seed)
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    limit = descent_limit(problem)
    warn_descent_limit(rate, limit)
    largest = LARGEST_WIDTH if largest_width is None else largest_width
    settings: JsonObject = {
        "learning_rate": rate,
        "descent_limit": limit,
        "starts": len(seeds),
        "coupled": coupled,
        "largest_width": checked_integer(largest, "largest_width", minimum=1),
    }
    family = [replace(problem, width=m) for m in chosen]
    flows = [member for member in family if coupled and member.width <= settings["largest_width"]]
    pairs = sum(min(m, problem.num_directions) for m in chosen) * len(seeds)
    work = f"{len(chosen)} widths of {len(seeds)} starts by matched pairs: {pairs:.2g} pairs, seconds."
    if flows:
        seconds = sum(1.5 * max(member.width / 16.0, 1.0) ** 1.45 for member in flows)
        work += f" Coupled flow of {len(flows)} widths: about {duration(seconds)} on two cores."
    solve = partial(_frontier, family=family, seeds=seeds, coupled=flows)
    title = "Loss against compute over widths"
    return PreparedStudy("compute-frontier", title, settings, problem, progress, solve, work)


# --- number of directions ---------------------------------------------------------------------------------------------


def _finite_size(study: PreparedStudy, problems: dict[tuple[float, int], Problem], seeds: range) -> xr.Dataset:
    """Return the dataset of the exponents of all sizes; after an interruption those of later sizes are NaN."""
    betas, sizes = study.settings["betas"], study.settings["sizes"]
    exponent, error = np.full((2, len(betas), len(sizes), len(scaling_laws.SOURCES)), np.nan)
    with under_way(len(problems) * len(seeds), study.progress) as meter:
        for (beta, count), first in problems.items():
            shared = common_times([first], SIZE_TIMES)
            tasks = family_tasks([(replace(first, seed=seed), shared) for seed in seeds])
            law = scaling_laws.loss_against_time([answer for answer, _ in meter.answers(tasks)])
            at = betas.index(beta), sizes.index(count)
            fits = law.fit, law.finite_size, ideal_exponent(count, beta, "loss-time")
            exponent[at] = [*(fit.exponent for fit in fits), law.asymptotic]
            error[at] = [*(fit.standard_error for fit in fits), 0.0]
    dims = ("beta", "num_directions")
    return study.dataset(
        meter,
        {"exponent": (dims, exponent), "exponent_error": (dims, error)},
        {"beta": betas, "num_directions": sizes, "source": np.array(scaling_laws.SOURCES)},
        dimension=study.problem.dimension,
        starts=len(seeds),
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def finite_size(
    *,
    information_exponent: int = 4,
    betas: Sequence[float] = (0.8, 1.0, 1.5),
    sizes: Sequence[int] = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576),
    dimension: int = 16777216,
    starts: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Fit L ∝ t^x at a growing number of directions P, to see how x nears (1−2β)/β.

    Parameters
    ----------
    information_exponent, betas : int, sequence of float
        k ≥ 3 of the link h_k, and decays β > ½.
    sizes : sequence of int
        Numbers of directions P ≥ 16, increasing; m = 3 P neurons learn each.
    dimension : int
        d, at least the largest P.
    starts, seed : int
        Random starts of every size, and the seed of the first.

    Returns
    -------
    Dataset
        `exponent` and `exponent_error` (beta, num_directions, source), of the loss of all matched pairs ("measured"),
        of the sum formula, of the idealised sum (`dynamics.theory.asymptotics`), and asymptotic.

    Examples
    --------
    >>> found = finite_size(betas=[1.0], sizes=[64, 256], dimension=1024, starts=2, progress=False)
    >>> found.exponent.sel(beta=1.0, source="sum formula").values.round(2).tolist()  # towards −1
    [-0.99, -1.09]
    """
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    decays = [checked_number(beta, "betas", positive=True) for beta in checked_list(betas, "betas")]
    for beta in decays:
        require(beta > 0.5, f"Argument `betas` must be above 1/2, or the loss follows no power law, but holds {beta}.")
    counts = checked_increasing(sizes, "sizes", minimum=FEWEST_DIRECTIONS, fewest=1)
    d, seeds = checked_integer(dimension, "dimension", minimum=counts[-1]), checked_starts(starts, seed)
    problems = {
        (beta, count): checked_problem(k, beta, count, d, widest=WIDTH_FACTOR * count, seed=seeds.start)
        for count, beta in product(counts, decays)
    }
    settings = {"betas": decays, "sizes": counts, "starts": len(seeds)}
    pairs = len(seeds) * len(decays) * sum(counts)
    seconds = duration(pairs * (PAIR_SECONDS + SIZE_TIMES * PAIR_TIME_SECONDS))
    work = f"{pairs:.2g} matched pairs at {SIZE_TIMES} times, without time stepping: about {seconds}."
    title, smallest = "Exponent of the loss in time against the number of directions", problems[decays[0], counts[0]]
    solve = partial(_finite_size, problems=problems, seeds=seeds)
    return PreparedStudy("finite-size", title, settings, smallest, progress, solve, work)
