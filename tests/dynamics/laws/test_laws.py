"""The studies of scaling laws as commands and functions, at small sizes."""

import json
import time as clock
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import dynamics
from dynamics import Problem, Teacher, load, plot_study
from dynamics.fits import fit_runs
from dynamics.laws import quadratic, scaffold, scaling, transfer
from dynamics.laws.__main__ import main
from dynamics.report.laws import law_findings
from dynamics.theory.asymptotics import asymptotic_exponents, ideal_exponent

FRONTIER = ["compute-frontier", "--directions", "16", "--dimension", "32", "--widths", "2,4,8,16,32", "--starts", "2"]


@pytest.mark.thorough
def test_finite_size_by_command(tmp_path, capsys):
    target = tmp_path / "found.nc"
    command = ["finite-size", "--betas", "1", "--sizes", "64,512", "--dimension", "65536", "--starts", "3"]
    assert main([*command, "--output", str(target), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    small, large = found["points"]
    # More directions, nearer to the limit, by all three.
    assert abs(large["ideal/asymptotic"] - 1.0) < abs(small["ideal/asymptotic"] - 1.0)
    assert large["pairs"] == pytest.approx(large["sum_formula"], abs=0.01)
    assert large["pairs"] == pytest.approx(-1.0, abs=0.1)
    assert 0.0 < large["error"] < 0.1
    assert target.with_suffix(".png").stat().st_size > 10_000
    assert dict(load(target).sizes)["num_directions"] == 2


@pytest.mark.thorough
def test_all_laws_of_a_small_teacher_are_fitted_beside_their_limits():
    found = scaling.scaling_study(directions=64, starts=2, progress=False)
    points = {point["law"]: point for point in law_findings(found).values["points"]}
    assert len(points) == 8
    limits = {"L ~ t^x": -1.0, "L ~ n^x, tuned step": -0.5, "L ~ m^x": -1.0, "L ~ compute^x": -0.5, "T ~ d^x": 1.0}
    for law, limit in limits.items():
        assert points[law]["asymptotic"] == limit
        # Steeper than the limit, as every law is at so few directions; the frontier most of all.
        assert points[law]["measured"] == pytest.approx(limit, rel=0.6)
        assert points[law]["measured"] == pytest.approx(points[law]["sum_formula"], rel=0.1)
    panels = plot_study(found).axes
    assert panels[0].get_title() == r"$L \propto t^x$"
    for ax in panels:
        # No fit and no slope beside it leaves its panel.
        ends = [line.get_ydata() for line in ax.get_lines() if line.get_linestyle() in ("--", "-.", ":")]
        assert ax.get_ylim()[0] < min(end.min() for end in ends)
        assert max(end.max() for end in ends) < ax.get_ylim()[1]
    own = Figure().subplots(2, 4)
    assert dynamics.plot_study(found, own) is own[0, 0].figure
    assert [ax.get_title() for ax in own.ravel()] == [ax.get_title() for ax in panels]
    with pytest.raises(ValueError, match=r"^Argument `axes` must be 8 axes, but has 4\.$"):
        dynamics.plot_study(found, own[0])


def on_a_spectrum(width, seed, directions=16, dimension=512):
    return Problem(
        activation="he4", teacher=Teacher.power_law(directions, 1.0), width=width, dimension=dimension, seed=seed,
        inputs=dynamics.Inputs.power_law(0.25),
    )  # fmt: skip


def tail_left_by(problem):
    """Return Σ a_p² over the directions that no neuron takes, the pair of largest a_p s_p |C_ip|^(k−2) first."""
    a, C = problem.teacher.coefficients, problem.start().teacher_overlap
    score = a * np.arange(1.0, a.size + 1) ** -0.25 * C**2
    left = a**2
    for _ in range(min(score.shape)):
        neuron, direction = np.unravel_index(np.argmax(score), score.shape)
        score[neuron], score[:, direction], left[direction] = -1.0, -1.0, 0.0
    return left.sum()


@pytest.mark.thorough
def test_the_exponent_in_the_width_is_that_of_the_ideal_sum_whatever_the_spectrum():
    """256 directions, 8 to 64 neurons, eight starts: within two errors of both."""
    widths = np.array([8, 11, 16, 23, 32, 45, 64])
    tails = [[tail_left_by(on_a_spectrum(m, seed, 256, 4096)) for m in widths.tolist()] for seed in range(8)]
    found, ideal = fit_runs(widths, tails), ideal_exponent(256, 1.0, "loss-width", ranks=(8.0, 64.0))
    assert abs(found.exponent - ideal.exponent) < 2.0 * np.hypot(found.standard_error, ideal.standard_error) < 0.2
    assert asymptotic_exponents(4, 1.0, alpha=0.25).loss_width == -1.0


@pytest.mark.thorough
def test_the_compute_frontier_by_command_with_the_coupled_flow(tmp_path, capsys):
    target = tmp_path / "found.nc"
    assert main([*FRONTIER, "--coupled", "--largest-width", "8", "--output", str(target)]) == 0
    shown = capsys.readouterr()
    assert "L ~ compute^x, coupled" in shown.out
    assert "Coupled flow of 3 widths" in shown.err
    found = load(target)
    seconds = found["solve_time"].values
    assert (seconds[:3] > 0.0).all()
    assert np.isnan(seconds[3:]).all()
    loss = found["loss"]
    assert np.isnan(loss.sel(curve_of="coupled flow", width=16)).all()
    # Every route starts from the same loss and a wider network of pairs ends lower.
    np.testing.assert_allclose(
        loss.sel(curve_of="coupled flow", width=8)[0], loss.sel(curve_of="matched pairs", width=8)[0], rtol=1e-2
    )
    assert (np.diff(loss.sel(curve_of="sum formula").values[:, -1]) <= 0.0).all()
    assert target.with_suffix(".png").stat().st_size > 10_000


@pytest.mark.thorough
def test_transfer_of_descent_by_command(tmp_path, capsys):
    target = tmp_path / "found.nc"
    command = ["transfer", "--directions", "8", "--dimension", "24", "--widths", "2,4,8,16", "--steps", "150"]
    assert main([*command, "--starts", "2", "--workers", "1", "--output", str(target)]) == 0
    shown = capsys.readouterr()
    assert "Stability edge" in shown.out
    assert "Transfer:" in shown.out
    found = load(target)
    edge = found.attrs["edge"]
    a = Teacher.power_law(8, 1.0).coefficients
    assert edge == pytest.approx(2.0 / (4.0 * a[0]))
    # Below the edge more speed is better, whatever the width; the best step is near the edge, never far beyond.
    mean = np.log(np.minimum(found["final_loss"].values, 1.0)).mean(axis=2)
    assert (mean[:, 4] < mean[:, 0]).all()
    assert (found["best_rate"].values <= 1.06 * edge).all()
    assert target.with_suffix(".png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["finite-size", "--betas", "0.5"], "Option --betas must be above 1/2, or the loss follows no power law, but holds 0.5."),
        (["finite-size", "--dimension", "10"], "Option --dimension must be at least 1048576, but is 10."),
        (["scalin"], "argument NAME: invalid choice: 'scalin' (choose from 'scaling', 'quadratic', 'finite-size', 'compute-frontier', 'transfer', 'theorem', 'decoupling', 'width', 'frontier', 'methods', 'edge', 'composition', 'paper', 'fit', 'infer'). Did you mean 'scaling'?"),
        (["scaling", "--k", "2"], "Option --k must be at least 3, but is 2."),
        (["scaling", "--workers", "2"], "Option --workers must be absent without --coupled, but is 2."),
        (["compute-frontier", "--widths", "4,8"], "Option --widths must hold at least 3 increasing integers, but is [4, 8]."),
        (["compute-frontier", "--largest-width", "8"], "Option --largest-width must be absent without --coupled, but is 8."),
        (["transfer", "--spectrum", "0.25"], "Option --spectrum must be absent for transfer, but is given; it is one of scaling."),
        (["transfer", "--no-such"], "unrecognized arguments: --no-such"),
        (["scaling", "--spectrum", "1.5"], "Option --spectrum must be at most 1, but is 1.5."),
        (["scaling", "--spectrum", "0.25", "--directions", "257"], "Option --directions must be at most 256, but is 257."),
        (["transfer", "--beta", "x"], "Option --beta must be a number, but is 'x'."),
    ],
)  # fmt: skip
def test_usage_errors_are_one_sentence_and_exit_two(here, capsys, arguments, sentence):
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {sentence}"


@pytest.mark.thorough
def test_processes_change_no_bit_of_a_study():
    small = {"directions": 4, "dimension": 12, "widths": [1, 2, 3, 4], "steps": 40, "starts": 2, "progress": False}
    one, two = (transfer.transfer_study(workers=workers, **small) for workers in (1, 2))
    assert one["final_loss"].identical(two["final_loss"])
    asked = Problem(activation="he4", teacher=Teacher.power_law(4, 1.0), width=6, dimension=16)
    family = [(replace(asked, seed=seed), dynamics.SaveAt.geometric(1.0, 500.0, 9)) for seed in range(3)]
    with scaffold.under_way(6, progress=False) as meter:
        here, there = (list(meter.answers(scaffold.family_tasks(family, coupled=True), workers)) for workers in (1, 2))
    assert len(there) == 3
    assert all(a["loss"].identical(b["loss"]) for (a, _), (b, _) in zip(here, there, strict=True))


def interrupted_after(monkeypatch, module, name, count):
    once, calls = getattr(module, name), []

    def counted(*given, **options):
        calls.append(given)
        if len(calls) > count:
            raise KeyboardInterrupt
        return once(*given, **options)

    monkeypatch.setattr(module, name, counted)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "name", "count", "arguments"),
    [
        (scaffold, "solve_decoupled", 2, ["finite-size", "--betas", "1,2", "--sizes", "64,128", "--dimension", "4096", "--starts", "1"]),
        pytest.param(scaffold, "solve_decoupled", 3, ["scaling", "--directions", "64", "--starts", "2"], marks=pytest.mark.long),
        (scaffold, "solve_overlaps", 1, [*FRONTIER, "--coupled"]),
        (transfer, "solve_overlaps", 60, ["transfer", "--directions", "4", "--dimension", "12", "--widths", "1,2,3,4", "--steps", "20", "--starts", "2", "--workers", "1"]),
    ],
)  # fmt: skip
def test_an_interrupted_study_keeps_draws_and_prints_what_it_has(
    tmp_path, monkeypatch, capsys, module, name, count, arguments
):
    interrupted_after(monkeypatch, module, name, count)
    target = tmp_path / "part.nc"
    assert main([*arguments, "--output", str(target)]) == 130
    assert f"what was computed is in {target}" in capsys.readouterr().err
    assert load(target).attrs["stop_reason"] == "interrupted"
    assert target.with_suffix(".png").stat().st_size > 5_000


