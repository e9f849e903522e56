"""Networks that see the same samples again, in full batches or epochs of mini-batches, as d → ∞."""

from __future__ import annotations

import threading
import time as clock
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from dynamics.cores import available_cores, one_blas_thread
from dynamics.equations.reused_data import MOST_COORDINATES, Moments, ReusedData, moments, numbers_held
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import check_memory, check_switch, check_that, checked_integer, checked_number
from dynamics.problem.rates import Schedule
from dynamics.problem.student import NETWORK
from dynamics.runs.dataset import make_dataset
from dynamics.runs.result import StopReason
from dynamics.threads import GivenUp, give_way, whether_given_up
from hermite.arrays import Array, Integers
from hermite.text.messages import shown

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations.network.system import NetworkSystem
    from dynamics.problem import Student

ANSWER = "reused-data"
REFERENCES = (
    "Dandi, Troiani, Arnaboldi, Pesce, Zdeborova, Krzakala, arXiv:2402.03220; Celentano, Cheng, Montanari, "
    "arXiv:2112.07572"
)
#: Groups of points, each of which is an answer of its own: their scatter is the error.
GROUPS = 8
#: Points altogether by default, fewest and most.
DRAWS, FEWEST, MOST = 2**19, 2**10, 2**30
#: Steps up to which scatter has been measured, and most steps.
MANY_STEPS, MOST_STEPS = 50, 2000


class Cost(NamedTuple):
    """What an answer takes: bytes at once, and operations of floating point."""

    memory: float
    operations: float


