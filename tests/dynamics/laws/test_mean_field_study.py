"""The command that measures the propagation of chaos: what it writes, prints and refuses."""

import json

import numpy as np
import pytest
import xarray as xr

import dynamics
from dynamics.laws import chaos
from dynamics.mean_field_study import main

NAME = "propagation-of-chaos"
SMALL = ["--widths", "8,16", "--seeds", "3", "--t-max", "2", "--dimension", "8"]


@pytest.mark.thorough
def test_the_command_measures_prints_and_draws(tmp_path, capsys):
    output = tmp_path / "chaos.nc"
    assert main([NAME, *SMALL, "--output", str(output)]) == 0
    printed = capsys.readouterr()
    assert "function gap exponent" in printed.out
    assert "standard errors at" in printed.out
    assert printed.err.startswith("About ")
    assert output.with_suffix(".png").stat().st_size > 10_000
    stored = dynamics.load(output)
    direct = dynamics.propagation_of_chaos(
        dynamics.problem.named_teachers.spherical_problem("he4", dimension=8), widths=(8, 16), seeds=3,
        save_at=dynamics.SaveAt.at(stored.time.values), rtol=1e-3, atol=1e-5,
    )  # fmt: skip
    np.testing.assert_array_equal(stored.function_gap, direct.function_gap)
    assert float(stored.time[-1]) == 2.0
    assert stored.attrs["stop_reason"] == "reached_end"
    assert main([NAME, *SMALL, "--output", str(output)]) == 2
    assert "must not name an existing file" in capsys.readouterr().err


def test_json_and_a_dry_run(tmp_path, capsys):
    arguments = [NAME, *SMALL, "--teacher", "he3", "--seed", "5", "--no-plot", "--output", str(tmp_path / "c.nc")]
    assert main([*arguments, "--dry-run"]) == 0
    assert not (tmp_path / "c.nc").exists()
    assert "2 widths, 3 starts each, to t = 2." in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["study"] == "chaos"
    assert len(found["points"]) == 8
    assert found["times_as_theory"] <= found["times"] == 40
    assert dynamics.load(tmp_path / "c.nc").seed.values.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--teacher", "he5"], "`name` must be one of"),
        (["--widths", "8"], "--widths must hold at least 2 increasing integers"),
        (["--seeds", "1"], "--seeds must be at least 2"),
        (["--t-max", "0"], "--t-max must be finite and positive"),
        (["--seed", "-1"], "--seed must be at least 0"),
    ],
)
def test_bad_arguments_are_named(changes, words, capsys):
    assert main([NAME, "--no-plot", *changes]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("finished", "interruption"),
    [(1, KeyboardInterrupt()), (1, dynamics.SolveInterrupted("", xr.Dataset())), (2, KeyboardInterrupt())],
)
def test_an_interrupted_study_keeps_the_starts_that_were_finished(
    finished, interruption, tmp_path, monkeypatch, capsys
):
    solve, calls = chaos.solve_spherical, []

    def interrupted(*arguments, **settings):
        calls.append(1)
        if len(calls) > 2 * finished:
            raise interruption
        return solve(*arguments, **settings)

    monkeypatch.setattr(chaos, "solve_spherical", interrupted)
    output = tmp_path / "chaos.nc"
    assert main([NAME, *SMALL, "--output", str(output), "--no-plot"]) == 130
    said = capsys.readouterr().err
    if finished < 2:
        assert "interrupted before anything was computed" in said
        assert not output.exists()
        return
    assert "was interrupted" in said
    stored = dynamics.load(output)
    assert stored.sizes["seed"] == 2
    assert stored.attrs["stop_reason"] == "interrupted"
