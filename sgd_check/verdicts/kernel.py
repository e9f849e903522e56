"""Evidence on kernels: the mean error of drawn samples against the theory of the spectrum, at numbers of samples.

Online theory is exact at every d; ridge regression and flow are limits, of which errors at d = 10 to 40 were off by
less than 3/d of themselves, on Gaussian inputs 4/d. Errors over draws are heavy-tailed to the right, and the mean of a
few lies below theory: Student's t is transformed by their skewness (P. Hall, J. R. Stat. Soc. B 54, 221, 1992), which
counts as at least 3, that of online errors at d = 10, k = 3. Of sets from 600 such draws with the right mean, 1.0, 0.5
and 0.3 % of those of 12, 24 and 60 draws were refuted at a rate of 1 %, without the transformation 15, 13 and 8 %.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from scipy import special

from dynamics.problem import Problem
from dynamics.problem.checks import require
from hermite.arrays import Array
from hermite.text.messages import shown, with_error
from sgd_check.verdicts.evidence import Decision, Row, judged, word_of
from sgd_check.verdicts.verdict import (
    POWER,
    check_alike,
    check_dataset,
    check_link,
    check_rates,
    lacking_row,
    side_of,
    verdict_tree,
)

THEORY = "theory of kernels"
ANSWER = "kernel"
#: Fewest draws that are tested, and most points, numbers of samples or times, that are.
FEWEST_DRAWS, MOST_POINTS = 12, 6
#: Allowed relative deviation of exact theory, by rounding and tables; c of Δ = c/d for limits, by inputs.
EXACT, LIMIT = 0.01, {"sphere": 3.0, "gaussian": 4.0}
#: "Agree" is said only where an error off by this part of itself would have been seen.
VISIBLE = 0.5
#: Least skewness of draws.
LEAST_SKEWNESS = 3.0
#: Settings that prediction and draws must share, as their attributes name them.
SETTINGS = ("kernel", "protocol", "inputs", "width", "ridge")


def _checked(prediction: xr.Dataset, estimates: object) -> xr.Dataset:
    """Return the draws; ValueError if they answer another question than the prediction."""
    drawn = check_dataset("simulation", estimates)
    require(
        "test_error" in drawn and "seed" in drawn.dims,
        "Argument `simulation` must be a result of `sgd_check.estimate_kernel` for a theory of kernels, but has "
        f"{', '.join(map(str, drawn))}.",
    )
    ours, theirs = Problem.from_dataset(drawn), Problem.from_dataset(prediction)
    for word, name in (("dimension", "dimension"), ("label noise", "label_noise"), ("teacher", "teacher")):
        check_alike(word, getattr(theirs, name), getattr(ours, name))
    check_link("teacher's link", theirs.teacher_link, ours.teacher_link)
    for name in SETTINGS:
        check_alike(name, prediction.attrs.get(name), drawn.attrs.get(name))
    links = [json.loads(dataset.attrs["parameters"])["solver"]["student"] for dataset in (prediction, drawn)]
    check_alike("link of the kernel", *(link.get("text", link["name"]) for link in links), same=links[0] == links[1])
    if prediction.attrs["protocol"] == "online":
        check_rates(prediction, drawn)
    return drawn


def _points(prediction: xr.Dataset, drawn: xr.Dataset) -> tuple[list[str], Array, Array]:
    """Return the labels of the tested points, the errors of theory (points,) and those of the draws (points, seeds)."""
    names = ["samples", *(["time"] if "time" in drawn["test_error"].dims else [])]
    theory, errors = prediction["test_error"], drawn["test_error"]
    for name in names:
        known, wanted = (np.atleast_1d(dataset[name].values) for dataset in (prediction, drawn))
        missing = [value for value in wanted.tolist() if not np.isclose(known, value, rtol=1e-9, atol=0.0).any()]
        require(
            not missing,
            f"Argument `prediction` must have the {name} of the simulation, {shown(missing[:1])} among them, but has "
            f"{shown(known.tolist())}.",
        )
        theory = theory if name in theory.dims else theory.expand_dims({name: known})
        errors = errors if name in errors.dims else errors.expand_dims({name: wanted})
        theory = theory.isel({name: [int(np.argmin(np.abs(known - value))) for value in wanted.tolist()]})
    places = np.array(np.meshgrid(*(np.atleast_1d(drawn[name].values) for name in names), indexing="ij"))
    places = places.reshape(len(names), -1)
    chosen = np.unique(np.linspace(0, places.shape[1] - 1, min(MOST_POINTS, places.shape[1])).round().astype(np.int64))
    labels = [
        ", ".join(f"{name[0]} = {value:g}" for name, value in zip(("n", "t"), row, strict=False)) for row in places.T
    ]
    values = errors.transpose(*names, "seed").values.reshape(places.shape[1], -1)
    predicted = np.asarray(theory.transpose(*names).values, dtype=np.float64).ravel()
    return [labels[at] for at in chosen.tolist()], predicted[chosen], values[chosen]


def skewness(draws: Array) -> float:
    """Return the skewness of draws, at least `LEAST_SKEWNESS`, over the root of their number."""
    moment = float(np.mean((draws - draws.mean()) ** 3) / np.std(draws) ** 3)
    return max(moment, LEAST_SKEWNESS) / float(np.sqrt(draws.size))


def unskewed(t: float, skew: float) -> float:
    """Return Student's t of a mean without the effect of skewness, `skew` as `skewness` returns it.

    >>> round(unskewed(-4.0, 0.5), 2), round(skewed(unskewed(-4.0, 0.5), 0.5), 2)
    (-1.84, -4.0)
    """
    return float(((1.0 + skew * t / 3.0) ** 3 - 1.0) / skew + skew / 6.0)


def skewed(score: float, skew: float) -> float:
    """Return Student's t that `unskewed` makes this score of."""
    return float(3.0 / skew * (np.cbrt(1.0 + skew * (score - skew / 6.0)) - 1.0))


