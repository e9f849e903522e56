"""Learning-rate schedules: values, text, the best one by direct integration, and descent on quadratic losses."""

import math
import pickle

import numpy as np
import pytest
from scipy import integrate, optimize

import dynamics
from dynamics import cosine, inverse_root, piecewise, power_law_decay, silver, step_decay, warmup
from dynamics.equations.correlation import signal_slope, step_means
from dynamics.problem.rates import schedule_of
from dynamics.theory.schedules import resolved_schedule

TEACHER = dynamics.Teacher([1.0])
STEPS = np.arange(12)


def neuron(k=3, C=0.35, d=500, **given):
    return dynamics.Problem(
        **{"activation": f"he{k}", "teacher": TEACHER, "student": "spherical", "objective": "correlation"} | given,
        width=1, dimension=d, initial_overlaps=([[C]], [[1.0]], [1.0]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "text", "expected"),
    [
        (cosine(0.2, 12), "cosine(0.2, 12)", [0.1 * (1 + math.cos(math.pi * s / 12)) for s in STEPS]),
        (cosine(0.2, 8, 0.1), "cosine(0.2, 8, final=0.1)", [0.15 + 0.05 * math.cos(math.pi * min(s / 8, 1.0)) for s in STEPS]),
        (cosine(0.2, 10, 0.1, 2), "cosine(0.2, 10, final=0.1, warmup=2)", [0.1, 0.2] + [0.15 + 0.05 * math.cos(math.pi * s / 8) for s in range(9)] + [0.1]),
        (inverse_root(0.2, 4), "inverse_root(0.2, 4.0)", [0.2 / math.sqrt(1 + s / 4) for s in STEPS]),
        (warmup(inverse_root(0.2, 4), 4), "warmup(inverse_root(0.2, 4.0), 4)", [0.2 * min((s + 1) / 4, (max(s, 4) / 4) ** -0.5) for s in STEPS]),
        (warmup(0.2, 5), "warmup(0.2, 5)", [0.2 * min(s + 1, 5) / 5 for s in STEPS]),
        (step_decay(0.2, 0.5, 5), "step_decay(0.2, 0.5, 5)", [0.2] * 5 + [0.1] * 5 + [0.05] * 2),
        (silver(0.2), "silver(0.2)", [0.2 * (1 + (1 + math.sqrt(2)) ** (v - 1)) for v in (0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2)]),
        (piecewise([0.3, 0.1], [4]), "piecewise([0.3, 0.1], [4])", [0.3] * 4 + [0.1] * 8),
        (power_law_decay(0.3, 2), "power_law_decay(0.3, 2.0, onset=1.0)", [0.3 / (1 + s) ** 2 for s in STEPS]),
    ],
    ids=str,
)  # fmt: skip
def test_a_schedule_has_its_values_and_comes_back_from_its_text(schedule, text, expected):
    np.testing.assert_allclose(schedule.table(12), expected, rtol=1e-14)
    np.testing.assert_allclose([schedule(step) for step in STEPS], expected, rtol=1e-14)
    assert repr(schedule) == text
    for again in (schedule_of(text), pickle.loads(pickle.dumps(schedule)), eval(text, vars(dynamics))):
        assert again == schedule
        np.testing.assert_array_equal(again.table(12), schedule.table(12))
    assert (schedule.table(12) > 0).all()


def test_the_last_step_of_a_long_cosine_is_positive():
    schedule = cosine(1.0, 10**9)
    assert schedule(10**9 - 1) == pytest.approx((math.pi / 2e9) ** 2, rel=1e-6)
    assert schedule(10**9) == 0.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("own", "name", "arguments"),
    [
        (cosine(0.2, 30, 0.01), "CosineAnnealingLR", (30, 0.01)),
        (step_decay(0.2, 0.5, 7), "StepLR", (7, 0.5)),
        (piecewise([0.2, 0.02, 0.002], [5, 20]), "MultiStepLR", ([5, 20], 0.1)),
        (warmup(0.2, 10), "LinearLR", (0.1, 1.0, 9)),
    ],
    ids=str,
)
def test_rates_are_those_of_torch(own, name, arguments):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    theirs, found = getattr(torch.optim.lr_scheduler, name)(optimizer, *arguments), []
    for _ in range(30):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    np.testing.assert_allclose(own.table(30), found, rtol=1e-12)


