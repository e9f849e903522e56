"""Studies of SGD: escapes against `simulate`, slopes against exact laws, full batches, and the commands."""

import json
import os
import re
import signal

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

import dynamics
import sgd_check
from dynamics import SolveInterrupted, Teacher, load, save
from dynamics.laws.scaffold import Meter
from dynamics.theory import learning_rates
from sgd_check import full_batch_recovery
from sgd_check.engines.projected import ProjectedEngine
from sgd_check.report.findings import sgd_study_findings
from sgd_check.studies import complexity, discretisation
from sgd_check.studies.full_batch import online_slope
from sgd_check.studies.scaffold import prepared_pairs
from sgd_check.study import main

QUICK = ["sample-complexity", "--k", "3", "--dimensions", "16,24", "--rate", "0.02", "--seeds", "3"]


def test_escapes_are_those_of_simulate_and_end_the_run(monkeypatch):
    problem = prepared_pairs(4, 24)
    eta = 2e-5
    whole = sgd_check.simulate(problem, learning_rate=eta, steps=400_000, seeds=[3, 5, 8], progress=False)
    taken = []
    stretches = []
    advance = ProjectedEngine.advance
    monkeypatch.setattr(
        ProjectedEngine, "advance", lambda self, rates: taken.append(rates.size) or advance(self, rates)
    )
    given = {"learning_rate": eta, "steps": 400_000, "seeds": [3, 5, 8]}
    time, blown_up = complexity.escape_times(problem, **given, report=stretches.append)
    # The same samples, looked at more often: times differ by the interpolation between looks alone.
    np.testing.assert_allclose(time, whole["emergence_time"].values, rtol=5e-3)
    assert not blown_up.any()
    assert sum(taken) * eta <= time.max() * complexity.TIME_RATIO + 2 * eta
    # Runs that have escaped are not counted any more: the sum is that of the single escapes.
    assert sum(stretches) == pytest.approx(time.sum() / eta, rel=complexity.TIME_RATIO - 1)


@pytest.mark.parametrize("k", [3, 4])
def test_flow_times_of_the_cells_are_the_transit_integral(k):
    for d in (32, 128):
        cell = complexity.cell_of(k, None, prepared_pairs(k, d), 0.05)
        exact = quad(lambda s: 1.0 / (k * s ** (k - 1) * (1.0 - s * s)), 2.0 / np.sqrt(d), np.sqrt(0.5))[0]
        assert cell.flow_time == pytest.approx(exact, rel=1e-9)
        assert cell.learning_rate == pytest.approx(0.05 * d ** (-k / 2))
        assert cell.finite_step_time > cell.flow_time