def _row(label: str, theory: float, draws: Array, allowed: float, rate: float, points: int) -> tuple[Row, str]:
    """Return the row of one point, whose p-value has its share of the rate, and a sentence on it."""
    finite = draws[np.isfinite(draws)] / theory
    if finite.size < FEWEST_DRAWS or np.ptp(finite) == 0.0:
        cause = f"Only {finite.size} draws are usable; the test needs {FEWEST_DRAWS} that differ."
        return lacking_row("test error at", cause, label=label, runs=finite.size), cause
    mean, error = float(finite.mean()) - 1.0, float(np.std(finite, ddof=1) / np.sqrt(finite.size))
    beyond = float(np.sign(mean) * max(0.0, abs(mean) - allowed))
    skew, freedom = skewness(finite), finite.size - 1
    z = unskewed(beyond / error, skew)
    z = z if z * beyond > 0.0 else 0.0
    p = min(1.0, 2.0 * points * float(special.stdtr(freedom, -abs(z))))
    # Below theory the critical distance is larger.
    critical = float(special.stdtrit(freedom, 1.0 - 0.5 * rate / points))
    visible = allowed + (float(special.stdtrit(freedom, POWER)) - skewed(-critical, skew)) * error
    told = f"Mean error at {label}: {with_error((1.0 + mean) * theory, error * theory)}, theory {theory:.3g}"
    row = judged(
        rate,
        quantity="test error at",
        label=label,
        value=mean,
        low=-allowed,
        high=allowed,
        z=z,
        p_value=p,
        visible_error=visible,
        runs=finite.size,
        required=True,
        seen=visible <= VISIBLE,
        cause=f"{told}; an error of {VISIBLE:.0%} could have gone unseen: use more seeds.",
    )
    return row, told


def kernel_verdict(prediction: xr.Dataset, estimates: object, rate: float) -> xr.DataTree:
    """Return the verdict on drawn kernels against their theory, with all its evidence.

    `prediction` is an answer of `dynamics.predict_kernel`, `estimates` one of `sgd_check.estimate_kernel` for the same
    question (ValueError otherwise), `rate` the rate of false alarms. At up to six numbers of samples, or of times, the
    mean error over draws, relative to theory, may deviate by 0.01 online and by c/d for limits; what exceeds this is
    tested by Student's t without the effect of skewness. "Agree" is said if an error off by half would have been seen.
    """
    drawn = _checked(prediction, estimates)
    labels, theory, draws = _points(prediction, drawn)
    problem, protocol = Problem.from_dataset(prediction), prediction.attrs["protocol"]
    allowed = EXACT if protocol == "online" else LIMIT[prediction.attrs["inputs"]] / problem.dimension
    tested = [
        _row(label, value, runs, allowed, rate, len(labels))
        for label, value, runs in zip(labels, theory.tolist(), draws, strict=True)
    ]
    rows, told = [row for row, _ in tested], [text for _, text in tested]
    word = word_of(rows)
    if word == Decision.DISAGREE:
        reasons = [
            f"{text}: {side_of(row.z)} than allowed, z = {row.z:.1f} (p = {row.p_value:.2g} < {rate:g})."
            for row, text in tested if row.disagrees
        ]  # fmt: skip
    elif word == Decision.AGREE:
        seen = max(row.visible_error for row in rows)
        reasons = [f"{'. '.join(told)}. A theory off by {seen:.0%} would have been seen."]
    else:
        reasons = list(dict.fromkeys(row.cause for row in rows if row.cause))
    return verdict_tree(
        rows,
        reasons,
        {},
        problem=problem,
        prediction=prediction,
        simulations={"/simulation": drawn},
        rate=rate,
        theory=THEORY,
        usable=int(np.isfinite(draws).all(axis=0).sum()),
        attributes={},
        title="Kernels on drawn samples against their theory",
        coords={},
    )
