"""The diffusion engine: the law of its step against quadrature, its law against the projected engine and exact ones."""

import warnings
from functools import partial

import numpy as np
import pytest
from engine_state import engine_of, weights_of
from gaussian_rules import gauss_grid
from processes import interrupt_run
from scipy import stats

import dynamics
import sgd_check
from dynamics import Problem, SaveAt, Teacher, one_step_moments
from sgd_check.engines import diffusion
from sgd_check.engines.diffusion import StepLaws, write_step_law

CROOKED = [[1.0, 0.0], [0.6, 0.8]]


def given(overlap, norm, coefficients=(1.0,), dimension=32, activation="he3", **more):
    """Neurons with the given overlaps and squared norm, orthogonal in the other axes."""
    C = np.asarray(overlap, dtype=float)
    G = C @ C.T + np.diag(1 - np.sum(C**2, axis=1))
    return Problem(
        activation=activation, teacher=Teacher(coefficients), width=len(C), dimension=dimension,
        initial_overlaps=(C, G, np.full(len(C), norm)), **more,
    )  # fmt: skip


engine = partial(engine_of, "diffusion")


def run(problem, rate, steps, seeds, **more):
    return sgd_check.simulate(problem, learning_rate=rate, steps=steps, seeds=seeds, progress=False, **more)


def step_law(problem, batch, W):
    """The engine's mean (m, D) and covariance (m, D, m, D) of e ∇ on the visible axes, and that on each other axis."""
    laws = StepLaws(problem, batch)
    scratch = laws.scratch()
    write_step_law(np.ascontiguousarray(W), laws.law(0.0, 0.0, 0.0), scratch, np.empty((2, len(W))))
    mean, lower, beyond = scratch[2]
    return mean, (np.tril(lower) + np.tril(lower, -1).T).reshape(*W.shape, *W.shape), beyond


def law_by_quadrature(problem, W, batch, points):
    """Mean and covariance of e ∇ over a tensor Gauss-Hermite rule in all visible axes, from σ and σ' alone."""
    x, weight = gauss_grid(points, W.shape[1])
    link, rho = problem.activation, np.linalg.norm(W, axis=1)
    z = x @ (W / rho[:, None]).T
    rows = (
        np.eye(problem.num_directions) if problem.teacher.directions is None else np.array(problem.teacher.directions)
    )
    e = link.value(z) @ rho**2 - link.value(x[:, : rows.shape[1]] @ rows.T) @ problem.teacher.coefficients
    value, slope = link.value(z), link.derivative(z)
    gradient = (2 * value - z * slope)[:, :, None] * W + (rho * slope)[:, :, None] * x[:, None, :]
    square = e**2 + problem.label_noise**2
    mean = np.einsum("n,nia->ia", weight * e, gradient)
    second = np.einsum("nia,njb->iajb", (weight * square)[:, None, None] * gradient, gradient, optimize=True)
    beyond = np.einsum("n,ni,nj->ij", weight * square, rho * slope, rho * slope, optimize=True)
    return mean, (second - np.einsum("ia,jb->iajb", mean, mean)) / batch, beyond / batch


@pytest.mark.kernels
@pytest.mark.parametrize("nearness", [1.0, 1e-5, 1e-12])
@pytest.mark.parametrize(
    ("activation", "directions"), [("he4", None), ({1: 0.3, 2: 0.5, 3: 0.4}, CROOKED), ({0: 0.3, 2: 0.5, 3: 0.4}, None)]
)
def test_mean_and_covariance_are_those_of_quadrature(activation, directions, nearness):
    """Two neurons, far apart or all but one; largest relative error 2e-14."""
    W = np.random.default_rng(3).standard_normal((2, 4))
    W[1] = -1.3 * W[0] + nearness * W[1]
    teacher = Teacher([0.8, 0.6], directions=directions)
    problem = Problem(activation=activation, teacher=teacher, width=2, dimension=20, label_noise=0.3)
    for ours, exact in zip(step_law(problem, 3, W), law_by_quadrature(problem, W, 3, 9), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-11 * np.abs(exact).max())


