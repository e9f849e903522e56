"""Networks that see the same samples again, in full batches or epochs of mini-batches, as d → ∞."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from dynamics.commands.options import Values
from dynamics.cores import available_cores, one_blas_thread
from dynamics.equations.reused_data import MOST_COORDINATES, PARTS, Moments, ReusedData, moments, numbers_held
from dynamics.kernels.compilation import compilation_of_run
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import (
    check_switch,
    checked_integer,
    checked_number,
    is_at_most,
    machine_memory,
    require,
)
from dynamics.problem.rates import Schedule
from dynamics.problem.student import NETWORK
from dynamics.runs.compiling import expected_compilation, noticed_compilation
from dynamics.runs.dataset import make_dataset
from dynamics.runs.result import StopReason, uninterrupted
from dynamics.runs.trackers import bar_settings, open_bar
from dynamics.threads import LOOK, GivenUp, interruption
from hermite.arrays import Array
from hermite.text.messages import refuse, shown, warn

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations.network.system import NetworkSystem
    from dynamics.problem import Student

ANSWER = "reused-data"
REFERENCES = (
    "Dandi, Troiani, Arnaboldi, Pesce, Zdeborova, Krzakala, arXiv:2402.03220; Celentano, Cheng, Montanari, "
    "arXiv:2112.07572"
)
#: Groups of points; each gives one answer, and the scatter of the answers is the error.
GROUPS = 8
#: Points altogether by default, fewest and most.
DRAWS, FEWEST, MOST = 2**19, 2**10, 2**30
#: Fewest points of a group for each direction that a step may add: with fewer, directions fit the points.
POINTS_OF_DIRECTION = 8
#: Steps are left out once the standard error of the loss exceeds the sum of these shares of the loss and of the first.
MOST_NOISE = (0.1, 1e-3)
#: Operations per second and core, and those that a normal number of a Sobol sequence takes.
SPEED, OPERATIONS_OF_NUMBER = 3e9, 200.0


class Cost(NamedTuple):
    """The cost of an answer: bytes at once, operations of floating point, and an estimate of seconds."""

    memory: float
    operations: float
    seconds: float


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
    progress: bool | None = None,
) -> xr.Dataset:
    r"""Solve the motion of a network that takes steps on the same n = αd samples again and again, exactly as d → ∞.

    .. math:: W \leftarrow (1 - \eta\kappa_w)\, W - \frac{\eta\varepsilon_w}{|B|} \sum_{\mu \in B}
       (f(x_\mu) - y_\mu)\, \nabla_W f(x_\mu), \qquad y_\mu = f^*(x_\mu) + \tau \xi_\mu

    with batches B that part the samples, in turn; one batch is gradient descent on all of them. They stay the same, or
    every epoch draws them anew. Second layer and biases, where they are trained, take the same steps at their own
    rates. The equations are those of dynamical mean-field theory (arXiv:2402.03220, 2112.07572), forward in time, with
    means over points of a scrambled Sobol sequence.

    Parameters
    ----------
    problem : Problem
        With a `dynamics.Student` of a few neurons on isotropic inputs, and any teacher, both of any links. Neurons on
        the sphere take the tangential part of the step and are brought back to their lengths.
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
    progress : bool, optional
        Progress bar on stderr; by default if stderr is a terminal.

    Returns
    -------
    Dataset
        Over the time η · `step`, of all steps: `loss(time)`, E(f − f*)² over new samples without noise;
        `train_loss(time)`, the mean of (f − y)² over the samples; `teacher_overlap(time, neuron, direction)`,
        M_ia/|w_i| on the teacher's axes; `squared_norm(time, neuron)`, |w_i|²; `student_overlap(time, neuron,
        neuron_2)`, `second_layer(time, neuron)` and `bias(time, neuron)`; and standard errors of all but the last
        three, as `loss_error(time)`, from eight groups of points. Values are NaN from where they grow without bound in
        a group, or where the error of the loss is above a tenth of it and 1e-3 of the first one.

    Raises
    ------
    SolveInterrupted, KeyboardInterrupt
        If Ctrl-C was pressed: with the `dataset` of the groups of points that were finished, or where those are fewer
        than two, without.
    TypeError, ValueError
        For bad arguments, or more steps than memory or noise of the points allow, before any work.

    Warns
    -----
    UserWarning
        If steps are left out, because of their noise or since values grow without bound.

    Notes
    -----
    At a finite dimension single runs scatter by about 1/√d around this. Work grows as draws (m T)², memory as
    draws m T: one group at a time on each core. Links that grow faster than |z| let single samples diverge, and means
    with them, after some steps at any learning rate.

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
    data, size = checked_data(problem, samples, learning_rate, steps, batches_per_epoch, reshuffle, draws)
    start, system = checked_integer(seed, "seed", minimum=0), NetworkSystem(problem)
    check_switch("progress", progress, optional=True)
    with noticed_compilation(progress, expected_compilation(ANSWER)), compilation_of_run() as compilation:
        (groups, interrupted), count = _all_groups(data, size, start, progress), data.rates.size
        every = Moments(*map(np.array, zip(*groups, strict=True)))
        middle = Moments(*(array.mean(axis=0) for array in every))
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
    reason = _without_noise(values)
    if interrupted:
        reason = StopReason.INTERRUPTED
    settings: dict[str, object] = {
        "samples": data.ratio * problem.dimension,
        "batches_per_epoch": data.batches,
        "reshuffle": data.reshuffle,
        "learning_rate": repr(learning_rate) if isinstance(learning_rate, Schedule) else float(learning_rate),
        "steps": count,
        "draws": len(groups) * size,
        "seed": start,
    }
    coords = {"time": np.append(0.0, np.cumsum(data.rates)), "step": np.arange(count + 1)}
    dataset = make_dataset(
        values,
        problem=problem,
        title="Network on samples that are used again",
        coords=coords | dict.fromkeys(("neuron", "neuron_2"), np.arange(problem.width)),
        solver={"answer": ANSWER, **settings},
        attributes={
            "answer": ANSWER,
            **settings,
            "samples_over_dimension": data.ratio,
            "epochs": count / data.batches,
            "references": REFERENCES,
            "stop_reason": str(reason),
            "stop_message": reason.advice,
            "solve_seconds": clock.perf_counter() - begun - compilation.seconds,
        },
    )
    return uninterrupted(dataset)


def check(problem: Problem, options: Mapping[str, object]) -> None:
    """Refuse a problem or arguments without equations, and more steps than memory or noise allow."""
    names = ("samples", "learning_rate", "steps", "batches_per_epoch", "reshuffle", "draws")
    checked_data(problem, *(options[name] for name in names))


def estimate(problem: Problem, options: Values) -> str:
    """Return memory and work of a run in one line each, without running it."""
    steps, epochs = options["steps"], options["epochs"]
    run_cost = cost(steps, options["draws"], problem.width, problem.teacher.span, epochs if options["reshuffle"] else 1)
    return (
        f"memory: {run_cost.memory / 1e6:.3g} MB ({steps} steps, {options['draws']} points in {GROUPS} groups)\n"
        f"time: about {run_cost.seconds:.2g} s ({run_cost.operations:.3g} operations)"
    )


def checked_data(
    problem: Problem,
    samples: object,
    learning_rate: object,
    steps: object,
    batches_per_epoch: object,
    reshuffle: object,
    draws: object,
) -> tuple[ReusedData, int]:
    """Return the data of the motion, and the number of random points of each of the `GROUPS` groups, a power of 2.

    `samples` is a number, or a text such as "1.5d" in units of the dimension; `steps` is the number of SGD steps, all
    epochs together; `learning_rate` is one number or a schedule; `draws` is the number of random points of all groups.
    Raise ValueError or TypeError for bad arguments, and for more steps than memory, noise, or the Sobol sequence allow.
    """
    check_problem(problem, NETWORK)
    count = checked_integer(steps, "steps", minimum=1)
    size = points_of_group(checked_integer(draws, "draws", minimum=FEWEST, maximum=MOST))
    m, r = problem.width, problem.teacher.span
    fits = machine_memory() / 8.0 / (min(available_cores(), GROUPS) * size)
    most = {
        "the noise of so few points": size // (POINTS_OF_DIRECTION * m),
        "the memory": int((fits - numbers_held(0, 1, m, r)) / (2.0 * m)),
        "the coordinates of a Sobol sequence": (MOST_COORDINATES - r - 2) // (m + 1) - 1,
    }
    bound = min(most, key=lambda name: most[name])
    require(
        count <= most[bound],
        f"Argument `steps` must be at most {max(most[bound], 0)} for {m} neuron{'' if m == 1 else 's'} and "
        f"{GROUPS * size} draws, by {bound}, but is {count}.",
    )
    student = cast("Student", problem.student)
    require(
        student.layer_wise is None,
        f"Argument `problem` must have a student whose layers move together here, but has `layer_wise` "
        f"{student.layer_wise}.",
    )
    ratio = samples_of(samples, problem.dimension)
    all_samples = ratio * problem.dimension
    parts = checked_integer(batches_per_epoch, "batches_per_epoch", minimum=1)
    require(
        is_at_most(parts, all_samples),
        f"Argument `batches_per_epoch` must be at most the number of samples, {all_samples:g}, but is {parts}.",
    )
    check_switch("reshuffle", reshuffle)
    if isinstance(learning_rate, Schedule):
        rates = np.asarray(learning_rate.table(count), dtype=np.float64)
    else:
        rates = np.full(count, checked_number(learning_rate, "learning_rate", positive=True))
    start = problem.network_start()
    data = ReusedData(
        value=problem.activation.value,
        slope=problem.activation.derivative,
        target=_target(problem),
        overlap=start.weights[:, :r],
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
    return data, size


def points_of_group(draws: int) -> int:
    """Return the points of each group, the least power of 2 with which all groups together have `draws`."""
    return 1 << (-(-draws // GROUPS) - 1).bit_length()


def cost(steps: int, draws: int = DRAWS, width: int = 1, span: int = 1, partitions: int = 1) -> Cost:
    """Return the cost of `steps` steps of `width` neurons on this machine, with `partitions` of the samples.

    Examples
    --------
    >>> round(cost(50).operations / 1e9, 1)
    13.5
    """
    size, at_once = points_of_group(draws), min(available_cores(), GROUPS)
    memory = 8.0 * at_once * numbers_held(steps, size, width, span, partitions)
    numbers = partitions + 1 + span + (steps + 1) * width
    operations = GROUPS * size * (6.0 * (width * steps) ** 2 + OPERATIONS_OF_NUMBER * numbers)
    return Cost(memory, operations, operations / SPEED / at_once)


def samples_of(samples: object, dimension: int) -> float:
    """Return the number of samples over the dimension, from a number or a text such as "1.5d"."""
    if not isinstance(samples, str):
        return checked_integer(samples, "samples", minimum=1) / dimension
    text = samples.strip()
    try:
        ratio = float(text.removesuffix("d")) if text.endswith("d") else np.nan
    except ValueError:
        ratio = np.nan
    require(
        np.isfinite(ratio) and ratio > 0.0,
        "Argument `samples` must be a number, or one in units of the dimension such as '1.5d', but is "
        f"{shown(samples)}.",
    )
    return ratio


def _target(problem: Problem) -> Callable[[Array], Array]:
    """Return f* as a function of the coordinates on the r axes of the teacher: it maps (r, points) to (points,)."""
    teacher = problem.teacher
    if (polynomial := teacher.target) is not None:
        return lambda z: polynomial.value(z.T)
    units = teacher.units(problem.teacher_link)
    return lambda z: np.asarray(
        sum(unit.coefficient * unit.link.value(unit.direction @ z + unit.bias) for unit in units)
    )


def _all_groups(data: ReusedData, size: int, seed: int, progress: bool | None) -> tuple[list[Moments], bool]:
    """Return the moments of each finished group of `size` random points, and whether the run was interrupted.

    Group g is drawn from the generator of [`seed`, g]; groups share the cores. Raise KeyboardInterrupt after Ctrl-C if
    fewer than two groups are finished, since their differences are the errors.
    """
    must_stop, stopped, drawn_parts = interruption(), threading.Event(), []
    interrupted = False

    def look() -> None:
        """Count a part that is done; raise GivenUp once the answer is to stop."""
        if stopped.is_set():
            raise GivenUp
        drawn_parts.append(1)

    # Points are drawn in parts, which may take as long as the steps do.
    bar = open_bar(bar_settings(progress), total=GROUPS * (PARTS + data.rates.size + 1), unit="part")
    with one_blas_thread(), bar, ThreadPoolExecutor(min(available_cores(), GROUPS)) as pool:
        draws = (np.random.default_rng([seed, group]) for group in range(GROUPS))
        work = [pool.submit(moments, data, size, rng, look) for rng in draws]
        try:
            while wait(work, LOOK).not_done and not must_stop():
                bar.update(len(drawn_parts) - bar.n)
            interrupted = must_stop()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
    finished = [
        group_work.result()
        for group_work in work
        if not (group_work.cancelled() or isinstance(group_work.exception(), GivenUp))
    ]
    if len(finished) < 2:
        refuse(
            "The run was interrupted before two groups of points were finished: nothing is kept",
            error=KeyboardInterrupt,
        )
    return finished, interrupted or len(finished) < GROUPS


def _without_noise(values: Mapping[str, Array]) -> StopReason:
    """Set all values to NaN from the first step whose loss is noise or not finite, in place.

    Return why the answer ends. `values` maps names to arrays with steps first; "loss" and its standard error
    "loss_error" (steps,) decide.
    """
    error, (of_loss, of_first) = values["loss_error"], MOST_NOISE
    bad = ~(error <= of_loss * values["loss"] + of_first * values["loss"][0])
    if not bad.any():
        return StopReason.REACHED_END
    first = int(np.argmax(bad))
    is_noise = bool(np.isfinite(error[first]))
    cause = f"the standard error of the loss is {error[first]:.2g} there" if is_noise else "values grow without bound"
    advice = f"{'more draws or ' if is_noise else ''}a smaller learning rate may help"
    warn(f"Steps from {first} on are left out, since {cause}; {advice}.")
    for array in values.values():
        array[first:] = np.nan
    return StopReason.TOO_NOISY if is_noise else StopReason.NOT_FINITE


def _losses(system: NetworkSystem, groups: Sequence[Moments]) -> Array:
    """Return E(f − f*)² of the moments of each group at each time, (groups, times)."""
    losses = np.full((len(groups), len(groups[0].train_loss)), np.nan)
    for at, t in np.ndindex(losses.shape):
        M, Q, v, b, _ = (moment[t] for moment in groups[at])
        if np.isfinite(M).all():
            losses[at, t] = system.loss(system.pack(v, b, M, Q))
    return losses


def _normalised(moments: Moments) -> tuple[Array, Array, Array]:
    """Return the overlaps M_ia/|w_i| and w_i·w_j/(|w_i| |w_j|), and |w_i|², of moments M (…, m, r) and Q (…, m, m)."""
    n = np.einsum("...ii->...i", moments.gram)
    length = np.sqrt(n)
    return moments.overlap / length[..., None], moments.gram / (length[..., None] * length[..., None, :]), n


def _standard_error(values: Array) -> Array:
    """Return the standard errors (times,) of the means of values (groups, times), exactly 0 where all are equal."""
    return np.asarray(np.std(values - values[0], axis=0, ddof=1) / np.sqrt(len(values)))
