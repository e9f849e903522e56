"""Layer-wise training: the flow against scipy restarted at the switch, winners, final losses, files, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ndtr

import dynamics
from dynamics import Problem, SaveAt, Student, Teacher, laws, solve_network
from dynamics.equations.network.system import NetworkSystem
from dynamics.integrators import Status
from dynamics.integrators.methods import FlowMethod
from dynamics.integrators.phases import PhasedMethod
from dynamics.solve.__main__ import main


def layer_wise(link="he3", width=3, switch=30.0, size=1e-4, directions=2, dimension=24, seed=0, **changes):
    """Return a problem whose small, equal second layer is frozen until the switch: nearly the correlation flow."""
    student = Student(
        activation=link, width=width, initial_second_layer=np.full(width, size), first_layer="sphere",
        rates=(1.0 / size, 1.0, 0.0), layer_wise=switch,
    )  # fmt: skip
    teacher = Teacher.power_law(directions, 1.0)
    return Problem(student=student, teacher=teacher, dimension=dimension, seed=seed, **changes)


def by_scipy(problem, k, times, switch):
    """Return v (times, m) and the loss of h_k neurons on the sphere, in vectors of R^D, restarted at the switch, one of the times."""
    start, a, (rate, later, _) = problem.network_start(), problem.teacher.coefficients, problem.student.rates
    shape = start.weights.shape
    axes = np.eye(shape[1])[: a.size]

    def overlaps(w):
        W = w.reshape(shape)
        return W, W @ axes.T, W @ W.T

    def first(_t, w):
        W, C, G = overlaps(w)
        v = start.second_layer
        pull = k * C ** (k - 1) * a @ axes - (k * G ** (k - 1) * v) @ W
        force = rate * v[:, None] * pull
        return (force - np.sum(force * W, axis=1, keepdims=True) * W).ravel()

    options = {"method": "DOP853", "rtol": 1e-10, "atol": 1e-12}
    before = times <= switch
    found = solve_ivp(first, (0.0, switch), start.weights.ravel(), t_eval=times[before], **options)
    _, C, G = overlaps(found.y[:, -1])
    K, target = G**k, C**k @ a

    def second(_t, v):
        return later * (target - K @ v)

    then = solve_ivp(second, (switch, times[-1]), start.second_layer, t_eval=times[~before], **options)
    layers = np.vstack([np.tile(start.second_layer, (before.sum(), 1)), then.y.T])
    losses = []
    for index, v in enumerate(layers):
        _, C, G = overlaps(found.y[:, min(index, before.sum() - 1)])
        losses.append(np.sum(a**2) - 2 * v @ C**k @ a + v @ G**k @ v)
    return layers, np.array(losses)


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_the_flow_is_the_one_that_is_restarted_at_the_switch(method):
    """Free second layers of size 0.1, which interact, held against scipy in weight space."""
    problem = layer_wise(size=0.1, switch=7.3)
    times = np.array([0.0, 1.0, 5.0, 7.3, 7.4, 9.0, 30.0])
    flow = solve_network(problem, save_at=SaveAt.at(times), method=method, progress=False)
    layers, losses = by_scipy(problem, 3, times, 7.3)
    assert flow.second_layer.values == pytest.approx(layers, abs=2e-7)
    assert flow.loss.values == pytest.approx(losses, abs=2e-7)
    frozen = flow.teacher_overlap.values
    assert np.array_equal(frozen[times >= 7.3], np.broadcast_to(frozen[3], frozen[times >= 7.3].shape))
    assert (flow.second_layer.values[times <= 7.3] == 0.1).all()
    assert (np.abs(flow.loss - losses) <= flow.loss_error + 1e-9).all()


@pytest.mark.parametrize("k", [3, 4])
def test_winners_are_those_of_the_law_and_losses_those_of_the_chances(k):
    """Every winner is argmax a_p |C_p|^(k-2) (of C_p > 0 for odd k); the fitted second layer leaves what none won."""
    won = 0
    for seed in range(12):
        problem = layer_wise(f"he{k}", width=4, switch=500.0 if k == 3 else 3000.0, directions=3, seed=seed)
        flow = solve_network(problem, progress=False, keep="full")
        a, C = problem.teacher.coefficients, problem.start().teacher_overlap
        strength = np.maximum(C, 0.0) if k % 2 else np.abs(C)
        winner = np.where(strength.max(axis=1) > 0.0, np.argmax(a * strength ** (k - 2), axis=1), -1)
        end = flow.teacher_overlap.values[-1] ** 2
        found = np.where(end.max(axis=1) > 0.5, np.argmax(end, axis=1), -1)
        assert found.tolist() == winner.tolist()
        missed = np.setdiff1d(range(3), winner)
        assert flow.loss.values[-1] == pytest.approx(np.sum(a[missed] ** 2), abs=2e-5)
        won += np.count_nonzero(winner >= 0)
    assert won > 20


def test_final_losses_have_the_mean_of_the_law():
    """Starts at d = 400, whose overlaps are nearly normal, within 4 standard errors (false alarms 6e-5)."""
    losses = []
    for seed in range(200):
        problem = layer_wise("he3", width=2, directions=3, dimension=400, seed=seed)
        a, C = problem.teacher.coefficients, problem.start().teacher_overlap
        winner = np.where(C.max(axis=1) > 0.0, np.argmax(a * np.maximum(C, 0.0), axis=1), -1)
        losses.append(np.sum(a[np.setdiff1d(range(3), winner)] ** 2))
    expected = float(laws.layerwise_loss(Teacher.power_law(3, 1.0), [2], "he3")[0])
    assert abs(np.mean(losses) - expected) < 4.0 * np.std(losses) / np.sqrt(len(losses))


def test_descent_switches_at_the_nearest_step():
    problem = layer_wise(size=0.1, switch=0.998)
    times = SaveAt.at([0.0, 0.95, 1.0, 1.05, 2.0])
    steps = solve_network(problem, method="gradient-descent", learning_rate=0.05, save_at=times, progress=False)
    v, C = steps.second_layer.values, steps.teacher_overlap.values
    assert (v[:3] == 0.1).all()
    assert not np.isclose(v[3], 0.1).any()
    assert not np.array_equal(C[1], C[2])
    assert np.array_equal(C[2], C[4])


def test_events_of_both_phases_are_told_and_a_step_beyond_the_switch_is_void():
    problem = layer_wise(switch=500.0)
    whole = solve_network(problem, progress=False)
    time = float(np.nanmin(whole.emergence_time))
    early = replace(problem, student=replace(problem.student, layer_wise=0.999 * time))
    cut = solve_network(early, save_at=SaveAt.at([0.0, 0.999 * time, 2.0 * time]), progress=False)
    assert np.isnan(cut.emergence_time).all()


@pytest.mark.parametrize("name", ["explicit", "bdf"])
def test_a_stepper_goes_on_from_its_state_in_either_phase(name):
    problem, times = layer_wise(switch=40.0), np.arange(10.0, 90.0, 10.0)
    methods = [FlowMethod(NetworkSystem(phase), name, 1e-10) for phase in problem.phases()]
    method = PhasedMethod(*methods, 40.0)

    def states(*, restored):
        stepper = method.stepper(1e-8)
        for time in times:
            while stepper.advance(time, 7) is Status.MAX_STEPS:
                if restored:
                    state, stepper = stepper.state(), method.stepper(1e-8)
                    stepper.restore(state)
            yield stepper.interpolate(time), stepper.event_times, stepper.statistics()

    for whole, part in zip(states(restored=False), states(restored=True), strict=True):
        assert np.array_equal(whole[0], part[0])
        assert np.array_equal(whole[1], part[1], equal_nan=True)
        assert whole[2] == part[2]


def test_a_stored_run_is_resumed(tmp_path):
    """A tracker stops it at the first look, in the first phase; the file then goes on to the end of the second."""
    problem, path = layer_wise(switch=40.0), tmp_path / "run.nc"
    settings = {"save_at": SaveAt.linear(0.0, 80.0, 41), "progress": False, "error_estimate": False}
    whole = solve_network(problem, **settings)
    stop = dynamics.Callback(lambda _time, _state: True)
    part = solve_network(problem, trackers=[stop], checkpoint=path, **settings)
    assert part.attrs["stop_reason"] == "callback"
    assert part.attrs["end_time"] < 40.0
    rest = dynamics.resume(path, progress=False)
    assert np.array_equal(rest.loss.values, whole.loss.values)
    assert np.array_equal(rest.second_layer.values, whole.second_layer.values)


def test_a_run_at_rest_before_the_switch_goes_on():
    problem = layer_wise(switch=2000.0)
    flow = solve_network(problem, trackers=[dynamics.SteadyState(1e-3)], progress=False)
    assert flow.loss.values[np.isfinite(flow.loss.values)][-1] < 0.5


def test_layer_wise_students_are_stored_and_compared():
    problem = layer_wise()
    flow = solve_network(problem, save_at=SaveAt.at([0.0, 1.0]), progress=False)
    assert Problem.from_dataset(flow) == problem
    together = replace(problem.student, layer_wise=None)
    assert together != problem.student
    assert "layer_wise" not in together.parameters()
    assert [phase.learning_rates for phase in problem.student.phases()] == [(1e4, 0.0, 0.0), (0.0, 1.0, 0.0)]
    assert problem.student.learning_rates == (1e4, 0.0, 0.0)
    assert "then v alone" in problem._repr_html_()


def test_the_command_takes_a_switch_and_tells_it(capsys, tmp_path):
    path = tmp_path / "flow.nc"
    arguments = "--activation he3 --directions 3 --width 2 --dimension 24 --first-layer sphere".split()
    arguments += "--initial-second-layer 1e-4,1e-4 --rates 1e4,1,0 --layer-wise 200 --no-progress".split()
    assert main([*arguments, "--output", str(path)]) == 0
    told = capsys.readouterr().out
    assert "v does not move until t = 200, and v alone moves from then on" in told
    assert "Neurons do not move after the switch, at t = 200" in told
    assert dynamics.load(path).time.values[74] == 200.0


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: Student(activation="he3", width=2, second_layer="fixed", layer_wise=1.0), "`layer_wise` must be None"),
        (lambda: Student(activation="he3", width=2, rates=(1, 0, 1), layer_wise=1.0), "`layer_wise` must be None"),
        (lambda: Student(activation="he3", width=2, layer_wise=0.0), "`layer_wise` must be"),
        (lambda: solve_network(layer_wise(), learning_rate=dynamics.cosine(0.1, 100)), "`learning_rate` must be one"),
        (
            lambda: solve_network(layer_wise(), learning_rate=0.1, optimizer=dynamics.SGD(momentum=0.5)),
            "`optimizer` must be plain SGD where `layer_wise` is given, but is SGD",
        ),
        (
            lambda: solve_network(layer_wise(), learning_rate=1e-3, optimizer=dynamics.Adam()),
            "`optimizer` must be plain SGD where `layer_wise` is given, but is Adam",
        ),
        (
            lambda: dynamics.solve_reused_data(layer_wise(), samples=2.0, learning_rate=0.1, steps=4),
            "a student whose layers move together",
        ),
    ],
)
def test_what_does_not_apply_is_refused_by_name(ask, sentence):
    with pytest.raises(ValueError, match=sentence):
        ask()


DEAD = {"activation": "relu", "biases": "fixed", "layer_wise": 1.0}


@pytest.mark.parametrize(
    ("student", "last"),
    [
        (Student(width=2, initial_biases=[-60.0, -1.0], **DEAD), None),
        (Student(width=2, initial_biases=[-30.0, -1.0], **DEAD), None),  # its mean square is 1e-200
        (Student(width=1, initial_biases=[-60.0], **DEAD), 21.0),
        (Student(activation="he3", width=1, initial_second_layer=[0.0], layer_wise=1.0), 21.0),
        (Student(activation="he3", width=2, scale=1e-200, layer_wise=1.0), 21.0),
    ],
)
def test_neurons_that_cannot_move_have_default_times(student, last):
    """The slowest neuron that is not dead has E relu(z - 1)^2 = 2 Q(1) - phi(1), by parts."""
    problem = Problem(student=student, teacher=Teacher([1.0]), teacher_activation="he3", dimension=16)
    flow = solve_network(problem, progress=False)
    density, tail = np.exp(-0.5) / np.sqrt(2.0 * np.pi), ndtr(-1.0)
    expected = last or 1.0 + 20.0 / (2.0 * tail - density)
    assert flow.time.values[-1] == pytest.approx(expected, rel=1e-6)
    assert flow.stop_reason == "reached_end"
    assert np.isfinite(flow.loss.values).all()


def test_a_network_whose_output_is_zero_to_rounding_stays_where_it_is():
    student = Student(activation="he3", width=1, scale=1e-200, rates=(1.0, 0.0, 0.0))
    problem = Problem(student=student, teacher=Teacher([1.0]), dimension=16)
    flow = solve_network(problem, save_at=SaveAt.at([0.0, 1.0]), progress=False)
    assert flow.loss.values[1] == flow.loss.values[0]


@pytest.mark.thorough
def test_mean_steps_of_sgd_switch_too():
    """Free neurons of erf with biases: each phase holds its layers, and small steps are the flow."""
    student = Student(activation="erf", width=2, biases="trained", initial_second_layer=[0.5, -0.4], layer_wise=3.0)
    problem = Problem(student=student, teacher=Teacher([1.0]), dimension=10, seed=2)
    times = SaveAt.at([0.0, 1.5, 3.0, 3.5, 6.0])
    flow = solve_network(problem, save_at=times, progress=False)
    steps = solve_network(problem, learning_rate=1e-5, save_at=times, progress=False)
    for answer in (flow, steps):
        assert (answer.second_layer.values[:3] == [0.5, -0.4]).all()
        assert (np.diff(answer.second_layer.values[2:], axis=0) != 0.0).all()
        for name in ("bias", "squared_norm", "teacher_overlap"):
            values = answer[name].values
            assert (values[1] != values[2]).all()
            assert values[4] == pytest.approx(values[2], rel=1e-12)
    assert steps.loss.values == pytest.approx(flow.loss.values, rel=2e-3)
    assert not np.allclose(steps.loss.values[1:], flow.loss.values[1:], rtol=1e-9)
