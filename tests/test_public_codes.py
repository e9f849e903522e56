"""The translation of public codes' problems into ours, without these codes: their equations, and their printed numbers."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

from benchmarks.public_code_cases import Case, our_loss
from benchmarks.public_code_drivers import PRINTED, commit, configured, nn2pp_steps
from benchmarks.public_codes import check

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
        "",
        "nn2pp",
        given["K"],
        given["M"],
        given["eta"],
        given["sigma_noise_std"],
        step=0.01,
        last=1.0,
        reference=number,
    )
    np.testing.assert_array_equal(given["T"], np.eye(given["M"]))
    found, _ = our_loss(case, np.array(given["alpha"]), 1e-11)
    np.testing.assert_allclose(found, given["eg"], rtol=0, atol=1e-10)


def moments(case):
    """The rates of M and Q that the papers print for means of units in R², by quadrature, and the error of labels."""
    sigma, slope = LINKS[case.link]
    weights = case.weights()
    # Two axes hold all: those of two directions, or that of one and the last.
    fields = NODES @ (weights[:, :2] if case.directions == 2 else weights[:, [0, -1]]).T
    truth = NODES[:, : case.directions]
    gap = sigma(truth).mean(axis=1) - sigma(fields).mean(axis=1)
    mean = partial(np.einsum, "n,n...->...", WEIGHTS)
    push = gap[:, None] * slope(fields)
    rate_M = mean(push[:, :, None] * truth[:, None, :])
    drift = mean(push[:, :, None] * fields[:, None, :])
    square = case.second_order * gap**2 + case.noise
    second = mean(square[:, None, None] * slope(fields)[:, :, None] * slope(fields)[:, None, :])
    return drift + drift.T + case.rate * second, rate_M, mean(gap**2)


def error_of(case, Q, M):
    """E(f - f*)² of the covariance [[Q, M], [Mᵀ, 1]], each pair of units by quadrature."""
    covariance = np.block([[Q, M], [M.T, np.eye(case.directions)]])
    signs = np.r_[np.full(case.width, 1 / case.width), np.full(case.directions, -1 / case.directions)]
    sigma, total = LINKS[case.link][0], 0.0
    for i, a in enumerate(signs):
        for j, b in enumerate(signs):
            c = covariance[np.ix_([i, j], [i, j])]
            first = np.sqrt(c[0, 0])
            pair = sigma(first * NODES[:, 0])
            other = c[0, 1] / first * NODES[:, 0] + np.sqrt(max(c[1, 1] - (c[0, 1] / first) ** 2, 0.0)) * NODES[:, 1]
            total += a * b * WEIGHTS @ (pair * sigma(other))
    return total


@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize(("link", "directions"), [("erf", 2), ("He3", 1), ("He3", 2)])
def test_means_of_units_move_as_the_codes_equations_say(link, directions, second_order):
    case = Case(
        "", "", 3, directions, rate=0.3, noise=0.04, step=1e-3, last=1.0, mean=True, link=link, axes=2, start=(0.6, 0.0)
    )
    case = replace(case, second_order=second_order)
    W = case.weights()
    Q, M = W @ W.T, W[:, :directions]
    rate_Q, rate_M, error = moments(case)
    assert error == pytest.approx(error_of(case, Q, M), rel=1e-11)
    h = 1e-6
    slope = (error_of(case, Q + h * rate_Q, M + h * rate_M) - error_of(case, Q - h * rate_Q, M - h * rate_M)) / (2 * h)
    times = np.array([0.0, h, 2 * h])
    found, _ = our_loss(case, times, 1e-12)
    assert found[0] == pytest.approx(case.part * error, rel=1e-11)
    ours = (-3 * found[0] + 4 * found[1] - found[2]) / (2 * h)
    assert ours == pytest.approx(case.part * slope, rel=1e-5)
    # Each term is seen: without the noise, or the other term of second order, the slope differs.
    for change in ({"noise": 0.0}, {"second_order": not second_order}):
        other = our_loss(replace(case, **change), times, 1e-12)[0]
        assert abs((-3 * other[0] + 4 * other[1] - other[2]) / (2 * h) - ours) > 1e-3 * abs(ours)


@pytest.mark.parametrize(("last", "step"), [(1000.0, 0.01), (10.0, 0.005)])
def test_steps_between_the_lines_of_nn2pp_cover_their_durations(last, step):
    counts = nn2pp_steps(last, step)
    durations = np.diff(np.logspace(-1, np.log10(last), PRINTED))
    over = np.diff(counts) * step - durations
    assert counts[0] == 0
    assert counts.size == PRINTED
    assert over.min() > -1e-9
    assert over.max() < step + 1e-9


def test_a_line_of_configuration_names_its_type():
    given = {"a": True, "b": 3, "c": 0.5, "d": [0.0, 1.0], "e": [2, 3], "f": Path("/x/y")}
    lines = [configured(key, value) for key, value in given.items()]
    assert lines == ["bool;a;1", "int;b;3", "float;c;0.5", "it_float;d;0.0,1.0", "it_int;e;2,3", "str;f;/x/y"]


def test_a_folder_without_clones_is_refused_in_one_sentence(tmp_path):
    for given, shown in ((None, "absent"), (tmp_path, repr(str(tmp_path)))):
        with pytest.raises(
            ValueError, match="Option `--peers` must be a folder with a clone of one of nn2pp, "
        ) as caught:
            check(given)
        assert str(caught.value).endswith(f"but is {shown}.")
    (tmp_path / "nn2pp").mkdir()
    check(tmp_path)


def test_the_version_of_a_clone_is_its_commit():
    found = commit(Path(__file__).parent)
    assert len(found) == 40
