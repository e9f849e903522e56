"""Tests of systems that a user writes: exact solutions, events, error estimates, files, sweeps and refusals."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from own_systems import Circles, Logistic, OfProblem, Stiff, StiffWithJacobian, overlap_of
from processes import python
from same_answers import assert_same

import dynamics

AT = dynamics.SaveAt.linear(0.0, 10.0, 41)
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
pytestmark = pytest.mark.kernels


def solve(system, save_at=AT, **settings):
    return dynamics.solve_system(system, save_at=save_at, progress=False, **settings)


@pytest.mark.parametrize("method", ["explicit", "bdf", "scipy:LSODA"])
@pytest.mark.parametrize("rtol", [1e-6, 1e-10])
def test_a_known_solution_and_the_time_of_its_event_are_met_within_the_estimated_errors(method, rtol):
    system = Logistic(rate=1.5, first=1e-3)
    found = solve(system, method=method, rtol=rtol, atol=1e-4 * rtol, error_estimate=True)
    error = np.abs(found.share - system.share(AT.times))
    assert float(error.max()) < 300.0 * rtol
    late = float(found.half_time) - np.log(999.0) / 1.5
    # Estimates from two runs are small by chance where their difference changes its sign, as one of a single event may.
    trusted = 1.0 if method == "explicit" else 10.0
    assert abs(late) <= trusted * float(found.half_time_error)
    assert float(found.half_time_error) < 1e4 * rtol
    assert (np.abs(found.loss - (1.0 - system.share(AT.times)) ** 2) <= trusted * found.loss_error).all()


@pytest.mark.parametrize("system", [Stiff(), StiffWithJacobian()], ids=["differences", "Jacobian"])
def test_a_stiff_system_needs_no_jacobian(system):
    found = solve(system, method="bdf", rtol=1e-8)
    np.testing.assert_allclose(found.state[:, 0], np.cos(AT.times), atol=1e-6)
    assert found.attrs["rhs_evaluations"] < 0.01 * system.decay * AT.times[-1]


def test_constraints_scratch_sizes_dims_and_events_of_several_kinds():
    found = solve(Circles(), rtol=1e-9)
    angles = np.outer(AT.times, [1.0, 2.0])
    np.testing.assert_allclose(found.place, np.stack([np.cos(angles), np.sin(angles)], axis=-1), atol=1e-7)
    assert found.place.dims == ("time", "circle", "axis")
    assert found.axis.values.tolist() == ["x", "y"]
    np.testing.assert_allclose(found.quarter_time, [np.pi / 2, np.pi / 4], rtol=1e-7)
    assert found.quarter_time.dims == ("circle",)
    assert float(found.start_time) == 0.0
    assert np.isnan(found.never)
    assert not any(name.endswith("_error") for name in found.data_vars)
    # Accepted states are put back on the circles; between two of them the interpolant is as exact as the method.
    ends = []
    watcher = dynamics.Callback(lambda _t, state: bool(ends.append(np.hypot(*state.reshape(-1, 2).T))))
    solve(Circles(), rtol=1e-4, trackers=[watcher])
    np.testing.assert_allclose(ends, 1.0, atol=1e-15)


def test_a_system_of_a_problem_agrees_with_the_answer_that_has_the_same_equation():
    start = (np.array([[0.4, 0.1], [0.1, 0.3]]), np.array([[1.0, 0.2], [0.2, 1.0]]), [1e-4, 1e-4])
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=2, dimension=16, initial_overlaps=start
    )
    save_at = dynamics.SaveAt.linear(0.0, 20.0, 21)
    exact = dynamics.solve_decoupled(problem, save_at=save_at)
    assert exact.matched_neuron.values.tolist() == [0, 1]
    found = solve(OfProblem(problem), save_at)
    np.testing.assert_allclose(found.overlap, exact.overlap, atol=1e-7)
    stored = json.loads(found.attrs["parameters"])["problem"]
    assert stored == {
        "kind": "system",
        "system": "own_systems:OfProblem",
        "fields": {"problem": json.loads(json.dumps(problem.parameters()))},
    }
    np.testing.assert_array_equal(found.teacher_coefficient, [1.0, 0.5])


def test_the_dataset_is_one_of_this_program(tmp_path):
    found = solve(Logistic(), keep="summary", method="bdf")
    assert set(found.data_vars) == {"share", "loss", "half_time", "loss_error", "half_time_error"}
    assert found.attrs["answer"] == "system"
    assert found.attrs["method"] == "bdf"
    assert found.attrs["stop_reason"] == "reached_end"
    assert found.half_time.attrs["long_name"] == "half time"
    assert found.loss.attrs["symbol"] == "L"
    assert dynamics.load(dynamics.save(found, tmp_path / "run.nc")).identical(found)
    assert "place" not in solve(Circles(), keep="summary")
    told = str(dynamics.summary(found))
    assert "Reached its end" in told
    assert "Logistic, by method bdf." in told
    assert dynamics.solve_problem(Logistic(), save_at=AT, progress=False).share.equals(solve(Logistic()).share)


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, method):
    whole, path = solve(Logistic(), method=method), tmp_path / "run.nc"
    part = solve(Logistic(), method=method, checkpoint=path, trackers=[dynamics.Callback(lambda t, _: t > 3.0)])
    assert part.attrs["stop_reason"] == "callback"
    assert 0 < np.isfinite(part.share).sum() < 41
    assert_same(dynamics.resume(path, system=Logistic(), progress=False), whole)
    assert_same(dynamics.load(path), whole)


def test_a_file_goes_on_with_its_own_system_alone(tmp_path):
    path = tmp_path / "run.nc"
    solve(Logistic(), checkpoint=path, max_runtime=1e-9)
    with pytest.raises(
        dynamics.StorageError,
        match=r"must be resumed with its system, .* own_systems:Logistic, .* but none is given\.$",
    ):
        dynamics.resume(path)
    with pytest.raises(
        dynamics.StorageError, match=r"^Argument `system` must have the class and the fields that are stored in "
    ):
        dynamics.resume(path, system=Logistic(rate=2.0))
    with pytest.raises(dynamics.StorageError, match="must have the class and the fields"):
        dynamics.resume(path, system=Circles())
    with pytest.raises(dynamics.StorageError, match="must have the class and the fields"):
        dynamics.resume(path, system=changed())
    done = python("-m", "dynamics.solve", "--resume", str(path))
    assert done.returncode == 2
    assert "must be resumed with its system" in done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sweep_varies_the_fields_of_a_system(workers):
    if workers and INTERPRETED:
        pytest.skip("workers take seconds to start")
    grid = {"rate": [0.5, 1.0], "first": [0.1, 0.2, 0.3]}
    found = dynamics.sweep(Logistic(), grid, study="system", options={"save_at": AT}, workers=workers, progress=False)
    assert found.half_time.dims == ("rate", "first")
    assert (found.failure == "").all()
    exact = np.log(1.0 / found.first - 1.0) / found.rate
    np.testing.assert_allclose(found.half_time, exact.transpose("rate", "first"), rtol=1e-6)
    np.testing.assert_array_equal(found.share.sel(rate=0.5, first=0.2), solve(Logistic(0.5, 0.2)).share)


def test_a_sweep_varies_the_problem_of_a_system():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=2, dimension=16)
    grid, save_at = {"seed": [0, 1], "rtol": [1e-6, 1e-8]}, dynamics.SaveAt.at([0.0, 3.0])
    found = dynamics.sweep(problem, grid, study=overlap_of, options={"save_at": save_at}, workers=0, progress=False)
    alone = overlap_of(dynamics.Problem.from_dataset(found.sel(seed=1, rtol=1e-6)), save_at=save_at, rtol=1e-6)
    np.testing.assert_array_equal(found.overlap.sel(seed=1, rtol=1e-6), alone.overlap)


def changed(**members):
    return dataclass(frozen=True)(type("Other", (Logistic,), members))()


@njit
def two_numbers(t, y, out, constants, sizes, work):
    out[0] = 1.0
    out[1] = 1.0


@njit
def nothing(t, y, out, constants, sizes, work):
    pass


@njit
def infinite(t, y, out, constants, sizes, work):
    out[0] = 1.0 / t


@njit
def four(t, y, out, constants):
    out[0] = 1.0


@njit
def untyped(t, y, out, constants, sizes, work):
    out[0] = y.no_such_thing


def plain(t, y, out, constants, sizes, work):
    out[0] = 1.0


@dataclass(frozen=True)
class Empty(dynamics.System):
    def initial_state(self):
        return [1.0]


class Undeclared(dynamics.System):
    pass


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: 3, TypeError, "Argument `system` must be an instance of a subclass of dynamics.System, but is int."),
        (lambda: Logistic, TypeError, "Argument `system` must be an instance of a .*, but is Logistic."),
        (Undeclared, TypeError, "System Undeclared must be a dataclass, but is none: write @dataclass.* above it."),
        (Empty, TypeError, r"system Empty must have a function `field\(t, y, out, .*\)`, but has none."),
        (lambda: changed(field=four), TypeError, "`field` of system Other must take t, y, out, constants, sizes, work, but takes t, y, out, constants."),
        (lambda: changed(field=nothing), ValueError, "`field` of .* must write the 1 numbers .*, but writes 0 of them."),
        (lambda: changed(events=nothing), ValueError, "`events` of system Other must write 1 numbers, as `event_times` say, but writes 0 of them."),
        (lambda: Logistic(first=np.nan), ValueError, "`initial_state` of system Logistic must be finite, but is nan at position 0."),
        (lambda: changed(initial_state=lambda _: []), ValueError, "`initial_state` .* at least one number, but is empty."),
        (lambda: changed(initial_state=lambda _: [[1.0]]), ValueError, "`initial_state` .* must have one dimension, .*"),
        (lambda: Logistic(rate=np.inf), ValueError, "`constants` of .* must be finite, but is inf at position 0."),
        (lambda: changed(sizes=lambda _: [0.5]), TypeError, r"`sizes` of .* integers of at least 0, but is \[0.5\]."),
        (lambda: changed(work_size=-1), TypeError, r"`work_size` of .* must hold integers of at least 0, but is \[-1\]."),
        (lambda: changed(absolute_tolerance=lambda *_: [1.0, 1.0]), ValueError, r"`absolute_tolerance` of .* must return one positive number, or 1 of them, but returns \[1.0, 1.0\]."),
        (lambda: changed(observables={"share": "time"}), TypeError, "`observables` of .* must be a dict such as .*"),
        (lambda: changed(observables={"other": ()}), ValueError, r"`observe` of system Other must return a dict with other, but returns \['share', 'loss'\]."),
        (lambda: changed(event_times={"half_time": ("axis",)}), ValueError, r"`event_times` of .* must give `half_time` no dim or one that .* has \(none\), but give it \('axis',\)."),
        (lambda: changed(coordinates=lambda _: {"time": [1.0]}), ValueError, r"`coordinates` of system Other must be lists, none of time, but `time` has shape \(1,\)."),
        (lambda: Logistic(rate=1j), TypeError, "Field `rate` of .* must be a number, text, an array, .*, but is 1j."),
    ],
)  # fmt: skip
def test_bad_systems_get_one_sentence(make, error, sentence):
    with pytest.raises(error, match=f"^{sentence}$"):
        solve(make())


@pytest.mark.skipif(INTERPRETED, reason="of compiled functions")
@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"field": plain}, "`field` of system Other must be compiled by numba.njit, but is function."),
        ({"field": infinite}, "`field` of system Other must be finite at the start, but is inf at position 0."),
        ({"field": untyped}, "The functions of system Other must compile, but do not: .*no_such_thing.*"),
        ({"field": two_numbers}, "`field` of .* must write the 1 numbers of `out`, but writes position 1."),
        ({"events": two_numbers}, "`events` of .* must write 1 numbers, as `event_times` say, but writes position 1."),
    ],
)
def test_functions_that_do_not_fit_get_one_sentence(members, sentence):
    with pytest.raises((TypeError, ValueError), match=f"^{sentence}$"):
        solve(changed(**members))


@njit
def raising(t, y, out, constants, sizes, work):
    if y[0] >= 0.5:
        raise ValueError
    out[0] = 1.0


@pytest.mark.skipif(INTERPRETED, reason="of compiled functions")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_fails_where_a_function_raises():
    with pytest.raises(dynamics.SolveError, match=r"stopped at t = 0\.4[89]") as failed:
        solve(changed(field=raising), dynamics.SaveAt.linear(0.0, 1.0, 11), error_estimate=False)
    kept = failed.value.dataset
    np.testing.assert_allclose(kept.share[:5], 0.01 + kept.time[:5], rtol=1e-12)
    assert np.isnan(kept.share[6:]).all()


def test_bad_arguments_get_one_sentence():
    with pytest.raises(TypeError, match=r"^Argument `save_at` must be a SaveAt, such as .*, but is None\.$"):
        solve(Logistic(), None)
    with pytest.raises(ValueError, match=r"^Argument `method` must be one of 'explicit', 'bdf', .*, but is 'stiff'"):
        solve(Logistic(), method="stiff")
    with pytest.raises(ValueError, match=r"^Argument `error_estimate` must be None or False without an observable"):
        solve(Circles(), error_estimate=True)


SYSTEM = """
from dataclasses import dataclass
import numba
from numba import njit
import dynamics
{imports}

