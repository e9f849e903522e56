r"""Samples that methods need for the same teacher, side by side, and the best loss that any method can have.

Laws are leading powers of the dimension with constant 1, each with its source; they compare orders, not constants.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands.catalogue import study_function
from dynamics.fits import fit_slope
from dynamics.laws.layerwise import layerwise_chances, width_for
from dynamics.laws.scaffold import PreparedStudy, checked_problem, under_way
from dynamics.problem.checks import checked_integer, checked_number, require
from dynamics.runs.dataset import Values
from hermite.arrays import Array, real_array
from hermite.exponents.generative import generative_exponent, sample_laws
from hermite.text.messages import shown

#: Method -> where its law is from.
SOURCES = {
    "kernel": "Ghorbani, Mei, Misiakiewicz, Montanari, arXiv:1904.12191",
    "kernel of relu": "the same, dynamics.predict_kernel",
    "layer-wise": "correlation flow, dynamics.laws.layerwise_chances",
    "online SGD": "Ren, Nichani, Wu, Lee, arXiv:2504.19983",
    "smoothed": "Damian, Nichani, Ge, Lee, arXiv:2305.10633",
    "reused batches": "Damian, Pillaud-Vivien, Lee, Bruna, arXiv:2403.05529",
    "minimax": "weak balls: sum of min(a_p^2, 1/n)",
}
#: Chance with which all wanted directions have a neuron, and random starts for it.
CHANCE, DRAWS = 0.95, 200
#: Numbers of samples of the curve of the best loss.
POINTS = 60
TITLE = "Samples that methods need for one teacher, side by side"


def minimax_loss(samples: ArrayLike, beta: float) -> Array:
    r"""Return the least loss that n samples allow for endlessly many coefficients a_p = p^(−β), dimensionless.

    .. math:: L(n) = \sum_{p \ge 1} \min\Big(a_p^2, \frac1n\Big)
        \to \frac{2\beta}{2\beta - 1}\, n^{(1 - 2\beta)/(2\beta)}

    A coefficient below 1/√n is not worth its noise. Directions count as known, so that no method does better.

    Parameters
    ----------
    samples : array_like
        Numbers n ≥ 1 of samples, any shape.
    beta : float
        β > ½.

    Returns
    -------
    ndarray
        Of the shape of `samples`.

    Raises
    ------
    ValueError
        If β is at most ½, where the sum is infinite, or a number is below 1.

    Examples
    --------
    >>> round(float(minimax_loss(1e6, 1.0) / (2.0 * 1e6**-0.5)), 4)
    0.9998
    """
    from scipy.special import zeta

    decay, n = checked_number(beta, "beta", positive=True), real_array(samples, "samples")
    require(decay > 0.5, f"Argument `beta` must be above 1/2, or the loss is infinite, but is {decay:g}.")
    require(
        n.size > 0 and bool((n >= 1.0).all()), f"Argument `samples` must be at least 1, but is {shown(n.tolist())}."
    )
    strong = np.floor(n ** (0.5 / decay) * (1.0 + 1e-12))
    return np.asarray(strong / n + zeta(2.0 * decay, strong + 1.0))


def _layerwise_width(chances: Array) -> int:
    """Return the fewest neurons of which every wanted direction wins one, all at `CHANCE`; one chance for each."""

    def covers(width: int) -> bool:
        return bool(np.sum(np.log1p(-((1.0 - chances) ** width))) >= np.log(CHANCE))

    low, high = 0, 1
    while not covers(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high


def _methods(study: PreparedStudy, wanted: int) -> xr.Dataset:
    """Return the dataset of all methods; KeyboardInterrupt if it was interrupted."""
    problem, neurons = study.problem, dict.fromkeys(SOURCES, np.nan)
    a, d, k = problem.teacher.coefficients, float(problem.dimension), problem.information_exponent
    beta, (generative, _) = float(problem.teacher.beta or 0.0), generative_exponent(problem.activation)
    laws, weak = sample_laws(k, generative), float(a[wanted - 1] ** -2)
    of_samples = f"a_p^-2 d^{laws['online'].power:g}"
    rows = {
        "kernel": (str(laws["kernel"]), laws["kernel"].power, d ** laws["kernel"].power),
        "kernel of relu": (str(laws["relu"]), laws["relu"].power, d ** laws["relu"].power),
        "layer-wise": (of_samples, laws["online"].power, weak * d ** laws["online"].power),
        "online SGD": (of_samples, laws["online"].power, weak * d ** laws["online"].power),
        "smoothed": (str(laws["smoothed"]), laws["smoothed"].power, d ** laws["smoothed"].power),
        "reused batches": (str(laws["transformed"]), laws["transformed"].power, d ** laws["transformed"].power),
        "minimax": ("a_p^-2", 0.0, weak),
    }
    with under_way(2, study.progress, unit="width") as meter:
        neurons["layer-wise"] = _layerwise_width(layerwise_chances(problem.teacher, problem.activation)[:wanted])
        meter.add(1)
        teacher, link = problem.teacher, problem.activation
        width = width_for(teacher, top=wanted, chance=CHANCE, link=link, draws=DRAWS, seed=problem.seed, progress=False)
        neurons["online SGD"] = width.neurons
        meter.add(1)
    if meter.stop_reason == "interrupted":
        raise KeyboardInterrupt
    names, powers, samples = zip(*rows.values(), strict=True)
    n = np.geomspace(1e2, 1e8, POINTS)
    least = minimax_loss(n, beta)
    values: Values = {
        "sample_law": ((), np.array(names)),
        "law_source": ((), np.array(list(SOURCES.values()))),
        "dimension_power": ((), np.array(powers)),
        "samples_needed": (("algorithm",), np.array(samples)),
        "neurons": (("algorithm",), np.array(list(neurons.values()))),
        "minimax_loss": ((), least),
        "minimax_law": ((), 2.0 * beta / (2.0 * beta - 1.0) * n ** ((1.0 - 2.0 * beta) / (2.0 * beta))),
    }
    slope = fit_slope(n, np.log(least)).exponent
    attributes = {"generative_exponent": generative, "minimax_exponent": slope, **study.settings}
    return study.dataset(meter, values, {"algorithm": np.array(list(rows)), "samples": n}, **attributes)


@study_function  # returns what `run` of the prepared study returns, a dataset
def methods(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 16,
    dimension: int = 256,
    wanted: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Return the law of the samples of seven methods with its source, and its number for one teacher.

    Kernels, that of relu without biases (inf: never), layer-wise training, online SGD, SGD on the smoothed landscape,
    batches used again (by the generative exponent k\* of the link), and the minimax rate of known directions. With a_p
    the coefficient of the last wanted direction, SGD needs a_p^(−2) d^(k−1) samples, at a step tuned to it. Kernels,
    smoothing and reuse have the law of one direction.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β > ½.
    directions, dimension, wanted : int, int, int
        P, d ≥ P, and how many of the first directions are wanted.
    seed : int
        Seed of the starts by which the width of SGD is found.

    Returns
    -------
    Dataset
        By algorithm: `sample_law` and `law_source`, text; `dimension_power`, its power of d; `samples_needed`; and
        `neurons`, with which all wanted directions have one at a chance of 95 % (NaN where the law does not say).
        `minimax_loss` and `minimax_law` (samples) are those of `minimax_loss`, and attribute `minimax_exponent` is
        the fitted slope. All numbers are dimensionless.

    Examples
    --------
    >>> found = methods(dimension=100, progress=False)
    >>> found.samples_needed.sel(algorithm=["kernel", "smoothed", "reused batches"]).values.tolist()
    [100000000.0, 10000.0, 100.0]
    """
    problem = checked_problem(information_exponent, beta, directions, dimension, widest=1, seed=seed, fewest=1)
    require(beta > 0.5, f"Argument `beta` must be above 1/2, or the least loss is infinite, but is {beta:g}.")
    last = checked_integer(wanted, "wanted", minimum=1, maximum=problem.num_directions)
    work = f"Seven laws, and the width of {last} directions by {DRAWS} random starts: seconds."
    return PreparedStudy("methods", TITLE, {"wanted": last}, problem, progress, partial(_methods, wanted=last), work)
