"""The noise of runs: what samples explain of delays, and neurons that noise exchanges."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import dynamics
import sgd_check
from dynamics import SolveInterrupted, learning_rate_limit
from dynamics.draws import exchanged_times
from dynamics.theory import escape_bias, predict, rivals_of_pairs
from sgd_check.report.findings import sgd_study_findings
from sgd_check.studies import kinds
from sgd_check.studies.calibration import CASES, lone_neuron
from sgd_check.studies.kinds import stretched
from sgd_check.verdicts.time_tests import noise_of_runs, without_noise


@pytest.fixture(scope="module")
def runs():
    """The problem of the documentation: k = 3, d = 16, C = 0.35, 32 runs at a twentieth of the limit of stability."""
    problem = lone_neuron(3, 16)
    rate = 0.05 * learning_rate_limit(problem)
    return sgd_check.simulate(problem, learning_rate=rate, steps=11_755, seeds=32, progress=False)


@pytest.fixture(scope="module")
def equation(runs):
    return dynamics.solve_overlaps(
        lone_neuron(3, 16), learning_rate=runs.attrs["learning_rate"], step_theory="finite-d",
        save_at=dynamics.SaveAt.at(runs["time"].values), progress=False, error_estimate=False,
    )  # fmt: skip


@pytest.mark.statistical
def test_the_samples_explain_the_delays(runs):
    """At first order the slope is 1; at this learning rate it is 0.89 in 600 runs, and 32 have it within 4 errors."""
    noise = noise_of_runs(lone_neuron(3, 16), runs)[:, 0]
    logs = np.log(runs["emergence_time"].values[:, 0])
    found = stats.linregress(noise, logs)
    assert found.rvalue > 0.9
    assert abs(found.slope - 0.89) < 4 * found.stderr
    # Half of the scatter is 2.8 standard errors of the mean of 32 runs.
    assert abs(noise.mean()) < 0.5 * noise.std()


def test_values_without_noise_have_the_students_t_of_the_intercept(rng):
    noise = rng.standard_normal(20)
    values = 0.1 + 0.7 * noise + 0.05 * rng.standard_normal(20)
    left = without_noise(values, noise)
    design = np.column_stack([np.ones(20), noise])
    coefficients, squares, *_ = np.linalg.lstsq(design, values, rcond=None)
    error = np.sqrt(squares[0] / 18 * np.linalg.inv(design.T @ design)[0, 0])
    assert left.size == 19
    assert left.mean() == pytest.approx(coefficients[0], rel=1e-12)
    assert left.std(ddof=1) / np.sqrt(19) == pytest.approx(error, rel=1e-12)


@pytest.mark.statistical
def test_wrong_theories_are_refuted_and_the_right_one_is_not(runs, equation):
    """False-alarm rate of the first verdict 1 %, with fixed seeds."""
    right = sgd_check.compare(equation, runs)["comparison"].to_dataset()
    assert right.attrs["verdict"] == "agree", right.attrs["reasons"]
    assert float(right["visible_error"][0]) < 0.1
    for wrong, word in (
        (stretched(equation, 1.1), "early"),
        (stretched(equation, 1 / 1.1), "late"),
        (equation.assign(loss=1.5 * equation["loss"]), "The loss at the start is smaller"),
        (equation.assign(squared_norm=10 * equation["squared_norm"]), "The squared norm at the start is smaller"),
        (
            equation.assign(squared_norm=equation["squared_norm"] * xr.where(equation["time"] > 0, 10.0, 1.0)),
            "squared norm as direc",
        ),
    ):
        attrs = sgd_check.compare(wrong, runs)["comparison"].attrs
        assert attrs["verdict"] == "disagree"
        assert word in attrs["reasons"]


@pytest.mark.statistical
def test_sgd_at_another_rate_than_it_states_is_refuted_by_its_scatter(runs, equation):
    """Times are 10 % later at five times the rate; one comparison at a level of 1 %, with fixed seeds."""
    rate = runs.attrs["learning_rate"]
    fast = sgd_check.simulate(lone_neuron(3, 16), learning_rate=5 * rate, steps=2351, seeds=32, progress=False)
    attrs = sgd_check.compare(equation, fast.assign_attrs(learning_rate=rate, effective_learning_rate=rate))[
        "comparison"
    ].attrs
    assert attrs["verdict"] == "disagree"
    assert "The scatter of the times of direction 1 is larger than predicted" in attrs["reasons"]


@pytest.mark.parametrize(("k", "dimension", "start"), [(3, 16, 0.35), (3, 64, 0.35), (4, 16, 0.5)])
def test_the_part_of_the_delay_that_the_finite_step_equation_has(k, dimension, start):
    """As the norm vanishes its time over the flow's is that of leading order, to second order in the rate."""
    problem = dynamics.Problem(
        activation=f"he{k}", teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension,
        initial_overlaps=([[start]], [[1.0]], [1e-8]), label_noise=0.2,
    )  # fmt: skip
    rate = 0.02 * learning_rate_limit(problem)
    options = {"progress": False, "error_estimate": False}
    flow = dynamics.solve_overlaps(problem, **options)
    finite = dynamics.solve_overlaps(problem, learning_rate=rate, step_theory="finite-d", **options)
    delay = float(finite["emergence_time"][0] / flow["emergence_time"][0]) - 1
    bias = escape_bias(problem, rate, predict(problem))
    assert delay == pytest.approx(bias.step_bias[0], rel=1e-4)
    assert bias.step_bias[0] < bias.drift_bias[0] < bias.bias[0]


