r"""Layer-wise training and the width that a teacher asks for, from the law of random starts.

With the second layer frozen and equal, a neuron on the sphere moves by the correlation flow, in which
d ln(C_p/C_q)/dt = k c_k² (a_p C_p^(k−2) − a_q C_q^(k−2)). So the direction of largest a_p |C_p|^(k−2) at the start
wins, exactly; for odd k only those with C_p > 0 count. At large d the overlaps of a uniform start are independent and
normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands.catalogue import study_function
from dynamics.fits import fit_slope
from dynamics.laws.scaffold import PreparedStudy, checked_problem, under_way
from dynamics.problem import Teacher
from dynamics.problem.checks import check_type, checked_increasing, checked_integer, checked_number, require
from dynamics.runs.dataset import Values
from dynamics.runs.trackers import bar_settings, open_bar
from dynamics.signals import stop_if_heard
from dynamics.theory.pairs import match_greedily
from hermite import HermiteExpansion, expand
from hermite.arrays import Array, real_array
from hermite.text.messages import shown

#: Nodes of the trapezoidal rule in the logarithm of an overlap, from e^`LOWEST` to `FURTHEST` standard deviations. Its
#: integrand is smooth and vanishes at both ends, so that the rule is exact to rounding.
NODES, LOWEST, FURTHEST = 4000, -38.0, 12.0
#: Variables of the study of widths, in the order of the fields of `Width`.
MEASURED_WIDTH = ("neurons", "matched_chance", "matched_chance_low", "matched_chance_high")


def layerwise_chances(teacher: Teacher, link: object = "he4") -> Array:
    r"""Return the chance π_p that a neuron which is trained with a frozen second layer learns direction p, shape (P,).

    .. math:: \pi_p = \int_0^\infty \sqrt{\tfrac{2}{\pi}} e^{-z^2/2} \prod_{q \ne p}
        \operatorname{erf}\Big(\frac{z}{\sqrt 2} \Big(\frac{a_p}{a_q}\Big)^{1/(k-2)}\Big) dz

    for even k. For odd k a neuron can learn directions of positive overlap alone: half the density, and Φ(·) for
    erf(·/√2); the chances then add up to 1 − 2^(−P). A network of m such neurons whose second layer is fitted
    afterwards misses Σ_p a_p² (1 − π_p)^m of the loss on average (`layerwise_loss`).

    Parameters
    ----------
    teacher : Teacher
        Positive coefficients a_p of orthonormal directions.
    link : link, default "he4"
        Of information exponent k ≥ 3; its first degree decides alone.

    Raises
    ------
    ValueError
        If a coefficient is not positive, directions are oblique, or k ≤ 2.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv:2504.19983, for the dynamics; the quadrature is this program's.

    Examples
    --------
    >>> chances = layerwise_chances(Teacher.power_law(16, 1.0), "he4")
    >>> round(float(chances[-1]), 6), round(float(chances.sum()), 12)
    (0.003717, 1.0)
    """
    from scipy.special import erf, log_ndtr

    k = _checked_link(link).information_exponent
    a = _checked_coefficients(teacher)
    # In u = z a_p^(1/(k−2)) the product over directions is one function for all p.
    scale = a ** (-1.0 / (k - 2))
    x, step = np.linspace(LOWEST - np.log(scale.min()), np.log(FURTHEST / scale.min()), NODES, retstep=True)
    z = np.exp(x)[:, None] * scale
    logs = log_ndtr(z) if k % 2 else np.log(erf(z / np.sqrt(2.0)))
    density = np.sqrt((1.0 if k % 2 else 4.0) / (2.0 * np.pi)) * z * np.exp(-0.5 * z**2)
    chances: Array = step * np.sum(density * np.exp(logs.sum(axis=1)[:, None] - logs), axis=0)
    return chances


def layerwise_loss(teacher: Teacher, widths: ArrayLike, link: object = "he4") -> Array:
    r"""Return the mean loss of layer-wise training, Σ_p a_p² (1 − π_p)^m, at each width m, dimensionless.

    The second layer is fitted after every neuron has won its direction, at g(1) = 1.

    Parameters
    ----------
    teacher : Teacher
        As of `layerwise_chances`, which raises ValueError for others.
    widths : array_like of int
        Numbers m ≥ 1 of neurons, any shape.
    link : link, default "he4"
        Of information exponent k ≥ 3.

    Examples
    --------
    >>> teacher = Teacher.power_law(1024, 1.0)
    >>> layerwise_loss(teacher, [16, 256]).round(4).tolist()
    [0.124, 0.0364]
    """
    m = real_array(widths, "widths")
    are_counts = m.size > 0 and bool(((m >= 1.0) & (m == np.floor(m)) & np.isfinite(m)).all())
    require(are_counts, f"Argument `widths` must hold integers of at least 1, but is {shown(m.tolist())}.")
    missed = np.log1p(-layerwise_chances(teacher, link))
    loss: Array = np.exp(m[..., None] * missed) @ teacher.coefficients**2
    return loss


class Width(NamedTuple):
    """A number of neurons, and the chance measured at it with the ends of its interval of 95 %."""

    neurons: int
    chance: float
    chance_low: float
    chance_high: float


def width_for(
    teacher: Teacher,
    *,
    top: int,
    chance: float = 0.95,
    link: object = "he4",
    draws: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Width:
    r"""Return the fewest neurons of a random start that greedy matching gives all of the first directions to.

    .. math:: m = \min\{m : P(\text{directions } 1, \ldots, \bar p \text{ are all matched}) \ge 1 - \delta\}

    Overlaps are drawn as independent normal numbers, the law of uniform starts at large d. The same draws serve every
    width (the first m rows of each), and bisection finds m, whose error is that of the chance.

    Parameters
    ----------
    teacher : Teacher
        Positive coefficients of orthonormal directions, the largest first.
    top : int
        p̄, the number of first directions that must all be matched.
    chance : float, default 0.95
        1 − δ.
    link : link, default "he4"
        Of information exponent k ≥ 3.
    draws, seed : int
        Number of random starts, and the seed of all of them.
    progress : bool, optional
        Show a bar on stderr, which counts matched starts; by default if it is a terminal or a notebook.

    Returns
    -------
    Width
        `neurons`, and the `chance` measured there with its Wilson interval `chance_low`, `chance_high`.

    Raises
    ------
    ValueError
        If the teacher or link is refused by `layerwise_chances`, `top` exceeds P, or no width up to 64 P is enough.

    Examples
    --------
    >>> width_for(Teacher.power_law(32, 1.0), top=4, draws=200, progress=False).neurons
    15
    """
    from scipy.stats import binomtest

    k = _checked_link(link).information_exponent
    a = _checked_coefficients(teacher)
    count = checked_integer(top, "top", minimum=1, maximum=a.size)
    share = _checked_chance(chance)
    starts = checked_integer(draws, "draws", minimum=1)
    seeds = np.random.SeedSequence(checked_integer(seed, "seed", minimum=0)).spawn(starts)

    with open_bar(bar_settings(progress), unit="start") as bar:

        def matched(width: int) -> int:
            """Return the number of starts in which all first directions are matched."""
            hits = 0
            for child in seeds:
                overlap = np.random.default_rng(child).standard_normal((width, a.size))
                hits += bool((match_greedily(a, overlap, k)[:count] >= 0).all())
                bar.update()
                stop_if_heard()
            return hits

        low, high = 0, count
        while (hits := matched(high)) < share * starts:
            low, high = high, 2 * high
            most = 64 * a.size
            require(high <= most, f"Argument `chance` must be reached below {most} neurons, but is {share:g}.")
        while high - low > 1:
            middle = (low + high) // 2
            middle_hits = matched(middle)
            if middle_hits >= share * starts:
                high, hits = middle, middle_hits
            else:
                low = middle
    interval = binomtest(hits, starts).proportion_ci(method="wilson")
    return Width(high, hits / starts, float(interval.low), float(interval.high))


def resolved_width(width: int | str, teacher: Teacher, link: object, *, progress: bool | None = None) -> int:
    """Return a number of neurons as it is, and that of "top:16" by `width_for` of the first 16 directions."""
    if isinstance(width, str):
        kind, _, count = width.partition(":")
        is_known = kind == "top" and count.isdecimal()
        require(is_known, f"Argument `width` must be a number or 'top:COUNT', but is {width!r}.")
        top = checked_integer(int(count), "width", minimum=1, maximum=teacher.num_directions)
        return width_for(teacher, top=top, link=link, progress=progress).neurons
    return checked_integer(width, "width", minimum=1)


def _width_study(study: PreparedStudy, tops: list[int], teacher: Teacher) -> xr.Dataset:
    """Return the widths at which the first p̄ directions are all matched, for each p̄ of `tops`, as a dataset.

    By p̄ it has the width (`neurons`), the share of random starts in which all p̄ are matched, and the ends of its 95 %
    interval; the attribute `width_slope` is the slope of ln(width) over ln(p̄). Settings of the study are the wanted
    chance, the number of draws and the seed. Numbers p̄ that an interruption leaves out are NaN.
    """
    chosen, widths = study.settings, np.full((len(Width._fields), len(tops)), np.nan)
    with under_way(len(tops), study.progress, unit="width") as meter:
        for at, top in enumerate(tops):
            draws = {name: chosen[name] for name in ("chance", "draws", "seed")}
            widths[:, at] = width_for(teacher, top=top, link=study.problem.activation, **draws, progress=False)
            meter.add(1)
    is_finite = np.isfinite(widths[0])
    slope = fit_slope(np.array(tops, dtype=np.float64)[is_finite], np.log(widths[0, is_finite])).exponent
    values: Values = {name: (("top",), row) for name, row in zip(MEASURED_WIDTH, widths, strict=True)}
    return study.dataset(meter, values, {"top": tops}, width_slope=slope, **chosen)


@study_function  # returns what `run` of the prepared study returns, a dataset
def width_study(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 256,
    tops: Sequence[int] = (4, 8, 16, 32),
    chance: float = 0.95,
    draws: int = 400,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Find the width at which all of the first p̄ directions are matched, by `width_for`, at growing p̄.

    Parameters
    ----------
    information_exponent, beta, directions : int, float, int
        k ≥ 3 of the link h_k, decay β of the coefficients, and P.
    tops : sequence of int
        Numbers p̄ ≤ P of first directions, increasing.
    chance, draws, seed : float, int, int
        As of `width_for`.

    Returns
    -------
    Dataset
        `neurons`, `matched_chance`, `matched_chance_low` and `matched_chance_high` (top), and attribute `width_slope`,
        the slope of the logarithm of the width over that of p̄.

    Examples
    --------
    >>> found = width_study(directions=32, tops=(2, 4), draws=200, progress=False)
    >>> found.neurons.values.tolist()
    [10.0, 15.0]
    """
    counts = checked_increasing(tops, "tops", minimum=1, fewest=1)
    count = checked_integer(directions, "directions", minimum=counts[-1])
    problem = checked_problem(information_exponent, beta, count, count, widest=count, seed=seed, fewest=1)
    settings = {
        "chance": _checked_chance(chance),
        "draws": checked_integer(draws, "draws", minimum=1),
        "seed": problem.seed,
    }
    work = f"{len(counts)} widths by {settings['draws']} random starts each, up to about a minute."
    title = "Width at which all of the first directions are matched"
    solve = partial(_width_study, tops=counts, teacher=problem.teacher)
    return PreparedStudy("width-for", title, settings, problem, progress, solve, work)


def _checked_chance(chance: object) -> float:
    """Return a chance above 0 and below 1."""
    share = checked_number(chance, "chance", positive=True)
    require(share < 1.0, f"Argument `chance` must be below 1, but is {share:g}.")
    return share


def _checked_link(link: object) -> HermiteExpansion:
    """Return the expansion of a link; ValueError unless its information exponent is at least 3."""
    expansion = expand(link)
    k = expansion.information_exponent
    require(k >= 3, f"Argument `link` must have an information exponent of at least 3, but has k = {k}.")
    return expansion


def _checked_coefficients(teacher: Teacher) -> Array:
    """Return the coefficients a_p; ValueError unless they are positive and directions orthonormal."""
    check_type("teacher", teacher, Teacher, "a Teacher")
    require(teacher.target is None, "Argument `teacher` must have directions, but is a polynomial.")
    require(teacher.is_orthonormal, "Argument `teacher` must have orthonormal directions, but has oblique ones.")
    a = teacher.coefficients
    require(bool((a > 0.0).all()), f"Argument `teacher` must have positive coefficients, but has {a.min():g}.")
    return a
