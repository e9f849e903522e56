"""The law of the number of steps: accepted numbers, the chain simulated by other code, runs of SGD, and its limits."""

import json
import math
import re

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval2d

import dynamics
from benchmarks.passage_coverage import TARGET, coverage, settings
from dynamics.equations.correlation import gradient_table
from dynamics.theory.first_passage import Chain, passage, uniform_overlaps

SPHERICAL = {"student": "spherical", "objective": "correlation"}


def single(link, dimension, overlap=0.1, **changes):
    """Return a problem of one neuron, homogeneous with a small norm unless `changes` say it is spherical."""
    norm = 1.0 if changes.get("student") == "spherical" else 1e-4
    given = {"activation": link, "teacher": dynamics.Teacher([1.0]), "width": 1, "dimension": dimension}
    return dynamics.Problem(**given | {"initial_overlaps": ([[overlap]], [[1.0]], [norm])} | changes)


#: Name: problem, learning rate, level of |C|, start, mean and (2.5, 50, 97.5 %) of an operator of other code on 401
#: evenly spaced overlaps, and mean and standard error of runs of the chain.
ACCEPTED = {
    "he3 d 64, 0.2": (single("he3", 64, 1 / 8, **SPHERICAL), 0.2 * 64**-1.5, 0.7, None, 13_834, None, (14_120, 233)),
    "he3 d 64, 0.5": (
        single("he3", 64, 1 / 8, **SPHERICAL), 0.5 * 64**-1.5, 0.7, None, 6775, (1230, 3841, 27_899), (6899, 75)
    ),
    "he2 d 128": (single("he2", 128, **SPHERICAL), 0.1 / 128, 0.8, "uniform", 2390, None, (2376, 12)),
    "he3 d 96": (single("he3", 96, **SPHERICAL), 0.15 * 96**-1.5, 0.6, "uniform", 79_015, None, (78_464, 1681)),
    "he4 d 32": (single("he4", 32, **SPHERICAL), 0.15 / 32**2, 0.7, "uniform", 82_407, None, (79_288, 2121)),
    "he4, 0.15": (single("he4", 32, 0.2, **SPHERICAL), 0.15 / 32**2, 0.7, None, 58_282, None, (60_367, 1842)),
    "he4, 0.05": (single("he4", 32, 0.2, **SPHERICAL), 0.05 / 32**2, 0.7, None, 123_348, None, (127_907, 4503)),
    "he4, 0.02": (single("he4", 32, 0.2, **SPHERICAL), 0.02 / 32**2, 0.7, None, 210_096, None, (211_272, 5607)),
    "label noise": (
        single("he3", 48, label_noise=0.7, **SPHERICAL), 0.15 * 48**-1.5, 0.7, None, 15_060, None, (14_650, 254)
    ),
    "he3, 0.01": (single("he3", 64, 1 / 8, **SPHERICAL), 0.01 * 64**-1.5, 0.7, None, 129_204, None, (129_506, 557)),
    "homogeneous, 0.05": (
        single("he3", 48), 0.05 * 48**-1.5, math.sqrt(0.5), None, 38_717, (10_560, None, 191_794), (38_562, 1022)
    ),
    "homogeneous, 0.02": (
        single("he3", 48), 0.02 * 48**-1.5, math.sqrt(0.5), None, None, (31_645, None, 269_308), None
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_numbers_of_other_code(name):
    """Means and quantiles to 0.1 %, and means within four standard errors of runs of the chain (6e-5 each)."""
    problem, rate, level, start, mean, quantiles, runs = ACCEPTED[name]
    law = dynamics.first_passage(problem, learning_rate=rate, level=level**2, start=start)
    if mean is not None:
        assert law.mean_steps == pytest.approx(mean, rel=1e-3)
        assert abs(law.mean_steps - runs[0]) < 4.0 * runs[1]
    for share, steps in zip((0.025, 0.5, 0.975), quantiles or (), strict=False):
        if steps is not None:
            assert law.steps_quantile(share) == pytest.approx(steps, rel=1e-3)
    assert law.mean_error < 2e-3 * law.mean_steps
    assert law.chance_never == 0.0


def test_a_direction_is_found_from_the_other_side_by_even_links():
    law = dynamics.first_passage(single("he4", 32, 0.2, **SPHERICAL), learning_rate=0.15 / 32**2, level=0.49)
    assert law.chance_other_side == pytest.approx(0.107, abs=5e-4)
    even = dynamics.first_passage(
        single("he4", 32, **SPHERICAL), learning_rate=0.15 / 32**2, level=0.49, start="uniform"
    )
    assert even.chance_other_side == pytest.approx(0.5, abs=1e-9)


def test_a_boundary_that_steps_do_not_resolve_is_within_its_error():
    """relu: 2547 on 401 evenly spaced overlaps, 2557 on 1601, and 2564 ± 3 in the chain."""
    law = dynamics.first_passage(single("relu", 128, 0.05, **SPHERICAL), learning_rate=0.3 / 128, level=0.81)
    assert abs(law.mean_steps - 2564.0) < 4.0 * 3.0
    assert abs(law.mean_steps - 2557.0) < law.mean_error + 2.0
    assert 0.5 < law.mean_error < 10.0


def test_other_directions_are_noise():
    """he3, three equal directions in R^48: 1000 runs have the mean 4869 ± 31 and 95 % from 3049 to 7010."""
    law = passage(Chain(single("he3", 48), 1.0, math.sqrt(2.0)), 0.05 * 48**-1.5, 0.5, np.array([0.35]))
    assert law.mean_steps == pytest.approx(4875, rel=1e-3)
    ends = law.steps_quantile(0.025), law.steps_quantile(0.975)
    assert ends == pytest.approx((3068, 6957), rel=2e-3)


def chain_of(problem, rate, level, runs, seed):
    """Return steps (runs,) and last overlaps of the chain by plain numpy, with every coordinate of a step drawn."""
    rng, link, d = np.random.default_rng(seed), problem.activation, problem.dimension
    homogeneous, squared = problem.student == "homogeneous", problem.objective == "squared"
    C, steps, ends = np.full(runs, float(problem.start().teacher_overlap[0, 0])), np.zeros(runs), np.zeros(runs)
    alive, n = np.arange(runs), 0
    while True:
        there = (C if problem.information_exponent % 2 else np.abs(C)) >= level
        steps[alive[there]], ends[alive[there]] = n, C[there]
        alive, C = alive[~there], C[~there]
        if not alive.size:
            return steps, ends
        a, v, xi = rng.standard_normal((3, C.size))
        rest = np.sqrt(rng.chisquare(d - 2, C.size))
        s = np.sqrt(1.0 - C**2)
        y = link.value(C * a + s * v) + problem.label_noise * xi
        pull = link.derivative(a)
        if problem.smoothing:
            pull = polyval2d(a, v**2 + rest**2, gradient_table(problem))
        if homogeneous:
            along = 1.0 + rate * y * 2.0 * link.value(a)
        else:
            along, y = 1.0, y - (link.value(a) if squared else 0.0)
        turned = rate * y * pull * v
        C = (C * along + s * turned) / np.sqrt(along**2 + turned**2 + (rate * y * pull * rest) ** 2)
        n += 1


CHAINS = {
    "homogeneous, label noise": (single("he3", 48, 0.2, label_noise=0.3), 0.4 * 48**-1.5, 0.5),
    "even": (single("he4", 24, 0.35, **SPHERICAL), 1.0 / 24**2, 0.5),
    "squared loss": (single("he3", 16, 0.4, student="spherical"), 0.4 * 16**-1.5, 0.5),
    "smoothed": (single("he3", 64, smoothing=1.0, **SPHERICAL), 0.1 / 64, 0.5),
    "kink, label noise": (single("relu", 32, 0.05, label_noise=0.5, **SPHERICAL), 0.3 / 32, 0.8),
    "gelu": (single("gelu", 32, 0.05, label_noise=0.5), 0.1 / 32, 0.5),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_law_is_that_of_the_chain(name):
    """1000 runs: the mean at four standard errors, 6e-5; 13 to 39 of 1000 runs beyond each end, 1e-2 in all, seeds fixed."""
    problem, rate, level = CHAINS[name]
    law = dynamics.first_passage(problem, learning_rate=rate, level=level)
    steps, ends = chain_of(problem, rate, math.sqrt(level), 1000, seed=7)
    assert abs(steps.mean() - law.mean_steps) < 4.0 * law.steps_deviation / math.sqrt(1000)
    assert 13 <= np.sum(steps < law.steps_quantile(0.025)) <= 39
    assert 13 <= np.sum(steps > law.steps_quantile(0.975)) <= 39
    share = law.chance_other_side
    assert abs(np.mean(ends < 0.0) - share) <= 4.0 * math.sqrt(share * (1.0 - share) / 1000)


def test_steps_far_below_a_cell_keep_their_digits():
    """he4 with C = 1/32 in R^1024 at 5e-7: 401 points are within 2e-3 of 801, and steps of one rate as those of half."""
    law = dynamics.first_passage(single("he4", 1024, 1 / 32), learning_rate=5e-7)
    assert law.mean_error < 2e-3 * law.mean_steps
    # The flow at tiny steps: its time over the learning rate.
    problem = single("he3", 48, 0.5)
    flow = float(dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0])).emergence_time[0])
    slow = dynamics.first_passage(problem, learning_rate=1e-12)
    assert slow.mean_steps * 1e-12 == pytest.approx(flow, rel=1e-3)


