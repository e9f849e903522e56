"""The translation of public codes' problems into ours, without these codes: their equations, and their printed numbers."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

from benchmarks.public_code_cases import Case, our_loss

REFERENCE = json.loads((Path(__file__).parent / "reference" / "saad_solla_erf.json").read_text())["cases"]
LINKS = {
    "erf": (lambda z: erf(z / np.sqrt(2)), lambda z: np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2)),
    "He3": (lambda z: z**3 - 3 * z, lambda z: 3 * z**2 - 3),
}
#: Nodes and weights of E over R², exact to rounding for these links.
LINE = np.linspace(-9.0, 9.0, 91)
NODES = np.stack(np.meshgrid(LINE, LINE), axis=-1).reshape(-1, 2)
WEIGHTS = np.exp(-np.sum(NODES**2, axis=1) / 2) * (LINE[1] - LINE[0]) ** 2 / (2 * np.pi)


@dataclass(frozen=True)
class Started(Case):
    """A case whose order parameters at the start are given, as a number of the reference file."""

    reference: int = 0

    def weights(self):
        Q, R = (np.array(REFERENCE[self.reference][name]) for name in ("Q0", "R0"))
        return np.hstack([R, np.linalg.cholesky(Q - R @ R.T)])


@pytest.mark.parametrize("number", range(len(REFERENCE)))
def test_sums_of_units_are_what_the_codes_print(number):
    given = REFERENCE[number]
    case = Started(
        "", "nn2pp", given["K"], given["M"], given["eta"], given["sigma_noise_std"], step=0.01, last=1.0,
        reference=number,
    )  # fmt: skip
    np.testing.assert_array_equal(given["T"], np.eye(given["M"]))
    found, _ = our_loss(case, np.array(given["alpha"]), 1e-11)
    np.testing.assert_allclose(found, given["eg"], rtol=0, atol=1e-10)


def start_of(case):
    """Q, M, the factors of the units, and weights on two axes that hold all: those of the teacher, or its one and the last."""
    W = case.weights()
    W = W[:, [0, 1 if case.directions == 2 else -1]]
    units = np.full(case.width, 1 / case.width) if case.mean else case.second_layer()
    return W @ W.T, W[:, : case.directions], units, W


def rates_of(case):
    """The rates of Q, M and the units' factors that the papers print, by quadrature in R²."""
    Q, M, units, W = start_of(case)
    sigma, slope = LINKS[case.link]
    fields, truth = NODES @ W.T, NODES[:, : case.directions]
    gap = sigma(truth) @ teacher_of(case) - sigma(fields) @ units
    mean = partial(np.einsum, "n,n...->...", WEIGHTS)
    pushed = slope(fields) if case.mean else case.rate * units * slope(fields)
    drift = mean(gap[:, None, None] * pushed[:, :, None] * fields[:, None, :])
    rate_M = mean(gap[:, None, None] * pushed[:, :, None] * truth[:, None, :])
    square = case.second_order * gap**2 + (case.noise if case.mean else case.noise**2)
    second = mean(square[:, None, None] * pushed[:, :, None] * pushed[:, None, :])
    rate_Q = drift + drift.T + (case.rate if case.mean else 1.0) * second
    if case.sphere:
        growth = np.diag(rate_Q) / 2
        rate_Q, rate_M = rate_Q - Q * (growth[:, None] + growth), rate_M - M * growth[:, None]
    return rate_Q, rate_M, case.both * case.rate * mean(gap[:, None] * sigma(fields))


def teacher_of(case):
    return np.full(case.directions, 1 / case.directions if case.mean else 1.0)


def error_of(case, Q, M, units):
    """E(f - f*)² of the covariance [[Q, M], [Mᵀ, 1]], each pair of units by quadrature."""
    covariance = np.block([[Q, M], [M.T, np.eye(case.directions)]])
    signs = np.r_[units, -teacher_of(case)]
    sigma, total = LINKS[case.link][0], 0.0
    for i, a in enumerate(signs):
        for j, b in enumerate(signs):
            first, along = np.sqrt(covariance[i, i]), covariance[i, j] / np.sqrt(covariance[i, i])
            across = np.sqrt(max(covariance[j, j] - along**2, 0.0))
            total += a * b * WEIGHTS @ (sigma(first * NODES[:, 0]) * sigma(NODES @ [along, across]))
    return total


def slope_of(case):
    """Our loss at the start, and its slope, in the code's words."""
    h = 1e-6
    found, _ = our_loss(case, np.array([0.0, h, 2 * h]), 1e-12)
    return found[0], (-3 * found[0] + 4 * found[1] - found[2]) / (2 * h)


SMALL = partial(Case, "", "", step=1e-3, last=1.0, axes=2, start=(0.6, 0.8))
MEAN = {"rate": 0.3, "noise": 0.04, "mean": True}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The converged student loses stability:RuntimeWarning")
@pytest.mark.parametrize(
    "case",
    [
        *(SMALL(3, r, link=link, second_order=second, **MEAN) for link, r in (("erf", 2), ("He3", 1), ("He3", 2)) for second in (True, False)),
        SMALL(3, 2, rate=0.0, noise=0.0, mean=True, sphere=True),
        pytest.param(SMALL(3, 2, rate=0.0, noise=0.0, mean=True, sphere=True, link="He3"), marks=pytest.mark.long),
        *(SMALL(3, r, rate=0.7, noise=0.5, link=link) for link, r in (("erf", 2), ("He3", 1))),
        *(pytest.param(SMALL(3, 2, sphere=True, link=link, **MEAN), marks=pytest.mark.long) for link in LINKS),
        SMALL(3, 2, rate=0.7, noise=0.5, both=True),
    ],
    ids=lambda case: "-".join(
        [
            case.link,
            str(case.directions),
            *(name for name in ("mean", "rate", "second_order", "both", "sphere") if getattr(case, name)),
        ]
    ),
)  # fmt: skip
def test_our_loss_starts_and_falls_as_the_codes_equations_say(case):
    Q, M, units, _ = start_of(case)
    rates, h = rates_of(case), 1e-6
    ahead, behind = (
        error_of(case, *(part + sign * h * rate for part, rate in zip((Q, M, units), rates, strict=True)))
        for sign in (1, -1)
    )
    loss, slope = slope_of(case)
    assert loss == pytest.approx(case.part * error_of(case, Q, M, units), rel=1e-11)
    assert slope == pytest.approx(case.part * (ahead - behind) / (2 * h), rel=1e-5)
    # Each term is seen: without the noise, or the other term of second order, the slope differs.
    if case.rate:
        for change in ({"noise": 0.0}, {"second_order": not case.second_order}):
            assert abs(slope_of(replace(case, **change))[1] - slope) > 1e-3 * abs(slope)
