"""What a cut series changes in the answer, held against relu's exact kernel, and where it is left out."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import dynamics
import hermite
from dynamics import StopReason
from dynamics.report.flows import flow_findings
from dynamics.runs.loop import RunResult, truncation_errors
from dynamics.runs.result import Records
from dynamics.solve.integration import halved

pytestmark = pytest.mark.filterwarnings("ignore:The flow sees")

TIMES = np.geomspace(0.05, 30.0, 40)


def problem(activation):
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((3, 8)) / np.sqrt(8.0)
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    start = (unit[:, :2], unit @ unit.T, np.full(3, 0.05))
    return dynamics.Problem(
        activation=activation, teacher=dynamics.Teacher([1.0, 0.6]), width=3, dimension=8, initial_overlaps=start
    )


def g(s):
    s = np.clip(s, -1.0, 1.0)
    return (np.sqrt(1.0 - s**2) + s * (np.pi - np.arccos(s))) / (2.0 * np.pi)


def slope(s):
    return (np.pi - np.arccos(np.clip(s, -1.0, 1.0))) / (2.0 * np.pi)


def exact_flow(asked):
    """Return the loss and the times at which C² = ½, by scipy."""
    a, m = asked.teacher.coefficients, asked.width

    def unpacked(y):
        return y[: m * 2].reshape(m, 2), y[m * 2 : m * 2 + m * m].reshape(m, m), np.exp(y[-m:])

    def rates(_, y):
        C, G, n = unpacked(y)
        A, B = a * slope(C), n * slope(G)
        X = A @ C.T - B @ G
        r = np.diag(X)[:, None]
        growth = 4.0 * (g(C) @ a - g(G) @ n)
        return np.concatenate([(A - B @ C - r * C).ravel(), (X + X.T - r * G - G * r.T).ravel(), growth])

    C, G, n = asked.start()
    start = np.concatenate([C.ravel(), G.ravel(), np.log(n)])
    events = [lambda _, y, p=p: np.max(unpacked(y)[0][:, p]) - np.sqrt(0.5) for p in range(2)]
    path = solve_ivp(rates, (0.0, TIMES[-1]), start, "LSODA", TIMES, events=events, rtol=1e-10, atol=1e-12)
    loss = []
    for y in path.y.T:
        C, G, n = unpacked(y)
        loss.append(a @ g(np.eye(2)) @ a - 2.0 * n @ g(C) @ a + n @ g(G) @ n)
    return np.array(loss), [float(found[0]) if len(found) else np.nan for found in path.t_events]


def solved(asked, **options):
    return dynamics.solve_overlaps(
        asked, save_at=dynamics.SaveAt.at(TIMES), method="explicit", rtol=1e-7, progress=False, **options
    )


def test_both_parts_cover_the_distance_to_the_exact_kernel_of_relu():
    asked = problem("relu")
    flow, (loss, emerged) = solved(asked), exact_flow(asked)
    error, reported = np.abs(flow.loss.values - loss), flow.loss_error.values + flow.loss_truncation_error.values
    assert (error <= reported).all()
    # Without the second part the error was taken for a thousandth of what it is.
    assert np.max(error) > 100.0 * np.max(flow.loss_error.values)
    # It says how much, not only that there is some.
    assert np.median(reported / error) < 30.0
    time = flow.emergence_time.values
    assert np.isfinite(emerged).any()
    known = np.isfinite(emerged) & np.isfinite(time)
    reported = flow.emergence_time_error.values + flow.emergence_time_truncation_error.values
    assert (np.abs(time - emerged)[known] <= reported[known]).all()
    sentences = " ".join(flow_findings(flow).sentences)
    assert "Largest estimated numerical error of the loss" in sentences
    assert "Largest estimated error by cutting the series of the link of the loss" in sentences


def test_each_link_is_cut_by_itself():
    given = {"teacher": dynamics.Teacher([1.0]), "width": 2, "dimension": 8, "student": "spherical"}
    for student, teacher, orders in [("relu", "he4", (30, 4)), ("he4", "relu", (4, 30)), ("relu", "abs", (30, 30))]:
        asked = dynamics.Problem(activation=student, teacher_activation=hermite.expand(teacher), **given)
        found, factor = halved(asked, 1e-7)
        links = found.activation, found.teacher_link
        assert tuple(np.flatnonzero(np.abs(link.coefficients) > link.tolerance)[-1] for link in links) == orders
        assert factor == pytest.approx(1.0 / (np.sqrt(2.0) - 1.0), rel=0.1)
    assert halved(dynamics.Problem(activation="he4", teacher_activation="he3", **given), 1e-7) is None


@pytest.mark.parametrize(
    "link", ["he4", "0.3*h2(z) + h4(z)", hermite.expand("sin(z)", order=40)], ids=["h4", "h2 and h4", "sin"]
)
def test_series_that_leave_out_less_than_the_tolerance_have_no_such_estimate(link):
    assert halved(problem(link), 1e-7) is None


def test_cut_runs_that_are_missing_or_disagree():
    def result(losses, events, reason=StopReason.REACHED_END):
        records = Records(2)
        for loss in losses:
            records.append({"loss": loss})
        return RunResult(records=records, stop_reason=reason, event_times=np.array(events))

    whole = result([1.0, 0.5], [1.0, np.nan, 3.0])
    loss, events = truncation_errors(whole, result([1.1, 0.4], [1.5, 2.0, np.nan]), 2, 2.0)
    np.testing.assert_allclose(loss, [0.2, 0.2])
    np.testing.assert_allclose(events, [1.0, np.inf, np.inf])
    early = truncation_errors(whole, result([1.1], [1.5, 2.0, np.nan], StopReason.CALLBACK), 2, 2.0)
    np.testing.assert_allclose(early[0], [0.2, np.nan])
    assert all(np.isnan(part).all() for part in truncation_errors(whole, None, 2, 2.0))
