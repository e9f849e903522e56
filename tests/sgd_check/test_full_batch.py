"""The study of samples that are reused against online SGD: its numbers, what it says, and how it ends."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

import dynamics
import sgd_check
from sgd_check.studies.full_batch import cut_square, full_batch_recovery, online_slope

SMALL = {"dimensions": (16, 24), "ratios": (2.0, 6.0), "steps": 300, "online_dimensions": (64, 128), "seeds": 3}


@pytest.fixture(scope="module")
def study():
    return full_batch_recovery(**SMALL, progress=False)


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
    assert online_slope(cut_square(4.0), 0.02) == pytest.approx(0.5 / (0.02 * 2.1818 - 0.02**2 * 3.0720), rel=1e-4)
    assert online_slope("z**2", 0.7) == np.inf


def test_the_samples_of_its_eigenvectors_are_those_of_the_estimator(study):
    problem = dynamics.Problem(activation="min(z**2, 4)", teacher=dynamics.Teacher([1.0]), width=1, dimension=24)
    alone = sgd_check.estimate_direction(problem, samples=144, seeds=range(9, 12), degree=2, progress=False)
    np.testing.assert_array_equal(study.overlap_squared.sel(dimension=24, ratio=6.0), alone.overlap_squared)


def test_an_interrupt_leaves_the_rest_unknown(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgd_check.studies.full_batch.simulate", interrupted)
    with pytest.raises(dynamics.SolveInterrupted) as caught:
        full_batch_recovery(**SMALL, progress=False)
    found = caught.value.dataset
    assert found.attrs["stop_reason"] == "interrupted"
    assert np.isfinite(found.overlap_squared[0, 0]).all()
    assert np.isnan(found.descent_overlap_squared).all()
    assert np.isnan(found.recovered_share).all()
    assert np.isnan(found.online_samples).all()


def test_the_command_prints_and_draws_it(tmp_path, monkeypatch, capsys):
    from sgd_check.study import main

    monkeypatch.chdir(tmp_path)
    words = "full-batch --dimensions 16 --ratios 2 --steps 50 --online-dimensions 64 --seeds 2"
    assert main([*words.split(), "--dry-run"]) == 0
    assert "steps of all runs together" in capsys.readouterr().err
    assert main([*words.split(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["study"] == "full-batch"
    assert [point["n/d"] for point in printed["points"]] == [2.0]
    assert printed["exact_recovery_theory"] == "none: the share of exact recoveries by descent is measured alone"
    stored = dynamics.load(tmp_path / "study-full-batch.nc")
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
