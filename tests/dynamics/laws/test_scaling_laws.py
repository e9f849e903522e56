"""Scaling laws read off datasets: against laws that were put in, quadrature-free sums, and the published exponents."""

import re

import numpy as np
import pytest

import dynamics
from dynamics import Problem, Teacher, fit_power_law
from dynamics.fits import first_crossing, fit_runs, read_transfer, widening
from dynamics.laws.scaling_laws import (
    frontier_laws,
    loss_against_samples,
    loss_against_time,
    loss_against_tuned_samples,
    loss_against_width,
    times_against_dimension,
    times_against_direction,
)
from dynamics.runs.dataset import study_dataset
from dynamics.theory.asymptotics import IDEAL_LAWS, asymptotic_exponents, ideal_curve, ideal_exponent
from dynamics.theory.learning_rates import target_losses


def problem(width=8, dimension=4096, seed=0, directions=256, beta=1.0):
    teacher = Teacher.power_law(directions, beta)
    return Problem(activation="he4", teacher=teacher, width=width, dimension=dimension, seed=seed)


def answer(asked, time, loss, predicted=None, emergence=None):
    values = {"loss": ((), loss), "predicted_loss": ((), loss if predicted is None else predicted)}
    if emergence is not None:
        values |= {"emergence_time": ((), emergence), "predicted_emergence_time": ((), emergence)}
    return study_dataset(asked, values, title="made up", coords={"time": time}, settings={}, attributes={})


@pytest.mark.thorough
def test_the_error_over_runs_is_that_of_a_bootstrap(rng):
    x = np.geomspace(1.0, 100.0, 12)
    runs = x**-1.0 * np.exp(0.3 * np.log(x) * rng.standard_normal((40, 1)) + 0.05 * rng.standard_normal((40, 12)))
    fit = fit_runs(x, runs)
    slopes = []
    for _ in range(3000):
        chosen = runs[rng.integers(40, size=40)]
        slopes.append(fit_power_law(x, np.exp(np.log(chosen).mean(axis=0))).exponent)
    # The plain bootstrap is too small by sqrt(39/40); 3000 resamples know the rest to 1.3 %.
    assert fit.standard_error == pytest.approx(np.std(slopes) * np.sqrt(40 / 39), rel=0.06)
    assert fit.exponent == pytest.approx(np.mean(slopes), abs=0.1 * fit.standard_error)


def test_first_crossing_interpolates_power_laws_exactly():
    x = np.geomspace(1.0, 1e4, 9)
    assert first_crossing(x, x**-1.5, 1e-3) == pytest.approx(100.0, rel=1e-12)
    assert np.isnan(first_crossing(x, x**-1.5, 1e-9))
    assert np.isnan(first_crossing(x, x**-1.5, 2.0))
    assert first_crossing([1.0, 2.0], [1.0, 0.0], 0.5) == 2.0


@pytest.mark.parametrize("law", IDEAL_LAWS)
@pytest.mark.parametrize("beta", [1.0, 1.5])
def test_a_million_directions_have_the_published_exponents_within_two_per_cent(law, beta):
    published = {
        "loss-time": (1 - 2 * beta) / beta, "loss-samples": (1 - 2 * beta) / beta,
        "loss-samples-tuned": (1 - 2 * beta) / (2 * beta), "loss-width": 1 - 2 * beta,
        "loss-compute": (1 - 2 * beta) / (1 + beta),
    }  # fmt: skip
    assert ideal_exponent(10**6, beta, law).exponent == pytest.approx(published[law], rel=0.02)


def test_the_ideal_curve_is_the_sum_over_the_directions_to_come():
    learned, loss = ideal_curve(100, 0.7, ranks=(2.0, 50.0))
    by_hand = [
        sum(p**-1.4 for p in range(int(r) + 1, 101)) / sum(p**-1.4 for p in range(1, 101)) for r in learned + 1e-9
    ]
    np.testing.assert_allclose(loss, by_hand, rtol=1e-12)