def test_a_trapped_neuron_never_arrives():
    law = dynamics.first_passage(single("he4", 10**6, 0.3), learning_rate=4.5e-7)
    assert law.chance_never == pytest.approx(1.0)
    assert (law.mean_steps, law.steps_quantile(0.5)) == (math.inf, math.inf)
    assert "95 % of runs: never to never" in str(law)
    assert "100 % of runs never arrive" in str(law)


def test_a_start_beyond_the_level_takes_no_step():
    law = dynamics.first_passage(single("he3", 32, 0.8, **SPHERICAL), learning_rate=1e-3)
    assert (law.mean_steps, law.steps_deviation, law.steps_quantile(0.975)) == (0.0, 0.0, 0.0)


def test_uniform_starts_have_the_moments_of_the_sphere():
    overlaps = uniform_overlaps(20)
    assert overlaps.mean() == pytest.approx(0.0, abs=1e-12)
    assert np.mean(overlaps**2) == pytest.approx(1 / 20, rel=1e-2)


def test_quantiles_between_the_table_rise_and_others_are_refused():
    law = dynamics.first_passage(single("he3", 32, 0.3, **SPHERICAL), learning_rate=1e-3)
    between = [law.steps_quantile(share) for share in np.linspace(0.001, 0.999, 900)]
    assert (np.diff(between) >= 0.0).all()
    with pytest.raises(ValueError, match=r"^Argument `quantile` must be from 0\.001 to 0\.999, but is 0\.9999\.$"):
        law.steps_quantile(0.9999)
    assert "97.5 %" in law._repr_html_()


