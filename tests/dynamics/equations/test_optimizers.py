"""Mean motion under optimizers: accepted numbers, moments of steps in R^d, exact relations, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dynamics
from dynamics import SGD, Adam, Problem, RMSprop, SaveAt, SignSGD, Student, Teacher, ZerothOrder
from dynamics.integrators.system_calls import BoundSystem
from dynamics.problem import checked_optimizer
from dynamics.solve.steps import StepSettings, optimized
from dynamics.theory.components import default_network_times

ERF = {"activation": "erf", "second_layer": "fixed", "biases": "none"}


def overlaps(m: int, P: int) -> np.ndarray:
    """M_ip = .1 cos(1 + 2i + 3p), the start of all accepted numbers, with Q = M Mᵀ + 1/4."""
    return np.array([[0.1 * np.cos(1 + 2 * i + 3 * p) for p in range(P)] for i in range(m)])


def committee(m: int, P: int, d: int, noise: float, **student: object) -> Problem:
    return Problem(
        student=Student(width=m, initial_second_layer=[1.0] * m, **(ERF | student)),
        teacher=Teacher([1.0] * P, links=["erf"] * P), initial_weights=np.hstack([overlaps(m, P), 0.5 * np.eye(m)]),
        dimension=d, label_noise=noise,
    )  # fmt: skip


def solve(problem: Problem, rate: float, optimizer: object, times: object, theory: str = "infinite-d", **more: object):
    at = SaveAt.at(np.asarray(times, dtype=float))
    given = {"learning_rate": rate, "optimizer": optimizer, "step_theory": theory, "save_at": at, "progress": False}
    return dynamics.solve_problem(problem, **given, **more)


@pytest.mark.parametrize(
    ("optimizer", "rate", "expected"),
    [
        (SGD(), 0.5 / 100, [0.045469267, 0.038510615, 0.031675649]),
        (ZerothOrder(), 0.5 / (2 * 100**2), [0.037853839, 0.033759423, 0.031635623]),
    ],
)
def test_zeroth_order_has_its_accepted_losses(optimizer: object, rate: float, expected: list[float]) -> None:
    flow = solve(committee(2, 2, 100, 0.2), rate, optimizer, [0.0, 4.0, 12.0, 24.0])
    assert np.allclose(flow.loss, [0.933595802, *expected], atol=2e-9)
    assert np.allclose(flow.step, flow.time / rate)


@pytest.mark.parametrize(
    ("left", "loss", "average_loss"),
    [
        (1.0, [0.265827200, 0.056403029, 0.052728898], [0.549102239, 0.046121335, 0.039336341]),
        (2 / 400, [0.322284433, 0.056433388, 0.052814207], [0.628289149, 0.047841435, 0.041250859]),
    ],
)
def test_momentum_and_averages_have_their_accepted_losses(
    left: float, loss: list[float], average_loss: list[float]
) -> None:
    rate, optimizer = 0.5 * left / 400, SGD(momentum=1.0 - left, average=1 / 800)
    flow = solve(committee(2, 2, 400, 0.3), rate, optimizer, rate * np.array([800, 4000, 9600]))
    assert np.allclose(flow.loss, loss, atol=2e-9)
    assert np.allclose(flow.average_loss, average_loss, atol=2e-9)
    assert flow.step.values.tolist() == [800, 4000, 9600]
    assert flow.attrs["optimizer"] == str(optimizer)


def test_adam_has_its_accepted_losses() -> None:
    flow = solve(committee(2, 2, 500, 0.3), 0.15 / 500, Adam(beta2=1 - 2 / 500), 0.15 * np.array([4.0, 12.0, 24.0]))
    assert np.allclose(flow.loss, [0.187042128, 0.061883679, 0.059978421], atol=2e-8)
    same = solve(committee(2, 2, 500, 0.3), 0.15 / 500, RMSprop(beta2=1 - 2 / 500), [0.6])
    assert np.allclose(same.loss, flow.loss[0])


def test_sign_sgd_is_within_the_errors_of_runs() -> None:
    """Of 16 runs from dense random starts; the start, of the same overlaps up to 1/√d, changes the loss by 1 %."""
    flow = solve(committee(1, 1, 500, 0.3), 0.3 / 500, SignSGD(), 0.96 * np.arange(1.0, 6.0))
    assert np.allclose(flow.loss, [0.1777, 0.0943, 0.0694, 0.0616, 0.0590], rtol=0.012)


def smoothed_noise(problem: Problem, smoothing: float, draws: int) -> tuple[float, float]:
    """Return d² E(ℓ₊ − ℓ₋)²/(4λ²) of one erf neuron and direction at the start by draws, and its standard error."""
    rng = np.random.default_rng(1)
    erf = np.vectorize(__import__("math").erf)
    C = problem.network_start().weights[0]
    z, u, zeta, noise = rng.standard_normal((4, draws))
    inside, label = C[0] * z + C[1] * u, erf(z / np.sqrt(2)) + problem.label_noise * noise
    above, below = (0.5 * (erf((inside + s * smoothing * zeta) / np.sqrt(2)) - label) ** 2 for s in (1, -1))
    found = problem.dimension**2 * (above - below) ** 2 / (4 * smoothing**2)
    return float(found.mean()), float(found.std() / np.sqrt(draws))


@pytest.mark.kernels
@pytest.mark.parametrize("smoothing", [0.05, 0.8, 2.0])
def test_smoothed_zeroth_order_moves_as_the_smoothed_mean_and_with_the_noise_of_two_losses(smoothing: float) -> None:
    """The rates at the start; false alarms of the noise: 1e-4."""
    problem, rate = committee(1, 1, 100, 0.2), 0.4 / 100**2
    system = optimized(problem, step_settings(rate, ZerothOrder(smoothing=smoothing)))
    out = rates_of(system)
    M, Q = overlaps(1, 1)[0, 0], overlaps(1, 1)[0, 0] ** 2 + 0.25
    wide = Q + smoothing**2
    # E σ'(λ) x (erf(λ) − erf(z)) at the variance `wide`, by Stein's lemma.
    own, cross = 2 / np.pi / np.sqrt(1 + 2 * wide), 2 / np.pi / np.sqrt(2 * (1 + wide) - M**2)
    A = own * (1 - wide / (1 + wide)) + cross * M / (1 + wide)
    assert np.isclose(out[2], -(A * M - cross), rtol=1e-10)
    noise = (out[3] + 2 * (A * Q - cross * M)) / rate
    expected, error = smoothed_noise(problem, smoothing, 200_000)
    assert abs(noise - expected) < 3.9 * error


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("smoothing", "start", "expected"),
    [
        (0.05, (0.0431, 0.2817), [0.0256, 0.0070, 0.0042, 0.0035]),
        (0.8, (0.0619, 0.2860), [0.0378, 0.0120, 0.0148, 0.0195]),
        (2.0, (0.0461, 0.2760), [0.1114, 0.0551, 0.0535, 0.0622]),
    ],
)
def test_smoothed_zeroth_order_has_its_accepted_losses(
    smoothing: float, start: tuple[float, float], expected: list[float]
) -> None:
    """To 1.5 %; two numbers of the random start, which was not written down, are fitted to four losses."""
    M, rest = start
    problem = committee(1, 1, 100, 0.2)
    problem = replace(problem, initial_weights=np.array([[M, rest**0.5]]))
    flow = solve(problem, 0.4 / 100**2, ZerothOrder(smoothing=smoothing), [4.0, 8.0, 12.0, 16.0], rtol=1e-5)
    assert np.allclose(flow.loss, expected, rtol=0.015)


def step_settings(rate: float, optimizer: object, theory: str = "infinite-d", batch: int = 1):
    return StepSettings(rate, theory, batch, optimizer)


def rates_of(system, t: float = 0.0) -> np.ndarray:
    out = np.empty(system.initial_state.size)
    BoundSystem(system).rhs(t, system.initial_state, out)
    return out


@pytest.mark.kernels
@pytest.mark.parametrize("kind", ["network", "homogeneous"])
def test_a_zeroth_order_step_has_the_mean_products_of_vectors(kind: str) -> None:
    """Two directions and batches of three in R^9: E[ΔM] and E[ΔQ], within 4.5 standard errors (false alarms 1e-4)."""
    d, B, K, rate, draws = 9, 3, 2, 0.02, 60_000
    if kind == "network":
        problem = committee(2, 2, d, 0.3)
        start = problem.network_start().weights
    else:
        start = np.array([[0.5, 0.2, 0.3, 0.0], [-0.1, 0.6, 0.1, 0.4]])
        problem = Problem(
            activation="he3", width=2, teacher=Teacher([0.7, 0.4]), dimension=d, label_noise=0.3,
            initial_weights=np.pad(start, ((0, 0), (0, d - 4))),
        )  # fmt: skip
    W = np.pad(start, ((0, 0), (0, d - start.shape[1])))
    rng = np.random.default_rng(3)
    x = rng.standard_normal((draws, B, d))
    labels = 0.3 * rng.standard_normal((draws, B))
    link, rho = problem.activation, np.linalg.norm(W, axis=1)
    if kind == "network":
        inside = x @ W.T
        labels += link.value(x[..., :2]).sum(axis=-1)
        error = link.value(inside).sum(axis=-1) - labels
        g = np.einsum("nb,nbi,nbk->nik", error, link.derivative(inside), x) / B
    else:
        z = x @ (W / rho[:, None]).T
        labels += link.value(x[..., :2]) @ problem.teacher.coefficients
        error = link.value(z) @ rho**2 - labels
        slope = link.derivative(z)
        g = np.einsum("nb,nbi,nbk->nik", error, slope * rho, x)
        g += np.einsum("nb,nbi,ik->nik", error, (2 * link.value(z) - z * slope), W)
        g /= B
    Z = rng.standard_normal((draws, K, 2, d))
    step = -rate * np.einsum("nk,nkij->nij", np.einsum("nij,nkij->nk", g, Z), Z) / K
    after = W + step
    changes = np.concatenate(
        [(step[:, :, :2]).reshape(draws, 4), (np.einsum("nik,njk->nij", after, after) - W @ W.T).reshape(draws, 4)],
        axis=1,
    )
    system = optimized(problem, step_settings(rate, ZerothOrder(directions=K), "finite-d", B))
    expected = rate * rates_of(system)[4:]
    error = changes.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(changes.mean(axis=0) - expected) < 4.5 * error)


def named_committee(link: str, d: int) -> Problem:
    weights = np.pad(np.hstack([overlaps(2, 2), 0.5 * np.eye(2)]), ((0, 0), (0, d - 4)))
    return Problem(
        activation=link, student="committee", width=2, teacher=Teacher([1.0, 1.0]), dimension=d, label_noise=0.2,
        initial_weights=weights,
    )  # fmt: skip


def test_committee_and_network_move_alike() -> None:
    network = committee(2, 2, 100, 0.2)
    same = named_committee("erf", 100)
    for optimizer in (SGD(momentum=0.9, nesterov=True, average="polyak"), ZerothOrder(directions=2), Adam(beta2=0.96)):
        theory = "infinite-d" if isinstance(optimizer, Adam) else "finite-d"
        rate = 2e-5 if isinstance(optimizer, ZerothOrder) else 1e-3
        one, two = (solve(each, rate, optimizer, [0.5, 1.0, 2.0], theory) for each in (network, same))
        assert np.allclose(one.loss, two.loss, rtol=1e-7)
        assert np.allclose(one.teacher_overlap, two.teacher_overlap, rtol=1e-6)


@pytest.mark.kernels
@pytest.mark.parametrize("link", ["erf", "he3"])
@pytest.mark.parametrize(
    ("optimizer", "theory"),
    [
        (SGD(momentum=0.9, nesterov=True, average="polyak"), "finite-d"),
        (SGD(momentum=0.5, dampening=0.5, average=0.1), "infinite-d"),
        (ZerothOrder(directions=2), "finite-d"),
        (Adam(beta2=0.99), "infinite-d"),
    ],
)
def test_rates_of_committee_and_network_are_alike(link: str, optimizer: object, theory: str) -> None:
    """Of the weights and of all that an optimizer keeps, at the start and, of a map, in its second step."""
    if link != "erf" and isinstance(optimizer, Adam):
        return
    student = Student(activation=link, width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
    start = np.hstack([overlaps(2, 2), 0.5 * np.eye(2)])
    network = Problem(
        student=student, teacher=Teacher([1.0, 1.0]), dimension=50, label_noise=0.2, initial_weights=start
    )
    problems = network, named_committee(link, 50)
    one, two = (optimized(each, step_settings(1e-3, optimizer, theory)) for each in problems)
    first = rates_of(one)
    assert np.abs(first).max() > 0.01
    assert np.allclose(first, rates_of(two), atol=1e-12)
    for system in (one, two):
        system.initial_state = system.initial_state + 1e-3 * first
    assert np.allclose(rates_of(one, 1e-3), rates_of(two, 1e-3), atol=1e-12)


@pytest.mark.kernels
def test_the_rates_of_sign_sgd_are_means_over_samples() -> None:
    """Of one neuron at the start, by 400 000 draws; false alarms 1e-4."""
    problem, draws = committee(1, 1, 100, 0.6), 400_000
    system = optimized(problem, step_settings(1e-3, SignSGD()))
    out, rng = rates_of(system), np.random.default_rng(5)
    z, u, noise = rng.standard_normal((3, draws))
    M, rest = problem.network_start().weights[0]
    link, inside = problem.activation, M * z + rest * u
    sign = np.sign(link.value(inside) - link.value(z) - 0.6 * noise)
    for found, along in ((out[2], z), ((out[3] - 1e-3 * 100) / 2.0, inside)):
        sample = -np.sqrt(2.0 / np.pi) * sign * along
        assert abs(found - sample.mean()) < 3.9 * sample.std() / np.sqrt(draws)


def homogeneous() -> Problem:
    overlaps_at_start = ([[0.5, 0.1], [0.2, 0.4]], [[1.0, 0.1], [0.1, 1.0]], [0.5, 0.3])
    return Problem(
        activation="he3", width=2, teacher=Teacher([1.0, 0.5]), dimension=50, label_noise=0.1,
        initial_overlaps=overlaps_at_start,
    )  # fmt: skip


@pytest.mark.kernels
def test_a_map_of_homogeneous_neurons_is_one_of_the_exact_moments() -> None:
    """One step of SGD that averages with α = 1, against the public moments of one step."""
    problem, rate = homogeneous(), 1e-4
    flow = solve(problem, rate, SGD(average=1.0), [0.0, rate], "finite-d")
    start = problem.start()
    rho = np.sqrt(start.squared_norm)
    R, S = rho[:, None] * start.teacher_overlap, np.outer(rho, rho) * start.student_overlap
    moments = dynamics.moments_of_overlaps(problem, R, S)
    n = flow.squared_norm.values[1]
    moved = R + rate * moments.teacher_first
    assert np.allclose(flow.teacher_overlap.values[1] * np.sqrt(n)[:, None], moved, atol=1e-12)
    assert np.allclose(n, np.diag(S + rate * moments.student_first + rate**2 * moments.student_second), atol=1e-12)
    assert np.allclose(flow.average_loss, flow.loss, atol=1e-12)


def test_fixed_momentum_is_plain_sgd_at_a_larger_rate() -> None:
    """To 1/d: within 1 % at d = 400, whether the momentum is heavy ball, Nesterov's or dampened."""
    problem, times = committee(2, 2, 400, 0.3), np.array([2.0, 6.0, 12.0])
    plain = solve(problem, 0.5 / 400, SGD(), times).loss
    for optimizer in (SGD(momentum=0.9), SGD(momentum=0.9, nesterov=True), SGD(momentum=0.9, dampening=0.5)):
        share = optimizer.amplification
        found = solve(problem, 0.5 / 400 / share, optimizer, times / share).loss
        assert np.allclose(found, plain, rtol=0.02)
        assert not np.allclose(found, plain, rtol=1e-4)