@pytest.mark.thorough
@pytest.mark.statistical
def test_a_small_calibration_says_how_often_verdicts_are_right():
    found = sgd_check.calibration(rates=[0.05], repetitions=1, progress=False)
    shares = {point["case"]: point["disagree"] for point in sgd_study_findings(found).values["points"]}
    assert tuple(shares) == CASES
    assert shares["right"] == 0.0
    assert all(shares[case] == 1.0 for case in CASES[1:6])


@pytest.mark.statistical
def test_the_pace_after_an_emergence_is_tested_on_the_fall_that_the_direction_causes():
    """Theory's loss is 1 at the end of a plateau, which no run leaves at a known time; half of the fall is at 1.32.

    The seeds are fixed; each ensemble has a false alarm with probability 0.01. Where half of the whole fall was asked
    for, as far as theory goes, five of seven such ensembles disagreed, the first of these with z = -4.8.
    """
    kind = kinds.KINDS["random-start"]
    problem = kind.problem(7)
    theory = kind.theory(problem)
    for first in (90_300, 90_500):
        found = sgd_check.compare(theory, kind.simulated(problem, range(first, first + kind.runs)))["comparison"]
        assert found.attrs["verdict"] != "disagree"
        assert float(found["path_p_value"]) > 0.01


LATE = ("times x 1.3", "times / 1.3")


@pytest.mark.thorough
@pytest.mark.statistical
def test_a_small_calibration_of_kinds_counts_verdicts_and_large_errors():
    """Seeds are fixed. The counts are those of `compare` on each theory, and planted errors do what they should."""
    found = sgd_check.calibration(kinds=["link-3", "link-1"], repetitions=1, progress=False)
    made = found["verdict_count"].sum("verdict")
    assert {name: [*found["case"].values[made.sel(kind=name) > 0]] for name in ("link-1", "link-3")} == {
        name: [case for case in kinds.CASES if case in ("right", *LATE, *kinds.errors_of(name))]
        for name in ("link-1", "link-3")
    }
    assert found["verdict_count"].sel(kind="link-3", verdict="disagree").values[1:6].tolist() == [1.0] * 5
    assert found["verdict_count"].sel(case="right", verdict="disagree").sum() == 0
    effect = found["time_effect"].sel(kind="link-3")
    np.testing.assert_allclose(effect.sel(case=list(LATE)), np.log(1.3), rtol=1e-6)
    large = found["large_error_count"].sum("verdict").sel(kind="link-3")
    assert large.sel(case=["right", "label noise x 2", "times x 1.3"]).values.tolist() == [0.0, 0.0, 1.0]
    values = sgd_study_findings(found).values
    assert values["right theories"] == {"agree": 2, "disagree": 0, "undecided": 0}
    assert values["large errors"]["agree"] == 0
    assert len(values["points"]) == int(made.sum())
    figure = sgd_check.plot_study(found)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["link-3", "link-1"]
    # A part of the study is that part of the whole.
    alone = sgd_check.calibration(kinds="link-1", repetitions=1, progress=False)
    xr.testing.assert_equal(alone["curve_effect"].sel(kind="link-1"), found["curve_effect"].sel(kind="link-1"))


def test_the_effect_of_a_planted_error_is_that_of_its_equation():
    """Closed numbers of one neuron of he3 that learns a h_3."""
    kind = kinds.KINDS["link-3"]
    problem = kind.problem(0)
    right = kind.theory(problem)
    late = stretched(right, 1.3)
    assert kind.time_effect(right, late) == pytest.approx(np.log(1.3))
    strong = kinds.planted(right, kind.theory(kind.problem(0, strength=1.3)))
    # To leading order emergence takes 1/a as long.
    assert kind.time_effect(right, strong) == pytest.approx(np.log(1.3), rel=0.05)
    # At t = 0 the loss is a² E f*²/2, which is about its range too: 1.3² − 1.
    assert kind.curve_effect(problem, right, strong) == pytest.approx(0.69, rel=0.02)
    assert strong.attrs == right.attrs
    never = right.assign(emergence_time=("direction", [np.nan]))
    assert kind.time_effect(right, never) == np.inf