@pytest.mark.parametrize(
    ("changes", "arguments", "sentence"),
    [
        ({"width": 2, "initial_overlaps": None}, {}, "Argument `problem` must have one homogeneous or spherical neuron and one direction, but has student 'homogeneous' with 2 neurons and 1 directions."),
        ({"inputs": dynamics.Inputs.power_law(0.5), "initial_overlaps": None}, {}, "Argument `problem` must have isotropic inputs, but has others."),
        ({}, {"level": 1.0}, "Argument `level` must be below 1, but is 1."),
        ({}, {"level": -0.5}, "Argument `level` must be finite and positive, but is -0.5."),
        ({}, {"start": "random"}, "Argument `start` must be None or 'uniform', but is 'random'."),
        ({}, {"learning_rate": 0.0}, "Argument `learning_rate` must be finite and positive, but is 0.0."),
        ({"initial_overlaps": ([[0.5]], [[1.0]], [0.2])}, {}, None),
    ],
)  # fmt: skip
def test_what_the_chain_does_not_hold_is_refused(changes, arguments, sentence):
    pattern = "Argument `problem` must have a squared norm of at most 0.05" if sentence is None else sentence
    with pytest.raises(ValueError, match="^" + re.escape(pattern)):
        dynamics.first_passage(single("he3", 32, **changes), **{"learning_rate": 1e-3} | arguments)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["relu, d = 64, ρ = 0.1", "h3, d = 32, ρ = 0.1, C = 0.3, learned"])
