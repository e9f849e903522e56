"""The public questions: what they return, how they label it, what they refuse, and that files give it all back."""

import numpy as np
import pytest
import xarray as xr

import dynamics
from dynamics.equations.overlaps import OverlapSystem


@pytest.fixture(scope="module")
def problem():
    return dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(3, 1.0), width=5, dimension=32, initial_norm=0.05
    )


@pytest.fixture(scope="module")
def flow(problem):
    return dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.geometric(0.1, 60.0, 30), progress=False)


@pytest.fixture(scope="module")
def decoupled(problem):
    return dynamics.solve_decoupled(problem, save_at=dynamics.SaveAt.geometric(0.1, 60.0, 30))


def test_summary_is_the_full_answer_reduced(problem, flow):
    summary = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.geometric(0.1, 60.0, 30), keep="summary", progress=False
    )
    np.testing.assert_allclose(summary.max_overlap, abs(flow.teacher_overlap).max("neuron"))
    mass = (flow.squared_norm * flow.teacher_overlap**4).sum("neuron")
    np.testing.assert_allclose(summary.learned_mass, mass, rtol=1e-12)
    # The loss is what is left of terms of order 1.
    np.testing.assert_allclose(summary.loss, flow.loss, rtol=1e-12, atol=1e-14)


def test_decoupled_flow_follows_the_coupled_one_until_directions_interact(flow, decoupled):
    first = int(np.argmin(flow.emergence_time.values))
    assert float(flow.emergence_time[first] / decoupled.emergence_time[first]) == pytest.approx(1.0, abs=0.05)
    start = float(decoupled.loss[0])
    assert float(flow.loss[0]) == pytest.approx(start, rel=2e-3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"activation": "tanh"}, marks=pytest.mark.long),
        {"activation": {4: 0.8, 6: 0.6}},
        {"activation": lambda z: np.maximum(z, 0.1)},
        {"teacher": dynamics.Teacher([1.0, 0.4, 0.3]), "label_noise": 0.5, "seed": 9},
        {"teacher": dynamics.Teacher([1.0, 0.4], directions=[[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])},
        {"initial_weights": np.random.default_rng(1).standard_normal((2, 8)), "initial_norm": 1e-2},
        {"initial_overlaps": (np.full((2, 3), 0.2), np.eye(2), [0.1, 0.2])},
        {"inputs": dynamics.Inputs([2.0, 0.5], [3, 5]), "initial_weights": np.eye(2, 8) + 0.1},
    ],
    ids=["named link", "series", "callable", "given spectrum", "tilted teacher", "weights", "overlaps", "inputs"],
)
@pytest.mark.filterwarnings("ignore:The flow sees")
def test_problems_survive_a_file(tmp_path, changes):
    settings = {"activation": "he4", "teacher": dynamics.Teacher.power_law(3, 1.5), "width": 2, "dimension": 8}
    asked = dynamics.Problem(**(settings | changes), order=12 if callable(changes.get("activation")) else None)
    given = {"save_at": dynamics.SaveAt.at([0.1]), "progress": False, "error_estimate": False}
    flow = dynamics.solve_overlaps(asked, **given)
    again = dynamics.Problem.from_dataset(dynamics.load(dynamics.save(flow, tmp_path / "flow.nc")))
    if callable(changes.get("activation")):
        np.testing.assert_array_equal(again.activation.coefficients, asked.activation.coefficients)
    else:
        assert again == asked
    np.testing.assert_array_equal(dynamics.solve_overlaps(again, **given).loss, flow.loss)


def test_files_are_never_replaced_unasked(tmp_path, flow):
    path = dynamics.save(flow, tmp_path / "flow.nc")
    before = path.read_bytes()
    with pytest.raises(dynamics.StorageError) as caught:
        dynamics.save(flow, path)
    assert str(caught.value) == (
        f"Argument `path` must not name an existing file (allow it with overwrite), but is {str(path)!r}."
    )
    assert path.read_bytes() == before
    dynamics.save(flow.isel(time=[0]), path, overwrite=True)
    assert dynamics.load(path).sizes["time"] == 1


