"""Quadratic networks: the exact jumps against integration in R^d, predictions against accepted numbers, refusals."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import dynamics
from dynamics import Callback, fit_power_law
from dynamics.report.findings import find_findings
from dynamics.solve.quadratic import JumpStepper
from dynamics.theory.quadratic import power_window, quadratic_exponents, rate_limits, steps_to_align

TEACHER = dynamics.Teacher.power_law(5, 0.7)
SMALL = {"activation": "he2", "teacher": TEACHER, "width": 4, "dimension": 30, "initial_norm": 0.6, "seed": 3}
SAVE_AT = dynamics.SaveAt.at([0.0, 0.3, 2.0, 9.0, 40.0])


def problem(**changes):
    return dynamics.Problem(**(SMALL | changes))


def large(dimension, seed=0, width=64, directions=1024, alpha=1.0):
    return problem(
        teacher=dynamics.Teacher.power_law(directions, alpha), width=width, dimension=dimension,
        initial_norm=width**-0.25, seed=seed,
    )  # fmt: skip


def in_space(asked, times):
    """Integrate weights or a frame in R^d by another method; return the path, and aligned and learned times."""
    m, d = asked.width, asked.dimension
    W = np.zeros((m, d))
    W[:, : asked.reduced_weights().shape[1]] = asked.reduced_weights()
    a = np.zeros(d)
    a[: asked.num_directions] = asked.teacher.coefficients

    def velocity(_t, flat):
        W = flat.reshape(m, d)
        if asked.kind == "stiefel":
            U = W / np.linalg.norm(W[0])
            return (2.0 * (W * a - (W * a) @ U.T @ U)).ravel()
        return 2.0 * (W * a - W @ W.T @ W).ravel()

    def crossing(carried, level):
        def above(_t, flat):
            return carried(flat.reshape(m, d)) - level

        above.direction = 1.0
        return above

    count = range(asked.num_directions)
    events = [crossing(lambda W, j=j: alignment(W)[j], 0.5) for j in count]
    events += [crossing(lambda W, j=j: W[:, j] @ W[:, j], a[j] / 2.0) for j in count]
    found = solve_ivp(velocity, (0.0, times[-1]), W.ravel(), "DOP853", times, rtol=1e-13, atol=1e-15, events=events)
    first = np.array([event[0] if event.size else np.nan for event in found.t_events])
    first[[above(0.0, W.ravel()) >= 0.0 for above in events]] = 0.0
    return found.y.T.reshape(-1, m, d), *np.split(first, 2)


def alignment(W):
    return np.sum(np.linalg.qr(W.T)[0] ** 2, axis=1)


@pytest.mark.parametrize("student", ["homogeneous", "stiefel"])
def test_jumps_are_the_flow_in_space(student):
    asked = problem(student=student)
    found = dynamics.solve_quadratic(asked, save_at=SAVE_AT)
    path, aligned, learned = in_space(asked, SAVE_AT.times)
    A = np.zeros((30, 30))
    A[np.diag_indices(5)] = TEACHER.coefficients
    loss = [np.sum((W.T @ W - A) ** 2) for W in path]
    np.testing.assert_allclose(found.loss, loss, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.alignment, [alignment(W)[:5] for W in path], rtol=0, atol=1e-10)
    # Least squares over symmetric matrices on the span, which are 10.
    for W, tuned in zip(path, found.fine_tuned_loss.values, strict=True):
        U = np.linalg.qr(W.T)[0]
        basis = [np.outer(U[:, i], U[:, j]) + np.outer(U[:, j], U[:, i]) for i in range(4) for j in range(i + 1)]
        design = np.array(basis).reshape(10, -1).T
        best = design @ np.linalg.lstsq(design, A.ravel(), rcond=None)[0]
        assert tuned == pytest.approx(np.sum((best - A.ravel()) ** 2), abs=1e-10)
    # The last direction is in the span for a while, until stronger ones take its place.
    assert np.isfinite(aligned).all()
    assert float(found.alignment[-1, 4]) < 1e-3
    np.testing.assert_allclose(found.aligned_time, aligned, rtol=1e-9)
    np.testing.assert_allclose(found.learned_time, learned, rtol=1e-9)
    assert np.isfinite(learned).sum() >= 4


def test_it_is_the_flow_of_overlaps():
    asked = problem(teacher=dynamics.Teacher.power_law(6, 1.0), width=10, dimension=500)
    save_at = dynamics.SaveAt.geometric(0.1, 60.0, 12)
    # The degree 2 of the link counts where Q is all that is learned.
    whole = replace(asked, learned_definition="all degrees")
    flow = dynamics.solve_overlaps(whole, save_at=save_at, progress=False, rtol=1e-12, atol=1e-13, error_estimate=False)
    found = dynamics.solve_quadratic(asked, save_at=save_at)
    np.testing.assert_allclose(found.loss, flow.loss, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.learned_time, flow.learned_time, rtol=1e-7)
    assert found.attrs["learned_definition"] == flow.attrs["learned_definition"] == "all degrees"
    assert "undefined" not in found.learned_time.attrs


@pytest.mark.thorough
@pytest.mark.parametrize(("dimension", "seed"), [(10**9, 0), pytest.param(10**9, 1, marks=pytest.mark.long), (3200, 0)])
def test_times_and_slopes_of_many_directions(dimension, seed):
    asked = large(dimension, seed)
    low, high = power_window(asked.teacher, 64, dimension)
    assert 4 * asked.teacher.coefficients[0] / np.log(dimension / 64) * low == pytest.approx(3.0)
    reach = 2.0 if dimension == 10**9 else 4.0
    found = dynamics.solve_quadratic(asked, save_at=dynamics.SaveAt.geometric(low, reach * high, 48))
    chosen = np.array([1, 2, 4, 8, 16, 32]) - 1
    ratios = [(found[name] / found[f"predicted_{name}"]).values[chosen] for name in ("aligned_time", "learned_time")]
    loss, alone, staircase = (
        fit_power_law(found.time.values, found[name].values, window=(low, high)).exponent
        for name in ("loss", "sigmoid_loss", "staircase_loss")
    )
    assert alone == pytest.approx(-1.0, abs=0.03)
    assert staircase == pytest.approx(-0.981, abs=0.05)
    if dimension == 10**9:
        np.testing.assert_allclose(ratios, 1.0, atol=0.06)
        assert loss == pytest.approx(-1.03, abs=0.02)
    else:  # where directions interact: known are 1.00 to 1.23
        np.testing.assert_allclose(np.array(ratios)[:, :5], 1.04, atol=0.05)
        np.testing.assert_allclose(np.array(ratios)[:, 5], 1.2, atol=0.06)
        assert loss == pytest.approx(-1.134, abs=0.03)


@pytest.mark.parametrize(("width", "dimension"), [(9, 5), (9, 7), (2, 5)])
def test_networks_that_fill_the_space(width, dimension):
    """More neurons than axes span everything from the start; every direction is learned in the end."""
    found = dynamics.solve_quadratic(
        problem(width=width, dimension=dimension), save_at=dynamics.SaveAt.at([0.0, 400.0])
    )
    if width > dimension:
        np.testing.assert_allclose(found.alignment, 1.0, atol=1e-12)
        assert (found.aligned_time == 0.0).all()
        assert (found.predicted_aligned_time == 0.0).all()
        assert float(found.loss[-1]) < 1e-6
        assert float(found.fine_tuned_loss[0]) < 1e-12
    assert np.isfinite(found.learned_time).sum() >= min(width, 5)
    assert float(found.loss[-1]) == pytest.approx(found.attrs["unlearned_loss"], rel=0.05, abs=1e-6)


def test_a_frame_stays_one():
    asked = problem(student="stiefel", initial_norm=None, width=6)
    W = asked.reduced_weights()
    np.testing.assert_allclose(W @ W.T, np.eye(6) / np.sqrt(6.0), atol=1e-14)
    assert np.allclose(np.triu(W[:, 5:], 1), 0.0, atol=1e-15)
    drawn = problem(width=6).reduced_weights()
    # The same span, whose rows are the first ones made orthogonal.
    assert np.linalg.matrix_rank(np.vstack([W, drawn])) == 6
    found = dynamics.solve_quadratic(asked)
    n, a = 6.0**-0.5, TEACHER.coefficients
    noise = 6 * n**2 + 1.0 + 4 * n**2
    np.testing.assert_allclose(found.rate_limit, 2 * a / (30 * noise))
    best = np.log(30 / 6) / (4 * a * found.rate_limit / 4)
    np.testing.assert_allclose(found.fewest_steps, best)
    assert dynamics.learning_rate_limit(asked) == found.attrs["learning_rate_limit"] == float(found.rate_limit[0])


def test_exponents_hold_above_one_half_alone():
    laws = quadratic_exponents(0.8)
    assert (laws.loss_time, laws.loss_samples, laws.loss_width) == pytest.approx((-0.75, -0.375, -0.6))
    assert np.isnan(quadratic_exponents(0.4).loss_time)
    # Below one half the staircase ends at the share of the directions that no neuron has.
    flat = dynamics.solve_quadratic(large(10**9, width=16, directions=512, alpha=0.3))
    assert float(flat.loss[-1]) == pytest.approx(flat.attrs["unlearned_loss"], abs=0.02)
    a = dynamics.Teacher.power_law(512_000, 0.3).coefficients
    assert np.sum(a[16_000:] ** 2) == pytest.approx(1 - (16 / 512) ** 0.4, abs=0.01)


TILTED = dynamics.Teacher([0.8, 0.6], directions=[[1.0, 0.0], [0.6, 0.8]])
FRAME = {"student": "stiefel", "initial_norm": None, "seed": 0}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: dynamics.solve_quadratic(problem(activation="he3")), "Argument `problem` must have the link he2 for a quadratic network, but has he3."),
        (lambda: dynamics.solve_quadratic(problem(teacher=TILTED)), "Argument `problem` must have an orthonormal teacher for a quadratic network, but it has not."),
        (lambda: dynamics.solve_quadratic(problem(student="committee")), "Argument `problem` must have the homogeneous student here, but has the committee student, whose overlaps `dynamics.solve_committee` integrates."),
        (lambda: problem(student="stiefel", width=31), "Argument `width` must be at most 30, the dimension, for the stiefel"),
        (lambda: problem(**FRAME, initial_weights=np.eye(4, 30) + 0.1 * np.eye(4, 30, 1)), "Argument `initial_weights` must have orthogonal neurons of one length"),
        (lambda: problem(**FRAME, initial_overlaps=(np.full((4, 5), 0.1), np.eye(4), [1.0, 1.0, 1.0, 1.1])), "Argument `initial_overlaps` must have orthogonal neurons of one length"),
        (lambda: dynamics.learning_rate_limit(problem(student="stiefel"), batch_size=2), "Argument `batch_size` must be 1 for the stiefel student, but is 2."),
        (lambda: dynamics.solve_quadratic(problem(), save_at=dynamics.SaveAt.at([1e9])), "Argument `save_at` must end within 1000000 jumps"),
    ],
)  # fmt: skip
def test_what_is_no_quadratic_network_or_frame_is_refused(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        call()


def test_files_sweeps_and_the_front_door(tmp_path):
    asked = problem(student="stiefel")
    found = dynamics.solve_problem(asked, save_at=SAVE_AT)
    assert found.attrs["answer"] == "quadratic"
    again = dynamics.load(dynamics.save(found, tmp_path / "quadratic.nc"))
    assert dynamics.Problem.from_dataset(again) == asked
    np.testing.assert_array_equal(again.alignment, found.alignment)
    swept = dynamics.sweep(problem(), {"beta": [0.4, 1.0]}, study="quadratic", workers=0, progress=False)
    assert swept.aligned_time.dims == ("beta", "direction")
    assert np.isfinite(swept.aligned_time[:, 0]).all()


@pytest.mark.parametrize("student", ["homogeneous", "stiefel"])
def test_a_run_that_was_stopped_has_what_it_reached_and_the_law_to_the_end(student):
    asked = replace(large(10**6, width=12, directions=40), student=student)
    save_at, seen = dynamics.SaveAt.geometric(0.01, 200.0, 40), []
    stop = Callback(lambda time, state: seen.append(state.size) or time > 30.0)
    whole, part = (dynamics.solve_quadratic(asked, save_at=save_at, trackers=each) for each in ([], [stop]))
    saved = np.isfinite(part.loss.values)
    assert 0 < saved.sum() < 40
    assert set(seen) == {12 * 52 * (1 if student == "stiefel" else 2)}
    for name in ("loss", "fine_tuned_loss", "alignment"):
        np.testing.assert_array_equal(part[name][saved], whole[name][saved])
        assert np.isnan(part[name][~saved]).all()
    reached = np.where(whole.aligned_time <= part.attrs["end_time"], whole.aligned_time, np.nan)
    np.testing.assert_array_equal(part.aligned_time, reached)
    np.testing.assert_array_equal(part.sigmoid_loss, whole.sigmoid_loss)


def test_the_velocity_is_the_derivative():
    for student in ("homogeneous", "stiefel"):
        stepper = JumpStepper(problem(student=student))
        stepper.advance(0.5, 100)
        before, slope = stepper.interpolate(0.5), stepper.derivative(0.5)
        stepper.advance(0.5 + 1e-7, 100)

        def projector(numbers, change, student=student):
            """The derivative of XXᵀ, which no rotation of the columns changes, for X = U or V."""
            X, D = (part.reshape(-1, 4) for part in (numbers[-36:], change[-36:]))
            return X @ X.T, D @ X.T + X @ D.T

        first, expected = projector(before, slope)
        second, _ = projector(stepper.interpolate(0.5 + 1e-7), slope)
        np.testing.assert_allclose((second - first) / 1e-7, expected, atol=1e-6)


def test_the_command_tells_what_is_known(here, capsys):
    from dynamics import solve

    size = ["--directions", "100", "--beta", "1", "--width", "24", "--dimension", "1e9"]
    assert solve.main(["--model", "quadratic", *size, "--output", "run.nc", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    stored = dynamics.load("run.nc")
    assert (here / "run.png").stat().st_size > 10_000
    assert dynamics.Problem.from_dataset(stored).initial_norm == 24**-0.25
    (law,) = told["exponents"]
    assert law["asymptotic"] == -1.0
    assert law["fitted"] == pytest.approx(-1.05, abs=0.1)
    assert 0.0 < law["standard_error"] < 0.1
    assert told["directions"][0]["aligned_ratio"] == pytest.approx(1.0, abs=0.01)
    page = dynamics.write_report(stored, "run.html").read_text(encoding="utf-8")
    assert "Times against prediction" in page
    assert page.count("<img") == 2
    (curve, *_) = find_findings(stored).chart().curves
    np.testing.assert_array_equal(curve.values, stored.alignment.values[stored.time > 0, 0])
    assert curve.predicted == stored.predicted_aligned_time[0]
    assert solve.main(["--model", "quadratic", *size, "--dry-run"]) == 0
    assert "no time stepping" in capsys.readouterr().out


@pytest.mark.thorough
def test_laws_are_fits_of_the_exact_answers(here, capsys):
    from dynamics.laws.__main__ import main

    words = "quadratic --directions 40 --width 16 --dimensions 4000,1000000000 --seed 2 --output laws.nc --json"
    assert main(words.split()) == 0
    told = json.loads(capsys.readouterr().out)
    found = dynamics.load("laws.nc")
    in_time = ["L ~ t^x, d = 4000", "L ~ t^x, d = 1e+09"]
    assert [point["law"] for point in told["points"]] == [*in_time, "L ~ n^x, tuned step", "L ~ m^x"]
    law = found.sel(law="loss-time, d = 1e+09")
    asked = large(10**9, seed=3, width=16, directions=40)
    unit = np.log(asked.dimension / 16) / (4 * asked.teacher.coefficients[0])
    x = law.abscissa.dropna("point").values
    again = dynamics.solve_quadratic(asked, save_at=dynamics.SaveAt.at(unit * x))
    np.testing.assert_allclose(law.ordinate.sel(curve="measured", run=1).dropna("point"), again.loss, rtol=1e-9)
    slopes = [
        fit_power_law(x, law.ordinate.sel(curve="measured", run=run).dropna("point"), window=(3.0, 5.0)).exponent
        for run in (0, 1)
    ]
    assert told["points"][1]["measured"] == pytest.approx(np.mean(slopes), abs=1e-6)
    # As direction j is to align, against the fewest samples for it, at half of its limit.
    samples, frame = found.sel(law="loss-samples-tuned"), replace(asked, student="stiefel")
    targets = np.array([3, 4, 5])
    rates = 0.5 * rate_limits(frame)[targets - 1]
    needed = [steps_to_align(frame, rate)[j - 1] for j, rate in zip(targets, rates, strict=True)]
    np.testing.assert_allclose(samples.abscissa.dropna("point"), needed, rtol=1e-12)
    times = dynamics.SaveAt.at(unit * targets.astype(float))
    answer = dynamics.solve_quadratic(frame, save_at=times)
    for curve, name in (("measured", "fine_tuned_loss"), ("sum formula", "sigmoid_loss")):
        kept = samples.ordinate.sel(curve=curve, run=1).dropna("point")
        np.testing.assert_allclose(kept, answer[name], rtol=1e-9)
    assert float(samples.exponent.sel(source="asymptotic")) == -0.5
    assert told["points"][2]["measured"] == pytest.approx(told["points"][2]["sum_formula"], abs=0.1)
    width = told["points"][3]
    assert width["measured"] == pytest.approx(width["sum_formula"], abs=0.1)
    assert (width["from"], width["to"], width["asymptotic"]) == (1.0, 16.0, -1.0)
    assert (here / "laws.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match=r"^Argument `directions` must be at least 32, but is 31\.$"):
        dynamics.quadratic_laws(width=16, directions=31)