def test_a_class_that_derives_from_an_optimizer_has_its_rule() -> None:
    class TwoLosses(ZerothOrder):
        pass

    problem = committee(1, 1, 50, 0.0)
    flows = [solve(problem, 1e-4, optimizer, [0.0, 1.0]) for optimizer in (TwoLosses(directions=2), ZerothOrder(2))]
    assert flows[0].loss.values.tolist() == flows[1].loss.values.tolist()


def test_trained_layers_have_buffers_too() -> None:
    """Small steps of a network with all layers trained follow the flow; momentum's time is 1 − β as long."""
    student = {"second_layer": "trained", "biases": "trained", "initial_biases": [0.1, -0.2]}
    problem = committee(2, 2, 20, 0.0, **student)
    flow = dynamics.solve_problem(problem, save_at=SaveAt.at([1.0, 3.0]), progress=False)
    momentum = solve(problem, 1e-5, SGD(momentum=0.9, average=1.0), [0.1, 0.3], "finite-d")
    for name in ("second_layer", "bias"):
        assert np.allclose(momentum[name], flow[name], atol=3e-3)
    assert np.allclose(momentum.loss[0], momentum.average_loss[0])


NAMED = Problem(activation="erf", student="committee", width=2, teacher=Teacher([1.0]), dimension=50)
ALIGNED = {"teacher": Teacher([1.0, 1.0], links=["erf", "erf"], directions=np.eye(2))}
CUBIC = {"teacher": Teacher([1.0, 1.0], links=["erf", "he3"])}


