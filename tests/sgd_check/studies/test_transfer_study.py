"""The study of the step size's transfer under SGD, at a small size, as a command."""

import json

import numpy as np
import pytest

import sgd_check
from dynamics import Problem, Teacher, load
from sgd_check.study import main

QUICK = ["transfer", "--k", "3", "--directions", "2", "--dimension", "12", "--widths", "1,2,3,4", "--samples", "400"]
RUNS = ["--starts", "2", "--seeds", "2"]


@pytest.mark.thorough
def test_the_command_writes_losses_of_simulated_runs(tmp_path, capsys):
    target = tmp_path / "found.nc"
    assert main([*QUICK, *RUNS, "--output", str(target)]) == 0
    shown = capsys.readouterr()
    assert "Transfer:" in shown.out
    assert "of all runs together" in shown.err
    found = load(target)
    assert found["final_loss"].dims == ("width", "learning_rate", "run")
    assert found.sizes["run"] == 4
    assert target.with_suffix(".png").stat().st_size > 10_000
    # One of the runs by itself: start 1, the second step size, the largest width.
    rate = float(found["learning_rate"][1])
    problem = Problem(activation="he3", teacher=Teacher.power_law(2, 1.0), width=4, dimension=12, seed=1)
    first = (1 * 2 + 1) * 2
    runs = sgd_check.simulate(problem, learning_rate=rate, steps=400, seeds=[first, first + 1], progress=False)
    np.testing.assert_allclose(found["final_loss"][3, 1, 2:], runs["loss"][:, -1], rtol=1e-9)
    # No two runs of one width share samples and start.
    assert len(np.unique(found["final_loss"][3, 0])) == 4


@pytest.mark.long
def test_an_interrupted_study_keeps_what_it_has(tmp_path, monkeypatch, capsys):
    once, calls = sgd_check.simulate, []

    def interrupted(*given, **options):
        calls.append(given)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return once(*given, **options)

    monkeypatch.setattr("sgd_check.studies.scaffold.simulate", interrupted)
    target = tmp_path / "part.nc"
    assert main([*QUICK, *RUNS, "--output", str(target), "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["stop_reason"] == "interrupted"
    loss = load(target)["final_loss"].values
    assert np.isfinite(loss[0]).all()
    assert np.isnan(loss[2:]).all()
