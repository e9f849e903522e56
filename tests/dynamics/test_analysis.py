"""Power-law fits and first crossings on curves whose law is known."""

import numpy as np
import pytest
import xarray as xr

from dynamics.theory.fits import default_window, fit_power_law


@pytest.mark.parametrize("x", [np.geomspace(0.1, 1e6, 50), np.linspace(1.0, 900.0, 77), np.arange(1.0, 7.0)])
def test_exact_law_is_recovered_on_any_grid(x):
    fit = fit_power_law(x, 3.5 * x**-0.75)
    assert fit.exponent == pytest.approx(-0.75, abs=1e-13)
    assert fit.prefactor == pytest.approx(3.5, rel=1e-12)
    assert fit.standard_error < 1e-12
    assert fit.window == (x[0], x[-1])
    assert fit.count == x.size


@pytest.mark.statistical
def test_jackknife_errors_cover_the_truth_for_correlated_noise():
    # 200 replicates, AR(1) noise of correlation length 5 points in blocks of 40. One standard error should cover 68 %;
    # with 8 blocks a Student-like 64 %. 200 draws at 0.64 leave 0.50 to 0.78 with probability 1 − 1e-4.
    rng = np.random.default_rng(1)
    x = np.geomspace(1.0, 1e4, 320)
    covered = []
    for _ in range(200):
        noise = np.zeros(320)
        kicks = 0.1 * rng.standard_normal(320)
        for i in range(1, 320):
            noise[i] = 0.8 * noise[i - 1] + kicks[i]
        fit = fit_power_law(x, x**-0.75 * np.exp(noise))
        covered.append(abs(fit.exponent + 0.75) < fit.standard_error)
    assert 0.50 < np.mean(covered) < 0.78


@pytest.mark.statistical
def test_jackknife_errors_match_the_scatter_of_staircases():
    # L(t) = Σ_{T_p > t} p^(−2), T_p = p · lognormal(0.3): 200 replicates. The mean estimated error must be within a
    # factor 1.5 of the scatter of the exponents, whose own error over 200 replicates is 5 %; OLS would be 3 times too
    # small, which the last line states.
    rng = np.random.default_rng(2)
    p = np.arange(1.0, 20001.0)
    t = np.geomspace(2.0, 200.0, 240)
    log_t = np.log(t) - np.log(t).mean()
    exponents, errors, naive = [], [], []
    for _ in range(200):
        when = p * np.exp(0.3 * rng.standard_normal(p.size))
        order = np.argsort(when)
        left = np.append(np.cumsum((p[order] ** -2.0)[::-1])[::-1], 0.0) + 1.0 / p[-1]
        loss = left[np.searchsorted(when[order], t, side="right")]
        fit = fit_power_law(t, loss)
        exponents.append(fit.exponent)
        errors.append(fit.standard_error)
        residual = np.log(loss) - np.log(fit.prefactor) - fit.exponent * np.log(t)
        naive.append(np.sqrt(np.sum(residual**2) / 238 / np.sum(log_t**2)))
    scatter = np.std(exponents)
    assert 1 / 1.5 < np.mean(errors) / scatter < 1.5
    assert np.mean(naive) < 0.6 * scatter


@pytest.mark.parametrize(
    ("x", "y", "window", "sentence"),
    [
        ([1.0, 2.0], [1.0, 2.0, 3.0], None, "must have one shape"),
        ([[1.0]], [[1.0]], None, "must have one shape"),
        ([2.0, 1.0] + [3.0] * 5, [1.0] * 7, None, "`x` must increase"),
        (np.arange(1.0, 6.0), np.ones(5), None, "must hold at least 6 points"),
        (np.arange(1.0, 20.0), np.ones(19), (3.0, 5.0), r"must hold at least 6 points, but \[3, 5\] holds 3"),
        (np.arange(1.0, 20.0), np.zeros(19), None, "must be positive and finite"),
        (np.arange(0.0, 20.0), np.ones(20), None, "must be positive and finite"),
    ],
)
def test_curves_without_a_fit_are_refused(x, y, window, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit_power_law(x, y, window=window)


def answer(**variables):
    time = np.geomspace(1.0, 1e4, 200)
    values = {"time": time, "loss": 1.0 / time, **variables}
    dims = {"time": "time", "loss": "time"}
    return xr.Dataset({name: (dims.get(name, "direction"), v) for name, v in values.items() if v is not None})


def test_window_runs_from_the_first_learned_time_to_rank_three_quarters_in_log():
    learned = np.arange(1.0, 257.0) * 10
    assert default_window(answer(learned_time=learned)) == (10.0, 10.0 * 64)
