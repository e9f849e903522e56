"""The chain of thought: numbers of its reduction, two stages, the model's own chain, means over matrices."""

import numpy as np
import pytest

import dynamics
from dynamics import SaveAt, tokens
from dynamics.tokens.answers import system_of
from dynamics.tokens.chain import spectrum
from dynamics.tokens.system import TOKEN_VARIABLES


def solved(times, learning_rate=None, **fields):
    return tokens.solve(tokens.ChainOfThought(**fields), times, learning_rate, progress=False)


SMALL = {"dimension": 6, "examples": 12, "steps": 4, "rate": 0.3}
LONG = {"dimension": 10, "examples": 20, "steps": 10, "rate": 0.3}


@pytest.mark.kernels
def test_three_numbers_are_those_of_the_page():
    found = solved(SaveAt.at([0.0, 20.0, 40.0]), 0.02, **SMALL)
    assert found.weights[0].values.tolist() == [0.05] * 3
    # Means over two million drawn matrices, by numpy alone.
    expected = [[0.24470, -0.07267, 0.57476], [0.36372, -0.29380, 0.52802]]
    np.testing.assert_allclose(found.weights[1:], expected, atol=5e-5)
    # The page draws fewer: its t_1 and t_2 have relative errors of .4 %.
    page = [[0.2446, -0.0716, 0.5754], [0.3619, -0.2912, 0.5291]]
    np.testing.assert_allclose(found.weights[1:], page, atol=3e-3)
    # SGD in batches of 32: .6 %.
    np.testing.assert_allclose(
        found.weights[1:], [[0.2451, -0.0723, 0.5730], [0.3635, -0.2925, 0.5279]], rtol=6e-3
    )  # fmt: skip
    assert float(found.sharpness[1]) == pytest.approx(10.8, abs=0.06)


@pytest.mark.kernels
def test_one_step_is_learned_before_the_chain():
    with pytest.warns(UserWarning, match="not stable at learning rate 0.1"):
        found = solved(SaveAt.at([0.0, 12.0]), 0.1, **LONG)
    a, _, c = found.weights[1].values
    eta, (t1, t2, t3) = 0.3, system_of(tokens.ChainOfThought(**LONG)).parameters[:3]
    assert eta * (1 - t2 / t3) == pytest.approx(0.0612, abs=1.5e-4)
    np.testing.assert_allclose(found.plateau, [eta**2 / 2 * (t1 - 2 * t2 + t3), 0.0697], atol=1.5e-4)
    # The map passes the plateau after 120 steps.
    assert a * c == pytest.approx(0.0562, abs=1.5e-4)
    assert float(found.loss[1]) == pytest.approx(0.07105, abs=1.5e-4)
    flow = solved(None, **LONG)
    assert float(flow.learned_time[0]) == pytest.approx(float(flow.predicted_learned_time[0]), rel=0.06)
    assert np.isnan(flow.predicted_learned_time[1])
    small = solved(None, **LONG, initial_scale=1e-3)
    assert float(small.learned_time[0]) == pytest.approx(float(small.predicted_learned_time[0]), rel=0.02)


@pytest.mark.kernels
def test_the_end_is_gradient_descent_and_conserves_the_hyperbola():
    found = solved(SaveAt.at([0.0, 10.0, 3000.0]), **LONG)
    squares = found.weights.values**2 @ [1.0, -1.0, -0.1]
    np.testing.assert_allclose(squares, squares[0], atol=1e-9)
    a, b, c = found.weights[-1].values
    assert (a * b, a * c, b) == pytest.approx((-0.3, 0.3, -c), abs=1e-8)
    assert c**2 * (squares[0] + 1.1 * c**2) == pytest.approx(0.09, abs=1e-8)
    np.testing.assert_allclose(
        found.chain_error[-1].sel(steps=[1, 5, 10, 20]), [0.5396, 0.1765, 0.0816, 0.0287], atol=1.2e-4
    )
    assert found.progress[-1].values.tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.thorough
