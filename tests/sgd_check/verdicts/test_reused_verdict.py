"""The verdict on samples that are used again: right and wrong theories, refusals, errors of theory, files."""

import json

import numpy as np
import pytest
import xarray as xr

import dynamics
import sgd_check
from sgd_check.run.__main__ import main
from sgd_check.verdicts.curves import Curve, assess_curves, error_of, scatter_of

QUIET = {"progress": False}
NAMES = ("loss", "train_loss", "teacher_overlap", "squared_norm")
QUANTITIES = ["loss", "train loss", "overlap (1,1)", "squared norm 1"]


def neuron(dimension=800, label_noise=0.4, overlap=0.2):
    """One erf neuron that learns one, as on the page of accepted numbers."""
    student = dynamics.Student(
        activation="erf", width=1, second_layer="fixed", initial_second_layer=[1.0], biases="none"
    )
    return dynamics.Problem(
        student=student, teacher=dynamics.Teacher([1.0]), dimension=dimension, label_noise=label_noise,
        initial_weights=[[overlap, np.sqrt(0.5 - overlap**2)]],
    )  # fmt: skip


def theory(problem=None, **changed):
    usual = {"samples": "1.5d", "learning_rate": 0.7, "steps": 16, "batches_per_epoch": 4, "draws": 2**16}
    return dynamics.solve_reused_data(problem or neuron(), **usual | changed)


@pytest.fixture(scope="module")
def right():
    return theory()


@pytest.fixture(scope="module")
def runs():
    return sgd_check.simulate(
        neuron(), training_samples="1.5d", batch_size=300, passes=4, reshuffle=False, learning_rate=0.7, seeds=32,
        **QUIET,
    )  # fmt: skip


@pytest.mark.statistical
def test_right_theory_agrees(right, runs):
    """At 1 %, with fixed seeds; numbers of the loss are those of the datasets."""
    tree = sgd_check.compare(right, runs)
    comparison = tree["comparison"]
    assert comparison.attrs["verdict"] == "agree", comparison.attrs["reasons"]
    assert "fresh samples instead of those that are used again in loss and" in comparison.attrs["reasons"]
    assert comparison["quantity"].values.tolist() == QUANTITIES
    np.testing.assert_array_less(0.8, comparison["quantity_power"])
    np.testing.assert_array_equal(np.isnan(comparison["quantity_fresh_power"]), [False, True, False, False])
    # Means and predictions by the datasets themselves.
    times = comparison["look_time"].values[0]
    steps = np.rint(times[np.isfinite(times)] / 0.7).astype(int)
    shown = comparison.isel(quantity=0, look=slice(steps.size))
    losses, predicted = runs["loss"].values[:, steps], right["loss"].values
    np.testing.assert_allclose(shown["look_mean"], losses.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(shown["look_prediction"], predicted[steps], rtol=1e-12)
    scatter, unit = losses.std(axis=0, ddof=1).max(), np.ptp(predicted)
    assert float(shown["quantity_allowance"]) == pytest.approx(unit * (0.02 + 3 * (scatter / unit) ** 2))
    assert sgd_check.plot_comparison(tree).axes[0].get_title().startswith("agree: 32 runs")
    assert "overlap (1,1)" in str(dynamics.summary(tree))


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": "6d", "batches_per_epoch": 16},  # fresh ones in all 16 steps
        {"samples": "1.25d"},
        {"batches_per_epoch": 2},
        {"problem": neuron(label_noise=0.5)},
        {"learning_rate": 0.7 * 1.3},
    ],
    ids=["fresh samples", "samples / 1.2", "batches", "noise", "times / 1.3"],
)
def test_wrong_theory_that_states_the_same_is_refuted(right, runs, wrong):
    other = theory(**wrong)
    stated = right.assign({name: (right[name].dims, other[name].values) for name in NAMES})
    assert sgd_check.compare(stated, runs)["comparison"].attrs["verdict"] == "disagree"


@pytest.mark.statistical
def test_the_equation_of_fresh_samples_is_refuted(runs):
    online = dynamics.solve_network(
        neuron(), learning_rate=0.7, batch_size=300, step_theory="finite-d", error_estimate=False,
        save_at=dynamics.SaveAt.at(runs["time"].values), **QUIET,
    )  # fmt: skip
    attrs = sgd_check.compare(online, runs)["comparison"].attrs
    assert attrs["verdict"] == "disagree"
    assert "The runs use 1200 samples again, the prediction is of fresh ones." in attrs["reasons"]


@pytest.mark.statistical
def test_one_pass_tells_nothing_of_samples_that_are_used_again(right, runs):
    early = {"steps": 4, "stop_reason": "reached_end", "end_time": 2.8}
    first = runs.isel(time=slice(5)).assign_attrs(early)
    attrs = sgd_check.compare(theory(steps=4), first)["comparison"].attrs
    assert (attrs["verdict"], "could have gone unseen" in attrs["reasons"]) == ("undecided", True)


