"""One neuron that sees the same samples again, in full batches or epochs of mini-batches, as d → ∞."""

from __future__ import annotations

import threading
import time as clock
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from dynamics.cores import available_cores, one_blas_thread
from dynamics.equations.reused_data import Moments, ReusedData, moments, numbers_held
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import check_memory, check_that, checked_integer, checked_number
from dynamics.problem.rates import Schedule
from dynamics.problem.student import NETWORK
from dynamics.runs.dataset import make_dataset
from dynamics.runs.result import StopReason
from dynamics.threads import GivenUp, give_way, whether_given_up
from hermite.arrays import Array
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    import xarray as xr

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
    draws: int = DRAWS,
    seed: int = 0,
) -> xr.Dataset:
    r"""Solve the motion of one neuron that takes steps on the same n = αd samples again and again, exactly as d → ∞.

    .. math:: w \leftarrow (1 - \eta\kappa)\, w - \frac{\eta}{|B|} \sum_{\mu \in B}
       (f(x_\mu) - y_\mu)\, \nabla f(x_\mu), \qquad y_\mu = f^*(x_\mu) + \tau \xi_\mu

    with batches B that part the samples, in turn; one batch is gradient descent on all of them. The equations are those
    of dynamical mean-field theory, forward in time, with means over points of a scrambled Sobol sequence.

    Parameters
    ----------
    problem : Problem
        With a `dynamics.Student` of one neuron without bias and with a fixed second layer, on isotropic inputs, and a
        teacher on one axis, of any link. A neuron on the sphere takes the tangential part of the step and is brought
        back to its length.
    samples : int or str
        Number n of samples, or in units of the dimension, such as "1.5d".
    learning_rate : float or Schedule
        η > 0 of the mean gradient of a batch, or one for every step.
    steps : int
        Number T of steps.
    batches_per_epoch : int, default 1
        Number of batches that the samples are parted into; after so many steps each sample has been seen once more.
    draws : int, default 2^19
        Number of points, which becomes 8 times a power of 2, no fewer. Errors fall about as 1/draws at first, and as
        1/√draws where T is large.
    seed : int, default 0
        Draws the points.

    Returns
    -------
    Dataset
        Over the time η · `step`, of all steps: `loss(time)`, E(f − f*)² over new samples without noise;
        `train_loss(time)`, the mean of (f − y)² over the samples; `teacher_overlap(time, neuron, direction)`, w·θ/|w|;
        `squared_norm(time, neuron)`, |w|²; and a standard error of each, as `loss_error(time)`, from eight groups of
        points. Values are NaN from where |w| grows without bound in one of the groups.

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
    At a finite dimension single runs scatter by about 1/√d around this. Work grows as draws T², memory as draws T: one
    group at a time on each core. Links that grow faster than |z| let single samples diverge, and means with them, after
    some steps at any learning rate.

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
    begun = clock.perf_counter()
    check_problem(problem, NETWORK)
    count = checked_integer(steps, "steps", minimum=1, maximum=MOST_STEPS)
    points = checked_integer(draws, "draws", minimum=FEWEST, maximum=MOST)
    size = 1 << (-(-points // GROUPS) - 1).bit_length()
    start = checked_integer(seed, "seed", minimum=0)
    data = reused_data(problem, samples, learning_rate, count, batches_per_epoch)
    told = cost(count, points)
    check_memory("steps", count, told.memory / 8.0)
    if count > MANY_STEPS:
        what = f"takes {told.operations:.2g} operations, and its scatter has been measured up to {MANY_STEPS} steps"
        warnings.warn(f"A run of {count} steps {what}: look at the errors of the answer.", stacklevel=2)
    groups = _all_groups(data, size, start)
    M, square, train = (np.array(each) for each in zip(*groups, strict=True))
    loss = _losses(problem, M, square)
    values: dict[str, Any] = {}
    for name, each in (("loss", loss), ("train_loss", train), ("squared_norm", square)):
        values[name] = each.mean(axis=0)
        values[f"{name}_error"] = _standard_error(each)
    values["loss"] = _losses(problem, M.mean(axis=0)[None], square.mean(axis=0)[None])[0]
    values["teacher_overlap"] = M.mean(axis=0) / np.sqrt(values["squared_norm"])
    values["teacher_overlap_error"] = _standard_error(M / np.sqrt(square))
    shaped = {"squared_norm": (-1, 1), "teacher_overlap": (-1, 1, 1)}
    values = {name: each.reshape(shaped.get(name.removesuffix("_error"), -1)) for name, each in values.items()}
    ended = bool(np.isfinite(values["loss"][-1]))
    rate = repr(learning_rate) if isinstance(learning_rate, Schedule) else float(learning_rate)
    given = {"samples": data.ratio * problem.dimension, "batches_per_epoch": data.batches, "learning_rate": rate}
    settings = {**given, "steps": count, "draws": GROUPS * size, "seed": start}
    return make_dataset(
        values,
        problem=problem,
        title="One neuron on samples that are used again",
        coords={"time": np.append(0.0, np.cumsum(data.rates)), "step": np.arange(count + 1), "neuron": np.arange(1)},
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


def cost(steps: int, draws: int = DRAWS) -> Cost:
    """Return what so many steps take on this machine.

    Examples
    --------
    >>> round(cost(50).operations / 1e9, 1)
    5.2
    """
    size = 1 << (-(-draws // GROUPS) - 1).bit_length()
    at_once = min(available_cores(), GROUPS)
    return Cost(8.0 * at_once * numbers_held(steps, size), 4.0 * GROUPS * size * steps**2)


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


def reused_data(problem: Problem, samples: object, learning_rate: object, steps: int, batches: object) -> ReusedData:
    """Return what moves; TypeError or ValueError is raised for what is not known or out of range."""
    student, teacher = cast("Student", problem.student), problem.teacher
    known = (
        (student.width == 1, "one neuron", f"{student.width} neurons"),
        (student.second_layer == "fixed", "a fixed second layer", "a trained one"),
        (not student.has_biases, "no biases", f"{student.biases} biases"),
        (teacher.span == 1, "a teacher on one axis", f"one on {teacher.span} axes"),
    )
    for holds, need, found in known:
        check_that(holds, "problem", f"have {need} here, for other equations are not known", f"has {found}")
    ratio, d = samples_of(samples, problem.dimension), problem.dimension
    parts = checked_integer(batches, "batches_per_epoch", minimum=1)
    most = f"be at most the number of samples, {ratio * d:g}"
    check_that(parts <= ratio * d, "batches_per_epoch", most, f"is {parts}")
    if isinstance(learning_rate, Schedule):
        rates = np.asarray(learning_rate.table(steps), dtype=np.float64)
    else:
        rates = np.full(steps, checked_number(learning_rate, "learning_rate", positive=True))
    network = problem.network_start()
    weight, scale = network.weights[0], student.output_scale * float(network.second_layer[0])
    own, speed = problem.activation, student.learning_rates[0]
    if not speed > 0.0:
        refuse("Argument `problem` must have a student whose first layer moves, but its rate is 0.")
    return ReusedData(
        value=lambda h: scale * own.value(h),
        slope=lambda h: scale * own.derivative(h),
        target=_target(problem),
        overlap=float(weight[0]),
        square=float(weight @ weight),
        label_noise=problem.label_noise,
        ratio=ratio,
        batches=parts,
        rates=rates,
        speed=speed,
        decay=student.decay[0],
        on_sphere=student.first_layer == "sphere",
    )


def _target(problem: Problem) -> Callable[[Array], Array]:
    """Return f* as a function of the one coordinate that it depends on."""
    teacher = problem.teacher
    if (polynomial := teacher.target) is not None:
        return lambda z: polynomial.value(z[:, None])
    units = teacher.units(problem.teacher_link)
    return lambda z: np.asarray(
        sum(unit.coefficient * unit.link.value(unit.direction[0] * z + unit.bias) for unit in units)
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


def _losses(problem: Problem, M: Array, square: Array) -> Array:
    """Return E(f − f*)² where w·θ = M and |w|² = square, in their shape (groups, times)."""
    from dynamics.equations.network.system import NetworkSystem

    system, found = NetworkSystem(problem), np.full(M.shape, np.nan)
    v, b, _, _ = (part.copy() for part in system.unpack(system.initial_state))
    for at in np.ndindex(M.shape):
        if np.isfinite(M[at]):
            found[at] = system.loss(system.pack(v, b, np.array([[M[at]]]), np.array([[square[at]]])))
    return found


def _standard_error(values: Array) -> Array:
    """Return the standard error of the mean over groups, (groups, times)."""
    return np.asarray(np.std(values, axis=0, ddof=1) / np.sqrt(len(values)))
