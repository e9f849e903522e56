"""The public call: refusals, warnings, runs that blow up, are censored, interrupted or out of time; and comparisons."""

import json

import numpy as np
import pytest
from processes import python

import sgd_check
from dynamics import SaveAt


@pytest.fixture(scope="module")
def small(tools):
    return tools.problem([[0.5, 0.1], [0.2, 0.4]], dimension=8)


@pytest.fixture
def simulate(small):
    def call(problem=small, **changed):
        given = {"learning_rate": 1e-5, "steps": 40, "seeds": 5, "progress": False}
        return sgd_check.simulate(problem, **{**given, **changed})

    return call


def test_records_fall_on_the_requested_times(simulate):
    found = simulate(save_at=SaveAt.at([0.0, 1.1e-4, 4e-4]), dtype="float64")
    assert found["step"].values.tolist() == [0, 11, 40]
    np.testing.assert_allclose(found["time"].values, [0.0, 1.1e-4, 4e-4])
    assert np.isfinite(found["student_overlap"].values).all()


@pytest.mark.parametrize("directions", [None, [[1.0, 0.0], [0.6, 0.8]]])
@pytest.mark.parametrize("activation", ["he3", {0: 0.5, 3: 1.0, 4: 0.2}])
def test_loss_of_every_run_is_the_double_sum_over_kernels(tools, simulate, activation, directions):
    problem = tools.problem([[0.5, 0.1], [0.2, 0.4]], dimension=8, activation=activation, directions=directions)
    found = simulate(problem, dtype="float64")
    g, a, T = problem.activation.kernel, problem.teacher.coefficients, problem.teacher.gram()
    for run in (0, 4):
        C, G, n = (found[v][run, -1].values for v in ("teacher_overlap", "student_overlap", "squared_norm"))
        expected = a @ g(T) @ a - 2 * n @ g(C) @ a + n @ g(G) @ n
        np.testing.assert_allclose(found["loss"][run, -1], expected, rtol=1e-13)


def test_learned_time_is_where_the_weight_on_a_direction_crosses_half(tools):
    """Σ_i n_i g(C_ip)/g(1) crosses a_p/2 between the two steps that the records of every step say."""
    problem = tools.problem([[0.97, 0.05], [0.1, 0.6]], dimension=8, norm=0.66)
    found = sgd_check.simulate(
        problem, learning_rate=1e-4, steps=1000, seeds=3, save_at=SaveAt.linear(0.0, 0.1, 1001), progress=False
    )
    share = found["teacher_overlap"].values ** 4
    mass = np.einsum("sti,stip->stp", found["squared_norm"].values, share)[..., 0]
    assert (mass[:, 0] < 0.4).all(), "the start must lie below half of a = 0.8"
    for run in range(3):
        after = int(np.argmax(mass[run] >= 0.4))
        assert after > 0, "the run must cross"
        low, high = found["time"].values[after - 1 : after + 1]
        assert low <= float(found["learned_time"][run, 0]) <= high


@pytest.mark.statistical
def test_loss_is_the_population_loss_of_the_recorded_state(simulate, small, rng):
    """Monte Carlo over 4e5 samples of E(f − f*)²; |z| < 5 is a false-alarm rate of 6e-7, with a fixed seed."""
    found = simulate(dtype="float64").isel(time=-1, seed=0)
    C, G = found["teacher_overlap"].values, found["student_overlap"].values
    covariance = np.block([[np.eye(2), C.T], [C, G]])
    z = rng.multivariate_normal(np.zeros(4), covariance, 400_000)
    values = small.activation.value(z)
    squared = (values[:, 2:] @ found["squared_norm"].values - values[:, :2] @ [0.8, 0.6]) ** 2
    error = squared.std() / np.sqrt(squared.size)
    assert abs(squared.mean() - float(found["loss"])) < 5 * error


def test_a_tabulated_learning_rate_is_stored_as_a_schedule_with_its_effective_value(tools, simulate, small, tmp_path):
    from dynamics import load, save

    rates = 1e-5 / np.arange(1, 41)
    found = load(save(simulate(learning_rate=lambda step: 1e-5 / (step + 1)), tmp_path / "runs.nc"))
    solver = json.loads(found.attrs["parameters"])["solver"]
    assert found.attrs["learning_rate"] == solver["learning_rate"] == "schedule"
    for stored in (found.attrs, solver):
        assert stored["effective_learning_rate"] == pytest.approx(np.sum(rates**2) / np.sum(rates), rel=1e-14)
    flow = tools.flow(small, np.linspace(0.1, 9, 5))
    constant = simulate(learning_rate=float(found.attrs["effective_learning_rate"]))
    delays = [sgd_check.compare(flow, runs)["comparison"]["expected_delay"].values for runs in (found, constant)]
    np.testing.assert_allclose(*delays, rtol=1e-12)
    assert (delays[0] > 0).any()


def test_a_rate_above_the_limit_warns_before_the_run_and_blow_ups_are_counted(tools):
    problem = tools.problem([[0.9, 0.1]], dimension=8, norm=0.9)
    with pytest.warns(UserWarning, match=r"^The learning rate 0\.01 exceeds .*, so runs may blow up\.$"):
        found = sgd_check.simulate(problem, learning_rate=0.01, steps=4000, seeds=12, progress=False)
    blown = found["blown_up"].values.astype(bool)
    assert found.attrs["above_limit"] == 1
    assert 0 < blown.sum() < 12, "the case must have both kinds of runs"
    last = found["loss"].values[:, -1]
    assert np.isnan(last[blown]).all()
    assert np.isfinite(last[~blown]).all()
    comparison = sgd_check.compare(tools.flow(problem, np.linspace(0.1, 40, 9)), found)["comparison"]
    assert comparison.attrs["blown_up_count"] == blown.sum()
    assert comparison.attrs["usable_runs"] == 12 - blown.sum()
    assert f"Runs left out because they blew up: {blown.sum()}." in comparison.attrs["reasons"]