def test_the_law_sums_up_to_the_exact_moments_of_a_step_with_many_directions():
    """R and S of four neurons and five directions; degree 5 and 6 beside diagrams."""
    W = np.random.default_rng(4).standard_normal((4, 9))
    a = np.arange(1.0, 6.0) ** -0.7
    problem = Problem(activation={5: 0.6, 6: 0.3}, teacher=Teacher(a), width=4, dimension=1000, label_noise=0.5)
    (mean, covariance, beyond), exact = step_law(problem, 2, W), one_step_moments(problem, W, batch_size=2)
    second = np.einsum("iaja->ij", covariance) + mean @ mean.T + (1000 - 9) * beyond
    np.testing.assert_allclose(-mean[:, :5], exact.teacher_first, rtol=0, atol=1e-9)
    np.testing.assert_allclose(second, exact.student_second, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance.reshape(36, 36)).min() > 0


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("dimension", "batch"), [(4, 1), (5, 2), (10**6, 1)])
def test_one_diffusion_step_of_one_sgd_step_has_its_mean_and_covariance(monkeypatch, dimension, batch):
    """z-scores of 7 means and 21 second moments of R and S; |z| < 5: false-alarm rate below 2e-5 for each case."""
    monkeypatch.setattr(diffusion, "BLOCK_STEPS", 1)
    C = np.array([[0.5, -0.3], [0.2, 0.4]])
    problem = given(C, 0.9, (0.8, 0.6), dimension, {1: 0.6, 2: 0.5})
    rate, count = 1e-6, 6000
    diffused = engine(problem, range(count), batch_size=batch)
    start = weights_of(diffused)[0]
    diffused.advance(np.array([rate]))
    end = weights_of(diffused)
    upper = np.triu_indices(2)
    change = np.concatenate(
        [(end - start)[:, :, :2].reshape(count, -1), (end @ end.transpose(0, 2, 1) - start @ start.T)[:, *upper]],
        axis=1,
    )
    exact = one_step_moments(problem, start, batch_size=batch)
    expected = np.concatenate(
        [rate * exact.teacher_first.ravel(), (rate * exact.student_first + rate**2 * exact.student_second)[upper]]
    )
    assert np.abs((change.mean(0) - expected) / (change.std(0) / count**0.5)).max() < 5
    # In first order of η, ΔS_ij = Δ_i·w_j + Δ_j·w_i.
    covariance = step_law(problem, batch, start)[1].reshape(8, 8)
    linear = np.zeros((7, 2, 4))
    for row, (i, p) in enumerate(np.ndindex(2, 2)):
        linear[row, i, p] = 1.0
    for row, (i, j) in enumerate(zip(*upper, strict=True)):
        linear[4 + row, i] += start[j]
        linear[4 + row, j] += start[i]
    linear = linear.reshape(7, 8)
    wanted = rate**2 * linear @ covariance @ linear.T
    centred = change - change.mean(0)
    a, b = np.triu_indices(7)
    products = centred[:, a] * centred[:, b]
    assert np.abs((products.mean(0) - wanted[a, b]) / (products.std(0) / count**0.5)).max() < 5


@pytest.mark.thorough
@pytest.mark.statistical
def test_search_in_high_dimension_is_the_exact_diffusion_on_a_growing_sphere():
    """Norms grow by λ = η² d E[e²] E[σ'²] per step, C ~ N(C_0 e^(−λ/2), (1 − e^−λ) E[e² x²]/(d E[e²])), x along θ."""
    d, steps, growth, tau = 10**8, 10**12, 1.5, 0.7
    rate = np.sqrt(growth / (steps * d * 4 * (1.0 + tau**2)))
    problem = given([[2e-4]], 1e-9, dimension=d, activation="he4", label_noise=tau)
    runs = run(problem, rate, steps, 250, engine="diffusion")
    assert runs.attrs["small_steps"] == "holds"
    np.testing.assert_allclose(np.log(runs["squared_norm"][:, -1, 0] / 1e-9), growth, rtol=4e-3)
    C = runs["teacher_overlap"][:, -1, 0, 0].values
    spread = np.sqrt((1 - np.exp(-growth)) * (9.0 + tau**2) / (1.0 + tau**2) / d)
    scaled = (C - 2e-4 * np.exp(-growth / 2)) / spread
    assert stats.kstest(scaled, "norm").pvalue > 1e-3
    assert stats.kstest(1.5 * scaled, "norm").pvalue < 1e-3


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("activation", "batch"), [("he3", 1), pytest.param("he4", 4, marks=pytest.mark.long)])
def test_a_converged_neuron_is_an_ornstein_uhlenbeck_process(activation, batch):
    """Noise τ² times the Hessian: every coordinate of w − √a θ has variance η τ²/2B, so Var n = 2 a η τ²/B.

    z-scores below 5 over independent records: false-alarm rate below 2e-6; an error by 15 percent is seen.
    """
    d, a, tau = 10, 0.7, 0.5
    rate = 1e-5 * batch
    problem = given([[1 - 1e-9]], a, (a,), dimension=d, activation=activation, label_noise=tau)
    times = SaveAt.linear(3.0, 3.0 + 40 * 1.5, 41)
    runs = run(problem, rate, int(times.times[-1] / rate) + 1, 64, engine="diffusion", save_at=times, batch_size=batch)
    assert runs.attrs["small_steps"] == "holds"
    n = runs["squared_norm"][:, :, 0].values.ravel()
    variance = 2 * a * rate * tau**2 / batch
    square = (n - n.mean()) ** 2 / variance
    assert abs(square.mean() - 1) < 5 * square.std() / n.size**0.5 < 0.15
    rest = 1 - runs["teacher_overlap"][:, :, 0, 0].values.ravel() ** 2
    np.testing.assert_allclose(rest.mean(), (d - 1) * rate * tau**2 / (2 * a * batch), rtol=0.02)