def test_samples_to_a_loss_are_those_of_the_decoupled_flow():
    import dynamics

    problem = prepared_pairs(4, 64, teacher=Teacher.power_law(6, 1.0), initial_norm=0.05)
    targets, eta = np.array([1, 3]), learning_rates.tuned_rates(problem, np.array([1, 3]), 1e-9)
    _, _, _, needed, without, learned = discretisation.theory_curve(problem, targets, 1e-9)
    flow = dynamics.predict_emergence(problem)["predicted_learned_time"].values

    def loss(t):
        return float(dynamics.solve_decoupled(problem, save_at=dynamics.SaveAt.at([t]))["loss"][0])

    for at, level in enumerate(learning_rates.target_losses(problem, targets)):
        exact = brentq(lambda t, level=level: loss(t) - level, 0.2 * flow[0], 2.0 * flow[-1], rtol=1e-6)
        # Interpolation between 800 tabulated times.
        assert needed[at] * eta[at] == pytest.approx(exact, rel=2e-3)
    # At a vanishing step there is no noise to wait for.
    np.testing.assert_allclose(needed, without, rtol=1e-6)
    np.testing.assert_allclose(learned, np.broadcast_to(flow, (2, 6)), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.statistical
def test_sample_complexity_of_sgd_is_that_of_the_equation():
    """Slope and times against the finite-step equation, at a step small enough for it to describe the mean of ln T.

    False-alarm rate 2e-3: two two-sided tests at 1e-3 each, with a fixed seed.
    """
    found = sgd_check.sample_complexity(
        information_exponents=[3], dimensions=[16, 32, 64], rate=0.02, seeds=48, progress=False
    )
    fit = sgd_study_findings(found).values["fits"][0]
    assert abs(fit["z_equation"]) < norm.isf(5e-4)
    assert fit["p_value"] > 1e-3
    assert fit["standard_error"] < 0.1
    assert found.sizes["run"] == 48
    assert len(np.unique(found["emergence_time"].values)) == 3 * 48
    np.testing.assert_allclose(
        found["emergence_step"].values * found["step_size"].values[..., None, None], found["emergence_time"].values
    )


@pytest.mark.thorough
@pytest.mark.statistical
def test_steps_of_zeroth_order_need_a_factor_of_the_dimension_more():
    """Slopes and times of both against their equations. False-alarm rate 4e-3: two tests at 1e-3 each, a fixed seed."""
    found = sgd_check.sample_complexity(
        information_exponents=[3], dimensions=[12, 16, 20], optimizers=["sgd", dynamics.ZerothOrder()], rate=0.03,
        seeds=16, progress=False,
    )  # fmt: skip
    assert found["exponent"].dims == ("information_exponent", "optimizer", "source")
    assert found["optimizer"].values.tolist() == ["SGD()", "ZerothOrder()"]
    assert len(np.unique(found["first_seed"].values)) == 6
    findings = sgd_study_findings(found)
    plain, along = findings.values["fits"]
    for fit, limit in ((plain, 2.0), (along, 3.0)):
        assert fit["asymptotic"] == limit
        assert abs(fit["z_equation"]) < norm.isf(5e-4)
        assert fit["p_value"] > 1e-3
    # At the same drag, with (d + 2) times as many steps: the equations are the same but for what neurons keep of norm.
    steps = found["finite_step_time"] / found["step_size"]
    ratio = steps.sel(optimizer="ZerothOrder()") / steps.sel(optimizer="SGD()")
    np.testing.assert_allclose(ratio.values.ravel() / (found["dimension"].values + 2.0), 1.0, rtol=0.02)
    assert "by zeroth order; at these d" in findings.sentences[1]
    assert "; k = 3. Its x is" in findings.sentences[1]
    texts = [text.get_text() for text in sgd_check.plot_study(found).axes[0].get_legend().get_texts()]
    assert any(text.startswith("$k = 3$: SGD, ") for text in texts)
    assert any(text.startswith("$k = 3$: zeroth order, ") and text.endswith("; $k = 3$") for text in texts)


def test_cells_of_a_sphere_have_the_drag_of_zeroth_order():
    """The mean time with E|u|² by hand, and that the steps are as many times more as the drag is (k = 3, d = 32)."""
    d, k = 32, 3
    pair = prepared_pairs(k, d)
    plain, along, many = (
        complexity.cell_of(k, 0.0, pair, 0.05, each)
        for each in (dynamics.SGD(), dynamics.ZerothOrder(), dynamics.ZerothOrder(directions=10**6))
    )
    assert along.learning_rate == pytest.approx(plain.learning_rate / (d + 2), rel=1e-12)
    assert along.asymptotic == plain.asymptotic + 1.0 == 3.0
    assert many.finite_step_time == pytest.approx(plain.finite_step_time, rel=1e-4)
    # N = (d − 1) E y²ψ²|x|² + 2 E y²ψ²|x_⊥|² by a Gauss rule in z and v.
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    z, v = np.meshgrid(nodes, nodes, indexing="ij")
    both = np.outer(weights, weights) / weights.sum() ** 2

    def drag(C):
        seen = C * z + np.sqrt(1.0 - C**2) * v
        size = both * ((seen**3 - 3.0 * seen) * 3.0 * (z**2 - 1.0) / 6.0) ** 2
        across = v**2 + d - 2
        return np.sum(size * ((d - 1) * (z**2 + across) + 2.0 * across))

    def pace(C):
        return 1.0 / (3.0 * C**2 * (1.0 - C**2) - 0.5 * along.learning_rate * C * drag(C))

    assert along.finite_step_time == pytest.approx(quad(pace, 2.0 / np.sqrt(d), np.sqrt(0.5))[0], rel=1e-8)


@pytest.mark.thorough
@pytest.mark.statistical
def test_spheres_of_both_optimizers_slide_as_their_equations_say():
    """Without smoothing, by the chain of one number. False-alarm rate 4e-3: two tests at 1e-3 each, a fixed seed."""
    given = {"smoothing_exponents": [0.0], "optimizers": ["sgd", "zeroth-order"], "rate": 0.02, "seeds": 32}
    found = sgd_check.sample_complexity(information_exponents=[3], dimensions=[12, 16, 20], progress=False, **given)
    findings = sgd_study_findings(found)
    for fit, limit in zip(findings.values["fits"], (2.0, 3.0), strict=True):
        assert fit["asymptotic"] == limit
        assert abs(fit["z_equation"]) < norm.isf(5e-4)
        assert fit["p_value"] > 1e-3
    texts = [text.get_text() for text in sgd_check.plot_study(found).axes[0].get_legend().get_texts()]
    assert any(r"$\lambda = 0$: zeroth order, " in text for text in texts)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"optimizers": ["adam"]}, "`optimizers` must hold plain SGD or ZerothOrder without smoothing, but holds Adam"),
        ({"optimizers": []}, "`optimizers` must hold one or more optimizers, each of them once, but holds none"),
        ({"optimizers": ["sgd", "SGD()"]}, "each of them once, but holds SGD(), SGD()"),
        ({"optimizers": ["zeroth-order"], "smoothing_exponents": [0.0, 0.1]}, "must be 0 alone for steps of zeroth"),
    ],
)
def test_optimizers_that_a_study_does_not_know_are_refused(given, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        sgd_check.sample_complexity(**given)


def test_the_command_takes_optimizers(capsys):
    asked = [*QUICK[:4], "12,16", *QUICK[5:], "--optimizer", "sgd,ZerothOrder(directions=2)", "--json", "--no-plot"]
    assert main(asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert [fit["optimizer"] for fit in said["fits"]] == ["SGD()", "ZerothOrder(directions=2)"]
    assert main([*QUICK, "--optimizer", "adam", "--json", "--no-plot"]) == 2
    assert "must hold plain SGD or ZerothOrder" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.statistical
def test_smoothing_takes_fewer_samples_as_the_equation_says():
    """Slopes within two standard errors of the equation's own: by chance, one in twenty of each; the seeds are fixed."""
    found = sgd_check.sample_complexity(
        information_exponents=[3], smoothing_exponents=[0.0, 0.125, 0.25], dimensions=[64, 128, 256], progress=False
    )
    assert found["exponent"].dims == ("information_exponent", "smoothing_exponent", "source")
    findings = sgd_study_findings(found)
    for fit in findings.values["fits"]:
        assert abs(fit["z_equation"]) < 2.0
        assert fit["asymptotic"] == 2.0 - 2.0 * fit["e"]
        assert fit["p_value"] > 1e-3
    assert len(np.unique(found["first_seed"].values)) == 9
    assert "smoothed by d^0.25" in findings.sentences[2]
    texts = [text.get_text() for text in sgd_check.plot_study(found).axes[0].get_legend().get_texts()]
    assert any(text.startswith(r"$k = 3$, $\lambda = d^{0.25}$: $d^{1.5") for text in texts)


@pytest.mark.thorough
@pytest.mark.statistical
def test_step_sizes_from_faithful_to_blown_up():
    """Three step sizes over two decades. False-alarm rate 5e-3: the median of 32 runs at the smallest, whose logarithm
    scatters by 0.16, is within 13 % of the flow; at most three of 32 blow up at half the limit, where one in a hundred
    does; more than six do at eight times the limit, where nearly half do.
    """
    problem = prepared_pairs(4, 24, initial_norm=0.3)
    limit = 5.376e-3 / 24
    rates = limit * np.array([0.06, 0.5, 8.0])
    found = sgd_check.step_size_phases(problem, learning_rates=rates, seeds=32, progress=False)
    # At d = 24 the limit is 20 % below that of d → ∞, which the numbers of runs are for.
    assert found.attrs["learning_rate_limit"] == pytest.approx(0.7953 * limit, rel=1e-3)
    blown = found["blown_up_share"].values
    assert blown[0] == 0.0
    assert blown[1] <= 3 / 32
    assert blown[2] > 6 / 32
    ratio = [point["median/flow"] for point in sgd_study_findings(found).values["points"]]
    assert ratio[0] == pytest.approx(1.0, abs=0.13)
    assert ratio[2] > 1.3
    # The equation is close to the flow at first; beyond its limit it never gets to an emergence.
    equation = found["finite_step_time"].values[:, 0] / found["predicted_emergence_time"].values[0]
    np.testing.assert_allclose(equation[:2], [1.02, 1.18], atol=0.01)
    assert np.isnan(equation[2])


@pytest.mark.thorough
@pytest.mark.statistical
def test_loss_against_samples_at_tuned_steps():
    """Samples needed by SGD against the delayed pairs. False-alarm rate 2e-3, at most: two z of 12 runs within 4.5."""
    found = sgd_check.unstable_discretisation(
        information_exponent=3, directions=4, dimension=32, targets=[2, 3], rate=0.1, seeds=12,
        large_directions=64, large_dimension=4096, progress=False,
    )  # fmt: skip
    summary = sgd_study_findings(found).values
    assert [point["wanted"] for point in summary["points"]] == [2, 3]
    assert all(abs(point["z"]) < 4.5 for point in summary["points"])
    assert all(point["missed"] == 0 for point in summary["points"])
    sgd, same = summary["fits"][:2]
    assert sgd["exponent"] == pytest.approx(same["exponent"], abs=4.5 * sgd["standard_error"])
    assert summary["fits"][-1]["exponent"] == -0.5


def test_the_command_writes_and_prints(here, capsys):
    assert main(QUICK) == 0
    shown = capsys.readouterr()
    assert "steps ~ d^x" in shown.out
    assert "of all runs together" in shown.err
    assert (here / "study-sample-complexity.png").stat().st_size > 10_000
    stored = load(here / "study-sample-complexity.nc")
    assert dict(stored.sizes)["run"] == 3
    assert json.loads(stored.attrs["parameters"])["solver"]["rate"] == 0.02
    # A second run takes a free name and gives the same bits.
    assert main([*QUICK, "--json", "--no-plot"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["output"] == "study-sample-complexity-2.nc"
    again = load(here / "study-sample-complexity-2.nc")
    np.testing.assert_array_equal(again["emergence_time"], stored["emergence_time"])


@pytest.mark.thorough
def test_the_other_studies_by_command(tmp_path, capsys):
    problem = tmp_path / "problem.nc"
    save(sgd_check.simulate(prepared_pairs(3, 12), learning_rate=1e-4, steps=10, seeds=1, progress=False), problem)
    target = tmp_path / "found.nc"
    command = ["step-size", "--problem", str(problem), "--learning-rates", "1e-4,1e-2", "--seeds", "2"]
    assert main([*command, "--output", str(target), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["eta"] for point in found["points"]] == [1e-4, 1e-2]
    command = ["unstable-discretisation", "--k", "3", "--directions", "4", "--dimension", "12", "--targets", "1,2"]
    size = ["--large-directions", "64", "--large-dimension", "1024", "--seeds", "2", "--output", str(target)]
    assert main([*command, *size, "--overwrite"]) == 0
    assert "loss ~ samples^x" in capsys.readouterr().out


def test_nothing_is_overwritten_and_dry_runs_take_no_step(tmp_path, monkeypatch, capsys):
    target = tmp_path / "kept.nc"
    target.write_bytes(b"precious")
    assert main([*QUICK, "--output", str(target)]) == 2
    assert "allow it with overwrite" in capsys.readouterr().err
    monkeypatch.setattr(complexity, "escape_times", lambda *_, **__: pytest.fail("ran"))
    assert main([*QUICK, "--output", str(target), "--dry-run"]) == 0
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the following arguments are required: NAME"),
        (["sample-complexity", "--k", "2"], "Option --k must be at least 3, but is 2."),
        (["sample-complexity", "--dimensions", "64,32"], "Option --dimensions must hold at least 2 increasing integers, but is [64, 32]."),
        (["sample-complexity", "--dimensions", "64,x"], "Option --dimensions must be a number, but is 'x'."),
        (["sample-complexity", "--seeds", "1"], "Option --seeds must be at least 2, but is 1."),
        (["sample-complexity", "--start", "16", "--dimensions", "8,64"], "Option --start must be positive and below half the dimension 8, but is 16.0."),
        (["sample-complexity", "--smoothing-exponent", "0,0.5"], "Option --smoothing-exponent must hold increasing numbers from 0 to 0.25, but is [0.0, 0.5]."),
        (["sample-complexity", "--json", "--quiet"], "Options --json and --quiet must not be given together, but are."),
        (["unstable-discretisation", "--beta", "0.5"], "Option --beta must be above 1/2, or the loss follows no power law, but is 0.5."),
        (["unstable-discretisation", "--targets", "3,2"], "Option --targets must hold at least 2 increasing integers, but is [3, 2]."),
        (["unstable-discretisation", "--dimension", "31"], "Option --dimension must be at least twice the number of directions, 32, but is 31."),
        (["step-size", "--learning-rates", "1e-4"], "Option --learning-rates must hold at least two step sizes, but has shape (1,)."),
        (["sample-complexity", "--dimension", "64"], "Option --dimension must be absent for sample-complexity, but is given; it is one of unstable-discretisation, step-size, epochs, calibration, transfer. Did you mean '--dimensions'?"),
        (["step-size", "--problem", "none.nc"], "Option --problem must name an existing file, but is 'none.nc'."),
        (["step-size", "--problem", "none.nc", "--k", "3"], "Option --k must be absent when --problem is given, but is 3."),
        (["transfer", "--widths", "4,8"], "Option --widths must hold at least 4 increasing integers, but is [4, 8]."),
        (["transfer", "--dimension", "20"], "Option --dimension must be at least 41, but is 20."),
        (["transfer", "--k", "2"], "Option --k must be at least 3, but is 2."),
    ],
)  # fmt: skip
def test_usage_errors_are_one_sentence_and_exit_two(here, capsys, arguments, sentence):
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {sentence}"


def test_an_interrupted_study_keeps_what_it_has(tmp_path, monkeypatch, capsys):
    once = complexity.escape_times
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return once(*arguments, **options)

    monkeypatch.setattr(complexity, "escape_times", interrupted)
    target = tmp_path / "part.nc"
    assert main([*QUICK, "--output", str(target)]) == 130
    assert f"what was computed is in {target}" in capsys.readouterr().err
    kept = load(target)
    assert kept.attrs["stop_reason"] == "interrupted"
    known = np.isfinite(kept["emergence_time"].values).all(axis=(0, 2, 3))
    np.testing.assert_array_equal(known, [True, False])


SMALL = {"dimensions": (16, 24), "ratios": (2.0, 6.0), "steps": 300, "online_dimensions": (64, 128), "seeds": 3}


@pytest.fixture(scope="module")
def study():
    return full_batch_recovery(**SMALL, progress=False)


@pytest.mark.thorough
@pytest.mark.statistical
def test_online_sgd_takes_the_samples_of_the_page():
    """Means of 150 runs scatter by 0.28 and 0.33: 3 % of 24.46 and 51.97 is 2.6 and 4.7 of that, 0.009 of false alarms."""
    asked = {"dimensions": (16,), "ratios": (2.0,), "steps": 1, "online_dimensions": (100, 1000), "seeds": 150}
    found = full_batch_recovery(cut=4.0, **asked, progress=False)
    needed = (found.online_samples / found.online_dimension).mean("run")
    np.testing.assert_allclose(needed, [24.46, 51.97], rtol=0.03)
    assert found.attrs["online_slope_measured"] == pytest.approx(11.84, abs=4 * found.attrs["online_slope_error"])
    assert found.attrs["online_slope_error"] < 0.25


def test_slopes_of_online_sgd_by_the_mean_step():
    assert online_slope("z**2", 0.02) == pytest.approx(0.5 / (0.02 * 4 - 0.02**2 * 6), rel=1e-9)
    assert online_slope("min(z**2, 4.0)", 0.02) == pytest.approx(0.5 / (0.02 * 2.1818 - 0.02**2 * 3.0720), rel=1e-4)
    assert online_slope("z**2", 0.7) == np.inf


def test_the_samples_of_its_eigenvectors_are_those_of_the_estimator(study):
    problem = dynamics.Problem(activation="min(z**2, 4)", teacher=dynamics.Teacher([1.0]), width=1, dimension=24)
    alone = sgd_check.estimate_direction(problem, samples=144, seeds=range(9, 12), degree=2, progress=False)
    np.testing.assert_array_equal(study.overlap_squared.sel(dimension=24, ratio=6.0), alone.overlap_squared)


def test_an_interrupt_leaves_the_rest_unknown(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgd_check.studies.scaffold.simulate", interrupted)
    with pytest.raises(dynamics.SolveInterrupted) as caught:
        full_batch_recovery(**SMALL, progress=False)
    found = caught.value.dataset
    assert found.attrs["stop_reason"] == "interrupted"
    assert np.isfinite(found.overlap_squared[0, 0]).all()
    assert np.isnan(found.descent_overlap_squared).all()
    assert np.isnan(found.recovered_share).all()
    assert np.isnan(found.online_samples).all()


@pytest.mark.thorough
def test_the_command_prints_and_draws_it(here, capsys):
    from sgd_check.study import main

    words = "full-batch --dimensions 16 --ratios 2 --steps 50 --online-dimensions 64 --seeds 2"
    assert main([*words.split(), "--dry-run"]) == 0
    assert "steps of all runs together" in capsys.readouterr().err
    assert main([*words.split(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["study"] == "full-batch"
    assert [point["n/d"] for point in printed["points"]] == [2.0]
    assert printed["exact_recovery_theory"] == "none: the share of exact recoveries by descent is measured alone"
    stored = dynamics.load(here / "study-full-batch.nc")
    left, right = sgd_check.plot_study(stored).axes
    np.testing.assert_array_equal(left.get_lines()[0].get_ydata(), stored.predicted_overlap_squared)
    assert right.get_xscale() == "log"
    own = Figure().subplots(1, 2)
    assert sgd_check.plot_study(stored, own) is own[0].figure
    np.testing.assert_array_equal(own[0].get_lines()[0].get_ydata(), stored.predicted_overlap_squared)
    with pytest.raises(ValueError, match="Argument `axes` must be 2 axes, but has 1"):
        sgd_check.plot_study(stored, own[:1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cut": 0.0}, "Argument `cut` must be finite and positive, but is 0.0."),
        ({"ratios": (2.0, 1.0)}, "Argument `ratios` must hold increasing positive numbers, but is [2.0, 1.0]."),
        ({"dimensions": (1,)}, "Argument `dimensions` must be at least 2, but is 1."),
        ({"online_dimensions": (20,)}, "Argument `online_dimensions` must be at least 64, but is 20."),
        ({"online_rate": 0.8}, "Argument `online_rate` must be so small that the drift of online SGD outweighs its noise, but is 0.8."),
        ({"steps": 0}, "Argument `steps` must be at least 1, but is 0."),
    ],
)  # fmt: skip
def test_refusals_say_what_must_hold_and_what_was_given(options, sentence):
    with pytest.raises(ValueError, match="Argument") as caught:
        full_batch_recovery(**options)
    assert str(caught.value) == sentence


def test_a_point_whose_steps_are_taken_is_kept(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Meter, "add", interrupted)
    rates = [1e-4, 1e-3]
    with pytest.raises(SolveInterrupted) as stopped:
        sgd_check.step_size_phases(prepared_pairs(3, 16), learning_rates=rates, seeds=2, progress=False)
    found = stopped.value.dataset
    assert found.attrs["stop_reason"] == "interrupted"
    assert np.isfinite(found["blown_up_share"].values).tolist() == [False, True]