def test_the_run_ends_when_every_seed_has_blown_up(tools):
    problem = tools.problem([[0.9, 0.1]], dimension=8, norm=0.9)
    with pytest.warns(UserWarning, match="limit of stability"):
        found = sgd_check.simulate(problem, learning_rate=0.5, steps=5000, seeds=4, progress=False)
    assert found.attrs["stop_reason"] == "blown_up"
    assert found.attrs["end_step"] < 5000
    assert found["blown_up"].values.tolist() == [1] * 4


def test_a_spent_budget_keeps_what_was_recorded(simulate):
    found = simulate(max_runtime=1e-9)
    assert found.attrs["stop_reason"] == "max_runtime"
    assert found.attrs["end_step"] == 0
    assert np.isfinite(found["loss"].values[:, 0]).all()
    assert np.isnan(found["loss"].values[:, 1:]).all()


def test_progress_goes_to_stderr_only(simulate, capsys):
    simulate(progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "step" in shown.err


@pytest.mark.parametrize(
    ("changed", "kind", "sentence"),
    [
        ({"engine": "torhc"}, ValueError, "Argument `engine` must be one of 'projected', 'torch', 'diffusion', 'scalar', but is 'torhc'. Did you mean 'torch'?"),
        ({"engine": 3}, ValueError, "Argument `engine` must be one of 'projected', 'torch', 'diffusion', 'scalar', but is 3."),
        ({"dtype": "half", "engine": "torch"}, ValueError, "Argument `dtype` must be one of 'float32', 'float64', but is 'half'."),
        ({"dtype": "float32"}, ValueError, "Argument `dtype` must be 'float64' for engine 'projected', but is 'float32'."),
        ({"device": "tpu", "engine": "torch"}, ValueError, "Argument `device` must be one of 'auto', 'cpu', 'cuda', but is 'tpu'."),
        ({"device": "cuda"}, ValueError, "Argument `device` must be 'auto' or 'cpu' for engine 'projected', but is 'cuda'."),
        ({"seeds": 0}, ValueError, "Argument `seeds` must be at least 1, but is 0."),
        ({"seeds": []}, ValueError, "Argument `seeds` must name at least one seed, but is empty."),
        ({"seeds": [1, 1]}, ValueError, "Argument `seeds` must be distinct, since equal seeds give equal runs, but has repetitions."),
        ({"seeds": [2**32]}, ValueError, "Argument `seeds` must stay below 2^32, but has 4294967296."),
        ({"seeds": 1.5}, TypeError, "Argument `seeds` must be a number of runs or a sequence of integers, but is 1.5."),
        ({"batch_size": 0}, ValueError, "Argument `batch_size` must be at least 1, but is 0."),
        ({"max_runtime": 0}, ValueError, "Argument `max_runtime` must be finite and positive, but is 0."),
        ({"max_runtime": "1h"}, TypeError, "Argument `max_runtime` must be a real number, but is '1h'."),
    ],
)  # fmt: skip
def test_refusals_say_what_must_hold_and_what_was_given(simulate, changed, kind, sentence):
    with pytest.raises(kind) as caught:
        simulate(**changed)
    assert str(caught.value) == sentence


def test_cuda_is_refused_where_there_is_none(simulate, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        simulate(device="cuda", engine="torch")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"dimension": 9}, "dimension"),
        ({"coefficients": (0.8, 0.5)}, "teacher"),
        ({"activation": {4: 1.0, 6: 0.1}}, "link"),
        ({"seed": 2}, "initial student_overlap"),
        ({"norm": 0.2}, "initial squared_norm"),
    ],
)
def test_a_prediction_for_another_problem_is_refused(tools, simulate, change, what):
    given = {"overlap": [[0.5, 0.1], [0.2, 0.4]], "dimension": 8, **change}
    other = tools.flow(tools.problem(**given), np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match=rf"^Argument `simulation` must have the {what} of the prediction, "):
        sgd_check.compare(other, simulate())


#: Simulations by two engines, which load different libraries, and of models of tokens.
WITHOUT = """
import sys; sys.modules[sys.argv[1]] = None
import sgd_check; from dynamics.problem import Problem, Teacher
problem = Problem(activation='he4', teacher=Teacher([1.0]), width=2, dimension=8)
for engine in ('projected', 'torch'):
    try: print(sgd_check.simulate(problem, learning_rate=1e-5, steps=3, seeds=2, engine=engine).attrs['stop_reason'])
    except ImportError as error: print(error)
try: from sgd_check.tokens import simulate
except ImportError as error: print(error)
"""
EXTRA = 'an extra package: pip install "feature-emergence[torch]".'


@pytest.mark.thorough
def test_the_default_engine_and_that_of_torch_need_no_library_of_the_other():
    told = python("-c", WITHOUT, "torch").stdout.splitlines()
    needs = [f"Argument `engine` = 'torch' needs {EXTRA}", f"Models of tokens need {EXTRA}"]
    assert told == ["reached_end", *needs]
    assert python("-c", WITHOUT, "numba").stdout.splitlines()[1] == "reached_end"