@pytest.mark.parametrize(
    "arguments", [["scaling", "--directions", "64", "--starts", "2"], FRONTIER], ids=["scaling", "frontier"]
)
def test_an_interruption_before_any_law_says_so(tmp_path, monkeypatch, capsys, arguments):
    interrupted_after(monkeypatch, scaffold, "solve_decoupled", 0)
    assert main([*arguments, "--output", str(tmp_path / "none.nc")]) == 130
    assert "interrupted before anything was computed" in capsys.readouterr().err
    assert not (tmp_path / "none.nc").exists()


def test_the_first_argument_is_checked_first():
    with pytest.raises(ValueError, match="information_exponent"):
        scaling.finite_size(information_exponent=2, betas=[0.1])


def test_a_blow_up_stays_infinite(monkeypatch):
    def ended(one, *_):
        return xr.Dataset({"loss": ("time", [np.inf if one.width > 2 else 0.5])})

    monkeypatch.setattr(transfer, "_descend", ended)
    found = transfer.transfer_study(directions=2, dimension=8, widths=(1, 2, 3, 4), starts=1, workers=1, progress=False)
    assert np.isinf(found["final_loss"].values[2:]).all()


@pytest.mark.parametrize("name", ["transfer", "scaling", "compute-frontier", "finite-size", "quadratic"])
def test_dry_runs_prepare_no_problem_per_start(name, capsys):
    began = clock.process_time()
    assert main([name, "--starts", "1000000", "--dry-run"]) == 0
    assert name != "finite-size" or "without time stepping: about" in capsys.readouterr().err
    assert clock.process_time() - began < 5.0


def test_seconds_of_a_study_are_those_of_its_solves_and_of_a_frontier_what_passed(monkeypatch):
    monkeypatch.setattr(scaffold, "_timed", lambda task: (task(), 1e6))
    laws = quadratic.quadratic_laws(directions=32, width=16, dimensions=(100, 1000), starts=1, progress=False)
    assert laws.attrs["wall_seconds"] == 1e6 * (2 + 1 + 8)
    frontier = scaling.compute_frontier(directions=16, dimension=32, widths=(2, 4, 8), starts=1, progress=False)
    assert 0.0 < frontier.attrs["pair_seconds"] <= frontier.attrs["wall_seconds"] < 1e6