def solve_reused_data(
    problem: Problem,
    *,
    samples: float | str,
    learning_rate: float | Schedule,
    steps: int,
    batches_per_epoch: int = 1,
    reshuffle: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> xr.Dataset:
    r"""Solve the motion of a network that takes steps on the same n = αd samples again and again, exactly as d → ∞.

    .. math:: W \leftarrow (1 - \eta\kappa_w)\, W - \frac{\eta\varepsilon_w}{|B|} \sum_{\mu \in B}
       (f(x_\mu) - y_\mu)\, \nabla_W f(x_\mu), \qquad y_\mu = f^*(x_\mu) + \tau \xi_\mu

    with batches B that part the samples, in turn; one batch is gradient descent on all of them. They stay the same, or
    every epoch draws them anew. Second layer and
    biases, where they are trained, take the same steps at their own rates. The equations are those
    of dynamical mean-field theory, forward in time, with means over points of a scrambled Sobol sequence.

    Parameters
    ----------
    problem : Problem
        With a `dynamics.Student` of a few neurons on isotropic inputs, and any teacher, both of any links. Neurons on
        the sphere take the tangential part of the step and are brought back to their lengths. A start in "pairs" is
        refused: neurons that stay opposite in all that is new cannot be told apart by their means.
    samples : int or str
        Number n of samples, or in units of the dimension, such as "1.5d".
    learning_rate : float or Schedule
        η > 0 of the mean gradient of a batch, or one for every step.
    steps : int
        Number T of steps.
    batches_per_epoch : int, default 1
        Number of batches that the samples are parted into; after so many steps each sample has been seen once more.
    reshuffle : bool, default False
        Whether every epoch parts the samples anew, as `sgd_check.simulate` does by default.
    draws : int, default 2^19
        Number of points, which becomes 8 times a power of 2, no fewer. Errors fall about as 1/draws at first, and as
        1/√draws where T is large.
    seed : int, default 0
        Draws the points.

    Returns
    -------
    Dataset
        Over the time η · `step`, of all steps: `loss(time)`, E(f − f*)² over new samples without noise;
        `train_loss(time)`, the mean of (f − y)² over the samples; `teacher_overlap(time, neuron, direction)`,
        M_ia/|w_i| on the teacher's axes; `squared_norm(time, neuron)`, |w_i|²; `student_overlap(time, neuron,
        neuron_2)`, `second_layer(time, neuron)` and `bias(time, neuron)`; and standard errors of all but the last
        three, as `loss_error(time)`, from eight groups of points. Values are NaN from where they grow without bound in
        a group.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, before any work, or more steps than the memory holds.

    Warns
    -----
    UserWarning
        For more than 50 steps, whose scatter has not been measured: look at the errors.

    Notes
    -----
    At a finite dimension single runs scatter by about 1/√d around this. Work grows as draws (m T)², memory as
    draws m T: one group at a time on each core. Links that grow faster than |z| let single samples diverge, and means
    with them, after some steps at any learning rate.

    References
    ----------
    Dandi et al., arXiv:2402.03220; Celentano, Cheng and Montanari, arXiv:2112.07572.

    Examples
    --------
    >>> from dynamics import Problem, Student, Teacher
    >>> student = Student(activation="erf", width=1, second_layer="fixed", initial_second_layer=[1.0])
    >>> start = [[0.2, 0.6]]
    >>> problem = Problem(student=student, teacher=Teacher([1.0]), dimension=2, initial_weights=start)
    >>> found = solve_reused_data(problem, samples="1.5d", learning_rate=2.0, steps=2, draws=2**13)
    >>> found.teacher_overlap.values.ravel().round(2).tolist()
    [0.32, 0.77, 0.85]
    """
    from dynamics.equations.network.system import NetworkSystem

    begun = clock.perf_counter()
    check_problem(problem, NETWORK)
    count = checked_integer(steps, "steps", minimum=1, maximum=MOST_STEPS)
    points = checked_integer(draws, "draws", minimum=FEWEST, maximum=MOST)
    size = 1 << (-(-points // GROUPS) - 1).bit_length()
    start = checked_integer(seed, "seed", minimum=0)
    data = reused_data(problem, samples, learning_rate, count, batches_per_epoch, reshuffle)
    left = MOST_COORDINATES - data.own_coordinates - problem.teacher.span
    most = left // problem.width - 1
    check_that(count <= most, "steps", f"be at most {most} for {problem.width} neurons", f"is {count}")
    told = cost(count, points, problem.width, problem.teacher.span, data.own_coordinates - 1)
    check_memory("steps", count, told.memory / 8.0)
    system = NetworkSystem(problem)
    if count > MANY_STEPS:
        what = f"takes {told.operations:.2g} operations, and its scatter has been measured up to {MANY_STEPS} steps"
        warnings.warn(f"A run of {count} steps {what}: look at the errors of the answer.", stacklevel=2)
    groups = _all_groups(data, size, start)
    every = Moments(*(np.array(each) for each in zip(*groups, strict=True)))
    middle = Moments(*(each.mean(axis=0) for each in every))
    C, G, n = _normalised(middle)
    values = {
        "loss": _losses(system, [middle])[0],
        "train_loss": middle.train_loss,
        "teacher_overlap": C,
        "squared_norm": n,
        "student_overlap": G,
        "second_layer": middle.second_layer,
        "bias": middle.bias,
        "loss_error": _standard_error(_losses(system, groups)),
        "train_loss_error": _standard_error(every.train_loss),
        "teacher_overlap_error": _standard_error(_normalised(every)[0]),
        "squared_norm_error": _standard_error(_normalised(every)[2]),
    }
    ended = bool(np.isfinite(values["loss"][-1]))
    rate = repr(learning_rate) if isinstance(learning_rate, Schedule) else float(learning_rate)
    settings: dict[str, Any] = {
        "samples": data.ratio * problem.dimension,
        "batches_per_epoch": data.batches,
        "reshuffle": data.reshuffle,
        "learning_rate": rate,
        "steps": count,
        "draws": GROUPS * size,
        "seed": start,
    }
    return make_dataset(
        values,
        problem=problem,
        title="Network on samples that are used again",
        coords={"time": np.append(0.0, np.cumsum(data.rates)), "step": np.arange(count + 1), **_neurons(problem)},
        solver={"answer": ANSWER, **settings},
        attributes={
            "answer": ANSWER,
            **settings,
            "samples_over_dimension": data.ratio,
            "epochs": count / data.batches,
            "references": REFERENCES,
            "stop_reason": str(StopReason.REACHED_END if ended else StopReason.NOT_FINITE),
            "solve_seconds": clock.perf_counter() - begun,
        },
    )


def cost(steps: int, draws: int = DRAWS, width: int = 1, span: int = 1, partitions: int = 1) -> Cost:
    """Return what so many steps of so many neurons take on this machine, with so many partitions of the samples.

    Examples
    --------
    >>> round(cost(50).operations / 1e9, 1)
    5.2
    """
    size = 1 << (-(-draws // GROUPS) - 1).bit_length()
    at_once = min(available_cores(), GROUPS)
    memory = 8.0 * at_once * numbers_held(steps, size, width, span, partitions)
    return Cost(memory, 4.0 * GROUPS * size * (width * steps) ** 2)


def samples_of(samples: object, dimension: int) -> float:
    """Return the number of samples over the dimension, of a number or of text such as "1.5d"."""
    if not isinstance(samples, str):
        return checked_integer(samples, "samples", minimum=1) / dimension
    text = samples.strip()
    try:
        ratio = float(text.removesuffix("d")) if text.endswith("d") else np.nan
    except ValueError:
        ratio = np.nan
    need = "be a number, or one in units of the dimension such as '1.5d'"
    check_that(np.isfinite(ratio) and ratio > 0.0, "samples", need, f"is {shown(samples)}")
    return ratio


def reused_data(
    problem: Problem, samples: object, learning_rate: object, steps: int, batches: object, reshuffle: object = False
) -> ReusedData:
    """Return what moves; TypeError or ValueError is raised for what is not known or out of range."""
    student = cast("Student", problem.student)
    need = "have a start other than pairs here, whose neurons stay opposite in all that is new"
    check_that(not student.is_paired, "problem", need, "has 'pairs'")
    ratio, d = samples_of(samples, problem.dimension), problem.dimension
    parts = checked_integer(batches, "batches_per_epoch", minimum=1)
    most = f"be at most the number of samples, {ratio * d:g}"
    check_that(parts <= ratio * d, "batches_per_epoch", most, f"is {parts}")
    check_switch("reshuffle", reshuffle)
    if isinstance(learning_rate, Schedule):
        rates = np.asarray(learning_rate.table(steps), dtype=np.float64)
    else:
        rates = np.full(steps, checked_number(learning_rate, "learning_rate", positive=True))
    start = problem.network_start()
    return ReusedData(
        value=problem.activation.value,
        slope=problem.activation.derivative,
        target=_target(problem),
        overlap=start.weights[:, : problem.teacher.span],
        gram=start.weights @ start.weights.T,
        second_layer=start.second_layer,
        bias=start.bias,
        scale=student.output_scale,
        label_noise=problem.label_noise,
        ratio=ratio,
        batches=parts,
        reshuffle=bool(reshuffle),
        rates=rates,
        speeds=student.learning_rates,
        decay=student.decay,
        on_sphere=student.first_layer == "sphere",
    )


def _target(problem: Problem) -> Callable[[Array], Array]:
    """Return f* as a function of the coordinates that it depends on, (r, points)."""
    teacher = problem.teacher
    if (polynomial := teacher.target) is not None:
        return lambda z: polynomial.value(z.T)
    units = teacher.units(problem.teacher_link)
    return lambda z: np.asarray(
        sum(unit.coefficient * unit.link.value(unit.direction @ z + unit.bias) for unit in units)
    )


def _all_groups(data: ReusedData, size: int, seed: int) -> list[Moments]:
    """Return the moments by each group of points, as many at a time as there are cores."""
    given_up, stopped = whether_given_up(), threading.Event()

    def look() -> None:
        give_way(given_up)
        if stopped.is_set():
            raise GivenUp

    with one_blas_thread(), ThreadPoolExecutor(min(available_cores(), GROUPS)) as pool:
        draws = (np.random.default_rng([seed, group]) for group in range(GROUPS))
        work = [pool.submit(moments, data, size, rng, look) for rng in draws]
        try:
            return [each.result() for each in work]
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def _losses(system: NetworkSystem, groups: Sequence[Moments]) -> Array:
    """Return E(f − f*)² of each of some moments at each time, (groups, times)."""
    found = np.full((len(groups), len(groups[0].train_loss)), np.nan)
    for at, t in np.ndindex(found.shape):
        M, Q, v, b, _ = (each[t] for each in groups[at])
        if np.isfinite(M).all():
            found[at, t] = system.loss(system.pack(v, b, M, Q))
    return found


def _normalised(moments: Moments) -> tuple[Array, Array, Array]:
    """Return M_ia/|w_i|, w_i·w_j/(|w_i| |w_j|) and |w_i|²."""
    n = np.einsum("...ii->...i", moments.gram)
    length = np.sqrt(n)
    return moments.overlap / length[..., None], moments.gram / (length[..., None] * length[..., None, :]), n


def _neurons(problem: Problem) -> dict[str, Integers]:
    numbers = np.arange(problem.width, dtype=np.int64)
    return {"neuron": numbers, "neuron_2": numbers}


def _standard_error(values: Array) -> Array:
    """Return the standard error of the mean over groups, (groups, times)."""
    return np.asarray(np.std(values, axis=0, ddof=1) / np.sqrt(len(values)))
