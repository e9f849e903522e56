"""The verdict by curves: rates of error on synthetic ensembles, relu against SGD, and what it says."""

import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import dynamics
import sgd_check
from dynamics import Problem, Student, Teacher
from dynamics.report.findings import find_findings
from sgd_check.engines import EngineOptions
from sgd_check.studies.kinds import stretched
from sgd_check.verdicts.check import Pilot, ends_of_curves, left_out, piloted, plan_check
from sgd_check.verdicts.curves import TOLERANCE, Curve, assess_curves, quantities_of, without_step

QUIET = {"progress": False}
TIMES = np.exp(np.linspace(-3, 3, 73))
SHAPES = {
    "logistic": lambda t: t**4 / (1 + t**4),
    "sharp": lambda t: t**12 / (1 + t**12),
    "exponential": lambda t: np.exp(-t),
    "two steps": lambda t: 0.7 / (1 + t**6) + 0.3 / (1 + (t / 5) ** 6),
}


def curve_of(theory, runs, dilated=None, effect=0.0, scale=0.1):
    """A curve at TIMES, or as many."""
    dilated = np.array([theory, theory]) if dilated is None else dilated
    return Curve("mass", "1", TIMES[: theory.size], theory, runs, np.full(theory.size, effect), dilated, scale)


def ensemble(rng, shape, scatter, runs):
    """Runs that are early or late by a common factor, of normal logarithm."""
    return SHAPES[shape](TIMES * np.exp(scatter * rng.standard_normal((runs, 1))))


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    "shape", ["logistic", *(pytest.param(name, marks=pytest.mark.long) for name in list(SHAPES)[1:])]
)
@pytest.mark.parametrize(
    ("scatter", "runs"),
    [(0.2, 8), (0.5, 32), *(pytest.param(*case, marks=pytest.mark.long) for case in ((0.05, 32), (0.5, 8)))],
)
@pytest.mark.parametrize("edge", [0.0, 1.0, -1.0])
def test_false_alarms_are_at_most_the_stated_ones(shape, scatter, runs, edge):
    """1000 ensembles at level 1 %, theory at the mean or at an edge of its band: 1 % and 4 standard errors at most."""
    rng = np.random.default_rng(7)
    mean = ensemble(rng, shape, scatter, 40_000).mean(axis=0)
    theory = mean + edge * TOLERANCE * np.ptp(mean)
    rate, repeats = 0.01, 1000
    alarms = sum(
        assess_curves([curve_of(theory, ensemble(rng, shape, scatter, runs))], rate)[1] < rate for _ in range(repeats)
    )
    assert alarms / repeats < rate + 4 * np.sqrt(rate * (1 - rate) / repeats)


@pytest.mark.thorough
@pytest.mark.statistical
def test_several_curves_share_the_rate():
    """Four curves with one common noise, 1000 ensembles at 5 %: Bonferroni holds whatever their dependence."""
    rng = np.random.default_rng(3)
    rate, repeats, alarms = 0.05, 1000, 0
    theories = {shape: ensemble(rng, shape, 0.2, 40_000).mean(axis=0) for shape in SHAPES}
    for _ in range(repeats):
        factor = np.exp(0.2 * rng.standard_normal((16, 1)))
        curves = [curve_of(theory, SHAPES[shape](TIMES * factor)) for shape, theory in theories.items()]
        alarms += assess_curves(curves, rate)[1] < rate
    assert alarms / repeats < rate + 4 * np.sqrt(rate * (1 - rate) / repeats)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "shape", ["logistic", *(pytest.param(name, marks=pytest.mark.long) for name in ("sharp", "exponential"))]
)
@pytest.mark.parametrize("factor", [1.3, 1 / 1.3])
def test_an_error_of_thirty_percent_in_time_is_seen_with_at_least_the_stated_power(shape, factor):
    """The truth is 30 % later or earlier than theory, 500 ensembles; 4 standard errors. The stated power is inside (0, 1)."""
    rng, rate, runs, repeats = np.random.default_rng(5), 0.01, 12, 500
    scatter = {"logistic": 0.17, "sharp": 0.21, "exponential": 0.16}[shape]
    f, draws = SHAPES[shape], np.exp(scatter * rng.standard_normal((20_000, 1)))
    theory, *dilated = (f(TIMES * by * draws).mean(axis=0) for by in (1.0, 1 / 1.3, 1.3))
    seen, stated = 0, []
    for _ in range(repeats):
        values = f(TIMES / factor * np.exp(scatter * rng.standard_normal((runs, 1))))
        tests, p = assess_curves([curve_of(theory, values, np.array(dilated))], rate)
        seen += p < rate
        stated.append(tests[0].power)
    assert 0.2 < np.mean(stated) < 0.999
    assert seen / repeats > np.mean(stated) - 4 * 0.5 / np.sqrt(repeats)


