"""The large-flow solver on a device, on the processor: field, slowed clusters, solutions, events, dense output, messages."""

import sys

import leaning_cluster
import numpy as np
import pytest
from overlap_equations import across, field, overlap_rates
from scipy.integrate import solve_ivp

import dynamics
from dynamics.equations.overlaps import OverlapSystem
from dynamics.integrators import Status
from dynamics.integrators.device import load_torch
from dynamics.integrators.large_flow import LargeFlowStepper
from dynamics.integrators.large_flow.device import TorchFlowStepper

torch = pytest.importorskip("torch")

MIXED = {3: 0.6, 4: 0.8}
GAPS = {3: 0.5, 6: 0.7, 7: 0.4}


@pytest.fixture(autouse=True)
def _one_thread():
    """Small products lose more to a second thread than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def problem(link="he4", P=6, m=6, d=64, **options):
    teacher = dynamics.Teacher.power_law(P, beta=1.0)
    return dynamics.Problem(activation=link, teacher=teacher, width=m, dimension=d, initial_norm=0.03, **options)


def stepper(question, rtol=1e-7, **options):
    return TorchFlowStepper(question, rtol=rtol, atol=1e-2 * rtol, device="cpu", **options)


def reached(flow, *targets):
    for target in targets:
        assert flow.advance(target, 10**6) == Status.REACHED
    return flow


@pytest.mark.parametrize("link", ["he4", "he3", MIXED, GAPS, {4: 0.8, 6: 0.6}, {3: 0.6, 8: 0.8}])
def test_rates_are_those_of_the_equations(link, rng):
    """Also off the sphere, where stages are; the largest relative difference seen is 2e-15."""
    question = problem(link, P=5, m=9, d=40)
    step = stepper(question)
    m, D = 9, 14
    U = step.now[:, :D].numpy() + 0.1 * rng.standard_normal((m, D))
    U /= np.linalg.norm(U, axis=1, keepdims=True)  # the part of a row in its own growth is that of a unit vector
    U[3], U[4] = U[2], -U[2]
    n, a = np.exp(rng.standard_normal(m)), question.teacher.coefficients
    Y = torch.zeros_like(step.now)
    Y[:, :D], Y[:, D] = torch.from_numpy(U), torch.from_numpy(np.log(n))
    rates = step.field.rates(Y)
    F, growth = field(question.activation, a, np.eye(5, D), U, n)
    np.testing.assert_allclose(rates[:, :D].numpy(), across(F, U), rtol=1e-13, atol=1e-13 * np.abs(F).max())
    np.testing.assert_allclose(rates[:, D].numpy(), 4 * growth, rtol=1e-13, atol=1e-13 * np.abs(growth).max())


def test_summary_is_that_of_the_overlaps():
    for link, m in (("he4", 5), ("he3", 5), ("he3", 40)):
        question = problem(link, P=3, m=m, d=32)
        flow = reached(stepper(question), 30.0)
        system = OverlapSystem(question)
        for t in (flow._time_last, 0.3 * flow._time_last + 0.7 * flow.time, flow.time):
            expected = system.summarise(flow.interpolate(t))
            found = flow.summary(t)
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize(("link", "sign"), [("he4", [1.0, -1.0, 1.0]), (MIXED, [1.0, 1.0, 1.0])], ids=str)
def test_slowed_members_move_as_their_cluster_would_elsewhere(link, sign):

    def slowed(question, sign, h):
        step = stepper(question)
        m, clusters = question.width, step.clusters
        cluster = torch.zeros(m, dtype=torch.int64)
        clusters.reset(cluster, torch.from_numpy(sign), torch.zeros_like(clusters.drift))
        clusters.pace(torch.tensor(h, dtype=torch.float64))
        rates = step.now_rates.clone()
        clusters.slow(rates, step.now, torch.exp(step.now[:, step.field.D]))
        return rates[:, : step.field.D].numpy(), rates[:, step.field.D].numpy()

    leaning_cluster.check(link, sign, slowed)


CASES = {
    "h4": (problem("he4", P=6, m=6, d=64), 6 * 64 * 6.0),
    "h3, odd": (problem("he3", P=6, m=6, d=64), 1000.0),
    "mixed parity": (problem(MIXED, P=4, m=6, d=64), 2000.0),
    "clusters of several": (problem("he4", P=2, m=12, d=32), 60 * 32 * 2.0),
}


def solution(flow, question, times):
    system = OverlapSystem(question)
    losses = [system.loss(*system.unpack(reached(flow, t).interpolate(t))) for t in times]
    return np.array(losses), flow.event_times


def referee(question, times):
    """Return losses and event times by scipy's DOP853 on the overlaps."""
    system, P = OverlapSystem(question), question.num_directions
    a, g = question.teacher.coefficients, question.activation.kernel

    def rhs(_, y):
        return overlap_rates(question, y)

    def emerges(p, y):
        return np.max(np.maximum(system.unpack(y)[0][:, p], 0.0) ** 2) - 0.5

    def learns(p, y):
        C, _, n = system.unpack(y)
        return n @ g(C[:, p]) - 0.5 * a[p] * g(1.0)

    events = [lambda _, y, p=p, value=value: value(p, y) for value in (emerges, learns) for p in range(P)]
    found = solve_ivp(
        rhs, (0.0, times[-1]), system.initial_state, "DOP853", times, events=events, rtol=1e-11, atol=1e-13
    )
    losses = np.array([system.loss(*system.unpack(y)) for y in found.y.T])
    return losses, np.array([t[0] if t.size else np.nan for t in found.t_events])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name != "h3, odd" else name for name in CASES]
)
def test_solution_is_that_of_other_solvers(name):
    """Errors seen are at most 0.4 rtol in the loss and 1.0 rtol in the event times, and at rtol = 1e-6 it needs
    less than 0.7 of the steps that stability alone would cost without clusters.

    The other solver is that of the host at rtol = 1e-11; for mixed parity scipy's, on the overlaps.
    """
    question, last = CASES[name]
    times = np.geomspace(1.0, last, 12)
    if name == "mixed parity":
        loss, events = referee(question, times)
    else:
        loss, events = solution(LargeFlowStepper(question, rtol=1e-11, atol=1e-13), question, times)
    happens = np.isfinite(events)
    assert happens.sum() >= 4
    for rtol in (1e-6, 1e-9):
        flow = stepper(question, rtol)
        found_loss, found_events = solution(flow, question, times)
        np.testing.assert_array_equal(np.isfinite(found_events), happens)
        assert np.abs(found_loss - loss).max() < 1.0 * rtol
        assert np.abs(found_events[happens] / events[happens] - 1.0).max() < 3.0 * rtol
        if rtol == 1e-6:
            # Without its clusters the method is limited by stability, to a step of 6 / (4 a_1).
            fewest = last * 4 * question.teacher.coefficients[0] / 6
            assert flow.statistics()["steps_accepted"] < 0.7 * fewest


