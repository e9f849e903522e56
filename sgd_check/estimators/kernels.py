"""Kernels trained on drawn samples: online, by ridge regression, by gradient flow, and with random features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from dynamics.draws import ACROSS, stream
from dynamics.laws.scaffold import under_way
from dynamics.problem import Problem, check_memory, check_switch, checked_seeds
from dynamics.runs import make_dataset, uninterrupted
from dynamics.signals import stop_if_heard
from dynamics.solve.kernel import KernelQuestion, kernel_question, kernel_variables
from dynamics.theory import kernel_weights
from hermite.arrays import Array
from hermite.text.messages import refuse, require

ANSWER = "kernel-estimate"
#: Keys of a seed's streams: noise of labels, features, and inputs on which the error is measured, so many of them.
OF_NOISE, OF_FEATURES, OF_TEST, TESTED = 1201, 1202, 1203, 2000
#: Points at which the series of a kernel is tabulated in s, and rows of a matrix that are made at once.
TABULATED, ROWS = 200_001, 512
#: Radii between which coefficients of scaled links are interpolated, and their highest degree.
RADII, HIGHEST = 24, 80


def estimate_kernel(
    link: object,
    *,
    samples: int | Sequence[int],
    seeds: int | Sequence[int],
    kernel: Literal["ntk", "features"] = "ntk",
    dimension: float | None = None,
    student: object = None,
    ridge: float | None = None,
    noise: float | None = None,
    protocol: Literal["online", "ridge", "flow"] = "online",
    learning_rate: float | str | None = None,
    times: Sequence[float] | None = None,
    width: int | None = None,
    inputs: Literal["sphere", "gaussian"] = "sphere",
    progress: bool | None = None,
) -> xr.Dataset:
    r"""Train a kernel on drawn samples, and measure its error on fresh inputs.

    .. math:: y_i = f^*(x_i) + \tau\xi_i, \qquad e_i = y_i - \eta \sum_{j<i} K(x_i, x_j)\, e_j, \quad
       f = \eta \sum_i e_i K(x_i, \cdot) \quad \text{(online)}

    or f = K(·, X)(K + δ)⁻¹ y, or the flow f' = K(·, X)(y − f)/n by eigenvectors, or ridge regression on m random
    features σ(w·x)/√m. The kernel is its series in s; nothing of its spectrum is used. Errors are heavy-tailed: take 12
    seeds or more. A sample of n takes 8 n² bytes, and O(n³) operations, 20 000 samples some minutes.

    Parameters
    ----------
    link, kernel, dimension, student, ridge, noise, protocol, learning_rate, width, inputs
        As for `dynamics.predict_kernel`.
    samples : int or sequence of int
        Numbers n of samples; a larger sample of a seed begins with the smaller ones.
    times : sequence of float
        Times of the flow, which needs them.
    seeds : int or sequence of int
        Number of draws (seeds 0, 1, …), or their seeds, distinct and below 2^32.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.

    Returns
    -------
    Dataset
        `test_error(seed, samples)`, E(f − f*)² over 2000 fresh inputs, without noise (`(seed, samples, time)` of a
        flow); for a single number of samples without that dimension. Attributes: the settings, and `stop_reason`.

    Raises
    ------
    SolveInterrupted
        A KeyboardInterrupt, after Ctrl-C; its `dataset` has the seeds that were reached.
    TypeError, ValueError
        One sentence, before any work; among others the matrix of the kernel must fit into memory.

    Examples
    --------
    >>> import dynamics
    >>> question = dict(dimension=10, samples=[100, 200], student="relu", protocol="ridge", ridge=0.1)
    >>> runs = estimate_kernel("he2", **question, seeds=16, progress=False)
    >>> law = dynamics.predict_kernel("he2", **question)
    >>> bool((abs(runs.test_error.mean("seed") / law.test_error - 1.0) < 0.3).all())
    True
    """
    question = kernel_question(
        link, kernel=kernel, dimension=dimension, student=student, ridge=ridge, noise=noise, protocol=protocol,
        learning_rate=learning_rate, times=times, width=width, inputs=inputs, samples=samples,
    )  # fmt: skip
    seed_list = checked_seeds(seeds)
    check_switch("progress", progress, optional=True)
    counts, problem = question.samples or (), question.problem
    require(counts, "Argument `samples` must be given for an experiment, but is absent.", TypeError)
    require(
        protocol != "flow" or question.times is not None,
        "Argument `times` must be given for an experiment by the flow, but is absent.",
        TypeError,
    )
    most = max(counts)
    check_memory("samples", most, most * (most + 2 * TESTED + problem.dimension))
    trained = _trainer(question)
    of_times = () if question.times is None else (len(question.times),)
    errors = np.full((len(seed_list), len(counts), *of_times), np.nan)
    with under_way(len(seed_list), progress, unit="sample") as meter:
        for row, seed in enumerate(seed_list):
            stop_if_heard()
            errors[row] = trained(seed, most)
            meter.add(1)
    trace = kernel_weights(question.link, 1.0, kernel)[1] if protocol == "online" else None
    coords = {} if question.times is None else {"time": np.array(question.times)}
    dataset = make_dataset(
        {"test_error": errors},
        problem=problem,
        title=f"The kernel '{kernel}' of {question.link.name} on drawn samples",
        coords={"seed": np.array(seed_list, dtype=np.int64), "samples": np.array(counts), **coords},
        solver={"answer": ANSWER, "seeds": list(seed_list), **question.solver},
        attributes={
            "answer": ANSWER,
            "kernel_link": question.link.name,
            **question.settings,
            "learning_rate": None if trace is None else question.learning_rate(trace),
            "stop_reason": meter.stop_reason,
            "wall_seconds": meter.seconds,
        },
        leading=("seed",),
        with_leading=("test_error",),
        variables=kernel_variables(protocol),
    )
    return uninterrupted(dataset.isel(samples=0) if question.is_single else dataset)


def _trainer(question: KernelQuestion) -> Callable[[int, int], Array]:
    """Return the function of a seed and the largest sample that returns the errors, (samples,) or (samples, times)."""
    product = None if question.width is not None else _kernel_of(question)

    def trained(seed: int, most: int) -> Array:
        """Return the errors of the draws of one seed."""
        x, test = (_inputs(question, stream(seed, key), count) for key, count in ((ACROSS, most), (OF_TEST, TESTED)))
        problem = question.problem
        y = teacher_values(problem, x) + problem.label_noise * stream(seed, OF_NOISE).standard_normal(most)
        if product is None:
            outputs = _by_features(question, stream(seed, OF_FEATURES), x, test, y)
        else:
            outputs = _BY_PROTOCOL[question.protocol](question, product(x, x), product(test, x), y)
        truth = teacher_values(problem, test)
        return np.asarray(np.mean((np.array(outputs) - truth) ** 2, axis=-1))

    return trained


def _inputs(question: KernelQuestion, rng: np.random.Generator, count: int) -> Array:
    """Return points (count, d), Gaussian or uniform on |x| = √d."""
    x = rng.standard_normal((count, question.problem.dimension))
    if question.inputs == "gaussian":
        return x
    return np.asarray(x * (np.sqrt(x.shape[1]) / np.linalg.norm(x, axis=1))[:, None])


def teacher_values(problem: Problem, x: Array) -> Array:
    """Return f* at points x (n, d), as (n,)."""
    teacher = problem.teacher
    if teacher.target is not None:
        return teacher.target.value(x[:, : teacher.target.span])
    values = np.zeros(len(x))
    for unit in teacher.units(problem.teacher_link):
        values += unit.coefficient * unit.link.value(x[:, : unit.direction.size] @ unit.direction + unit.bias)
    return values


def _kernel_of(question: KernelQuestion) -> Callable[[Array, Array], Array]:
    """Return the function of points (n, d) and (k, d) that returns their kernel (n, k).

    The part of K(x, x) that its series leaves out acts on the diagonal alone, where a point meets itself.
    """
    link, kernel, d = question.link, question.kernel, question.problem.dimension
    if question.inputs == "gaussian":
        return _radial_kernel(question)
    root, size = kernel_weights(link, 1.0, kernel)
    grid = np.linspace(-1.0, 1.0, TABULATED)
    series = np.polynomial.polynomial.polyval(grid, root**2)
    rises, scale = np.append(np.diff(series), 0.0), 0.5 * (TABULATED - 1)

    def product(x: Array, centres: Array) -> Array:
        """Return the kernel by linear interpolation in s = x·x'/d."""
        matrix = np.empty((len(x), len(centres)))
        for rows in (slice(begin, begin + ROWS) for begin in range(0, len(x), ROWS)):
            at = np.clip((x[rows] @ centres.T / d + 1.0) * scale, 0.0, TABULATED - 1.0)
            cells = at.astype(np.int32)
            matrix[rows] = series[cells] + (at - cells) * rises[cells]
        if x is centres:
            matrix.flat[:: len(x) + 1] = size
        return matrix

    return product