def test_intervals_hold_the_runs_of_the_study(name):
    """Of 400 runs 95 ± 4.4 %, four standard errors, are within: false alarms 6e-5 each, the seed fixed."""
    covered = coverage(settings()[name], 400)["covered"]
    assert abs(covered - 0.95) < 4.0 * math.sqrt(0.95 * 0.05 / 400)


def test_the_stored_study_covers_as_the_documentation_says():
    totals = json.loads(TARGET.read_text(encoding="utf-8"))
    covered = [row["covered"] for row in totals.values()]
    assert set(totals) <= set(settings())
    assert 0.94 <= np.mean(covered) <= 0.96
    assert 0.92 <= min(covered) <= max(covered) <= 0.98


@pytest.mark.parametrize(
    ("level", "rate"), [(0.9999, 1e-3), (0.999, 1e-2), (0.995, 1e-3), (0.5, 1e-18), (0.5, 1e-30)]
)  # fmt: skip
def test_a_law_that_the_grid_does_not_resolve_is_refused(level, rate):
    """Noise keeps runs below the level for longer than interpolation can tell, or rounding hides a step."""
    sentence = (
        "Arguments `level` and `learning_rate` must let a grid of 401 overlaps resolve the law of the steps, but are "
        f"{level:g} and {rate:.3g}, where noise keeps runs below the level, or rounding hides a step."
    )
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        dynamics.first_passage(single("he3", 32, 0.3, **SPHERICAL), learning_rate=rate, level=level)


@pytest.mark.parametrize(("link", "sign"), [("he3", 1.0), ("he4", -1.0)])
def test_narrow_laws_have_the_scatter_of_leading_order(link, sign):
    """Cells of the grid are wider than these laws: their intervals were up to ten times too wide."""
    problem = single(link, 32, 0.3 * sign)
    exact = dynamics.theory.escape_bias(problem, 1e-8, dynamics.theory.predict(problem)).scatter[0]
    law = dynamics.first_passage(problem, learning_rate=1e-8)
    low, high = (law.steps_quantile(share) for share in (0.025, 0.975))
    assert law.steps_deviation == pytest.approx(exact * law.mean_steps, rel=0.01)
    assert high - low == pytest.approx(2.0 * 1.96 * exact * law.mean_steps, rel=0.01)
    assert law.quantile_error(0.975) < 0.1 * (high - low)


def test_narrow_laws_are_those_of_the_chain_where_steps_have_as_much_drift_as_noise():
    """erf d 128 from .05 to .9 at .3/d: 3000 runs of the chain have 1916.1, 67.8 ± .9, and 95 % in 1783 to 2055."""
    law = dynamics.first_passage(single("erf", 128, 0.05, **SPHERICAL), learning_rate=0.3 / 128, level=0.81)
    assert abs(law.mean_steps - 1916.1) < 4.0 * 67.8 / math.sqrt(3000)
    assert abs(law.steps_deviation - 67.8) < 4.0 * 0.9
    # Quantiles of 3000 runs have the standard error 0.05 times the deviation.
    assert abs(law.steps_quantile(0.025) - 1783) < 4.0 * 0.05 * 67.8
    assert abs(law.steps_quantile(0.975) - 2055) < 4.0 * 0.05 * 67.8


def test_an_array_of_starts_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"^Argument `start` must be None or .uniform., but is"):
        dynamics.first_passage(single("he3", 32, **SPHERICAL), learning_rate=1e-3, start=np.array([0.1, 0.2]))


def test_intervals_of_rates_that_round_away_are_those_of_leading_order():
    """At 1e-18 the operator says "never": a homogeneous neuron has the flow time 3.6 with a scatter of 1e-8."""
    answer = dynamics.predict_emergence(single("he3", 48))
    steps = dynamics.learning_steps(answer, direction=1, learning_rate=1e-18)
    assert steps.steps == pytest.approx(steps.time / 1e-18, rel=1e-6)
    assert 0.0 < steps.steps_high - steps.steps_low < 1e-5 * steps.steps