def test_unwritable_and_foreign_files_get_one_sentence(tmp_path, flow):
    (tmp_path / "garbage.nc").write_bytes(b"not a netCDF file")
    xr.Dataset({"x": 1.0}).to_netcdf(tmp_path / "foreign.nc")
    for file, sentence in (
        (tmp_path / "missing" / "flow.nc", "must lie in an existing directory"),
        (tmp_path / "flow.csv", r"must not end in \.csv, as `to_table\(result\)\.to_csv` writes, but is"),
        (tmp_path, "must not name a directory or device"),
        ("/proc/flow.nc", "must name a file that can be written"),
    ):
        with pytest.raises(dynamics.StorageError, match=sentence):
            dynamics.save(flow, file, overwrite=True)
    for name, sentence in (
        ("none.nc", "must name an existing file"),
        ("garbage.nc", "must be a readable netCDF file"),
        ("foreign.nc", "has no schema_version"),
    ):
        with pytest.raises(dynamics.StorageError, match=sentence):
            dynamics.load(tmp_path / name)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"keep": "all"}, ValueError, "Argument `keep` must be one of 'full', 'summary', but is 'all'."),
        ({"on_failure": "x"}, ValueError, "Argument `on_failure` must be one of 'raise', 'return', but is 'x'."),
        ({"rtol": 1e-15}, ValueError, "Argument `rtol` must be at least 1e-14 and below 1, but is 1e-15."),
        ({"rtol": "a"}, TypeError, "Argument `rtol` must be a real number, but is 'a'."),
        ({"max_runtime": "1h"}, TypeError, "Argument `max_runtime` must be a real number, but is '1h'."),
        ({"atol": -2.0}, ValueError, "Argument `atol` must be finite and positive, but is -2.0."),
        ({"save_at": [1.0]}, TypeError, "Argument `save_at` must be a SaveAt, such as SaveAt.at([...]), but is [1.0]."),
        ({"method": "explicitt"}, ValueError, "Argument `method` must be one of 'auto', 'explicit', 'stiff', … Did you mean 'explicit'?"),
    ],
)  # fmt: skip
def test_bad_settings_get_one_sentence(problem, settings, error, sentence):
    with pytest.raises(error) as caught:
        dynamics.solve_overlaps(problem, **settings)
    begin, _, end = sentence.partition("…")
    assert str(caught.value).startswith(begin)
    assert str(caught.value).endswith(end)
    assert end or str(caught.value) == sentence


def test_a_failing_run_raises_with_what_was_computed(problem, monkeypatch):
    from dynamics.integrators import Status, compiled_stepper

    through = compiled_stepper.CompiledStepper._through

    def fail_late(self, times, max_steps, states):
        status, passed = through(self, times[times < 10.0], max_steps, states)
        return (status if times[-1] < 10.0 else Status.NOT_FINITE), passed

    monkeypatch.setattr(compiled_stepper.CompiledStepper, "_through", fail_late)
    save_at = dynamics.SaveAt.at([0.0, 5.0, 60.0])
    with pytest.raises(
        dynamics.SolveError, match=r"stopped at t = .* \(not_finite\)\. The state stopped being"
    ) as caught:
        dynamics.solve_overlaps(problem, save_at=save_at, method="explicit", progress=False)
    assert np.isfinite(caught.value.dataset.loss).values.tolist() == [True, True, False]
    returned = dynamics.solve_overlaps(problem, save_at=save_at, method="explicit", progress=False, on_failure="return")
    assert returned.attrs["stop_reason"] == "not_finite"


def test_impossible_overlaps_are_reported(problem, monkeypatch):
    monkeypatch.setattr(OverlapSystem, "gram_margin", lambda _self, state: np.full(state.shape[:-1], -1e-3))
    with pytest.warns(RuntimeWarning, match="No vectors have the computed overlaps"):
        dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([0.1]), progress=False)


def test_realisability_is_monitored_where_overlaps_are_integrated(problem):
    save_at = dynamics.SaveAt.at([0.1, 1.0])
    integrated = dynamics.solve_overlaps(problem, save_at=save_at, method="explicit", progress=False)
    carried = dynamics.solve_overlaps(problem, save_at=save_at, method="stiff", progress=False)
    assert np.isfinite(integrated.gram_margin).all()
    assert np.isnan(carried.gram_margin).all()
    # Vectors that are carried have their overlaps.
    for C, G in zip(carried.teacher_overlap.values, carried.student_overlap.values, strict=True):
        assert np.linalg.eigvalsh(G - C @ C.T)[0] > -1e-14