def test_what_lies_within_the_band_is_no_difference_and_what_lies_beyond_is():
    theory = SHAPES["logistic"](TIMES)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((8, 1))
    (inside,), p = assess_curves([curve_of(theory, theory + noise + 0.018)], 0.01)
    assert (p, inside.p, inside.score.any()) == (1.0, 1.0, False)
    (beyond,), p = assess_curves([curve_of(theory, theory + noise + 0.03)], 0.01)
    assert p < 1e-4
    assert (beyond.score > 0).all()
    # A first-order effect of a tenth of the range allows 3 % more.
    assert assess_curves([curve_of(theory, theory + noise + 0.03, effect=0.1)], 0.01)[1] == 1.0


def test_nothing_to_test_refutes_nothing():
    assert assess_curves([], 0.01) == ([], 1.0)


def test_runs_without_noise_are_compared_too():
    theory = SHAPES["logistic"](TIMES)
    dilated = np.array([theory * 0.5, theory * 0.5])
    for shift, p in ((0.0, 1.0), (0.1, 0.0)):
        (test,), found = assess_curves([curve_of(theory, np.tile(theory + shift, (4, 1)), dilated)], 0.01)
        assert found == pytest.approx(p, abs=1e-12)
        assert test.power == 1.0


@pytest.fixture(scope="module")
def relu():
    return Problem(activation="relu", teacher=Teacher.power_law(2, 1.0), width=4, dimension=16)


@pytest.fixture(scope="module")
def flow(relu):
    with pytest.warns(UserWarning, match="leaves out"):
        return dynamics.solve_overlaps(relu, rtol=1e-5, save_at=dynamics.SaveAt.geometric(0.05, 100.0, 130), **QUIET)


@pytest.fixture(scope="module")
def runs(relu):
    return [
        sgd_check.simulate(relu, learning_rate=rate, steps=round(30.0 / rate), seeds=32, **QUIET)
        for rate in (5e-4, 2.5e-4)
    ]


@pytest.mark.thorough
def test_relu_agrees_with_its_flow(flow, runs):
    comparison = sgd_check.compare(flow, runs)["comparison"]
    attrs = comparison.attrs
    assert (attrs["verdict"], attrs["theory"], attrs["decided_by"]) == ("agree", "flow", "curves")
    seen = "would have been seen in loss and learned mass of direction 1, 2 and emergence time of direction 1, 2."
    assert seen in attrs["reasons"]
    assert "more seeds" not in attrs["reasons"]
    names = comparison["quantity"].values.tolist()
    assert names[:3] == ["loss", "learned mass of direction 1", "learned mass of direction 2"]
    assert (comparison["quantity_power"].values[:3] > 0.99).all()


@pytest.mark.parametrize("factor", [1.3, 1 / 1.3])
def test_a_flow_with_times_thirty_percent_off_is_refuted(flow, runs, factor):
    attrs = sgd_check.compare(stretched(flow, factor), runs)["comparison"].attrs
    assert attrs["verdict"] == "disagree"
    assert "than predicted" in attrs["reasons"]


