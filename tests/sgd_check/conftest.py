"""Problems with given starts, and an independent flow to hold the experiment against."""

import numpy as np
import pytest
from overlap_equations import overlap_rates
from scipy.integrate import solve_ivp

from dynamics import Problem, StopReason, Teacher
from dynamics.runs import trackers
from dynamics.runs.dataset import make_dataset


def build_problem(overlap, coefficients=(0.8, 0.6), dimension=16, activation="he4", norm=0.1, seed=1, **more):
    """Neurons with the given overlaps, random and of the given norm in the other axes."""
    teacher = Teacher(coefficients, directions=more.pop("directions", None))
    overlap = np.asarray(overlap, dtype=float)
    rng = np.random.default_rng(seed)
    weights = np.zeros((overlap.shape[0], dimension))
    weights[:, : teacher.span] = overlap
    rest = rng.standard_normal((overlap.shape[0], dimension - teacher.span))
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    weights[:, teacher.span :] = rest * np.sqrt(1 - np.sum(overlap**2, axis=1, keepdims=True))
    return Problem(
        activation=activation, teacher=teacher, width=overlap.shape[0], dimension=dimension,
        initial_weights=norm * weights, **more,
    )  # fmt: skip


def flow_dataset(problem, times, stretch=1.0):
    """The flow by scipy as a prediction; emergence times are multiplied by `stretch`."""
    start = problem.start()
    m, P = start.teacher_overlap.shape
    cut = [m * P, m * P + m * m]

    def unpack(y):
        C, G, log_n = np.split(y, cut)
        return C.reshape(m, P), G.reshape(m, m), log_n

    def crossing(p):
        def event(_, y):
            return np.max(unpack(y)[0][:, p] ** 2) - 0.5

        event.direction = 1
        return event

    y0 = np.concatenate([start.teacher_overlap.ravel(), start.student_overlap.ravel(), np.log(start.squared_norm)])
    events = [crossing(p) for p in range(P)]
    given = {"method": "DOP853", "t_eval": times, "rtol": 1e-9, "atol": 1e-11, "events": events}
    solved = solve_ivp(lambda _, y: overlap_rates(problem, y), (0, times[-1]), y0, **given)
    emergence = np.array([found[0] if found.size else np.nan for found in solved.t_events])
    states = [unpack(y) for y in solved.y.T]
    g, a, T = problem.activation.kernel, problem.teacher.coefficients, problem.teacher.gram()
    loss = [a @ g(T) @ a - 2 * np.exp(n) @ g(C) @ a + np.exp(n) @ g(G) @ np.exp(n) for C, G, n in states]
    return make_dataset(
        {"teacher_overlap": np.array([C for C, _, _ in states]), "loss": np.array(loss), "emergence_time": emergence * stretch},
        problem=problem, title="flow by scipy", coords={"time": times, "neuron": np.arange(m)},
        solver={"answer": "referee"}, attributes={"answer": "referee"},
    )  # fmt: skip


@pytest.fixture(scope="session")
def tools():

    class Tools:
        problem = staticmethod(build_problem)
        flow = staticmethod(flow_dataset)

    return Tools


@pytest.fixture(scope="session")
def escape():
    """Two directions that emerge in the flow at 0.34 and 0.65, d = 64, k = 4."""
    return build_problem([[0.55, 0.05], [0.03, 0.5], [0.02, -0.04]], dimension=64)


@pytest.fixture(scope="session")
def escape_runs(escape):
    """Thirty-two runs at learning rate 0.03/d², the one long simulation of this folder."""
    import sgd_check

    return sgd_check.simulate(escape, learning_rate=0.03 / 64**2, steps=125_000, seeds=32, progress=False)


@pytest.fixture(scope="session")
def escape_flow(escape):
    return flow_dataset(escape, np.geomspace(0.02, 1.06, 60))


@pytest.fixture
def budget_spent_midway(monkeypatch):
    """Let a budget of time be spent once a tenth of the steps are taken, wherever that is in a block of samples."""
    for name in ("FIRST_CHUNK_STEPS", "LARGEST_CHUNK_STEPS"):
        monkeypatch.setattr(trackers, name, 7)

    def check(_, view):
        return StopReason.MAX_RUNTIME if view.time > 0.1 * view.end else None

    for name in ("check", "urgent"):
        monkeypatch.setattr(trackers.MaxRuntime, name, check)