def test_laws_that_were_put_in_are_read_off_again():
    time = np.geomspace(1.0, 1e6, 200)
    emergence = np.arange(1.0, 257.0) ** 1.3
    found = [
        answer(problem(seed=s), time, (s + 1.0) * time**-0.9, 2.0 * time**-1.1, (s + 1.0) * emergence) for s in (0, 1)
    ]
    law = loss_against_time(found)
    assert law.fit.exponent == pytest.approx(-0.9, abs=1e-12)
    assert law.finite_size.exponent == pytest.approx(-1.1, abs=1e-12)
    assert law.asymptotic == -1.0
    # The window of each start, from its first direction to that of rank 256^0.75 = 64; ends averaged in the logarithm.
    low, high = law.fit.window
    assert np.sqrt(2.0) <= low < np.sqrt(2.0) * 1.08
    assert high <= np.sqrt(2.0) * 64**1.3 < high * 1.08
    samples = loss_against_samples(found, 1e-3)
    np.testing.assert_allclose(samples.x, 1e3 * law.x)
    np.testing.assert_allclose(samples.fit.window, 1e3 * np.array(law.fit.window))
    assert samples.fit.prefactor * 1e3**-0.9 == pytest.approx(law.fit.prefactor * 1.0, rel=1e-9)
    p_law = times_against_direction(found)
    assert p_law.fit.exponent == pytest.approx(1.3, abs=1e-12)
    assert p_law.fit.window == (4.0, 64.0)
    # Every dataset is a start, whatever its seed.
    curves = [answer(problem(), time, time**power, None, emergence) for power in (-0.8, -0.9, -1.1)]
    exponents = [loss_against_time(datasets=curves, rate=0.1).fit.exponent, loss_against_time(curves).fit.exponent]
    np.testing.assert_allclose(exponents, np.mean([-0.8, -0.9, -1.1]), rtol=1e-9)
    error = loss_against_time(curves).fit.standard_error
    assert error == pytest.approx(np.std([-0.8, -0.9, -1.1], ddof=1) / np.sqrt(3) * widening(3), rel=1e-9)
    with pytest.raises(ValueError, match="answers at the same times"):
        loss_against_time([found[0], answer(problem(), 2.0 * time, time**-1.0, None, emergence)])


def test_tuned_samples_of_a_known_flow():
    """L = t^−1 exactly: n = L^−1/η with η ∝ a, fitted against the levels by hand."""
    time = np.geomspace(0.5, 1e6, 4000)
    found = loss_against_tuned_samples([answer(problem(), time, time**-1.0)], 0.1)
    p = np.unique(np.geomspace(4, 64, 20).round().astype(int))
    a = np.arange(1.0, 257.0) ** -1.0
    a /= np.sqrt(np.sum(a**2))
    level = np.array([np.sum(a[q:] ** 2) + 0.25 * a[q - 1] ** 2 for q in p])
    np.testing.assert_allclose(level, target_losses(problem(), p), rtol=1e-12)
    n = 1.0 / level / (0.1 * a[p - 1] * 4096.0**-2.0)
    np.testing.assert_allclose(found.x, n, rtol=1e-9)
    np.testing.assert_allclose(found.predicted, found.measured, rtol=1e-9)
    assert found.fit.exponent == pytest.approx(1.0 / fit_power_law(level[::-1], n[::-1]).exponent, rel=1e-9)
    assert found.fit.prefactor * found.x[5] ** found.fit.exponent == pytest.approx(level[5], rel=0.05)


def test_the_frontier_of_known_curves_is_their_envelope():
    """L_m(t) = max(1/m, 1/t): at compute c the best is m = t, so m = c^½ and L = c^−½."""
    widths = 2 ** np.arange(1, 15)
    time = np.geomspace(0.1, 1e6, 2000)
    family = [
        answer(problem(m, dimension=10**4, directions=10**4), time, np.maximum(1.0 / m, 1.0 / time)) for m in widths
    ]
    loss, width = frontier_laws(family, 0.5)
    compute = loss.x
    envelope = np.array([np.maximum(1.0 / widths, widths / (0.5 * c)).min() for c in compute])
    inside = (compute > 1e2) & (compute < 1e6)
    np.testing.assert_allclose(loss.measured[0, inside], envelope[inside], rtol=1e-2)
    assert loss.fit.exponent == pytest.approx(-0.5, abs=0.02)
    assert width.fit.exponent == pytest.approx(0.5, abs=0.03)
    assert loss.fit.window == width.fit.window
    low, high = loss.ranks
    assert low > 2
    assert high <= 1000  # 10^4 to the power 0.75
    by_width = loss_against_width(family)
    assert by_width.fit.exponent == pytest.approx(-1.0, abs=1e-9)
    with pytest.raises(ValueError, match="at least three widths"):
        frontier_laws(family[:2], 0.5)


def test_times_against_dimension_use_directions_that_always_emerge():
    family = []
    for d in (512, 1024, 2048, 4096, 8192, 16384):
        times = float(d) ** 1.5 * np.arange(1.0, 257.0)
        times[2] = np.nan if d == 1024 else 1e-9
        family.append(answer(problem(dimension=d), [1.0], [1.0], None, times))
    assert times_against_dimension(family).fit.exponent == pytest.approx(1.5, abs=1e-12)
    for one in family:
        one["emergence_time"][:] = np.nan
    assert np.isnan(times_against_dimension(family).fit.exponent)


def test_a_geometric_teacher_has_its_own_exponents():
    teacher = Teacher.geometric(60, 0.8)
    np.testing.assert_allclose(teacher.coefficients[1:] / teacher.coefficients[:-1], 0.8, rtol=1e-14)
    assert np.sum(teacher.coefficients**2) == pytest.approx(1.0, rel=1e-14)
    assert teacher.ratio == pytest.approx(0.8, rel=1e-13)
    laws = asymptotic_exponents(4, teacher.beta, ratio=teacher.ratio)
    assert (laws.loss_time, laws.loss_samples) == (-2.0, -1.0)
    # The idealised sum: T_p ∝ 1/a_p, what is left is a geometric tail.
    a = teacher.coefficients
    tail = np.array([np.sum(a[p:] ** 2) for p in range(1, 40)])
    assert fit_power_law(1.0 / a[:39], tail).exponent == pytest.approx(-2.0, abs=0.01)
    asked = Problem(activation="he4", teacher=teacher, width=64, dimension=128)
    found = dynamics.predict_emergence(asked)
    assert "geometric coefficients" in found.attrs["scaling_notes"]
    assert Problem.from_dataset(found) == asked