@pytest.mark.parametrize(
    ("problem", "optimizer", "more", "part"),
    [
        ({}, Adam(beta2=0.5), {}, r"\(1 - beta2\) d <= 5"),
        ({}, Adam(), {"theory": "finite-d"}, "must be 'infinite-d' for Adam"),
        ({}, Adam(), {"batch_size": 8}, "`batch_size` must be 1 for Adam"),
        ({"first_layer": "sphere"}, SGD(momentum=0.9), {}, "free first layer"),
        ({"decay": (0.1, 0.0)}, ZerothOrder(), {"theory": "finite-d"}, "no direction sees decay"),
        ({"decay": (0.1, 0.0)}, Adam(), {}, "without decay for Adam"),
        ({"second_layer": "trained"}, ZerothOrder(), {"theory": "finite-d"}, "first layer that is trained alone"),
        ({"second_layer": "trained"}, SignSGD(), {}, "first layer alone is trained"),
        ({}, ZerothOrder(smoothing=0.1, directions=2), {}, "must have smoothing 0 except"),
        ({}, SGD(momentum=0.9), {"method": "bdf"}, "`method` must be 'auto'"),
        ({}, SGD(momentum=0.9), {"error_estimate": True, "method": "map"}, "`error_estimate` must not be True"),
        ({}, "adma", {}, "Did you mean 'adam'"),
        (replace(committee(2, 2, 400, 0.3), **ALIGNED), SignSGD(), {}, r"dense directions for SignSGD\(\), whose steps see coordinates"),
        (homogeneous(), Adam(beta2=0.99), {}, "links that are no polynomials for Adam"),
        (replace(committee(2, 2, 400, 0.3), **CUBIC), RMSprop(beta2=0.99), {}, "links that are no polynomials for RMSprop"),
        (committee(1, 1, 400, 0.0), SignSGD(), {}, "must have label noise for SignSGD"),
        (committee(6, 3, 400, 0.3), SignSGD(), {}, "fewer neurons and directions"),
        (homogeneous(), SGD(momentum=0.9), {"device": "cpu"}, "`device` must be None for SGD"),
        (NAMED, SGD(momentum=0.9), {"method": "bdf"}, "`method` must be 'auto'"),
        (NAMED, SGD(momentum=0.9), {"error_estimate": True, "method": "map"}, "no tolerance"),
        (NAMED, SGD(momentum=0.9), {"times": [1e-5, 4e-5]}, "must be 0 alone, or reach the first step"),
    ],
)  # fmt: skip
def test_what_does_not_close_is_refused(problem: object, optimizer: object, more: dict, part: str) -> None:
    asked = committee(2, 2, 400, 0.3, **problem) if isinstance(problem, dict) else problem
    with pytest.raises(ValueError, match=part):
        solve(asked, 1e-4, optimizer, **{"times": [1.0], **more})