def test_dense_output_is_the_solution_inside_the_step():
    """Against a run at a tolerance a thousand times tighter; the largest error seen is 4e-9, the largest jump 1e-10."""
    question = problem(MIXED, P=2, m=3, d=32)
    flow, tight = reached(stepper(question, 1e-7), 15.0), stepper(question, 1e-10)
    for x in (0.1, 0.5, 0.8):
        t = flow._time_last + x * (flow.time - flow._time_last)
        np.testing.assert_allclose(flow.interpolate(t), reached(tight, t).interpolate(t), rtol=0, atol=2e-8)
    for t in (flow._time_last, flow.time):
        inside = flow.interpolate(t + 1e-9 * (flow._time_last + 0.5 * (flow.time - flow._time_last) - t))
        np.testing.assert_allclose(flow.interpolate(t), inside, rtol=0, atol=1e-9)
    U, log_norm = flow.vectors(flow.time)
    np.testing.assert_allclose(np.sum(U**2, axis=1), 1.0, atol=1e-15)
    out = np.empty(6 + 9 + 3)
    assert flow.interpolate(flow.time, out) is out
    np.testing.assert_array_equal(out[-3:], log_norm)
    with pytest.raises(ValueError, match="within the last step"):
        flow.interpolate(1.01 * flow.time)


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [0, 1, 150])
def test_a_restored_run_continues_bit_for_bit(steps):
    question = problem(P=2, m=3, d=32)
    first = stepper(question)
    assert first.advance(1e9 if steps else 0.0, steps) == (Status.MAX_STEPS if steps else Status.REACHED)
    second = stepper(question)
    second.restore(first.state())
    inside = 0.5 * (first._time_last + first.time)
    np.testing.assert_array_equal(first.interpolate(inside), second.interpolate(inside))
    for flow in (first, second):
        flow.advance(1e9, 60)
    assert first.time == second.time
    np.testing.assert_array_equal(first.interpolate(first.time), second.interpolate(first.time))
    np.testing.assert_array_equal(first.event_times, second.event_times)
    assert first.statistics() == second.statistics()
    with pytest.raises(ValueError, match=r"must hold `now` of shape \(4, 8\), but has \(3, 8\)"):
        stepper(problem(P=2, m=4, d=32)).restore(first.state())


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", ""])
def test_an_unknown_device_is_refused(device):
    with pytest.raises(ValueError, match=r"`device` must be 'cpu', 'cuda' or 'cuda:<number>', but is '"):
        load_torch(device)


def test_an_absent_device_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert load_torch("cuda:0") is torch
    with pytest.raises(ValueError, match=r"is 'cuda:1' and torch finds 1 CUDA device.*feature-emergence\[torch\]"):
        load_torch("cuda:1")


def test_missing_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "feature-emergence\[torch\]"'):
        stepper(problem())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graphics_processor_gives_the_same_solution():
    """Sums are rounded in another order, and so are steps chosen; each solution has an error of the tolerance."""
    question = problem(P=4, m=6, d=64)
    host, device = stepper(question), TorchFlowStepper(question, rtol=1e-7, atol=1e-9, device="cuda")
    for flow in (host, device):
        reached(flow, 50.0)
    np.testing.assert_allclose(device.interpolate(50.0), host.interpolate(50.0), rtol=0, atol=2e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_solution_on_a_graphics_processor_has_errors():
    """Two runs, each in its thread, record their steps."""
    question = problem(P=4, m=6, d=64)
    host, device = (dynamics.solve_overlaps(question, method="stiff", device=where) for where in (None, "cuda"))
    assert np.isfinite(device["loss_error"]).all()
    np.testing.assert_allclose(device["loss"], host["loss"], rtol=0, atol=2 * host.attrs["rtol"])