@pytest.mark.thorough
@pytest.mark.statistical
def test_classes_are_calibrated_with_errors_of_labels():
    """The seed is fixed; the right theory has a false alarm with probability 0.01."""
    found = sgd_check.calibration(kinds="classes", repetitions=1, progress=False).sel(kind="classes")
    counts, large = found["verdict_count"], found["large_error_count"]
    assert counts.sel(case="right", verdict="disagree") == 0.0
    assert large.sel(verdict="agree").sum() == 0.0
    labels = ["no flips", "bernoulli for sign"]
    assert large.sel(case=labels).sum("verdict").values.tolist() == [1.0, 1.0]
    assert counts.sel(case=["no flips", "times x 1.2"], verdict="disagree").values.tolist() == [1.0, 1.0]
    # The curves of the class without flips start where those with flips do, and end elsewhere.
    assert float(found["curve_effect"].sel(case="no flips")) > 0.5


def test_an_interrupted_calibration_of_kinds_keeps_what_was_compared(monkeypatch):
    """Counts, medians and sentences of comparisons that are made up."""
    seen = []

    def compared(name, start, seeds, level):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append((name, start, seeds[0], level))
        large = kinds.Effect(np.inf if start else 0.3, 0.02)
        return {
            "right": ("undecided", kinds.Effect(0.0, 0.0)),
            "start x 1.15": (("agree", "disagree")[start], large),
            "teacher x 1.3": ("disagree", kinds.Effect(0.1, 0.05)),
        }

    monkeypatch.setattr(kinds, "compared", compared)
    with pytest.raises(SolveInterrupted) as stopped:
        sgd_check.calibration(kinds=["tokens", "link-2"], repetitions=3, progress=False)
    found = stopped.value.dataset
    assert [name for name, *_ in seen] == ["tokens", "link-2", "tokens"]
    assert len({first for _, _, first, _ in seen}) == 3
    assert found.attrs["stop_reason"] == "interrupted"
    counts = found["verdict_count"].sel(kind="tokens", case=["right", "start x 1.15", "teacher x 1.3"]).values
    assert counts.tolist() == [[0.0, 0.0, 2.0], [1.0, 1.0, 0.0], [0.0, 2.0, 0.0]]
    assert found["large_error_count"].sel(kind="tokens").sum("verdict").sum() == 2.0
    assert found["large_error_count"].sel(kind="link-2", case="start x 1.15").values.tolist() == [1.0, 0.0, 0.0]
    assert float(found["time_effect"].sel(kind="tokens", case="start x 1.15")) == np.inf
    assert np.isnan(found["time_effect"].sel(case="relu for gelu")).all()
    sentences = sgd_study_findings(found).sentences
    assert sentences[0].startswith("Right theories: 3 comparisons, 0 agree, 3 undecided, 0 disagree.")
    assert sentences[1].startswith("Large errors: 3 comparisons, 2 agree, 0 undecided, 1 disagree.")
    assert "tokens, start x 1.15: agree in 1 of 2 large errors." in sentences


def test_a_calibration_of_kinds_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"^Argument `kinds` must be one of 'link-1', .* but is 'links'"):
        sgd_check.calibration(kinds=["links"], progress=False)
    with pytest.raises(ValueError, match=r"^Argument `kinds` must name no kind twice"):
        sgd_check.calibration(kinds=["link-1", "link-1"], progress=False)
    with pytest.raises(ValueError, match=r"^Argument `dimension` must be absent with `kinds`, which have their own"):
        sgd_check.calibration(kinds="all", dimension=8, progress=False)
    with pytest.raises(TypeError, match=r"^Argument `kinds` must be"):
        sgd_check.calibration(kinds=3, progress=False)


def test_a_calibration_refuses_what_it_cannot_do():
    with pytest.raises(
        ValueError, match=r"^Argument `rates` must hold one learning rate or more, but has shape \(0,\)"
    ):
        sgd_check.calibration(rates=[], progress=False)
    with pytest.raises(ValueError, match="`repetitions`"):
        sgd_check.calibration(repetitions=0, progress=False)