NEED = (
    "Argument `learning_rate` must be a positive number, a share of the limit of stability such as '0.1x', or a schedule "
    "such as 'cosine(0.01, 100000)', one of cosine, inverse_root, piecewise, power_law_decay, silver, step_decay, warmup"
)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cosine(0.1, 10, 0.2), "Argument `final` must be at most 0.1, but is 0.2."),
        (lambda: cosine(0.1, 10, warmup=10), "Argument `warmup` must be below the 10 steps, but is 10."),
        (lambda: cosine(0.0, 10), "Argument `initial` must be finite and positive, but is 0.0."),
        (lambda: inverse_root(0.1, 0), "Argument `onset` must be finite and positive, but is 0."),
        (lambda: step_decay(0.1, 1.5, 5), "Argument `factor` must be at most 1, but is 1.5."),
        (lambda: step_decay(0.1, 0.5, 0), "Argument `every` must be at least 1, but is 0."),
        (lambda: warmup(-0.1, 5), "Argument `schedule` must be finite and positive, but is -0.1."),
        (lambda: warmup(0.1, 0), "Argument `steps` must be at least 1, but is 0."),
        (lambda: silver(math.inf), "Argument `rate` must be finite and positive, but is inf."),
        (lambda: schedule_of("cosinus(0.1, 5)"), f"{NEED}, but is 'cosinus(0.1, 5)'. Did you mean 'cosine'?"),
        (lambda: schedule_of("cosine"), f"{NEED}, but is 'cosine'. Did you mean 'cosine'?"),
        (lambda: schedule_of("silver(-1)"), "Argument `rate` must be finite and positive, but is -1."),
        *(
            (
                lambda text=text: schedule_of(text),
                "Argument `learning_rate` must be a call warmup(schedule: 'Schedule | float', steps: 'int') of numbers "
                f"and lists, but is {text!r}.",
            )
            for text in ("warmup(0.1)", "warmup(0.1, 2, 3)", "warmup(x, 2)", "warmup(open('x'), 2)", "warmup(0.1, 2",
                         "warmup(0.1, 2).table(3)", "warmup(**{'schedule': 1}, steps=2)", "warmup(silver(), 2)")
        ),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        make()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("k", "C", "end", "d", "gain", "steps"),
    [(3, 0.35, 0.9, 500, 1.7, None), (3, 0.35, 0.98, 500, 2.5, None), (4, 0.45, 0.9, 500, 1.7, None),
     (3, 0.25, 0.9, 2000, None, 135_482)],
)  # fmt: skip
def test_gains_and_steps_are_those_of_the_page(k, C, end, d, gain, steps):
    found = dynamics.best_schedule(neuron(k, C, d), end)
    assert gain is None or round(found.gain, 1) == gain
    assert steps is None or round(found.steps) == steps


@pytest.mark.parametrize(
    ("asked", "end", "batch"),
    [
        (neuron(3, 0.4, 400, smoothing=2.0, label_noise=0.5), 0.8, 4),
        (neuron(4, -0.4, 400), 0.95, 1),
        (neuron(d=900, activation={2: 1.0, 3: 0.5}, teacher_activation={2: 1.0, 4: 0.4}), 0.9, 1),
    ],
)
def test_the_mean_equation_arrives_in_the_predicted_steps_and_no_other_rate_is_faster(asked, end, batch):
    """dC/dn = η D − ½ η² C E|u|², with E|u|² of B samples, by another integrator; then by calculus of variations."""
    found, means = dynamics.best_schedule(asked, end, batch_size=batch), step_means(asked)
    start = asked.initial_overlaps[0][0, 0]
    side = np.sign(start)

    def moments(C):
        pull = np.polynomial.polynomial.polyval(C, signal_slope(asked))
        return pull * (1 - C**2), C * (means.drag(C) / batch + (1 - 1 / batch) * pull**2 * (1 - C**2))

    def arrival(rate):
        def velocity(n, C):
            drift, drag = moments(C)
            return rate(n) * drift - 0.5 * rate(n) ** 2 * drag

        def there(n, C):
            return C[0] - side * end

        there.terminal = True
        run = integrate.solve_ivp(velocity, (0, 20 * found.steps), [start], events=there, rtol=1e-9, atol=1e-12)
        return float(run.t_events[0][0]) if run.t_events[0].size else np.inf

    assert arrival(found) == pytest.approx(found.steps, rel=2e-5)
    assert arrival(lambda n: found.constant) == pytest.approx(found.gain * found.steps, rel=1e-6)
    for other in (0.9 * found.constant, 1.1 * found.constant):
        assert arrival(lambda n, rate=other: rate) > found.gain * found.steps
    wave = 2 * np.pi / found.steps
    for bend in (
        lambda n: 1.05,
        lambda n: 0.95,
        lambda n: 1 + 0.1 * np.sin(wave * n),
        lambda n: 1 - 0.1 * np.cos(wave * n),
    ):
        assert arrival(lambda n, bend=bend: found(n) * bend(n)) > found.steps