def test_momentum_takes_a_teacher_along_coordinate_axes() -> None:
    aligned = replace(committee(2, 2, 400, 0.3), **ALIGNED)
    assert np.isfinite(solve(aligned, 1e-4, SGD(momentum=0.5), [1.0]).loss).all()


def test_saved_times_of_a_map_are_steps_and_by_default_those_of_the_flow_at_its_pace() -> None:
    problem, optimizer = committee(2, 2, 100, 0.1), SGD(momentum=0.9)
    found = solve(problem, 0.01, optimizer, [0.0, 0.001, 0.014, 0.016])
    assert found.step.values.tolist() == [0, 1, 2]
    end = dynamics.solve_problem(problem, learning_rate=0.1, optimizer=optimizer, progress=False).time[-1]
    assert np.isclose(end, 0.1 * default_network_times(problem, is_short=True).times[-1], atol=0.1)


def test_notes_tell_that_momentum_is_faster_than_the_flow() -> None:
    notes = solve(homogeneous(), 1e-5, SGD(momentum=0.9), [1e-4], "finite-d").attrs["notes"]
    assert "momentum divides by about 10;" in notes


def test_an_optimizer_needs_a_learning_rate() -> None:
    with pytest.raises(ValueError, match="`optimizer` must be None unless `learning_rate` is given"):
        dynamics.solve_problem(committee(2, 2, 400, 0.3), optimizer=SGD(momentum=0.9))


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9, average="polyak"), ZerothOrder(), Adam(beta2=0.99)])
def test_a_run_is_resumed_with_its_optimizer(optimizer: object, tmp_path) -> None:
    problem, rate, times = committee(2, 2, 400, 0.3), 1e-4, [0.05, 0.1, 0.2, 0.4]
    whole = solve(problem, rate, optimizer, times)
    path = tmp_path / "run.nc"
    part = solve(problem, rate, optimizer, times, checkpoint=path, max_runtime=1e-9, on_failure="return")
    assert np.isnan(part.loss.values[-1])
    again = dynamics.resume(path, progress=False)
    assert np.array_equal(again.loss, whole.loss)
    assert again.attrs["optimizer"] == str(optimizer)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SGD(momentum=1.5)", "`momentum` must be at least 0 and below 1"),
        ("SGD(nesterov=True)", "`momentum` must be above 0 for `nesterov`"),
        ("SGD(momentum=0.9, nesterov=True, dampening=0.1)", "`dampening` must be 0 with `nesterov`"),
        ("SGD(average=2)", "`average` must be None, 'polyak' or a number"),
        ("SGD(0.9)", "must be a call SGD"),
        ("Adam(lr=1)", "must be a call Adam"),
        ("ZerothOrder(directions=0)", "`directions` must be at least 1"),
        ("Adam(beta1=__import__('os'))", "must be a call Adam"),
    ],
)
def test_bad_optimizers_are_refused_in_one_sentence(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        checked_optimizer(text)


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.5, nesterov=True), Adam(), ZerothOrder(smoothing=0.3)])
def test_the_text_of_an_optimizer_makes_it_again(optimizer: object) -> None:
    assert checked_optimizer(str(optimizer)) == optimizer