def _problem(overlaps, coefficients, **options):
    overlaps = np.asarray(overlaps)
    given = (overlaps, np.eye(overlaps.shape[0]), np.full(overlaps.shape[0], 0.01))
    options = {"activation": "he3", "dimension": 64, "width": overlaps.shape[0], **options}
    return dynamics.Problem(teacher=dynamics.Teacher(coefficients), initial_overlaps=given, **options)


def _rivals(problem, scatter):
    return rivals_of_pairs(problem, predict(problem), np.broadcast_to(scatter, problem.num_directions))


def test_the_first_of_equal_neurons_is_earlier_by_the_mean_of_the_least_of_normal_numbers(rng):
    """Of two exactly, 1/√π of the scatter; of three the sum over pairs is an upper bound."""
    for neurons, factor in ((2, 1.0), (3, 4 / 3)):
        found = _rivals(_problem(np.full((neurons, 1), 0.3), [1.0]), 0.2)
        least = -rng.normal(0.0, 0.2, (400_000, neurons)).min(axis=1).mean()
        assert found.earlier[0] == pytest.approx(factor * least, abs=2e-3)
        assert not found.settled[0]
        assert not found.elsewhere[0]


def test_a_pair_three_scatters_ahead_is_settled_and_excludes_what_shares_its_neuron_or_direction():
    """Direction 2 would have neuron 1 for a rival, if that were not taken by direction 1 for certain."""
    problem = _problem([[0.6, 0.3], [0.02, 0.25]], [1.0, 1.0])
    near, far = _rivals(problem, 0.3), _rivals(problem, 0.1)
    assert far.settled.all()
    assert (far.earlier < 1e-3).all()
    assert not near.settled.any()
    assert near.elsewhere.tolist() == [True, False]
    assert near.earlier[1] > 0.18


def test_a_neuron_that_may_take_another_direction_until_that_is_learned_is_not_settled():
    """Direction 1 emerges long before direction 2, and keeps on drawing the second neuron until it is learned."""
    problem = _problem([[0.6, 0.0], [0.2, 0.3]], [1.0, 0.3])
    found = _rivals(problem, 0.1)
    assert found.settled.tolist() == [True, False]
    assert found.elsewhere.tolist() == [False, True]
    light = _problem([[0.6, 0.0], [0.05, 0.3]], [1.0, 0.3])
    assert _rivals(light, 0.02).settled.all()


def test_drawn_times_are_those_of_the_pair_where_nothing_can_be_exchanged():
    """2000 draws at 1.3 times the scatter of leading order: mean and scatter of ln T at four standard errors and 10 %."""
    problem = _problem([[0.3]], [1.0])
    rate = 0.02 * learning_rate_limit(problem)
    pairs = predict(problem)
    bias = escape_bias(problem, rate, pairs)
    logs = np.log(exchanged_times(problem, pairs, 0, rate))
    width = 1.3 * bias.scatter[0]
    assert abs(logs.mean() - np.log(bias.emergence_time[0])) < 4.0 * width / np.sqrt(2000) + 0.5 * width**2
    assert logs.std() == pytest.approx(width, rel=0.1)


def test_a_neuron_torn_between_two_equal_directions_takes_each_in_half_of_the_draws():
    """One neuron takes one of two directions, and the other one is never learned; 2000 draws, four standard errors."""
    problem = _problem([[0.3, 0.3]], [1.0, 1.0])
    rate = 0.02 * learning_rate_limit(problem)
    for p in (0, 1):
        never = np.isinf(exchanged_times(problem, predict(problem), p, rate)).mean()
        assert abs(never - 0.5) < 4.0 * 0.5 / np.sqrt(2000)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("part", "seeds"), [(0.1, 48), pytest.param(0.02, 64, marks=pytest.mark.long)])
def test_intervals_of_steps_hold_runs_in_which_noise_exchanges_neurons(part, seeds):
    """The interval of the pair alone holds two thirds of the runs of direction 2; the wider one at least 90 %.

    At 90 % the number of runs outside is at most 12 of 48, and 14 of 64, but for one chance in 500. Fixed seeds.
    """
    teacher = dynamics.Teacher.power_law(2, 1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=8, dimension=24, seed=4, label_noise=0.1)
    rate = part * learning_rate_limit(problem)
    runs = sgd_check.simulate(problem, learning_rate=rate, steps=int(3.6 / rate), seeds=seeds, progress=False)
    answer = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([4.0]), progress=False)
    for p in (1, 2):
        found = dynamics.learning_steps(answer, direction=p, learning_rate=rate)
        assert found.notes[-1].startswith("the interval is drawn: ") or found.notes[-1].endswith("holds these runs too")
        steps = np.nan_to_num(runs["emergence_time"].values[:, p - 1] / rate, nan=np.inf)
        outside = int(np.sum((steps < found.steps_low) | (steps > found.steps_high)))
        assert outside <= {48: 12, 64: 14}[seeds]
    share = found.steps_deviation / found.steps
    alone = found.steps * np.exp(np.array([-1.96, 1.96]) * share - 0.5 * share**2)
    assert np.sum((steps < alone[0]) | (steps > alone[1])) > {48: 12, 64: 14}[seeds]