def test_a_wrong_mass_of_one_direction_is_refuted(flow, runs):
    """The loss is right, the second direction's weight is a third too large."""
    wrong = flow.copy(deep=True)
    wrong["learned_mass"] = (
        ("time", "direction"),
        np.einsum("ti,tip->tp", wrong["squared_norm"].values, 0.5 + 0 * wrong["teacher_overlap"].values),
    )
    attrs = sgd_check.compare(wrong, runs)["comparison"].attrs
    assert attrs["verdict"] == "disagree"
    assert "learned mass of direction" in attrs["reasons"]


def test_curves_agree_under_their_own_name_where_no_predicted_emergence_was_met(flow, runs):
    late = flow.assign(emergence_time=12.0 * flow["emergence_time"])
    none = [part.assign(emergence_time=part["emergence_time"] * np.nan) for part in runs]
    attrs = sgd_check.compare(late, none)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert attrs["reasons"].startswith("The curves of theory and SGD agree: No tested curve leaves its band")
    assert "up to time 30 (" in attrs["reasons"]
    assert "no direction that is predicted to emerge well before the end of the runs, at time 30," in attrs["reasons"]
    assert "the first one is predicted at 25." in attrs["reasons"]
    never = flow.assign(emergence_time=np.nan * flow["emergence_time"]).drop_vars("predicted_emergence_time")
    assert sgd_check.compare(never, none)["comparison"].attrs["verdict"] == "agree", "nothing is awaited"


@pytest.mark.statistical
def test_times_that_scatter_too_much_to_show_an_error_leave_the_verdict_open(flow, runs):
    """ln T scatters by 0.8 more in both simulations: an error of 30 % is below two standard errors of 32 runs."""
    drawn = np.random.default_rng(1).standard_normal((2, 32, 2))
    factor = np.exp(0.8 * (drawn - drawn.mean(axis=1, keepdims=True)))
    wide = [part.assign(emergence_time=part["emergence_time"] * by) for part, by in zip(runs, factor, strict=True)]
    attrs = sgd_check.compare(flow, wide)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert attrs["reasons"].startswith("An error of 30 % in time could have gone unseen in emergence time of direc")


def test_a_time_that_is_awaited_and_that_some_runs_lack_leaves_the_verdict_open(flow, runs):
    late = np.where(np.arange(32)[:, None] < 3, np.nan, runs[1]["emergence_time"].values)
    lacking = [runs[0], runs[1].assign(emergence_time=(("seed", "direction"), late))]
    tree = sgd_check.compare(flow, lacking)
    comparison = tree["comparison"]
    assert comparison.attrs["verdict"] == "undecided"
    rows = {row["quantity"]: row for row in find_findings(tree).values["curves"]}
    lacked = rows["emergence time of direction 2"]
    assert (lacked["measured"], lacked["power"]) == (None, 0.0)
    assert comparison.attrs["runs_needed"] == np.inf
    assert "since too few runs have emergence time of direction 1, 2: use more" in comparison.attrs["reasons"]
    assert comparison["quantity_power"].sel(quantity="emergence time of direction 1") == 0.0