def test_warm_up_and_decay_are_one_formula():
    """η* ~ C^(k−2) in the search, ~ 1 − C in the end: k = 4 from 10/√d."""
    schedule = dynamics.best_schedule(neuron(4, 0.01, 10**6), 0.999)
    rates = schedule.rates(np.linspace(0.0, schedule.steps, 10**6))
    top = int(np.argmax(rates))
    assert 0 < top < rates.size - 1
    assert (np.diff(rates[: top + 1]) > -1e-12).all()
    assert (np.diff(rates[top:]) < 1e-12).all()
    drag, C = step_means(neuron(4, 0.01, 10**6)).drag, 1e-3
    near = [4 * 0.01**3 * (1 - 0.01**2) / (0.01 * drag(0.01)), 4 * (1 - (1 - C) ** 2) / drag(1.0)]
    assert rates[0] == pytest.approx(near[0], rel=1e-6)
    assert rates[-1] == pytest.approx(near[1], rel=5e-3)
    assert schedule(schedule.steps + 100) == rates[-1]


def test_the_best_schedule_has_a_text_that_means_the_problem_and_batch_of_the_run():
    asked = neuron()
    found = dynamics.best_schedule(asked, 0.8)
    assert repr(found) == "best_schedule(0.8)"
    assert resolved_schedule(asked, "best_schedule(0.8)") == found
    batches = dynamics.best_schedule(asked, 0.8, batch_size=4)
    assert resolved_schedule(asked, "best_schedule(final_overlap=0.8)", 4) == batches
    assert resolved_schedule(asked, repr(batches)) == batches != found
    assert pickle.loads(pickle.dumps(found)) == found
    assert resolved_schedule(asked, "0.5x") == 0.5 * dynamics.theory.largest_rate(asked)
    assert resolved_schedule(asked, 0.5) == 0.5


@pytest.mark.parametrize(
    ("make", "kind", "sentence"),
    [
        (lambda: dynamics.best_schedule(neuron(C=0.3)), ValueError,
         "Argument `problem` must start from an overlap C of at least 7.5/√d = 0.3354, but starts from 0.3: nearer to 0 the "
         "noise of the best steps is of the size of C itself."),
        (lambda: dynamics.best_schedule(neuron(C=-0.5)), ValueError,
         "Argument `problem` must start from an overlap C of at least 7.5/√d = 0.3354, but starts from -0.5: nearer to 0 the "
         "noise of the best steps is of the size of C itself."),
        (lambda: dynamics.best_schedule(neuron(), 0.35), ValueError, "Argument `final_overlap` must be above the 0.35 of the start and below 1, but is 0.35."),
        (lambda: dynamics.best_schedule(neuron(), 1.0), ValueError, "Argument `final_overlap` must be above the 0.35 of the start and below 1, but is 1."),
        (lambda: dynamics.best_schedule(neuron(teacher_activation={3: 1.0, 5: -3.0}, activation={3: 1.0, 5: 1.0})), ValueError,
         "Argument `final_overlap` must be where the flow leads from the start, but is 0.9, which it never nears."),
        (lambda: dynamics.best_schedule(neuron(objective="squared")), ValueError,
         "Argument `problem` must have `objective` 'correlation' for the best schedule, but has 'squared'."),
        (lambda: dynamics.best_schedule(3), TypeError, "Argument `problem` must be a Problem, but is int."),
        (lambda: dynamics.best_schedule(neuron(), batch_size=0), ValueError, "Argument `batch_size` must be at least 1, but is 0."),
        (lambda: dynamics.descent_loss([1.0], [1.0, 2.0], [0.1]), ValueError, "Argument `squares` must have 1 entries, as `eigenvalues`, but has 2."),
        (lambda: dynamics.descent_loss([-1.0], [1.0], [0.1]), ValueError, "Argument `eigenvalues` must be a list of finite numbers of at least 0, but is [-1.0]."),
        (lambda: dynamics.descent_loss([1.0], [1.0], [0.1, 0.0]), ValueError, "Argument `rates` must be finite and positive at every step, but is 0.0 at step 1."),
        (lambda: dynamics.descent_loss([1.0], [1.0], []), ValueError, "Argument `rates` must be finite and positive at every step, but is empty."),
        (lambda: dynamics.descent_loss([1.0], [1.0], silver(1.0)), TypeError, "Argument `steps` must be given beside a schedule, but is None beside silver(1.0)."),
        (lambda: dynamics.descent_loss([1.0], [1.0], [0.1], 1), TypeError, "Argument `steps` must be None beside a list of rates, but is 1."),
        (lambda: dynamics.descent_loss([1.0], [1.0], cosine(0.1, 2), 3), ValueError,
         "Argument `rates` must be finite and positive at every step, but is 0.0 at step 2."),
    ],
)  # fmt: skip
def test_refusals_say_what_must_hold_and_what_was_given(make, kind, sentence):
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == sentence