def _radial_kernel(question: KernelQuestion) -> Callable[[Array, Array], Array]:
    """Return the function of points that returns their kernel Σ_j c_j(|x|) c_j(|x'|) s^j, s the cosine of both."""
    from scipy.interpolate import BarycentricInterpolator

    d = question.problem.dimension
    span = 8.0 / np.sqrt(2.0 * d)  # eight standard deviations of the radius over √d
    ends = max(1.0 - span, 1e-3), 1.0 + span
    nodes = np.cos(np.pi * (np.arange(RADII) + 0.5) / RADII)
    radii = 0.5 * (ends[0] + ends[1]) + 0.5 * (ends[1] - ends[0]) * nodes
    rows, sizes = zip(*(kernel_weights(question.link, r, question.kernel) for r in radii.tolist()), strict=True)
    of_radius = BarycentricInterpolator(radii, np.column_stack([np.array(rows)[:, : HIGHEST + 1], sizes]))

    def product(x: Array, centres: Array) -> Array:
        """Return the kernel by the Horner scheme in s."""
        lengths = [np.linalg.norm(points, axis=1) for points in (x, centres)]
        left, right = (np.asarray(of_radius(length / np.sqrt(d))) for length in lengths)
        matrix = np.empty((len(x), len(centres)))
        for block in (slice(begin, begin + ROWS) for begin in range(0, len(x), ROWS)):
            s = (x[block] @ centres.T) / np.outer(lengths[0][block], lengths[1])
            value = np.zeros_like(s)
            for j in range(HIGHEST, -1, -1):
                value = value * s + np.outer(left[block, j], right[:, j])
            matrix[block] = value
        if x is centres:
            matrix.flat[:: len(x) + 1] = left[:, -1]
        return matrix

    return product