def test_too_many_pairs_to_draw_are_said_to_be_left_out():
    teacher = dynamics.Teacher.power_law(33, 0.5)
    problem = dynamics.Problem(activation="he3", teacher=teacher, width=33, dimension=512, seed=1)
    rate = 1e-3 * learning_rate_limit(problem)
    pairs = predict(problem)
    assert exchanged_times(problem, pairs, 0, rate) is None
    open_pairs = ~rivals_of_pairs(problem, pairs, escape_bias(problem, rate, pairs).scatter).settled
    place = int(np.flatnonzero(open_pairs & np.isfinite(pairs.predicted_emergence_time))[0])
    answer = dynamics.predict_emergence(problem)
    notes = dynamics.learning_steps(answer, direction=place + 1, learning_rate=rate).notes
    assert notes[-1].endswith("the interval does not hold these runs")


def _against_runs(problem, part):
    rate = part * learning_rate_limit(problem)
    times = predict(problem).predicted_emergence_time
    steps = int(2.5 * times[np.isfinite(times)].max() / rate)
    options = {"save_at": dynamics.SaveAt.linear(0, steps * rate, 200), "rtol": 1e-5, "error_estimate": False}
    theory = dynamics.solve_overlaps(problem, learning_rate=rate, progress=False, **options)
    runs = sgd_check.simulate(problem, learning_rate=rate, steps=steps, seeds=32, progress=False)
    return sgd_check.compare(theory, runs)["comparison"].to_dataset()


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("seed", "untested", "earliness_only"),
    [
        pytest.param(0, [1], [], id="noise decides"),
        pytest.param(11, [], [3], id="a neuron goes elsewhere", marks=pytest.mark.long),
    ],
)
def test_a_right_theory_is_not_refuted_where_noise_chooses_the_neuron(seed, untested, earliness_only):
    """One comparison each at a level of 1 %, with fixed seeds; means of ln T are −0.9 and −0.7 there."""
    teacher = dynamics.Teacher.power_law(4, 1.0)
    start = {"initial_norm": 0.1, "label_noise": 0.1, "seed": seed}
    problem = dynamics.Problem(activation="he3", teacher=teacher, width=6, dimension=24, **start)
    found = _against_runs(problem, 0.1)
    assert found.attrs["verdict"] == "undecided", found.attrs["reasons"]
    for p in untested:
        assert f"since the noise of the steps decides when it emerges: direction {p}" in found.attrs["reasons"]
        assert found["expected_scatter"][p - 1] > 1
        assert np.isnan(found["z_score"][p - 1])
    for p in earliness_only:
        assert np.isinf(found["band_high"][p - 1])
        assert found["mean_log_ratio"][p - 1] < -0.5


@pytest.mark.thorough
@pytest.mark.statistical
def test_a_loss_that_another_direction_lowers_in_some_runs_does_not_refute_the_time_after_an_emergence():
    """Noise brings direction 1 at 3.7 and later, theory at 7.4: the loss of direction 2 alone is known until then."""
    weights = np.random.default_rng(7).standard_normal((4, 12))
    weights *= 0.1 / np.linalg.norm(weights, axis=1, keepdims=True)
    problem = dynamics.Problem(
        activation="he3", teacher=dynamics.Teacher([1.0, 0.8]), width=4, dimension=12, initial_weights=weights,
        label_noise=0.2,
    )  # fmt: skip
    runs = sgd_check.simulate(problem, learning_rate=5e-5, steps=120_000, seeds=range(9500, 9516), progress=False)
    times = dynamics.SaveAt.at(np.append(runs["time"].values[1:], [7.0, 8.0, 9.0]))
    given = {"learning_rate": 5e-5, "step_theory": "finite-d", "save_at": times, "progress": False}
    theory = dynamics.solve_overlaps(problem, error_estimate=False, **given)
    assert float(theory["emergence_time"][0]) > 7.0
    assert float(runs["emergence_time"][:, 0].min()) < 4.0
    attrs = sgd_check.compare(theory, runs)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert attrs["reasons"].startswith(
        "Direction 1, predicted at 8.72, after the end of the runs: 4 of 16 runs learned"
    )