# Label noise keeps the tails of a step light enough for 10^5 of them to be Gaussian.
ESCAPES = {
    "one neuron, k = 3": (given([[0.3]], 0.2, label_noise=3.0), 0.02 / 32**2, 90_000),
    "two neurons, k = 4": (given([[0.5, 0.05], [0.03, 0.5]], 0.1, (0.8, 0.7), 40, "he4", label_noise=3.0), 0.012 / 40**2, 120_000),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("name", ["one neuron, k = 3", pytest.param("two neurons, k = 4", marks=pytest.mark.long)])
def test_escapes_have_the_law_of_the_projected_engine(name):
    """Kolmogorov-Smirnov at level 1e-3 of times, overlaps and norms at three times: false-alarm rate 1e-2 and 2e-2."""
    problem, rate, steps = ESCAPES[name]
    saved = SaveAt.at(np.array([0.2, 0.5, 0.9]) * rate * steps)
    exact = run(problem, rate, steps, 64, save_at=saved)
    ours = run(problem, rate, steps, range(1000, 1400), save_at=saved, engine="diffusion")
    assert ours.attrs["small_steps"] == "holds"
    for p in range(problem.num_directions):
        a, b = (runs["emergence_time"].fillna(1e9).values[:, p] for runs in (exact, ours))
        assert (a < 1e9).mean() > 0.9
        assert stats.ks_2samp(a, b).pvalue > 1e-3
        assert stats.ks_2samp(1.12 * a, b).pvalue < 1e-3
    for at in range(3):
        for i in range(problem.width):
            for name in ("teacher_overlap", "squared_norm"):
                a, b = (runs[name].values[:, at, i].reshape(runs.sizes["seed"], -1)[:, 0] for runs in (exact, ours))
                assert stats.ks_2samp(a, b).pvalue > 1e-3


def test_ten_to_the_twelve_steps_take_seconds_and_constant_memory():
    """Two neurons learn two directions at d = 10^8 with k = 3: 10^12 steps of SGD in some thousands of the diffusion."""
    problem = given([[0.1, 0.0], [0.0, 0.08]], 1e-3, (0.8, 0.6), 10**8)
    runs = run(problem, 2e-11, 10**12, 4, engine="diffusion")
    assert runs["step"].values[-1] == 10**12
    assert runs.attrs["diffusion_steps"] < 10**5
    assert not runs["censored"].any()
    assert (runs["loss"][:, -1] < 0.1).all()
    assert runs.attrs["small_step_ratio"] < 1e-5
    C, G, n = (runs[name].values[:, -1] for name in ("teacher_overlap", "student_overlap", "squared_norm"))
    assert np.linalg.eigvalsh(G - C @ C.transpose(0, 2, 1)).min() > -1e-14
    assert (n > 0).all()


def test_the_mean_follows_a_schedule_to_where_the_flow_ends():
    """Without noise to speak of, only Σ η matters; the rates rise and fall by a factor of ten."""
    problem = given([[0.4]], 0.1, dimension=100)
    ends = []
    for rates in (np.full(10**6, 1e-6), np.repeat([1e-7, 1e-6, 2e-6, 0.9e-6], 250_000)):
        ours = engine(problem, (0,))
        ours.advance(rates)
        ends.append(weights_of(ours)[0, 0, 0])
        assert ours.measure(student=True).teacher_overlap[0, 0, 0] > 0.6
    assert ends[0] == pytest.approx(ends[1], rel=0.02)


def test_an_interrupted_run_keeps_its_looks_and_stops_its_threads(monkeypatch):
    calls = []

    def interrupted(self, steps, rates, given_up):
        if len(calls) == 60:
            interrupt_run()
            return advance_span(self, steps, rates, given_up)
        calls.append(steps)
        return advance_span(self, steps, rates, given_up)

    advance_span = diffusion.DiffusionEngine.advance_span
    monkeypatch.setattr(diffusion.DiffusionEngine, "advance_span", interrupted)
    problem = given([[0.3]], 0.1, dimension=1000)
    with pytest.raises(dynamics.SolveInterrupted) as caught:
        run(problem, 1e-9, 10**6, 3, engine="diffusion")
    runs = caught.value.dataset
    assert (runs.attrs["stop_reason"], runs.attrs["end_step"]) == ("interrupted", sum(calls))
    ours = engine(problem)
    with ours.running():
        pass
    assert not advance_span(ours, 10, 1e-9, lambda: False), "threads must end with their context"


def test_a_run_that_blows_up_is_nan_and_the_others_are_not_touched():
    problem = given([[0.3]], 0.1, dimension=20)
    free, wild = engine(problem), engine(problem)
    wild._weights[1] *= 1e4
    for one in (free, wild):
        with one.running():
            one.advance(np.full(20, 1e-4))
    assert np.isnan(weights_of(wild)[1]).all()
    np.testing.assert_array_equal(weights_of(wild)[[0, 2]], weights_of(free)[[0, 2]])
    before = weights_of(free)
    free.freeze(np.array([True, False, False]))
    assert np.isnan(free.measure(student=True).squared_norm[0]).all()
    np.testing.assert_array_equal(weights_of(free)[1:], before[1:])


@pytest.mark.filterwarnings("ignore:.*limit of stability")
def test_steps_too_large_or_too_few_are_said_before_and_after():
    problem = given([[0.3]], 0.1, dimension=100)
    with pytest.warns(UserWarning, match="A step at learning rate 0.002 changes the start by 0.055"):
        runs = run(problem, 2e-3, 100, 2, engine="diffusion")
    assert runs.attrs["small_steps"].startswith("fails: a step changed weights or gradients by over 0.02")
    with pytest.warns(UserWarning, match=r"kurtosis 4\.2e\+03 here, so 1000 steps are fewer than the 2\.1e\+05"):
        runs = run(problem, 1e-6, 1000, 2, engine="diffusion")
    assert runs.attrs["small_steps"] == "fails: the noise of all steps together still has kurtosis 4.2"
    assert runs.attrs["noise_kurtosis"] == pytest.approx(4182)


@pytest.mark.parametrize(("link", "order", "noise"), [("erf", 7, 1.08), ("tanh(z)", 3, 0.67), ("relu", 4, 0.81)])
def test_other_links_are_simulated_by_the_series_with_their_noise_and_say_so(link, order, noise):
    problem = given([[0.3]], 0.1, dimension=100, activation=link)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runs = run(problem, 1e-6, 10**5, 2, engine="diffusion")
    said = [str(w.message) for w in caught if "Hermite series" in str(w.message)]
    assert len(said) == (abs(noise - 1) > 0.1)
    assert runs.attrs["simulated_link"].endswith(f"(Hermite series to order {order})")
    assert runs.attrs["link_noise_ratio"] == pytest.approx(noise, abs=0.01)
    assert np.isfinite(runs["loss"]).all()


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (given(np.zeros((5, 1)), 0.1), {}, "Argument `engine` must be 'projected' for more than 4 neurons, but is 'diffusion' with width 5."),
        (given(np.zeros((4, 30)), 0.1, np.ones(30), 99), {}, "Argument `engine` must be 'projected' where width · (width + teacher axes) exceeds 128, but is 'diffusion' with 136."),
        (Problem(activation="he3", teacher=Teacher([1.0]), width=4, dimension=3), {}, "Argument `engine` must be 'torch' for a dimension below width + teacher axes = 5, but is 'diffusion' with dimension 3."),
        (given([[0.1]], 0.1, activation="x^2 exp(-x^2)"), {}, "Argument `engine` must be 'projected' for x^2 exp(-x^2), whose Hermite series have 0.013 times its noise at best, but is 'diffusion'."),
        (given([[0.1]], 0.1), {"device": "cuda"}, "Argument `device` must be 'auto' or 'cpu' for engine 'diffusion', but is 'cuda'."),
        (given([[0.1]], 0.1), {"dtype": "float32"}, "Argument `dtype` must be 'float64' for engine 'diffusion', but is 'float32'."),
        (given([[0.1]], 0.1), {"learning_rate": lambda step: 1e-9, "steps": 10**10}, "Argument `steps` must be at most 1000000000 where the learning rate varies, but is 10000000000."),
        (given([[0.1]], 0.1), {"steps": 10**16}, "Argument `steps` must be at most 9007199254740992 where the learning rate is constant, but is 10000000000000000."),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_in_one_sentence(problem, options, message):
    given_options = {"learning_rate": 1e-9, "steps": 10**6, "seeds": 2, "engine": "diffusion", "progress": False}
    with pytest.raises(ValueError, match=r".") as caught:
        sgd_check.simulate(problem, **{**given_options, **options})
    assert str(caught.value) == message