@pytest.mark.statistical
def test_in_few_dimensions_a_difference_may_be_theirs():
    few = sgd_check.simulate(
        neuron(80), training_samples=120, batch_size=120, passes=6, learning_rate=2.0, seeds=32, **QUIET
    )
    wrong = theory(neuron(80), samples=120, learning_rate=2.0, steps=6, batches_per_epoch=1)
    wrong["loss"] = wrong["loss"] * np.where(wrong["time"] > 0, 1.5, 1.0)
    attrs = sgd_check.compare(wrong, few)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert "80 is less than the 100 from which on the band is known to hold" in attrs["reasons"]
    # The start is exact in any dimension.
    attrs = sgd_check.compare(wrong.assign(loss=1.5 * wrong["loss"]), few)["comparison"].attrs
    assert attrs["verdict"] == "disagree"
    assert attrs["reasons"].startswith("The loss at the start is smaller than predicted")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"samples": "1.8d"}, "the samples over dimension of the prediction, 1.8, but has 1.5"),
        ({"batches_per_epoch": 2}, "the batches per epoch of the prediction, 2, but has 4"),
        ({"learning_rate": 0.6}, "the learning rate of the prediction, 0.6, but has 0.7"),
        ({"reshuffle": True}, "the reshuffle of the prediction, True, but has False"),
        ({"problem": neuron(label_noise=0.3)}, "the label noise of the prediction, 0.3, but has 0.4"),
        ({"problem": neuron(overlap=0.3)}, "the initial teacher_overlap of the prediction"),
    ],
)
def test_other_arguments_are_refused_in_a_sentence(runs, changed, said):
    with pytest.raises(ValueError, match="Argument `simulation` must have") as refusal:
        sgd_check.compare(theory(**{"draws": 2**10, "steps": 2, **changed}), runs)
    assert said in str(refusal.value)


def test_runs_on_fresh_samples_are_refused(right):
    online = sgd_check.simulate(neuron(20), learning_rate=0.01, steps=20, seeds=4, engine="torch", **QUIET)
    with pytest.raises(ValueError, match=r"must be runs of `sgd_check.simulate` with `training_samples`"):
        sgd_check.compare(right, online)


@pytest.mark.statistical
def test_errors_of_theory_count():
    """Theory is a mean of eight groups, 4000 times: alarms at 5 % within 4 standard errors of it, and power as said."""
    rng, rate, repeats, runs = np.random.default_rng(3), 0.05, 4000, 12
    times, still = np.array([1.0]), np.zeros(1)
    alarms, seen, stated = 0, 0, []
    for _ in range(repeats):
        groups = rng.standard_normal((8, 1))
        error = groups.std(axis=0, ddof=1) / np.sqrt(8)
        for shift in (0.02, 1.52):  # the edge of the band around a range of 1, and beyond
            values = shift + rng.standard_normal((runs, 1))
            dilated = groups.mean(axis=0) + np.array([[1.52], [-1.52]])
            curve = Curve("x", "", times, groups.mean(axis=0), values, still, dilated, 1.0, theory_error=error)
            p = assess_curves([curve], rate)[1]
            alarms += p < rate and shift < 1.0
            seen += p < rate and shift > 1.0
        (both,), (freedom,) = error_of(curve, scatter_of(curve), runs)
        stated.append(both)
    assert 0.6 * rate < alarms / repeats < rate + 4 * np.sqrt(rate / repeats)
    assert seen / repeats > 0.8
    assert np.mean(np.square(stated)) == pytest.approx(1 / 12 + 1 / 8, rel=0.05)
    assert min(runs - 1, 7) <= freedom <= runs - 1 + 7


@pytest.mark.statistical
def test_check_predicts_runs_and_compares():
    tree = sgd_check.check(
        neuron(600), training_samples="1.5d", passes=8, batch_size=900, learning_rate=2.0, seeds=32, **QUIET
    )
    assert tree["comparison"].attrs["verdict"] in ("agree", "undecided"), tree["comparison"].attrs["reasons"]
    assert tree["comparison"].attrs["theory"] == "reused data"
    assert tree["prediction"].attrs["steps"] == tree["simulation"].attrs["steps"] == 8
    assert tree["simulation"].attrs["training_samples"] == 900


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"learning_rate": None}, "`learning_rate` must be given beside `training_samples`"),
        ({"passes": None}, "`steps` must be given, or `passes` beside `training_samples`"),
        ({"theory": "flow"}, "`theory` must be 'auto' beside `training_samples`, but is 'flow'"),
        ({"t_max": 3.0}, "`directions` and `t_max` must be absent beside `training_samples`"),
        ({"optimizer": dynamics.SGD(momentum=0.5)}, "`optimizer` must be plain SGD beside `training_samples`"),
        ({"training_samples": None}, "`passes` must be absent without `training_samples`"),
    ],
)
def test_check_refuses_what_it_does_not_know(changed, said):
    given = {"training_samples": 60, "passes": 2, "batch_size": 30, "learning_rate": 0.5, **QUIET}
    with pytest.raises(ValueError, match=said):
        sgd_check.check(neuron(40), **given | changed)


@pytest.mark.thorough
def test_the_command_checks_a_file(tmp_path, capsys):
    path = dynamics.save(theory(neuron(40), samples=60, steps=6, draws=2**12), tmp_path / "reused.nc")
    assert main([str(path), "--seeds", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["theory"], found["steps"], found["training_samples"]) == ("reused data", 6, 60)
    assert path.with_name("reused-sgd.png").stat().st_size > 1000
    for words, said in (
        (["--engine", "projected"], "--engine must be torch or auto for samples that are used again"),
        (["--learning-rate", "1"], "--learning-rate must be that of the prediction, 0.7"),
        (["--t-max", "2"], "--t-max must be absent for samples that are used again"),
    ):
        assert main([str(path), "--overwrite", *words]) == 2
        assert said in capsys.readouterr().err
    odd = dynamics.save(theory(neuron(41), samples=61, steps=2, draws=2**10), tmp_path / "odd.nc")
    assert main([str(odd)]) == 2
    assert "FILE must have samples of which every batch has as many, but has 61 in 4" in capsys.readouterr().err


def test_what_is_learned_is_not_drawn_of_samples_that_are_used_again(right, runs):
    tree = xr.DataTree.from_dict({"comparison": xr.Dataset(), "simulation": runs, "prediction": right})
    said = "must say what is learned over time, but has the train loss, which `plot_comparison` draws"
    with pytest.raises(ValueError, match=said):
        sgd_check.plot_learning(tree)