def test_the_loss_of_descent_is_that_of_matrices(rng):
    H = rng.standard_normal((6, 6))
    H = H @ H.T / 6
    values, axes = np.linalg.eigh(H)
    w, rates = rng.standard_normal(6), rng.uniform(0.1, 1.0, 9) / values[-1]
    found = dynamics.descent_loss(values, (axes.T @ w) ** 2, rates)
    expected = [w @ H @ w]
    for rate in rates:
        w = w - rate * H @ w
        expected.append(w @ H @ w)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_silver_steps_sum_to_powers_of_the_silver_ratio():
    sums = np.cumsum(silver(1.0).table(2**12))
    k = np.arange(1, 13)
    np.testing.assert_allclose(sums[2**k - 2], (1 + math.sqrt(2)) ** k - 1, rtol=1e-12)


def test_silver_steps_act_on_a_power_law_as_the_flow_of_their_sum():
    """λ = l⁻³, λ c² = l⁻²: the loss of the flow falls as t^(−1/3), by silver steps as T^(−1.2716/3)."""
    modes = np.arange(1.0, 1001.0)
    values, T = modes**-3, 4095
    plain = dynamics.descent_loss(values, modes, np.ones(T))
    quick = dynamics.descent_loss(values, modes, silver(1.0), T)
    slopes = [math.log(loss[T] / loss[2047]) / math.log(T / 2047) for loss in (plain, quick)]
    np.testing.assert_allclose(slopes, [-0.3402, -0.4422], atol=1e-4)
    sums = np.cumsum(silver(1.0).table(T))
    for count in 2 ** np.arange(6, 13) - 1:
        flow = np.sum(modes**-2 * np.exp(-2.0 * values * sums[count - 1]))
        assert quick[count] == pytest.approx(flow, rel=0.01)


@pytest.mark.parametrize(("T", "worst"), [(1, 0.13060194), (3, 0.04691816), (7, 0.01842154), (31, 0.00306703)])
def test_the_worst_huber_function_is_that_of_the_page(T, worst):
    """x²/2 up to |x| = δ and δ|x| − δ²/2 beyond, |x_0| = 1: the largest loss after T silver steps is 1/(4 Σh + 2)."""
    rates = silver(1.0).table(T)

    def loss(width):
        x = 1.0
        for rate in rates:
            x -= rate * np.clip(x, -width, width)
        return 0.5 * x * x if abs(x) <= width else width * abs(x) - 0.5 * width**2

    grid = np.geomspace(1e-4, 1.0, 4001)
    at = int(np.argmax([loss(width) for width in grid]))
    best = optimize.minimize_scalar(lambda u: -loss(u), bounds=(grid[max(at - 1, 0)], grid[min(at + 1, 4000)]),
                                    method="bounded", options={"xatol": 1e-12})  # fmt: skip
    assert -best.fun == pytest.approx(worst, abs=5.1e-9)
    assert -best.fun == pytest.approx(1 / (4 * rates.sum() + 2), rel=1e-9)