@dataclass(frozen=True)
class Line(dynamics.System):
    @njit
    def field(t, y, out, constants, sizes, work):
        out[0] = {slope}

    def initial_state(self):
        return [0.0]

found = dynamics.solve_system(Line(), save_at=dynamics.SaveAt.at([1.0]), progress=False)
print(float(found.state[0, 0]))
if __file__ != "<string>":
    print(numba.njit(cache=True)(Line.field.py_func).stats.cache_path)
"""


def run_line(folder, **parts):
    """Run a user's script in a folder; return what its system comes to, and where Numba keeps its machine code."""
    (folder / "line.py").write_text(SYSTEM.format(**{"imports": "", "slope": "1.0"} | parts))
    done = python("-W", "error", "line.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    value, place = done.stdout.split("\n")[:2]
    return float(value), Path(place)


@pytest.mark.thorough
@pytest.mark.skipif(INTERPRETED, reason="of compiled functions")
def test_a_second_process_sees_edits_and_leaves_the_files_of_others_alone(tmp_path):
    value, cache = run_line(tmp_path, slope="1.0")
    assert value == pytest.approx(1.0)
    assert list(cache.glob("line.Line.field-*.nbc"))
    others = cache / "others.work-1.py311.1.nbc"
    others.write_bytes(b"theirs")
    assert run_line(tmp_path, slope="2.0")[0] == pytest.approx(2.0)
    for file in cache.glob("line.*"):
        file.write_bytes(b"damaged")
    assert run_line(tmp_path, slope="2.0")[0] == pytest.approx(2.0)
    assert others.read_bytes() == b"theirs"
    assert not list(cache.glob("*.stamp"))