def test_means_over_matrices_are_those_of_drawn_ones():
    rng, d, n = np.random.default_rng(5), 4, 7
    nodes, weights = spectrum(d, n, 9)
    X = rng.normal(size=(200_000, n, d))
    drawn = np.linalg.eigvalsh(np.einsum("snk,snl->skl", X, X) / n)
    for power in range(5):
        means = (drawn**power).mean(axis=1)
        # Moments 1 to 4 are exact, held at 4 standard errors: a false alarm in 3000 for all of them.
        assert weights @ nodes**power == pytest.approx(means.mean(), abs=4.0 * means.std() / np.sqrt(200_000) + 1e-12)
    errors = ((1 - 0.3 * drawn) ** 6).mean(axis=1)
    assert weights @ (1 - 0.3 * nodes) ** 6 == pytest.approx(errors.mean(), rel=3e-3)
    # Fewer examples than dimensions leave eigenvalues 0, and E tr XᵀX XᵀX = n d (n + d + 1).
    nodes, weights = spectrum(7, 4, 9)
    assert weights @ np.array([nodes**0, nodes, nodes**2]).T == pytest.approx([1.0, 1.0, 3.0], abs=1e-9)


def test_a_chain_of_its_own_steps_has_the_error_of_its_weights():
    # Of half-learned weights, by vectors: w ← w + S(ab w + ac w*).
    system = system_of(tokens.ChainOfThought(dimension=4, examples=8, steps=3, rate=0.3))
    rng, (a, b, c) = np.random.default_rng(6), (0.5, -0.2, 0.5)
    X, target = rng.normal(size=(100_000, 8, 4)), rng.normal(size=(100_000, 4))
    S, w = np.einsum("snk,snl->skl", X, X) / 8, np.zeros((100_000, 4))
    found = system.summarise(np.array([a, b, c]))["chain_error"]
    assert found.size == 6
    for error in found:
        w = w + np.einsum("skl,sl->sk", S, a * b * w + a * c * target)
        missed = ((w - target) ** 2).sum(axis=1) / 4
        # At 4 standard errors: a false alarm in 2600 for six steps.
        assert error == pytest.approx(missed.mean(), abs=4.0 * missed.std() / np.sqrt(100_000))


def test_without_a_chain_the_best_step_leaves_a_third():
    problem = tokens.ChainOfThought(**LONG)
    assert problem.loss_without_chain == pytest.approx(0.35484, abs=6e-6)
    nodes, weights = spectrum(10, 20, 9)
    c = 20 / 31
    assert weights @ (c * nodes - 1) ** 2 == pytest.approx(11 / 31, rel=1e-9)


def test_many_dimensions_have_the_spectrum_of_marchenko_and_pastur():
    found = []
    for d in (64, 128):
        nodes, weights = spectrum(d, 2 * d, 21)
        found.append([weights @ (1 - 0.3 * nodes) ** (2 * steps) for steps in (1, 5, 10, 20)])
    # Errors fall as 1/d: the limit is on the line through both.
    limit = 2 * np.array(found[1]) - np.array(found[0])
    # The law at d/n = ½ has edges (1 ± √½)², and the square root of the distance from both over πx.
    angle = np.pi * (np.arange(400) + 0.5) / 400
    x = 1.5 + np.sqrt(2.0) * np.cos(angle)
    law = [np.mean(2.0 * np.sin(angle) ** 2 / x * (1 - 0.3 * x) ** (2 * steps)) for steps in (1, 5, 10, 20)]
    np.testing.assert_allclose(limit, law, atol=1e-4)
    # The page has nodes of its own: 6e-4 off at twenty steps.
    np.testing.assert_allclose(law, [0.535, 0.165, 0.071, 0.022], atol=6.5e-4)


def test_a_rate_beyond_the_sharpest_direction_is_told():
    times = SaveAt.at([0.0, 20.0])
    with pytest.warns(UserWarning, match=r"^The full model is not stable at learning rate 0.2, but below 0.1"):
        found = solved(times, 0.2, **SMALL)
    assert 0.16 < found.attrs["learning_rate_limit"] < 0.19
    assert "learning_rate" not in solved(times, **SMALL).attrs


@pytest.mark.thorough
def test_files_and_reports_have_what_it_saves(tmp_path):
    found = tokens.solve(tokens.ChainOfThought(**SMALL), SaveAt.linear(0.0, 8.0, 9), progress=False)
    assert all(TOKEN_VARIABLES[name].dims == found[name].dims for name in found.variables)
    again = dynamics.load(dynamics.save(found, tmp_path / "found.nc"))
    assert again.identical(found)
    assert "error of the model" in dynamics.write_report(again, tmp_path / "found.html").read_text(encoding="utf-8")