def test_a_band_of_a_time_that_is_wider_than_the_error_is_named():
    """Against the equation of finite steps with ln T of scatter 0.4: 2 % + 3 (0.4)² is beyond ln 1.3."""
    logs = 0.4 * np.linspace(-1.7, 1.7, 32)[:, None]
    b = TOLERANCE + 3.0 * logs.std(ddof=1) ** 2
    late = np.log(1.3) * np.array([[1.0], [-1.0]])
    times = {"times": np.ones(1), "theory": np.zeros(1), "runs": logs, "effect": logs.std(axis=0, ddof=1)}
    curve = Curve("emergence time of direction", "1", **times, dilated=late, scale=1.0, awaited=True)
    (test,), p = assess_curves([curve], 0.01)
    assert b > np.log(1.3)
    assert test.allowance == pytest.approx(b)
    assert (p, test.power, test.is_too_wide) == (1.0, 0.0, True)
    narrow = curve._replace(runs=0.2 * logs, effect=0.2 * curve.effect)
    (test,), p = assess_curves([narrow], 0.01)
    assert test.power > 0.99
    assert not test.is_too_wide


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_time_that_some_runs_lack_is_tested_with_censoring(sign):
    """Four of 32 runs end before the time; an error of 30 % is seen, and the half of them leaves no test."""
    logs = 0.1 * np.linspace(-1.7, 1.7, 32)[:, None]
    lacking = np.where(logs > np.sort(logs, axis=0)[27], np.nan, logs)
    times = {"times": np.ones(1), "theory": np.zeros(1), "effect": np.full(1, 0.1)}
    curve = Curve(
        "emergence time of direction", "1", **times, runs=lacking, dilated=np.array([[0.26], [-0.26]]), scale=1.0,
        awaited=True, horizon=np.sort(logs[:, 0])[27] + 1e-3,
    )  # fmt: skip
    (test,), p = assess_curves([curve], 0.01)
    assert (p, test.power > 0.8) == (1.0, True)
    (test,), p = assess_curves([curve._replace(theory=curve.theory + 0.3 * sign)], 0.01)
    assert p < 0.01
    assert np.sign(test.score[0]) == -sign
    half = curve._replace(runs=np.where(logs > 0, np.nan, logs))
    (test,), p = assess_curves([half], 0.01)
    assert (p, test.power) == (1.0, 0.0)


def test_half_of_the_runs_with_an_emergence_that_theory_never_has_do_not_agree(flow, runs):
    never = flow.assign(emergence_time=np.nan * flow["emergence_time"]).drop_vars("predicted_emergence_time")
    attrs = sgd_check.compare(never, runs)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert "direction 1, 2, predicted never or after the runs, emerges well before their end" in attrs["reasons"]


def test_a_mean_outside_of_its_band_by_little_is_not_said_to_be_inside(flow, runs):
    """The loss is 4 % of its range off, of runs that scatter by 30 %."""
    factor = 0.3 * np.random.default_rng(1).standard_normal(32)
    factor = (factor - factor.mean())[:, None] + 0.05
    shift = factor * np.ptp(flow["loss"].values) * (runs[1]["time"].values > 0)
    off = runs[1].assign(loss=(("seed", "time"), runs[1]["loss"].values + shift))
    comparison = sgd_check.compare(flow, off)["comparison"]
    assert 0.01 < float(comparison["quantity_p_value"][0]) < 1.0
    assert "leaves its band around theory significantly" in comparison.attrs["reasons"]


def test_an_extrapolated_mean_is_that_of_the_runs_without_step_size(flow, runs):
    """Linear extrapolation by hand, at the first place of the loss."""
    comparison = sgd_check.compare(flow, runs)["comparison"]
    time = float(comparison["look_time"].sel(quantity="loss")[3])
    coarse = runs[0]["loss"].sel(time=time).mean().item()
    fine = np.mean([np.interp(time, runs[1]["time"], row) for row in runs[1]["loss"].values])
    assert float(comparison["look_mean"].sel(quantity="loss")[3]) == pytest.approx(2 * fine - coarse, abs=2e-3)