def _online(question: KernelQuestion, matrix: Array, across: Array, y: Array) -> list[Array]:
    """Return outputs on test inputs after online steps: errors solve a triangular system."""
    from scipy.linalg import solve_triangular

    rate = question.learning_rate(float(matrix[0, 0]))
    matrix *= rate
    errors = solve_triangular(matrix, y, lower=True, unit_diagonal=True)
    return [rate * (across[:, :n] @ errors[:n]) for n in question.samples or ()]


def _ridge(question: KernelQuestion, matrix: Array, across: Array, y: Array) -> list[Array]:
    """Return outputs on test inputs by ridge regression; the first rows of one factor serve smaller samples."""
    from scipy.linalg import LinAlgError, cholesky, solve_triangular

    matrix.flat[:: len(y) + 1] += question.ridge
    try:
        factor = cholesky(matrix.T, lower=True, overwrite_a=True)  # of columns, so that nothing is copied
    except LinAlgError as error:
        refuse(
            f"Argument `ridge` must be larger where the matrix of {len(y)} samples is singular, but is "
            f"{question.ridge:g}.",
            cause=error,
        )
    whitened, outputs = solve_triangular(factor, y, lower=True), []
    for n in question.samples or ():
        weights = solve_triangular(factor[:n, :n], whitened[:n], lower=True, trans="T")
        outputs.append(across[:, :n] @ weights)
    return outputs


def _flow(question: KernelQuestion, matrix: Array, across: Array, y: Array) -> list[Array]:
    """Return outputs on test inputs along the flow, (times, inputs) for each sample, by eigenvectors."""
    outputs = []
    for n in question.samples or ():
        values, vectors = np.linalg.eigh(matrix[:n, :n] / n)
        values = np.maximum(values, 1e-300)
        along = vectors.T @ y[:n]
        steps = np.array([-np.expm1(-values * t) / (values * n) * along for t in question.times or ()])
        outputs.append((steps @ vectors.T) @ across[:, :n].T)
    return outputs


_BY_PROTOCOL: dict[str, Callable[[KernelQuestion, Array, Array, Array], list[Array]]] = {
    "online": _online, "ridge": _ridge, "flow": _flow
}  # fmt: skip


def _by_features(question: KernelQuestion, rng: np.random.Generator, x: Array, test: Array, y: Array) -> list[Array]:
    """Return outputs on test inputs by ridge regression on random features σ(w·x)/√m, |w| = 1."""
    from scipy.linalg import solve

    m, sigma = question.width or 1, question.link.value
    w = rng.standard_normal((m, x.shape[1]))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    features, of_test, outputs = sigma(x @ w.T) / np.sqrt(m), sigma(test @ w.T) / np.sqrt(m), list[Array]()
    for n in question.samples or ():
        kept: Any = features[:n]
        if m < n:
            weights = solve(kept.T @ kept + question.ridge * np.eye(m), kept.T @ y[:n], assume_a="pos")
        else:
            weights = kept.T @ solve(kept @ kept.T + question.ridge * np.eye(n), y[:n], assume_a="pos")
        outputs.append(of_test @ weights)
    return outputs
