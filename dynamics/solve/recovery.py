"""`predict_recovery`: how much of one direction an estimator finds in n samples, by its law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dynamics.draws import first_coordinates
from dynamics.problem import Problem, Teacher, check_fields, is_network
from dynamics.problem.checks import check_memory, checked_integer, checked_number, checked_seeds, require
from dynamics.runs.dataset import make_dataset
from dynamics.theory.recovery import AUTO, LABELS, Estimator, make_estimator
from hermite.arrays import Array
from hermite.expansion import callable_name
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    import xarray as xr


REFERENCES = (
    "Lu, Li, arXiv:1702.06435; Mondelli, Montanari, arXiv:1708.05932; Damian, Pillaud-Vivien, Lee, Bruna, "
    "arXiv:2403.05529; Kovačević et al., arXiv:2602.02431"
)
#: Fields of a problem on which labels do not depend.
FIELDS_OF_STUDENT = ("objective", "smoothing")
#: Draws of which the law of labels without a bound is the mean, where no seeds are given.
DRAWS = 16
#: Numbers per sample that a law of single draws holds at once.
ARRAYS_OF_DRAW = 8


def predict_recovery(
    link: object,
    *,
    dimension: float | None = None,
    samples: int | Sequence[int],
    degree: int | str = AUTO,
    transform: str | Callable[[Array], Array] = LABELS,
    label_noise: float | None = None,
    seeds: int | Sequence[int] | None = None,
) -> xr.Dataset:
    r"""Predict the squared overlap with the direction θ of an estimator that is given n samples at once.

    .. math:: y = \sigma(\theta\cdot x) + \tau\xi, \quad x \sim N(0, I_d), \qquad
       \rho^2 = \frac{E[T h_k]^2}{E T^2}, \quad \kappa = \frac{E[T^2(z^2-1)^2]}{E T^2}, \quad T = T(y)

    The estimators look at T(y) in degree k, those of degree 1, 3 and 4 after taking its mean away, q = \|x\|²:

    ====== =============================================================== ==========================================
    degree estimator                                                       law of the squared overlap
    ====== =============================================================== ==========================================
    1      Σ T x                                                           1/(1 + (d−1)/(nρ²))
    2      first eigenvector of (1/n) Σ T x xᵀ                             arXiv:1702.06435, 1708.05932, see Notes
    3      first of F Fᵀ − ΣT²[(q²−6q+d+6) x xᵀ + 2qI], F = ΣT He₃(x)      1 − c(1+κϑ/2)/(ϑ(ϑ+c)), c = 2/d, ϑ = 6ρ²n/d²
    4      first of ΣT[(q−d−4) x xᵀ − (q−d−2) I]                           1 − n_c/n
    ====== =============================================================== ==========================================

    and 0 where the law is negative. The thresholds are n_c = δ_c d, d^{3/2}/(√18 ρ²) and d²/(12ρ²) at degree 2, 3, 4.

    Parameters
    ----------
    link : str, dict, sympy expression, callable, HermiteExpansion or Problem
        Link σ, anything that `hermite.expand` takes; or a `Problem` with one direction of coefficient 1, instead of
        `dimension` and `label_noise` too.
    dimension : int, optional
        Input dimension d ≥ 2.
    samples : int or sequence of int
        Numbers n of samples.
    degree : {"auto", 1, 2, 3, 4}
        "auto" takes the smallest k at which E[T h_k] is not zero.
    transform : {"labels", "optimal"} or callable
        T: the labels as they are; ζ_k(y) = E[h_k(z) | y], with which ρ² is largest, λ_k², for labels without noise (at
        degree 2 the threshold is not quite the least); or a function of an array of labels. T is multiplied by the sign
        of E[T h_k], attribute `label_sign`, so that the direction shows at the upper end of the spectrum.
    label_noise : float, optional
        Standard deviation τ of Gaussian noise on the labels, by default 0.
    seeds : int or sequence of int, optional
        Degree 2 only: seeds of samples, each of which has the law of its own labels; they are the samples of
        `sgd_check.estimate_direction`. Where T(y) has no upper bound, as for z², there is no other law, and without
        seeds it is the mean over the first 16.

    Returns
    -------
    Dataset
        `predicted_overlap_squared(samples)` and, at degree 2, `top_eigenvalue(samples)`, ± the first one of
        (1/n) Σ T x xᵀ by `label_sign`; with `seeds`, (seed, samples). For a single number of samples these have no
        dimension `samples`. Attributes: `degree`, `transform`, `rho_squared`, `kappa`, `draws` (samples that were
        averaged over, if any), `threshold_samples` n_c and `threshold_ratio` n_c over d, d^{3/2} or d² (infinite if the
        direction never shows; absent at degree 1, which has none, and for laws of single draws). Bad arguments raise
        TypeError or ValueError.

    Notes
    -----
    Degree 1 is exact up to 1/d, all other laws are limits d → ∞: at d of some hundred they hold to ±0.05 from three
    times the threshold on; below it overlaps fall off slowly rather than vanish. Degree 2 with δ = n/d, l > sup T:
    F(l) = 1/δ + E[T/(l−T)] − E[Tz²/(l−T)], P(l) = 1/δ − E[T²/(l−T)²], P(l̄) = 0; nothing if F(l̄) ≥ 0, else
    P/(P + E[T²z²/(l*−T)²]) at F(l*) = 0, with eigenvalue l*E[Tz²/(l*−T)]. Labels count as bounded if between |z| = 8
    and 40 they grow by at most 1 %. With noise, means of labels with jumps are right to about 1e-3.

    Examples
    --------
    >>> found = predict_recovery("min(z**2, 4)", dimension=400, samples=[200, 1600])
    >>> found.predicted_overlap_squared.values.round(4).tolist(), round(found.attrs["threshold_ratio"], 4)
    ([0.0, 0.4875], 0.7231)
    """
    if isinstance(link, Problem):
        for name, value in (("dimension", dimension), ("label_noise", label_noise)):
            require(value is None, f"Argument `{name}` must be absent where a Problem is given, but is {shown(value)}.")
        problem = single_direction(link)
    else:
        require(dimension is not None, "Argument `dimension` must be given for a link, but is absent.", error=TypeError)
        size = checked_integer(dimension, "dimension", minimum=2)
        noise = 0.0 if label_noise is None else checked_number(label_noise, "label_noise", positive=False)
        teacher = Teacher([1.0])
        problem = Problem(
            activation=link, teacher=teacher, width=1, dimension=size, student="spherical", label_noise=noise
        )
    d, is_sequence = problem.dimension, not isinstance(samples, (bool, str, int, float, np.number))
    numbers = list(samples) if is_sequence and np.iterable(samples) else [samples]
    require(numbers, "Argument `samples` must hold at least one number of samples, but is empty.")
    counts = [checked_integer(n, "samples", minimum=1) for n in numbers]
    seed_list = None if seeds is None else checked_seeds(seeds)
    estimator = make_estimator(problem.teacher_link, problem.label_noise, degree, transform)
    k = estimator.degree
    require(
        seed_list is None or k == 2,
        f"Argument `seeds` must be absent at degree {k}, whose law draws no sample, but is given.",
    )
    averaged = seed_list is None and estimator.needs_sample
    draws = range(DRAWS) if averaged else seed_list
    if draws:
        check_memory("samples", max(counts), ARRAYS_OF_DRAW * max(counts))
        laws = np.array(
            [
                [estimator.outlier(d, n, first_coordinates(estimator.link, estimator.noise, n, seed)) for n in counts]
                for seed in draws
            ]
        )
    elif k == 2:
        laws = np.array([estimator.outlier(d, n) for n in counts])
    else:
        laws = np.array([[estimator.overlap_squared(d, n)] for n in counts])
    values = dict(zip(("predicted_overlap_squared", "top_eigenvalue"), np.moveaxis(laws, -1, 0), strict=False))
    values = {name: array.mean(axis=0) for name, array in values.items()} if averaged else values
    attributes = direction_attributes(estimator, d, transform)
    dataset = make_dataset(
        values,
        problem=problem,
        title="Predicted recovery of one direction from samples that are reused",
        coords={"samples": counts, **({} if seed_list is None else {"seed": np.array(seed_list, dtype=np.int64)})},
        solver={"answer": "recovery", "degree": k, "samples": counts, "transform": attributes["transform"]},
        attributes={**attributes, "answer": "recovery", "draws": DRAWS if averaged else None},
        leading=("samples",) if seed_list is None else ("seed", "samples"),
        with_leading=tuple(values),
    )
    return dataset if is_sequence else dataset.isel(samples=0)


def single_direction(problem: object) -> Problem:
    """Return `problem` itself; raise TypeError or ValueError unless its labels are σ(θ·x) + τξ.

    These are a link σ of one direction θ with coefficient 1, and label noise τξ, ξ standard normal.
    """
    if not isinstance(problem, Problem):
        refuse(f"Argument `problem` must be a Problem, but is {type(problem).__name__}.", error=TypeError)
    check_fields(problem, FIELDS_OF_STUDENT, "here")
    teacher = problem.teacher
    value = "a Student" if is_network(problem) else f"coefficients {teacher.coefficients.tolist()}"
    require(
        not is_network(problem) and teacher.num_directions == 1 and teacher.coefficients[0] == 1.0,
        "Argument `problem` must have a student with a name and a teacher of one direction of coefficient 1, but has "
        f"{value}.",
    )
    require(
        problem.dimension >= 2,
        f"Argument `problem` must have a dimension of at least 2, but has {problem.dimension}.",
    )
    return problem


def direction_attributes(estimator: Estimator, dimension: int, transform: object) -> dict[str, object]:
    """Return the attributes of a spectral estimator of one direction that are known before any sample is drawn.

    Among them are its degree k, the sign of its signal, the number of samples of its threshold, None if it has none,
    and that number over d^max(1, k/2), d the `dimension`.
    """
    k, threshold = estimator.degree, estimator.threshold(dimension)
    has_threshold = k > 1 and not np.isnan(threshold)
    return {
        "references": REFERENCES,
        "degree": k,
        "transform": transform if isinstance(transform, str) else callable_name(transform),
        "label_sign": int(estimator.sign),
        "rho_squared": estimator.signal,
        "kappa": estimator.law.spread(),
        "threshold_samples": threshold if has_threshold else None,
        "threshold_ratio": threshold / dimension ** max(1.0, k / 2) if has_threshold else None,
    }
