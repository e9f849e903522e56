r"""Whether the theory of Gaussian inputs holds for given rows: times of emergence, measured on the rows before a run.

A neuron ŵ = Cθ + √(1 − C²) u that meets one direction θ obeys C' = a μ(C), μ = E[y σ'(U) (v − C U)]/a with v = θ·x,
U = ŵ·x and the label y. For Gaussian inputs μ = g'(C)(1 − C²). Otherwise, at first order in the joint fourth
cumulants K_j of v (4 − j times) and r = u·x (j times),

.. math:: \mu = g'(C)(1 - C^2) + \frac1{24}\sum_{j=0}^4 \binom4j K_j\, E_G[F\, He_{4-j}(v)\, He_j(r)], \qquad
   F = \sigma^*(v)\, \sigma'(U)\, (v - C U),

the first term of the Edgeworth series in the orthogonal coordinates (v, r). Third cumulants vanish at first order for
links of one parity. The path meter is the mean over the rows themselves, to all orders. Times are ∫ dC/(a μ) from the
start to emergence, of pairs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial import hermite_e

from dynamics.problem import Problem, check_problem, checked_integer
from dynamics.problem.hints import with_hints
from dynamics.problem.rows import Rows
from dynamics.theory.prediction import predict
from hermite import HermiteExpansion
from hermite.arrays import Array, Integers
from hermite.polynomials import evaluate, series_value
from hermite.text.messages import refuse, require, with_error

#: Nodes of a path from the start to emergence, and blocks of rows by which errors are measured.
PATH_NODES, BLOCKS = 32, 10
#: Largest degree of an effective coefficient.
MOST_DEGREE = 12
#: Nodes of E_G beyond half of the orders of both links, which make it exact, and the largest order that counts.
SPARE_NODES, MOST_ORDER = 8, 128
#: Rows drawn of a law or a function.
DRAWN_ROWS = 200_000
#: Ratios ρ up to which resampled rows are trusted, and above which they are too few.
TRUSTED, TOO_FEW = 0.02, 0.1
#: Standard errors, and part of the norm of Gaussian labels, above which an effective coefficient is not zero.
SURE, SMALL = 4.0, 0.02
#: Relative errors below it are rounding.
ROUNDING = 1e-12


class Measured(NamedTuple):
    """A measured value of every direction and its standard error, (P,) each."""

    value: Array
    error: Array


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Universality:
    """Measures on rows of how far the theory of Gaussian inputs holds, before any run; one entry per direction, (P,).

    Times are flow times to emergence of the pair of direction and matched neuron alone, dimensionless, inf if never:
    `emergence_time` for Gaussian inputs, `corrected_emergence_time` with fourth cumulants, `path_emergence_time` as the
    mean over rows says, and `effective_emergence_time` for Gaussian U given v, right for directions on few axes:
    C' = a G'(C)(1 − C²), G = Σ c_j α_j C^j. Errors are standard errors by ten blocks of rows. `cumulants` (P, 5) are
    the K_j. For inputs with a covariance only `emergence_time` and the effective coefficients are known, the rest is
    NaN.

    `resampling_ratio` ρ = E[y² σ'²] d T²/N says how far SGD on N resampled rows leaves the plane of direction and
    start: up to 0.02 rows suffice, above 0.1 they are too few. It is 0 for rows that are new in each step.

    Examples
    --------
    >>> from dynamics import Rows, Teacher
    >>> start = ([[0.35]], [[1.0]], [1e-8])
    >>> teacher = Teacher([1.0])
    >>> problem = Problem(activation="he3", teacher=teacher, width=1, dimension=8, initial_overlaps=start)
    >>> measured = universality(problem, Rows("rademacher", placement=[[1.0] + 7 * [0.0]]), drawn=1000)
    >>> measured.effective_coefficient(3).value.round(4).tolist(), measured.information_exponent.tolist()
    ([0.6667], [1])
    """

    problem: Problem
    rows: str
    count: int
    emergence_time: Array
    corrected_emergence_time: Array
    corrected_error: Array
    path_emergence_time: Array
    path_error: Array
    effective_emergence_time: Array
    effective_time_error: Array
    resampling_ratio: Array
    cumulants: Array
    _coefficients: Array
    _coefficient_errors: Array

    def effective_coefficient(self, degree: int) -> Measured:
        """Return α_j = E[y h_j(θ·x)]/a of a degree j and its error, for Gaussian inputs c*_j of the teacher's link."""
        j = checked_integer(degree, "degree", minimum=0, maximum=MOST_DEGREE)
        return Measured(self._coefficients[:, j], self._coefficient_errors[:, j])

    @property
    def information_exponent(self) -> Integers:
        """Least degree j ≥ 1 with α_j ≠ 0, above 4 errors and .02 of the norm of the label; 0 for none, (P,)."""
        return self._exponents(np.ones(MOST_DEGREE + 1))

    @property
    def student_exponent(self) -> Integers:
        """Least degree j ≥ 1 with α_j c_j ≠ 0, (P,), which the student's link c sees; 0 for none."""
        return self._exponents(_padded(self.problem.activation.coefficients, MOST_DEGREE + 1))

    def _exponents(self, weights: Array) -> Integers:
        size = np.abs(self._coefficients) * (weights != 0.0)
        scale = math.sqrt(self.problem.teacher_link.kernel_at_one)
        counts = (size > SURE * self._coefficient_errors) & (size > SMALL * scale)
        counts[:, 0] = False
        return np.where(counts.any(axis=1), counts.argmax(axis=1), 0)

    @property
    def worst_direction(self) -> int:
        """Index of the direction whose time differs most from that of Gaussian inputs."""
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.abs(np.log(self.path_emergence_time / self.emergence_time))
        return int(np.argmax(np.where(np.isnan(distance), -1.0, distance)))

    def lines(self) -> list[str]:
        """Return four sentences: effective coefficients, time by fourth cumulants, by the path meter, and ρ."""
        p, k = self.worst_direction, self.problem.information_exponent
        several = f" (direction {p + 1} of {self.emergence_time.size})" if self.emergence_time.size > 1 else ""
        value, error = (float(array[p]) for array in self.effective_coefficient(k))
        error = error if error > ROUNDING * abs(value) else math.nan
        expected = float(_padded(self.problem.teacher_link.coefficients, k + 1)[k])
        exponent, seen = int(self.information_exponent[p]), int(self.student_exponent[p])
        labels = (
            f"Labels of {self.rows}{several}: alpha_{k} = {with_error(value, error)} "
            f"for {expected:.4g} of Gaussian inputs; information exponent {exponent or 'none'}, "
            f"{seen or 'none'} for this student."
        )
        gauss = float(self.emergence_time[p])
        lines = [labels]
        for name, time, error in (
            ("Fourth cumulants", self.corrected_emergence_time[p], self.corrected_error[p]),
            ("Path meter", self.path_emergence_time[p], self.path_error[p]),
        ):
            if not math.isnan(time):
                lines.append(f"{name}: {_against(float(time), float(error), gauss)}")
            elif self.problem.inputs is not None:
                lines.append(f"{name}: not derived for inputs with a covariance.")
            else:
                lines.append(f"{name}: no time, since no direction emerges later than the start by Gaussian theory.")
        # The rows must suffice for every direction.
        rho = float(np.max(self.resampling_ratio, where=~np.isnan(self.resampling_ratio), initial=-1.0))
        if self.problem.inputs is not None:
            lines.append("Resampling: rho is not known for inputs with a covariance.")
        elif rho < 0.0:
            lines.append("Resampling: rho is not known without a time.")
        elif rho == 0.0:
            lines.append("Resampling: rho = 0, since every step has new rows.")
        else:
            word = "suffice" if rho <= TRUSTED else "are too few" if rho > TOO_FEW else "may be too few"
            lines.append(f"Resampling: rho = {rho:.2g}, so {self.count} rows {word} (trust below 0.02, not above 0.1).")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def _against(time: float, error: float, gauss: float) -> str:
    """Return a time, and how much later or earlier than a time for Gaussian inputs it is."""
    if not math.isfinite(time):
        return f"never, where Gaussian inputs of this covariance take {gauss:.4g}."
    share, noise = 100.0 * (time / gauss - 1.0), 100.0 * error / gauss
    share = share if abs(share) > ROUNDING * 100.0 else 0.0
    word = "later" if share >= 0.0 else "earlier"
    return (
        f"emergence at t = {with_error(time, error)}, {with_error(abs(share), noise)} % {word} than Gaussian inputs "
        f"({gauss:.4g})."
    )


@with_hints
def universality(problem: Problem, rows: object, *, drawn: int = DRAWN_ROWS) -> Universality:
    r"""Measure on rows, before any run, whether the theory of Gaussian inputs holds for them.

    Parameters
    ----------
    problem : Problem
        A homogeneous student of information exponent k ≥ 3, with the dimension of the rows; isotropic for whitened
        rows, or with `inputs=Inputs.from_data(rows)`.
    rows : Rows, path, array_like, DataFrame, str or callable
        Rows of a matrix, or a law: `dynamics.Rows`, or what that takes first.
    drawn : int, default 200000
        How many rows of a law or a function are drawn. Fourth cumulants of a law by name are exact.

    Returns
    -------
    Universality
        `emergence_time` of Gaussian inputs, `corrected_emergence_time` by fourth cumulants, `path_emergence_time` with
        `path_error`, `effective_coefficient(degree)`, and `resampling_ratio`.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Notes
    -----
    Pairs of direction and matched neuron are taken alone, with the rest u of the neuron's start, on which cumulants
    depend. Means are taken with the whole label. Rows that are read from a .npy file need memory for a block of them.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> start = ([[0.35]], [[1.0]], [1e-8])
    >>> teacher = Teacher([1.0])
    >>> problem = Problem(activation="he3", teacher=teacher, width=1, dimension=16, initial_overlaps=start)
    >>> measured = universality(problem, "rademacher", drawn=20000)
    >>> bool(measured.corrected_emergence_time[0] > measured.emergence_time[0])
    True
    """
    drawn = checked_integer(drawn, "drawn", minimum=2 * BLOCKS)
    _check_problem(problem)
    source = Rows.of(rows)
    source.check(problem)
    return _Meter(problem, source, drawn).measured()


def _check_problem(problem: Problem) -> None:
    """Refuse problems for which no time of a pair is derived."""
    if isinstance(problem, Problem) and problem.kind == "network":
        refuse(
            "Argument `problem` must have the homogeneous student, since times on other inputs are not derived for "
            "layers and biases that are trained, but has the network student."
        )
    check_problem(problem, fields=("inputs",))
    k = problem.information_exponent
    require(
        k >= 3,
        "Argument `problem` must have a link of information exponent at least 3, since times on other inputs are not "
        f"derived for k <= 2, but {problem.activation.name} has k = {k}.",
    )
    require(
        k <= MOST_DEGREE,
        f"Argument `problem` must have a link of information exponent at most {MOST_DEGREE}, the largest degree "
        f"measured on rows, but {problem.activation.name} has k = {k}.",
    )


def _padded(coefficients: Array, size: int) -> Array:
    """Return the first `size` coefficients, with zeros behind where there are fewer."""
    padded = np.zeros(size)
    kept = np.asarray(coefficients)[:size]
    padded[: kept.size] = kept
    return padded


class _Meter:
    """Sums over rows by blocks, and the times that follow from them."""

    def __init__(self, problem: Problem, rows: Rows, drawn: int) -> None:
        self._problem, self._rows, self._drawn = problem, rows, drawn
        prediction = predict(problem)
        self._gauss = prediction.predicted_emergence_time
        self._a = problem.teacher.coefficients
        weights, span = problem.reduced_weights(), problem.teacher.span
        self._axes = weights.shape[1]
        places = problem.input_axes()
        #: Coordinates of the whitened rows that stand for the reduced weights.
        self._places = np.arange(self._axes) if places is None else places.places
        directions = problem.teacher.directions
        self._directions = np.eye(span)[:, :span] if directions is None else directions
        P = self._a.size
        self._theta, self._rest = np.zeros((P, self._axes)), np.zeros((P, self._axes))
        self._theta[:, :span] = self._directions
        self._C0, neuron = prediction.learning_overlap, prediction.learning_neuron
        self._pairs = np.flatnonzero(
            (neuron >= 0) & np.isfinite(self._gauss) & (problem.inputs is None) & (self._gauss > 0.0)
        )
        for p in self._pairs.tolist():
            unit = weights[neuron[p]] / np.linalg.norm(weights[neuron[p]])
            rest = unit - self._C0[p] * self._theta[p]
            size = np.linalg.norm(rest)
            if size > 0.0:
                self._rest[p] = rest / size
        nodes, node_weights = np.polynomial.legendre.leggauss(PATH_NODES)
        end = math.sqrt(problem.emergence_level)
        size_at_start = np.minimum(np.abs(self._C0), end)
        self._sign = np.where(self._C0 < 0.0, -1.0, 1.0)
        half = (end - size_at_start) / 2.0
        self._path = self._sign[:, None] * (size_at_start[:, None] + half[:, None] * (1.0 + nodes))
        self._path_weights = half[:, None] * node_weights

    def measured(self) -> Universality:
        """Pass over the rows once and return all numbers."""
        P, d = self._a.size, self._problem.dimension
        moments, forces = np.zeros((BLOCKS, P, 5, 5)), np.zeros((BLOCKS, P, PATH_NODES))
        labels, sizes = np.zeros((BLOCKS, P, MOST_DEGREE + 1)), np.zeros(BLOCKS)
        noise, first = np.zeros((P, PATH_NODES)), 0
        for z in self._rows.samples(self._problem, self._drawn):
            near = z[:, self._places]
            v, r = near @ self._theta.T, near @ self._rest.T
            y = self._problem.teacher_link.value(v) @ self._a
            of_block = (first + np.arange(len(z))) % BLOCKS
            first += len(z)
            for block in range(BLOCKS):
                chosen = of_block == block
                sizes[block] += np.count_nonzero(chosen)
                self._add(v[chosen], r[chosen], y[chosen], moments[block], forces[block], labels[block], noise)
        require(first >= 2 * BLOCKS, f"Argument `rows` must have at least {2 * BLOCKS} rows, but has {first}.")
        count = float(sizes.sum())
        coefficients, errors = _jackknife(lambda x: x, labels, sizes)
        times = {
            "corrected_emergence_time": self._corrected(moments, sizes),
            "path_emergence_time": _jackknife(lambda mu: self._time(mu / self._a[:, None]), forces, sizes),
            "effective_emergence_time": _jackknife(self._effective, labels, sizes),
        }
        cumulants = self._cumulants(moments.sum(axis=0) / count)
        nothing = np.full(P, np.nan)
        left = np.setdiff1d(np.arange(P), self._pairs)
        for time, error in times.values():
            time[left], error[left] = nothing[left], nothing[left]
        cumulants[left] = np.nan
        path_time = times["path_emergence_time"][0]
        rho = self._ratio(noise / count, forces.sum(axis=0) / count, path_time, d)
        return Universality(
            problem=self._problem,
            rows=self._rows.name,
            count=first,
            emergence_time=self._gauss,
            corrected_emergence_time=times["corrected_emergence_time"][0],
            corrected_error=times["corrected_emergence_time"][1],
            path_emergence_time=path_time,
            path_error=times["path_emergence_time"][1],
            effective_emergence_time=times["effective_emergence_time"][0],
            effective_time_error=times["effective_emergence_time"][1],
            resampling_ratio=rho,
            cumulants=cumulants,
            _coefficients=coefficients,
            _coefficient_errors=errors,
        )

    def _add(self, v: Array, r: Array, y: Array, moments: Array, forces: Array, labels: Array, noise: Array) -> None:
        """Add the rows (b, P) of one block to its sums."""
        link = self._problem.activation
        for p, a in enumerate(self._a.tolist()):
            labels[p] += evaluate(MOST_DEGREE, v[:, p]) @ y / a
        for p in self._pairs.tolist():
            powers_v, powers_r = (np.vander(column[:, p], 5, increasing=True) for column in (v, r))
            moments[p] += powers_v.T @ powers_r
            C = self._path[p][:, None]
            U = C * v[:, p] + np.sqrt(1.0 - C**2) * r[:, p]
            pull = link.derivative(U)
            pull *= y
            forces[p] += np.einsum("nb,nb->n", pull, v[:, p] - C * U)
            noise[p] += np.einsum("nb,nb->n", pull, pull)

    def _time(self, mu: Array) -> Array:
        """Return ∫ dC/(a μ) along the paths of all directions, from μ (P, nodes); inf where it has another sign."""
        time = np.full(self._a.size, np.inf)
        along = self._sign[:, None] * mu * self._a[:, None]
        ahead = (along > 0.0).all(axis=1)
        time[ahead] = np.sum(self._path_weights[ahead] / along[ahead], axis=1)
        return time

    def _gaussian(self) -> Array:
        """Return g'(C)(1 − C²) with the links of teacher and student along the paths, (P, nodes)."""
        return self._slope(np.tile(self._problem.teacher_link.coefficients, (self._a.size, 1)))

    def _slope(self, alpha: Array) -> Array:
        """Return Σ_j j c_j α_j C^(j−1) (1 − C²) along the paths, from α (P, degrees)."""
        c = _padded(self._problem.activation.coefficients, alpha.shape[1])
        j = np.arange(alpha.shape[1])
        series = (j * c * alpha)[:, 1:]
        powers = self._path[:, :, None] ** j[:-1]
        return np.asarray(np.einsum("pj,pnj->pn", series, powers) * (1.0 - self._path**2))

    def _effective(self, alpha: Array) -> Array:
        return self._time(self._slope(alpha))

    def _cumulants(self, moments: Array) -> Array:
        """Return K_j (P, 5): exact for a law by name, else from the moments E[v^i r^j] (P, 5, 5)."""
        kappa = self._rows.fourth_cumulant
        if kappa is None:
            return _joint_cumulants(moments)
        turn = self._rows.coordinates(self._problem).matrix[:, : self._axes]
        theta, rest = self._theta @ turn.T, self._rest @ turn.T
        return kappa * np.stack([np.sum(theta ** (4 - j) * rest**j, axis=1) for j in range(5)], axis=1)

    def _corrected(self, moments: Array, sizes: Array) -> tuple[Array, Array]:
        """Return times by fourth cumulants and their errors, 0 for exact cumulants."""
        gaussian, terms = self._gaussian(), np.zeros((self._a.size, 5, PATH_NODES))
        for p in self._pairs.tolist():
            terms[p] = edgeworth_terms(self._problem.teacher_link, self._problem.activation, self._path[p])

        def time(cumulants: Array) -> Array:
            return self._time(gaussian + np.einsum("pj,pjn->pn", cumulants, terms))

        if self._rows.fourth_cumulant is not None:
            return time(self._cumulants(moments[0])), np.zeros(self._a.size)
        return _jackknife(lambda means: time(_joint_cumulants(means)), moments, sizes)

    def _ratio(self, noise: Array, force: Array, time: Array, dimension: int) -> Array:
        """Return ρ of every direction, with E[y² σ'²] averaged over the time along the path; 0 for new rows."""
        if self._problem.inputs is not None:
            return np.full(self._a.size, np.nan)
        count = self._rows.count
        if count is None or not self._rows.resample:
            return np.zeros(self._a.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self._path_weights / np.abs(force)
            # A mean force of the wrong sign leaves the path without an end, so rows are too few or of another law.
            size = np.sum(noise * share, axis=1) / np.sum(share, axis=1)
        T = np.where(np.isfinite(time), time, self._gauss)
        return np.asarray(size * dimension * T**2 / count)


def _joint_cumulants(moments: Array) -> Array:
    """Return the joint cumulants of v (4 − j times) and r (j times), (P, 5), from E[v^i r^j] (P, 5, 5)."""
    mean_v, mean_r = moments[:, 1, 0], moments[:, 0, 1]
    central = np.zeros_like(moments)
    for i in range(5):
        for j in range(5 - i):
            for a in range(i + 1):
                for b in range(j + 1):
                    shift = (-mean_v) ** (i - a) * (-mean_r) ** (j - b)
                    central[:, i, j] += math.comb(i, a) * math.comb(j, b) * shift * moments[:, a, b]
    vv, vr, rr = central[:, 2, 0], central[:, 1, 1], central[:, 0, 2]
    gaussian = (3.0 * vv**2, 3.0 * vv * vr, vv * rr + 2.0 * vr**2, 3.0 * vr * rr, 3.0 * rr**2)
    return np.stack([central[:, 4 - j, j] - gaussian[j] for j in range(5)], axis=1)


def edgeworth_terms(teacher: HermiteExpansion, student: HermiteExpansion, C: Array) -> Array:
    """Return binom(4, j)/24 E_G[σ*(v) σ'(U)(v − C U) He_(4−j)(v) He_j(r)] at overlaps C (nodes,), (5, nodes).

    v and r are independent, U = C v + √(1 − C²) r. Links count by their series, so that the quadrature is exact.
    """
    label, slope = _series(teacher), _derived(_series(student))
    size = (label.size + slope.size) // 2 + SPARE_NODES
    x, weight = hermite_e.hermegauss(size)
    weight = weight / weight.sum()
    he = np.stack([hermite_e.hermeval(x, [0.0] * j + [1.0]) for j in range(5)])
    value = series_value(label, x)
    terms = np.empty((5, C.size))
    for n, c in enumerate(C.tolist()):
        s = math.sqrt(1.0 - c * c)
        U = c * x[:, None] + s * x
        F = value[:, None] * series_value(slope, U) * (x[:, None] - c * U)
        F *= weight[:, None] * weight
        for j in range(5):
            terms[j, n] = math.comb(4, j) / 24.0 * (he[4 - j] @ F @ he[j])
    return terms


def _series(link: HermiteExpansion) -> Array:
    """Return the coefficients of a link in orthonormal Hermite polynomials, those that count."""
    c = np.where(np.abs(link.coefficients) > link.tolerance, link.coefficients, 0.0)[: MOST_ORDER + 1]
    return np.trim_zeros(c, "b")


def _derived(c: Array) -> Array:
    """Return the coefficients of the derivative: h_j' = √j h_(j−1)."""
    return np.asarray(c[1:] * np.sqrt(np.arange(1.0, c.size)))


def _jackknife(function: Callable[[Array], Array], sums: Array, sizes: Array) -> tuple[Array, Array]:
    """Return a function of means over all rows, and its standard error from leaving one block out at a time."""
    total, count = sums.sum(axis=0), sizes.sum()
    value = np.array(function(total / count), dtype=np.float64)
    without = np.array([function((total - part) / (count - size)) for part, size in zip(sums, sizes, strict=True)])
    with np.errstate(invalid="ignore"):
        error = np.sqrt((BLOCKS - 1) / BLOCKS * np.sum((without - without.mean(axis=0)) ** 2, axis=0))
    return value, np.where(np.isfinite(error), error, np.inf)
