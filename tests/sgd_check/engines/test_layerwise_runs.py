"""SGD that trains layer by layer: engines, restored states, and the verdict against the flow."""

import numpy as np
import pytest

import sgd_check
from dynamics import SGD, Problem, SaveAt, Student, Teacher, solve_network
from sgd_check.engines import EngineOptions, make_engine


def layer_wise(switch=0.5, first_layer="sphere", size=0.1, batch=1, **changes):
    """Return two neurons of h_3 that start near two directions and are trained layer by layer."""
    weights = np.zeros((2, 5))
    weights[0, [0, 2]], weights[1, [1, 3]] = (0.6, 0.8), (0.5, np.sqrt(0.75))
    student = Student(
        activation="he3", width=2, initial_second_layer=[size, size], first_layer=first_layer,
        rates=(1.0 / size, 1.0, 0.0), layer_wise=switch,
    )  # fmt: skip
    return Problem(student=student, teacher=Teacher([0.8, 0.6]), dimension=12, initial_weights=weights, **changes)


@pytest.mark.parametrize("engine", ["projected", "torch"])
@pytest.mark.parametrize("first_layer", ["sphere", "free"])
def test_each_phase_moves_its_own_layer(engine, first_layer):
    """The switch at t = 0.05 is after step 50 of 0.001; at step 49.6 too, since the middle of step 49 comes before."""
    problem = layer_wise(0.0496, first_layer)
    options = EngineOptions(seeds=(0, 1), dtype="float64")
    runs = make_engine(engine, problem, options)
    alone = [make_engine(engine, phase, options) for phase in problem.phases()]
    with runs.running():
        runs.advance(np.full(37, 1e-3))
        runs.advance(np.full(13, 1e-3))
        before = runs.measure(student=True)
        assert (runs.layers()[:, 0] == 0.1).all()
        runs.advance(np.full(30, 1e-3))
        after = runs.measure(student=True)
        layers = runs.layers()
    for one, other in zip(before, after, strict=True):
        assert other is None or np.allclose(one, other, rtol=0, atol=1e-14)
    assert (layers[:, 0] != 0.1).all()
    with alone[0].running():
        alone[0].advance(np.full(50, 1e-3))
        expected = alone[0].measure(student=True)
    assert np.allclose(before.teacher_overlap, expected.teacher_overlap, rtol=0, atol=1e-14)
    # The samples of the second phase are those that runs of one phase would see next.
    if engine == "projected":
        alone[1].restore(alone[0].state())
        with alone[1].running():
            alone[1].advance(np.full(30, 1e-3))
        assert np.array_equal(alone[1].layers(), layers)


@pytest.mark.parametrize("engine", ["projected", "torch"])
@pytest.mark.parametrize("stops", [(20, 60), (37, 55), (50, 90)])
def test_runs_go_on_from_a_state_of_either_phase(engine, stops):
    """The switch, after step 50, lies in the middle of torch's block of 16 steps."""
    problem, options, rates = layer_wise(0.05), EngineOptions(seeds=(3,), dtype="float64"), np.full(120, 1e-3)
    whole, part = (make_engine(engine, problem, options) for _ in range(2))
    with whole.running():
        whole.advance(rates)
        expected = whole.layers(), whole.measure(student=True).teacher_overlap
    with part.running():
        done = 0
        for stop in stops:
            part.advance(rates[done:stop])
            state, done = part.state(), stop
            part = make_engine(engine, problem, options)
            with part.running():
                part.restore(state)
        with part.running():
            part.advance(rates[done:])
            found = part.layers(), part.measure(student=True).teacher_overlap
    for one, other in zip(expected, found, strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-13)


def test_samples_that_are_used_again_are_learned_layer_by_layer():
    """Steps at t < 0.05 leave v alone, and those after it w."""
    runs = sgd_check.simulate(
        layer_wise(0.05), learning_rate=1e-3, steps=100, seeds=2, training_samples=40, progress=False,
        save_at=SaveAt.at([0.0, 0.05, 0.1]), dtype="float64",
    )  # fmt: skip
    v, C = runs.second_layer.values, runs.teacher_overlap.values
    assert (v[:, 1] == 0.1).all()
    assert (v[:, 2] != 0.1).all()
    assert np.allclose(C[:, 1], C[:, 2], rtol=0, atol=1e-12)
    assert not np.allclose(C[:, 0], C[:, 1], rtol=0, atol=1e-6)


@pytest.mark.thorough
def test_runs_agree_with_the_flow():
    """The rate of false alarms is 1 %, of runs whose seeds are fixed."""
    problem = layer_wise(2.0)
    tree = sgd_check.check(problem, learning_rate=1e-4, t_max=7.0, seeds=32, theory="flow", progress=False)
    comparison = tree["comparison"].attrs
    assert comparison["verdict"] == "agree", comparison["reasons"]


@pytest.mark.thorough
def test_runs_disagree_with_the_flow_of_another_switch():
    runs = [
        sgd_check.simulate(layer_wise(2.0), learning_rate=rate, steps=round(5.0 / rate), seeds=32, progress=False)
        for rate in (4e-4, 2e-4)
    ]
    late = solve_network(layer_wise(2.9), save_at=SaveAt.linear(0.0, 5.0, 101), progress=False)
    # The answer of another problem, as a program with a wrong switch would give it for this one.
    late.attrs |= {"parameters": late.attrs["parameters"].replace('"layer_wise": 2.9', '"layer_wise": 2.0')}
    assert sgd_check.compare(late, runs)["comparison"].attrs["verdict"] == "disagree"


def test_momentum_is_refused():
    with pytest.raises(
        ValueError, match=r"^Argument `optimizer` must be plain SGD where `layer_wise` is given, but is "
    ):
        sgd_check.simulate(layer_wise(), learning_rate=1e-3, steps=9, seeds=1, optimizer=SGD(momentum=0.5))
