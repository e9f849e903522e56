"""The verdict on scatter: rates of error on laws with and without tails, and runs against the scatter of other runs."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.stats import chi2

import dynamics
import sgd_check
from dynamics import Problem, SaveAt, Student, Teacher
from sgd_check.engines import EngineOptions
from sgd_check.verdicts import bands, check
from sgd_check.verdicts.bands import FEWEST_RUNS, TOLERANCE, count_of
from sgd_check.verdicts.evidence import RowKind, rows_of

RATE, REPEATS = 0.01, 400
TIMES = np.linspace(0.5, 8.0, 16)
#: A law of variance 1 -> the largest share of false alarms at 1 %, with theory in the middle of its tolerance.
LAWS = {
    "normal": (lambda rng, size: rng.standard_normal(size), 0.01),
    "t of 8": (lambda rng, size: rng.standard_t(8, size) / np.sqrt(8 / 6), 0.01),
    "Laplace": (lambda rng, size: rng.laplace(size=size) / np.sqrt(2.0), 0.02),
    "exponential": (lambda rng, size: rng.exponential(size=size) - 1.0, 0.04),
}


def dataset_of(runs, effective=1e-4):
    """Runs (runs, times, overlaps) of a loss and overlaps, as `simulate` returns them."""
    loss, overlaps = runs[..., 0], runs[..., 1:, None]
    return xr.Dataset(
        {
            "loss": (("seed", "time"), loss),
            "teacher_overlap": (("seed", "time", "neuron", "direction"), overlaps),
            "blown_up": ("seed", np.zeros(len(runs))),
        },
        {"time": TIMES, "seed": np.arange(len(runs))},
        {"effective_learning_rate": effective},
    )


def theory_of(deviation, overlaps, ratio=0.05):
    """Theory with the mean 0.5 and a standard deviation at all times, and R = `ratio`."""
    paths, spread = np.full((TIMES.size, overlaps, 1), 0.5), deviation * np.linspace(0.1, 1.0, TIMES.size)
    return xr.Dataset(
        {
            "loss": ("time", paths[:, 0, 0]),
            "teacher_overlap": (("time", "neuron", "direction"), paths),
            "loss_sd": ("time", spread),
            "overlap_sd": (("time", "neuron", "direction"), 2.0 * spread[:, None, None] * paths),
            "band_ratio": ("time", np.full(TIMES.size, ratio)),
        },
        {"time": TIMES},
    )  # fmt: skip


def drawn(law, rng, runs, overlaps=4, deviation=0.01):
    """Runs that scatter by `law` at every time for itself, which has most false alarms by Bonferroni."""
    scatter = deviation * np.linspace(0.1, 1.0, TIMES.size)[:, None]
    return dataset_of(0.5 + scatter * law(rng, (runs, TIMES.size, overlaps + 1)))


def refuted(theory, runs):
    tests = bands.tests_of_scatter(theory, runs)
    count = count_of(tests)
    return any(test.row(RATE, count).disagrees for test in tests)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("runs", [FEWEST_RUNS, 32, 128])
@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_are_at_most_the_stated_ones(law, runs):
    """400 ensembles, 15 looks: no more false alarms than the stated share and 4 standard errors."""
    rng, (draw, share) = np.random.default_rng(11), LAWS[law]
    theory = theory_of(0.01, 4)
    alarms = sum(refuted(theory, drawn(draw, rng, runs)) for _ in range(REPEATS))
    assert alarms / REPEATS <= share + 4.0 * np.sqrt(share * (1.0 - share) / REPEATS)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("side", [1.0 + TOLERANCE, 1.0 / (1.0 + TOLERANCE)])
def test_the_level_holds_at_the_edges_of_the_tolerance(side):
    """400 normal ensembles of 32 runs with theory at an edge: at most 1 % and 4 standard errors of false alarms."""
    rng, theory = np.random.default_rng(12), theory_of(0.01 * side, 4)
    alarms = sum(refuted(theory, drawn(LAWS["normal"][0], rng, 32)) for _ in range(REPEATS))
    assert alarms / REPEATS <= RATE + 4.0 * np.sqrt(RATE * (1.0 - RATE) / REPEATS)


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "side"), [(2.5, -1.0), (0.4, 1.0)])
def test_a_wrong_scatter_is_refuted_with_the_stated_power(factor, side):
    """32 runs see a factor of 2.5 at each look with probability 0.8, so at one of 15 nearly surely: all of 20."""
    rng, theory = np.random.default_rng(13), theory_of(0.01 * factor, 4)
    for _ in range(20):
        tests = bands.tests_of_scatter(theory, drawn(LAWS["normal"][0], rng, 32))
        rows = [test.row(RATE, count_of(tests)) for test in tests]
        wrong = [row for row in rows if row.disagrees]
        assert wrong
        assert all(row.kind == RowKind.SCATTER and np.sign(row.z) == side == np.sign(row.value) for row in wrong)


@pytest.mark.statistical
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_visible_error_is_seen_with_probability_four_fifths(side):
    """2000 ensembles of one look: 0.8 within 4 standard errors of the side that is seen less, more on the other one."""
    rng, theory, seen = np.random.default_rng(14), theory_of(0.01, 1).drop_vars("overlap_sd"), 0
    test = bands.tests_of_scatter(theory, drawn(LAWS["normal"][0], rng, 200, 1))[0]
    error = test._replace(freedom=np.array([199.0])).visible_error(RATE)
    for _ in range(2000):
        values = (1.0 + error) ** side * rng.standard_normal(200)
        ratio, nu = values.std(ddof=1), 199.0
        tail = chi2.sf(nu * (ratio / 1.1) ** 2, nu) if side > 0 else chi2.cdf(nu * (ratio * 1.1) ** 2, nu)
        seen += 2.0 * tail < RATE
    assert seen / 2000 > 0.8 - 4.0 * np.sqrt(0.16 / 2000)
    assert seen / 2000 < 0.9


def test_nothing_is_tested_where_bands_do_not_hold():
    rng = np.random.default_rng(15)
    runs = drawn(LAWS["normal"][0], rng, 32)
    assert count_of(bands.tests_of_scatter(theory_of(0.01, 4), runs)) == 15
    assert bands.tests_of_scatter(theory_of(0.01, 4, ratio=0.16), runs) == []
    assert bands.tests_of_scatter(theory_of(0.01, 4).drop_vars("band_ratio"), runs) == []
    assert bands.tests_of_scatter(theory_of(0.01, 4), runs.isel(seed=slice(FEWEST_RUNS - 1))) == []
    assert bands.tests_of_scatter(theory_of(0.01, 4), runs.assign_attrs(effective_learning_rate=1.0)) == []
    several = runs.assign(start_seed=("seed", runs["seed"].values))
    assert bands.tests_of_scatter(theory_of(0.01, 4), several) == []


def test_the_scatter_of_a_loss_is_not_tested_where_its_mean_is_far_from_theory():
    """Its mean, which other rows test, shows that the first order fails for it; overlaps are tested all the same."""
    rng = np.random.default_rng(16)
    runs = drawn(LAWS["normal"][0], rng, 32, deviation=0.05)
    tests = bands.tests_of_scatter(theory_of(0.01, 4), runs)
    assert min(test.p for test in tests) < 1e-9
    loss, *overlaps = bands.tests_of_scatter(theory_of(0.01, 4), runs.assign(loss=runs["loss"] + 0.2))
    assert loss.p == 1.0
    assert not loss.score.any()
    assert all(test.p < 1e-9 for test in overlaps)


@pytest.fixture(scope="module")
def lone():
    """One neuron of link h_1, of which theory has the scatter of all curves, and its flow."""
    start = ([[0.3]], [[1.0]], [0.01])
    problem = Problem(
        activation="he1", teacher=Teacher([1.0]), width=1, dimension=16, initial_overlaps=start, label_noise=0.2
    )
    return problem, dynamics.solve_problem(problem, save_at=SaveAt.geometric(0.01, 2.0, 80), progress=False)


def pilot_of(lone, **changes):
    options = EngineOptions(seeds=tuple(range(32)), batch_size=1, device="auto", dtype="auto")
    return check.Pilot(*lone, "projected", options, 0.01, stepped=True, seconds=1e-6)._replace(**changes)


def test_theory_that_has_the_scatter_of_all_curves_replaces_pilot_runs(lone, monkeypatch):
    """At a small step no runs are made and the error is seen; at a large one it is hidden until the first end."""
    monkeypatch.setattr(check, "_pilot_runs", lambda *_: pytest.fail("ran"))
    assert check._latest_seen(pilot_of(lone), 5e-4, [0.8, 1.5]) == (1.5, None)
    assert check._latest_seen(pilot_of(lone), 5e-3, [0.8]) == (0.0, None)


def test_pilot_runs_are_made_where_theory_cannot_tell(lone, monkeypatch):
    """The flow is tested, or R is above its bound, or no bands are known: runs decide, at all ends."""
    made = list[tuple[float, list[float]]]()
    monkeypatch.setattr(check, "_pilot_runs", lambda _, rate, ends: made.append((rate, ends)))
    monkeypatch.setattr(check, "_sees", lambda *_: True)
    assert check._latest_seen(pilot_of(lone, stepped=False), 5e-4, [0.8, 1.5])[0] == 1.5
    monkeypatch.setattr(check, "LARGEST_RATIO", 1e-9)
    assert check._latest_seen(pilot_of(lone), 5e-4, [0.8, 1.5])[0] == 1.5
    monkeypatch.setattr(check, "MOST_NUMBERS", 1)
    assert check._latest_seen(pilot_of(lone), 5e-4, [0.8])[0] == 0.8
    assert made == [(5e-4, [0.8, 1.5]), (5e-4, [0.8, 1.5]), (5e-4, [0.8])]


@pytest.mark.thorough
@pytest.mark.statistical
def test_runs_scatter_as_the_bands_of_theory_and_not_as_those_of_another_problem():
    """Two erf neurons, d = 60, 64 runs: at 1 %, theory is not refuted, twice the noise and batches of 4 are.

    The false-alarm rate of the first statement is 1 %.
    """
    student = Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
    weights = np.hstack([[[0.3, 0.1], [0.05, 0.2]], 0.5 * np.eye(2)])
    problem = Problem(
        student=student, teacher=Teacher([1.0, 1.0]), dimension=60, initial_weights=weights, label_noise=0.3
    )
    rate, asked = 0.3 / 60, {"step_theory": "finite-d", "bands": True, "progress": False, "error_estimate": False}
    asked |= {"save_at": SaveAt.geometric(0.05, 4.0, 40)}
    runs = sgd_check.simulate(problem, learning_rate=rate, steps=round(4.0 / rate), seeds=64, progress=False)
    right = dynamics.solve_problem(problem, learning_rate=rate, **asked)
    noisy = dynamics.solve_problem(replace(problem, label_noise=0.6), learning_rate=rate, **asked)
    batches = dynamics.solve_problem(problem, learning_rate=rate, batch_size=4, **asked)
    comparison = sgd_check.compare(right, runs)["comparison"]
    rows = [row for row in rows_of(comparison.to_dataset()) if row.kind == RowKind.SCATTER]
    assert [row.name for row in rows[:2]] == ["scatter of loss", "scatter of overlap (1,1)"]
    assert len(rows) == 7
    assert not any(row.disagrees for row in rows)
    assert "Scatter of runs against the bands of theory: of 7 quantities" in comparison.attrs["reasons"]
    assert not refuted(right, runs)
    assert refuted(noisy, runs)
    assert refuted(batches, runs)