def test_runs_that_stopped_early_are_unfinished_first(flow, relu):
    cut = sgd_check.simulate(relu, learning_rate=1e-6, steps=10**8, seeds=8, max_runtime=0.3, **QUIET)
    tree = sgd_check.compare(flow, cut)
    attrs = tree["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert attrs["reasons"].startswith("The runs stopped early (max_runtime) at time")
    assert find_findings(tree).as_text({}).startswith(f"Unfinished: undecided. {attrs['reasons']}\n")


def test_too_few_runs_are_said(flow, relu):
    few = sgd_check.simulate(relu, learning_rate=4e-3, steps=1000, seeds=3, **QUIET)
    attrs = sgd_check.compare(flow, few)["comparison"].attrs
    assert (attrs["verdict"], attrs["reasons"]) == ("undecided", "Only 3 runs are usable; the test needs 4.")


def test_simulations_that_do_not_belong_together_are_refused(flow, relu, runs):
    with pytest.raises(ValueError, match=r"must be one Dataset, or two at different learning rates, but is 3\."):
        sgd_check.compare(flow, [*runs, runs[0]])
    with pytest.raises(
        ValueError, match=r"learning rates differ by a factor of 1\.2 or more, but they are 0\.00025 and 0\.00025"
    ):
        sgd_check.compare(flow, [runs[1], runs[1]])
    batches = sgd_check.simulate(relu, learning_rate=4e-3, steps=100, seeds=4, batch_size=2, **QUIET)
    with pytest.raises(ValueError, match="must be two of one batch size, but they have 2 and 1"):
        sgd_check.compare(flow, [batches, runs[1]])
    given = {"seeds": 4, "optimizer": dynamics.SGD(momentum=0.01), **QUIET}
    moved = sgd_check.simulate(relu, learning_rate=4e-3, steps=100, **given)
    with pytest.raises(ValueError, match=r"two of one optimizer, but they have SGD\(momentum=0\.01\) and SGD\(\)"):
        sgd_check.compare(flow, [moved, runs[1]])
    with pytest.raises(ValueError, match=r"optimizer of the prediction, SGD\(\), but has SGD\(momentum=0\.01\)"):
        sgd_check.compare(sgd_check.simulate(relu, learning_rate=4e-3, steps=100, seeds=[7], **QUIET), moved)
    said = sgd_check.compare(flow, moved)["comparison"].attrs["reasons"]
    assert said.endswith("The prediction is of the flow of SGD(), the runs are of SGD(momentum=0.01).")
    cubic = replace(relu, activation="he3", order=None)
    rates = [sgd_check.simulate(cubic, learning_rate=rate, steps=100, seeds=4, **QUIET) for rate in (1e-4, 5e-5)]
    with pytest.raises(ValueError, match="unless the prediction is a flow that is judged by its curves"):
        sgd_check.compare(dynamics.predict_emergence(cubic), rates)


@pytest.mark.long
def test_check_of_relu_chooses_its_steps_and_simulates_twice(relu):
    with pytest.warns(UserWarning, match="leaves out|without the finite-step equation"):
        tree = sgd_check.check(relu, **QUIET)
    assert tree["comparison"].attrs["verdict"] == "agree"
    coarse, fine = tree["simulation"].attrs, tree["finer"].attrs
    assert fine["learning_rate"] == coarse["learning_rate"] / 2
    assert fine["steps"] == 2 * coarse["steps"]
    assert "information exponent at least 3" not in tree["comparison"].attrs["reasons"]


def test_the_end_is_where_curves_have_made_most_of_their_way(relu, flow):
    end = ends_of_curves(relu, flow)[-1]
    powers = np.where(np.arange(relu.activation.order + 1) < 3, 0.0, relu.activation.coefficients**2)
    kernel = np.polynomial.polynomial.polyval(flow["teacher_overlap"].values, powers)
    masses = np.einsum("ti,tip->tp", flow["squared_norm"].values, kernel)
    way = np.abs(np.diff(masses[:, 1])).cumsum()
    assert np.interp(end / 1.3, flow["time"].values[1:], way / way[-1]) == pytest.approx(0.9, abs=0.02)
    still = flow.isel(time=slice(0, 3))
    end = float(still["time"][-1])
    sentence = f"because nothing moves in the prediction, which ends at t = {end:.4g}; or let it last longer"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ends_of_curves(relu, still)


def plan_at(flow, seconds, monkeypatch, **given):
    """The plan for 32 runs on a machine that takes so many seconds for a step of one simulation."""
    monkeypatch.setattr("sgd_check.verdicts.check.measured_seconds_per_step", lambda *_: seconds)
    options = EngineOptions(seeds=tuple(range(32)), batch_size=1, device="auto", dtype="auto")
    choice = {"learning_rate": None, "steps": None, "false_alarm_rate": 0.01, "directions": None, "theory": "flow"}
    return plan_check(flow, "projected", options, **(choice | given))[0]


@pytest.mark.thorough
def test_a_plan_lasts_until_the_emergences_that_it_can_pay_for(flow, monkeypatch):
    times = np.sort(flow["emergence_time"].values)
    fast = plan_at(flow, 1e-6, monkeypatch)
    assert (fast.checked, fast.emerging, fast.beyond) == (2, 2, ())
    assert fast.learning_rate * fast.steps >= 1.3 * times[-1]
    # At 1.3 times the first emergence no learned mass has moved enough to tell an error: the end is that of its curve.
    slow = plan_at(flow, 5e-3, monkeypatch)
    assert (slow.checked, slow.emerging) == (1, 2)
    assert 1.3 * times[0] < slow.learning_rate * slow.steps < times[1]
    (later,) = slow.beyond
    assert later.end == pytest.approx(1.3 * times[1], rel=0.01)
    assert later.end >= 1.3 * times[1]
    steps = 1.3 * times[1] / slow.learning_rate
    assert (later.samples, later.seconds) == (np.ceil(steps), pytest.approx(0.015 * steps))
    for asked in ({"t_max": later.end}, {"directions": 2}):
        assert plan_at(flow, 5e-3, monkeypatch, learning_rate=slow.learning_rate, **asked).checked == 2


def test_a_horizon_before_anything_moves_does_not_ask_for_a_tiny_learning_rate(flow, monkeypatch):
    first = 1.3 * float(flow["emergence_time"].min())
    plan = plan_at(flow, 1e-6, monkeypatch, t_max=0.003 * first)
    assert plan.learning_rate * plan.steps == pytest.approx(0.003 * first, rel=0.1)
    assert (plan.checked, plan.beyond[0].what[:9]) == (0, "Direction")
    assert plan.beyond[0].samples < 1e6


def test_a_horizon_or_learning_rate_that_is_given_is_kept(flow, monkeypatch):
    for given in ({"t_max": 8.0, "learning_rate": 0.01}, {"t_max": 8.0, "steps": 800}):
        plan = plan_at(flow, 1e-6, monkeypatch, **given)
        assert (plan.learning_rate, plan.steps) == (pytest.approx(0.01), 800)
    assert plan_at(flow, 1.0, monkeypatch, learning_rate=0.01).checked == 1, "ten minutes do not reach an emergence"
    with pytest.raises(ValueError, match="Argument `t_max` must be absent beside `learning_rate` and `steps`"):
        plan_at(flow, 1e-6, monkeypatch, t_max=8.0, steps=800, learning_rate=0.01)


def test_three_ends_are_refused_without_a_plan_too():
    ones = [1.0]
    student = Student(activation="erf", width=1, second_layer="fixed", initial_second_layer=ones)
    problem = Problem(student=student, teacher=Teacher(ones), dimension=100, label_noise=0.3)
    given = {"optimizer": dynamics.SignSGD(), "learning_rate": 1e-3, "steps": 10, "t_max": 1.0}
    with pytest.raises(ValueError, match="Argument `t_max` must be absent beside `learning_rate` and `steps`"):
        sgd_check.check(problem, **given, **QUIET)


@pytest.mark.filterwarnings("ignore:The flow sees relu", "ignore:The times in the prediction are tested")
def test_a_check_that_cannot_reach_an_emergence_says_what_it_would_take(relu, monkeypatch):
    """A machine of 10 s a step: nothing is agreed on, and the sentence has direction, samples, time and argument."""
    monkeypatch.setattr("sgd_check.verdicts.check.measured_seconds_per_step", lambda *_: 10.0)
    attrs = sgd_check.check(relu, seeds=8, **QUIET)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert re.search(
        r"Direction 1 would take over \d+ samples of every run: [\d.]+ (min|h); t_max [\d.]+ and a smaller",
        attrs["reasons"],
    )


class World:
    """Runs of one sharp curve that a step of size η moves by `effect` η and scatters by `noise` √η at its steepest."""

    def __init__(self, monkeypatch, effect, noise):
        self.rng, self.effect, self.noise = np.random.default_rng(3), effect, noise
        self.theory, *self.dilated = (SHAPES["sharp"](TIMES * factor) for factor in (1.0, 1 / 1.3, 1.3))
        monkeypatch.setattr("sgd_check.verdicts.check.simulate", self.simulate)
        monkeypatch.setattr("sgd_check.verdicts.curves.curves_over_time", self.curves)

    def simulate(self, _, *, learning_rate, seeds, **options):
        rates = ("learning_rate", "effective_learning_rate")
        steepest = 4.0 * self.theory * (1.0 - self.theory)
        draws = self.rng.standard_normal((len(seeds), 1))
        shift = self.effect * learning_rate + self.noise * np.sqrt(learning_rate) * draws
        return xr.Dataset(
            {"loss": (("seed", "time"), self.theory + shift * steepest), "blown_up": ("seed", np.zeros(len(seeds)))},
            coords={"time": TIMES},
            attrs={"stop_reason": "reached_end"} | dict.fromkeys(rates, learning_rate),
        )

    def curves(self, problem, prediction, simulations):
        runs, effect = without_step([one["loss"].values for one in simulations], simulations, stepped=False)
        reached = runs.shape[1]
        curve = curve_of(self.theory[:reached], runs, np.array(self.dilated)[:, :reached])
        return [curve._replace(effect=effect, extrapolated=len(simulations) > 1)]


def pilot_of(flow, seeds, seconds):
    options = EngineOptions(seeds=tuple(range(seeds)), batch_size=1, device="auto", dtype="auto")
    return Pilot(Problem.from_dataset(flow), flow, "projected", options, 0.01, stepped=False, seconds=seconds)


@pytest.mark.thorough
@pytest.mark.statistical
def test_a_planned_check_rarely_shows_more_effect_of_the_step_size_than_its_verdict_allows(flow, monkeypatch):
    """At two standard errors 2.3 % may; 200 plans and four standard errors: 13."""
    start = 0.5 * dynamics.learning_rate_limit(Problem.from_dataset(flow))
    world, shown = World(monkeypatch, 0.095 / start, 0.11 / np.sqrt(start)), 0
    for _ in range(200):
        rate, end, seeing = piloted(pilot_of(flow, 8, 0.0), [TIMES[-1]])
        assert (end, seeing) == (TIMES[-1], rate)
        runs = [world.simulate(None, learning_rate=part, seeds=range(8)) for part in (rate, rate / 2)]
        shown += not world.curves(None, None, runs)[0].known
    assert shown <= 13


def test_a_pilot_that_cannot_see_says_at_which_learning_rate_a_check_would(flow, monkeypatch):
    """A step moves the curve by 35 % of its range at the start of the pilot: a quarter of the rate would do."""
    end = 1.3 * float(flow["emergence_time"].min())
    start = end / 500
    World(monkeypatch, 0.35 / start, 0.02 / np.sqrt(start))
    free, _, found = piloted(pilot_of(flow, 32, 0.0), [end])
    assert (free, found) == (pytest.approx(start / 4), free)
    dear = pilot_of(flow, 32, 600.0 / 500)
    rate, last, seeing = piloted(dear, [end])
    assert (rate, last, seeing) == (pytest.approx(start), end, pytest.approx(free))
    first, *_ = left_out(dear, rate, end, [end], seeing)
    assert (first.samples, first.seconds) == (np.ceil(end / free), pytest.approx(2400.0))
    assert re.fullmatch(
        r"Direction 1 would take about \d+ samples of every run: 40 min; t_max [\d.]+ and a learning rate of [\d.]+\.",
        first.sentence("t_max"),
    )


def test_what_is_left_of_the_loss_late_in_a_prediction_is_no_movement(relu, flow):
    """E f*² is that of the kernel; a prediction saved from a thousandth of it on has a loss that hardly moves."""
    a, kernel = relu.teacher.coefficients, relu.activation.kernel
    whole = kernel(1.0) * np.sum(a**2) + kernel(0.0) * (np.sum(a) ** 2 - np.sum(a**2))
    late = flow.isel(time=flow["loss"].values < 1e-3 * whole)
    (loss,) = (one for one in quantities_of(relu, late) if one.kind == "loss")
    assert loss.scale == pytest.approx(0.05 * whole, rel=1e-6)
    assert np.ptp(loss.values) < loss.scale


def test_every_curve_that_moves_has_an_end_of_its_own(relu, flow):
    ends = ends_of_curves(relu, flow)
    assert ends == sorted(ends)
    assert 2 <= len(ends) <= 3
    assert ends[0] < 0.9 * ends[-1]


@pytest.mark.long
def test_runs_that_scatter_widely_do_not_refute_the_equation_of_finite_steps():
    """Noise as large as the start itself: phase retrieval escapes earlier than the mean step says, at any large rate."""
    student = Student(activation="h2(z)", width=1, second_layer="fixed", initial_second_layer=[1.0])
    problem = Problem(student=student, teacher=Teacher.polynomial("h2(x1)"), dimension=400)
    attrs = sgd_check.check(problem, learning_rate=2.9e-4, steps=16000, **QUIET)["comparison"].attrs
    assert attrs["theory"] == "finite step"
    assert attrs["verdict"] == "undecided"
    assert "of the range in component h2(x1): use a smaller learning rate." in attrs["reasons"]


def test_findings_show_every_tested_curve(flow, runs):
    tree = sgd_check.compare(flow, runs)
    found = find_findings(tree)
    table = next(part for part in found.tables if part.caption == "Curves of SGD against prediction")
    assert [row["what"] for row in table.rows] == tree["comparison"]["quantity"].values.tolist()
    assert found.values["curves"][0]["quantity"] == "loss"
    assert len(found.drawings) == 4


def test_learned_before_emerged_is_explained(relu):
    """By all degrees of the link, as files of before count: those that neurons share carry half of the weight early."""
    whole = replace(relu, learned_definition="all degrees")
    at = dynamics.SaveAt.at([40.0])
    with pytest.warns(UserWarning, match="leaves out"):
        flow = dynamics.solve_overlaps(whole, rtol=1e-5, save_at=at, error_estimate=False, **QUIET)
    sentences = " ".join(find_findings(flow).sentences)
    assert "Learned before emerged: direction 2. Neurons that point only partly along it" in sentences


@pytest.mark.long
@pytest.mark.statistical
@pytest.mark.parametrize("directions", [8, 4])
def test_curves_that_agree_do_not_speak_for_times_that_are_far_off(directions):
    """Zeroth order with 8 directions at d = 40: noise starts both neurons in half of the time that the mean step takes."""
    near = 0.3 * np.random.default_rng(0).uniform(-1.0, 1.0, (2, 2))
    student = Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
    problem = Problem(
        student=student, teacher=Teacher([1.0, 1.0]), dimension=40,
        initial_weights=np.hstack([near, 0.5 * np.eye(2)]), label_noise=0.3,
    )  # fmt: skip
    given = {"learning_rate": 5e-4, **QUIET}
    runs = sgd_check.simulate(problem, steps=60_000, seeds=32, optimizer=dynamics.ZerothOrder(directions=8), **given)
    times = dynamics.SaveAt.at(np.append(runs["time"].values[1:], 42.0))
    right, theory = (
        dynamics.solve_problem(problem, optimizer=dynamics.ZerothOrder(directions=count), save_at=times, **given)
        for count in (8, directions)
    )
    put_in = right.assign(loss=theory["loss"], emergence_time=theory["emergence_time"])
    logs = np.log(runs["emergence_time"].values / theory["emergence_time"].values)
    assert (np.nanmean(logs, axis=0) < -0.5).all()
    assert sgd_check.compare(put_in, runs)["comparison"].attrs["verdict"] == "undecided"