@pytest.mark.parametrize(
    ("teacher", "note"),
    [
        (Teacher.power_law(8, 0.0), "equal coefficients emerge on one time scale"),
        (Teacher.power_law(8, 0.3), "its learned share grows as t^1.33"),
        (Teacher.power_law(8, 0.5), "at 1/2 every octave of p holds the same share"),
        (Teacher([0.9, 0.5, 0.7]), "follow no declared power law"),
        (Teacher([0.8, 0.6], directions=[[1.0, 0.0], [0.6, 0.8]]), "follow no declared power law"),
    ],
)
def test_spectra_without_exponents_say_so_in_the_dataset(teacher, note):
    asked = Problem(activation="he4", teacher=teacher, width=12, dimension=32)
    found = dynamics.predict_emergence(asked)
    assert note in found.attrs["scaling_notes"]
    assert np.isfinite(found["predicted_emergence_time"]).all()
    # Oblique directions have predicted times but no loss.
    assert np.isfinite(found["loss"]).all() == teacher.is_orthonormal


@pytest.mark.parametrize("ratio", [1.0, 0.0])
def test_bad_ratios_get_one_sentence(ratio):
    with pytest.raises(ValueError, match=rf"^Argument `ratio` must be above 0 and below 1, but is {ratio}\.$"):
        Teacher.geometric(4, ratio)
    with pytest.raises(
        ValueError, match=r"^Argument `ratio` must keep every ratio\^p above zero in float64, but is 1e-200\.$"
    ):
        Teacher.geometric(4, 1e-200)


def parabolas(best, floor, rng, runs=16, noise=0.0):
    """Losses (widths, rates, runs) that are parabolas in ln η around given steps."""
    rates = np.geomspace(0.1, 10.0, 15)
    logs = np.log(np.asarray(floor))[:, None] + (np.log(rates) - np.log(np.asarray(best))[:, None]) ** 2
    return rates, np.exp(logs[..., None] + noise * rng.standard_normal((len(best), 15, runs)))


def test_best_steps_gaps_and_drifts_of_parabolas_are_exact(rng):
    m = np.array([4.0, 8.0, 16.0, 32.0, 1e6])
    rates, losses = parabolas(np.exp(1.0 / m), 1.0 + 8.0 / m, rng)
    found = read_transfer(m, rates, losses)
    np.testing.assert_allclose(found["best_rate"], np.exp(1.0 / m), rtol=1e-6)
    np.testing.assert_allclose(found["loss_gap"][:-1], 8.0 / m[:-1], rtol=1e-4)
    np.testing.assert_allclose(found["rate_drift"][:-1], 1.0 / m[:-1], rtol=1e-4)
    assert found["gap_exponent"] == pytest.approx(-1.0, abs=1e-4)
    assert found["drift_exponent"] == pytest.approx(-1.0, abs=1e-4)
    assert found["excess"] == pytest.approx(-0.5, abs=1e-4)
    # No scatter, so no doubt: δη² falls twice as fast as the gap.
    assert found["verdict"] == "fast"
    # What the other step costs is the parabola itself, up to the interpolation between points of the grid.
    np.testing.assert_allclose(found["transfer_cost"][:-1], np.expm1(1.0 / m[:-1] ** 2), atol=0.03)
    assert found["cost_share"] == pytest.approx((found["transfer_cost"][:-1] / found["loss_gap"][:-1]).max())


def test_runs_that_blew_up_count_as_having_learned_nothing(rng):
    m = np.array([1.0, 2.0, 3.0, 4.0])
    rates, losses = parabolas(np.ones(4), np.full(4, 0.01), rng)
    losses[:, 12:] = np.inf
    losses[1, 7, 0] = np.inf
    found = read_transfer(m, rates, losses, nothing=1.0)
    assert np.isfinite(found["best_loss"]).all()
    assert found["best_loss"][1] > found["best_loss"][0]
    losses[2, 7, 3] = np.nan
    unknown = read_transfer(m, rates, losses, nothing=1.0)
    assert unknown["best_rate"][2] != pytest.approx(1.0, rel=1e-3)
    losses[:] = np.nan
    assert np.isnan(read_transfer(m, rates, losses, nothing=1.0)["best_rate"]).all()


def test_fits_over_runs_refuse_other_shapes():
    with pytest.raises(ValueError, match=re.escape("`y` must have shape (runs, 6), but has shape (6,)")):
        fit_runs(np.arange(1.0, 7.0), np.ones(6))
    with pytest.raises(ValueError, match="at least 4 widths"):
        read_transfer([1, 2, 3], [0.1, 0.2], np.ones((3, 2, 2)))
