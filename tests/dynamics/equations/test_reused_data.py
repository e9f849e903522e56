"""Samples that are used again: accepted numbers, quadrature of two steps, and vectors in R^d."""

import numpy as np
import pytest
from scipy.special import erf, ndtri
from scipy.stats import qmc

import dynamics
from dynamics import multi_pass_regression
from dynamics.equations import reused_data as equations
from dynamics.linear_regression import eigenvalue_law
from dynamics.solve import reused_data
from dynamics.solve.__main__ import main as solve_command
from dynamics.sweeps.study_file import read_study_file
from dynamics.threads import GivenUp

PAGE = [1, 2, 4, 8, 12, 16]


def one_neuron(*, link="erf", teacher="erf", overlap=0.2, square=0.5, noise=0.4, dimension=4, **student):
    """Return the problem of one neuron and one direction with a given start."""
    weights = np.zeros((student.get("width", 1), dimension))
    weights[:, :2] = overlap, np.sqrt(square - overlap**2)
    given = {"activation": link, "width": 1, "second_layer": "fixed", "initial_second_layer": [1.0], **student}
    return dynamics.Problem(
        student=dynamics.Student(**given),
        teacher=teacher if isinstance(teacher, dynamics.Teacher) else dynamics.Teacher([1.0], links=[teacher]),
        dimension=dimension, initial_weights=weights, label_noise=noise,
    )  # fmt: skip


def solve(problem=None, **arguments):
    usual = {"samples": "1.5d", "learning_rate": 2.0, "steps": 16, "draws": 2**17}
    return dynamics.solve_reused_data(problem or one_neuron(), **usual | arguments)


def overlaps(found):
    """Return M = w·θ at all steps."""
    return found.teacher_overlap.values[:, 0, 0] * np.sqrt(found.squared_norm.values[:, 0])


#: Accepted M, |w|² and test loss at the steps of the page, of the full batch and of four batches an epoch.
ACCEPTED = {
    1: ([0.8006, 0.8533, 0.8728, 0.9534, 1.0158, 1.0594], [1.3228, 1.2732, 1.2552, 1.5235, 1.761, 1.963], [0.2345, 0.1876, 0.1699, 0.1879, 0.2045, 0.2210]),
    4: ([0.4106, 0.5655, 0.7816, 0.8664, 0.9029, 0.9309], None, [0.3322, 0.2800, 0.2109, 0.1804, 0.1776, 0.1820]),
}  # fmt: skip


def test_full_batch_has_the_accepted_numbers():
    """Two of the page's standard errors, 0.001 of M and 0.006 of |w|², and some of the scatter of this answer."""
    found, (M, square, loss) = solve(), ACCEPTED[1]
    np.testing.assert_allclose(overlaps(found)[PAGE], M, atol=2.5e-3)
    np.testing.assert_allclose(found.squared_norm.values[PAGE, 0], square, atol=0.014)
    np.testing.assert_allclose(found.loss[PAGE], loss, atol=2.5e-3)
    np.testing.assert_array_equal(found.step, np.arange(17))
    np.testing.assert_allclose(found.time, 2.0 * found.step)


def test_four_batches_an_epoch_have_the_accepted_numbers():
    found, (M, _, loss) = solve(batches_per_epoch=4, learning_rate=0.7), ACCEPTED[4]
    np.testing.assert_allclose(overlaps(found)[PAGE], M, atol=2.5e-3)
    np.testing.assert_allclose(found.loss[PAGE], loss, atol=2.5e-3)


@pytest.mark.parametrize(("batches", "rate", "accepted"), [(1, 2.0, 0.0737), (4, 0.7, 0.1009)])
def test_batches_that_are_never_used_again_do_not_overfit(batches, rate, accepted):
    """As many batches as steps are fresh ones, of n/(steps b) samples each: the page's losses at the end."""
    fresh = solve(samples=f"{1.5 * 16 / batches}d", batches_per_epoch=16, learning_rate=rate)
    np.testing.assert_allclose(fresh.loss[16], accepted, atol=2e-3)


def test_errors_say_how_far_other_points_are():
    """Differences of two seeds over their standard errors, 64 of them: a mean square of 4 by chance in < 1e-3."""
    first, second = solve(draws=2**14, seed=1), solve(draws=2**14, seed=2)
    z = []
    for name in ("loss", "train_loss", "teacher_overlap", "squared_norm"):
        difference = (first[name] - second[name]).values.ravel()[1:]
        z.append(difference / np.hypot(first[f"{name}_error"], second[f"{name}_error"]).values.ravel()[1:])
    assert 0.1 < np.mean(np.square(z)) < 4.0


def two_steps(link, slope, target, *, ratio, rate, square):
    """Return M_2 from M_0 = 0 by Gauss–Hermite quadrature over z, g^0 and g^1, without label noise."""
    x, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / weight.sum()
    z, g = x[:, None, None], np.sqrt(square) * x[None, :, None]
    w_z, w_g, w_1 = weight[:, None, None], weight[None, :, None], weight[None, None, :]
    force = (target(z) - link(g)) * slope(g)
    along_z, along_g = np.sum(w_z * w_g * force * z), np.sum(w_z * w_g * force * g)
    first = rate * along_z
    cross = square + rate * along_g
    noise = np.sum(w_z * w_g * force**2) / ratio
    new = square + 2.0 * rate * along_g + rate**2 * (along_z**2 + along_g**2 / square + noise)
    own = np.sqrt(new - first**2 - cross**2 / square)
    h = first * z + cross / square * g + own * x[None, None, :] + rate / ratio * force
    return first, first + rate * np.sum(w_z * w_g * w_1 * (target(z) - link(h)) * slope(h) * z)


def h3(z):
    return (z**3 - 3.0 * z) / np.sqrt(6.0)


def test_two_steps_see_h3_from_no_overlap():
    """The accepted −.3189, quadrature without points, and the answer within four of its errors."""
    first, second = two_steps(
        lambda h: erf(h / np.sqrt(2.0)), lambda h: np.sqrt(2.0 / np.pi) * np.exp(-(h**2) / 2.0), h3, ratio=4.0,
        rate=4.0, square=1.0,
    )  # fmt: skip
    assert abs(first) < 1e-10
    assert abs(second + 0.3189) < 1e-4
    asked = one_neuron(teacher="he3", overlap=0.0, square=1.0, noise=0.0)
    found = solve(asked, samples="4d", learning_rate=4.0, steps=3, draws=2**19)
    M, error = overlaps(found), found.teacher_overlap_error.values[:, 0, 0] * np.sqrt(found.squared_norm.values[:, 0])
    assert abs(M[1]) < max(4.0 * error[1], 1e-3)
    assert abs(M[2] - second) < max(4.0 * error[2], 1e-3)
    assert abs(M[3] + 0.12) < 0.02


@pytest.mark.thorough
@pytest.mark.parametrize(("link", "batches", "expected"), [("he3", 1, -0.3189), ("he3", 2, 0.0), ("he2", 1, 0.0)])
def test_vectors_see_h3_in_two_steps_but_not_on_fresh_samples_and_even_links_never(link, batches, expected):
    """24 runs in R^800: the bias to 0 is about 0.01 there, so 0.02 and 4 standard errors; a false alarm in 1e-4.

    Two batches for two steps are fresh samples.
    """
    problem = one_neuron(teacher=link, overlap=0.0, square=1.0, noise=0.0, dimension=800)
    second = np.array([descend(problem, 3200 * batches, 4.0, 2, batches, seed)[2, 0] for seed in range(24)])
    assert abs(second.mean() - expected) < 0.02 + 4.0 * second.std(ddof=1) / np.sqrt(24)


@pytest.mark.long
@pytest.mark.parametrize(("dimension", "runs", "expected"), [(400, 300, -0.297), (800, 150, -0.310)])
def test_two_steps_are_biased_towards_0_as_the_dimension_says(dimension, runs, expected):
    """Means of the runs within 4 standard errors of the accepted ones: a false alarm in 1e-4."""
    problem = one_neuron(teacher="he3", overlap=0.0, square=1.0, noise=0.0, dimension=dimension)
    second = np.array([descend(problem, 4 * dimension, 4.0, 2, 1, seed)[2, 0] for seed in range(runs)])
    assert abs(second.mean() - expected) < 4.0 * second.std(ddof=1) / np.sqrt(runs)


@pytest.mark.long
@pytest.mark.parametrize("dimension", [800, 1600])
@pytest.mark.parametrize("batches", [1, 4])
def test_vectors_of_many_dimensions_have_the_accepted_numbers(dimension, batches):
    """M, |w|² and test loss after six numbers of steps, 24 runs: |z| < 4.5 and 1/d, a false alarm in 1e-3.

    Standard errors are those accepted, 0.0043 of M after a step of the full batch in R^1600, within a factor of 1.5.
    """
    rate, problem = (2.0, 0.7)[batches == 4], one_neuron(dimension=dimension)
    samples = 3 * dimension // 2
    runs = np.array([descend(problem, samples, rate, 16, batches, seed)[PAGE, :2] for seed in range(24)])
    M, Q = runs[..., 0], runs[..., 1]
    for values, accepted in zip((M, Q, erf_loss(M, Q)), ACCEPTED[batches], strict=True):
        error = values.std(axis=0, ddof=1) / np.sqrt(24)
        if accepted is not None:
            assert (np.abs(values.mean(axis=0) - accepted) < 4.5 * error + 1.0 / dimension).all()
    if batches == 1:
        error = M.std(axis=0, ddof=1)[[0, -1]] / np.sqrt(24) * np.sqrt(dimension / 1600.0)
        assert (np.abs(np.log(error / [0.0043, 0.0038])) < np.log(1.5)).all()


@pytest.mark.long
def test_fifty_steps_have_overlaps_to_a_thousandth():
    """The default points on the accepted problem: the errors it states, and those between two seeds."""
    first, second = (solve(steps=50, draws=2**19, seed=seed) for seed in (1, 2))
    error = (first.teacher_overlap_error.values[..., 0] * np.sqrt(first.squared_norm.values))[:, 0]
    assert error.max() < 1e-3
    assert np.abs(overlaps(first) - overlaps(second)).max() < 2e-3


@pytest.mark.thorough
@pytest.mark.parametrize(("ratio", "noise"), [(1.5, 0.5), (2.0, 0.0)])
def test_a_linear_neuron_descends_as_the_spectrum_says(ratio, noise):
    """Gradient descent on linear regression is exact on the eigenvalues of XᵀX/n, also where each step adds little."""
    rate, steps = 0.4, 60
    found = solve(
        one_neuron(link="he1", teacher="he1", overlap=0.0, square=0.3, noise=noise),
        samples=f"{ratio}d", learning_rate=rate, steps=steps,
    )  # fmt: skip
    x, weight = eigenvalue_law(1.0 / ratio)
    left = (1.0 - rate * x) ** np.arange(steps + 1)[:, None]
    risk = (1.3 * left**2 + noise**2 / ratio / x * (1.0 - left) ** 2) @ weight
    assert (np.abs(found.loss - risk) < 5.0 * found.loss_error + 1e-4).all()
    train = noise**2 * (1.0 - 1.0 / ratio) + (left**2 * (1.3 * x + noise**2 / ratio)) @ weight
    assert (np.abs(found.train_loss - train) < 5.0 * found.train_loss_error + 1e-4).all()
    assert max(found.loss_error[30:].max(), found.train_loss_error[30:].max()) < 1e-3
    assert found.loss_error[0] == 0.0


def test_even_teachers_stay_unseen_from_a_symmetric_start():
    found = solve(one_neuron(teacher="he2", overlap=0.0, square=1.0, noise=0.0), samples="4d", steps=4)
    assert np.abs(overlaps(found)).max() < 0.01


def descend(problem, samples, rate, steps, batches, seed, reshuffle=False, *, correlation=False):
    """Return M, W Wᵀ, v, b and the mean loss over the samples of steps on vectors in R^d, in numpy alone.

    Steps are along −(f − y) ∇f, or y ∇f of the correlation loss.
    """
    rng, student, start = np.random.default_rng(seed), problem.student, problem.network_start()
    d, r = problem.dimension, problem.teacher.span
    x = rng.standard_normal((samples, d))
    y = labels(problem, x[:, :r]) + problem.label_noise * rng.standard_normal(samples)
    W, v, b = np.zeros((problem.width, d)), start.second_layer.copy(), start.bias.copy()
    W[:, : start.weights.shape[1]] = start.weights
    lengths, scale = np.linalg.norm(W, axis=1), student.output_scale
    (of_w, of_v, of_b), (decay_w, decay_v) = student.learning_rates, student.decay
    value, slope = student.activation.value, student.activation.derivative
    parts, found = np.arange(samples) % batches, []
    for t in range(steps + 1):
        h = x @ W.T + b
        error = scale * value(h) @ v - y
        found.append(np.concatenate([W[:, :r].ravel(), (W @ W.T).ravel(), v, b, [np.mean(error**2)]]))
        if reshuffle and t > 0 and t % batches == 0:
            rng.shuffle(parts)
        own = parts == t % batches
        at, error, inputs = h[own], (-y if correlation else error)[own], x[own]
        force = -error[:, None] * scale * v * slope(at)
        gradient = force.T @ inputs / len(at)
        if student.first_layer == "sphere":
            gradient -= np.sum(gradient * W, axis=1, keepdims=True) / lengths[:, None] ** 2 * W
        W = W + rate * (of_w * gradient - decay_w * W)
        if student.first_layer == "sphere":
            W *= (lengths / np.linalg.norm(W, axis=1))[:, None]
        v = v - rate * (of_v * scale * value(at).T @ error / len(at) + decay_v * v)
        b = b + rate * of_b * force.mean(axis=0)
    return np.array(found)


def labels(problem, z):
    teacher = problem.teacher
    if teacher.target is not None:
        return teacher.target.value(z)
    return sum(
        unit.coefficient * unit.link.value(z @ unit.direction + unit.bias)
        for unit in teacher.units(problem.teacher_link)
    )


def of_answer(found):
    """Return what `descend` does, of an answer."""
    length, flat = np.sqrt(found.squared_norm.values), (len(found.time), -1)
    M = found.teacher_overlap.values * length[:, :, None]
    Q = found.student_overlap.values * length[:, :, None] * length[:, None, :]
    v, b, train = found.second_layer.values, found.bias.values, found.train_loss.values
    return np.hstack([M.reshape(flat), Q.reshape(flat), v, b, train[:, None]])


def network(teacher, *, weights, dimension=400, noise=0.3, activation="erf", **student):
    """Return the problem of a few neurons that start with their components on the first axes."""
    start = np.zeros((len(weights), dimension))
    start[:, : len(weights[0])] = weights
    return dynamics.Problem(
        student=dynamics.Student(activation=activation, width=len(weights), **student), teacher=teacher,
        dimension=dimension, initial_weights=start, label_noise=noise,
    )  # fmt: skip


PAIR = dynamics.Teacher([1.0, -0.6], links=["erf", "tanh"])
THREE = [[0.3, 0.1, 0.6, 0.0, 0.0], [-0.2, 0.2, 0.1, 0.7, 0.0], [0.1, -0.3, 0.2, 0.2, 0.5]]
CASES = {
    "erf": (one_neuron(dimension=400), {}),
    "four batches": (one_neuron(dimension=400), {"batches_per_epoch": 4, "learning_rate": 0.7}),
    "four batches of a new order": (one_neuron(dimension=400), {"batches_per_epoch": 4, "learning_rate": 0.7, "reshuffle": True, "steps": 10}),
    "relu learns tanh": (one_neuron(dimension=400, link="relu", teacher="tanh"), {"learning_rate": 0.5}),
    "decay and scale": (one_neuron(dimension=400, decay=(0.3, 0.0), initial_second_layer=[1.5], scale=0.9), {"learning_rate": 0.8}),
    "sphere": (one_neuron(dimension=400, first_layer="sphere"), {"learning_rate": 0.8, "samples": "3d"}),
    "polynomial": (one_neuron(dimension=400, teacher=dynamics.Teacher.polynomial("x1 + 0.3*h2(x1)")), {"learning_rate": 1.0}),
    "two neurons": (network(PAIR, weights=THREE[:2], second_layer="fixed"), {"learning_rate": 1.0}),
    "on the axis of the teacher": (network(dynamics.Teacher([1.0]), weights=[[0.4]]), {"learning_rate": 1.0}),
    "all layers": (
        network(
            PAIR,
            weights=THREE,
            biases="trained",
            initial_biases=[0.1, -0.2, 0.4],
            rates=(1.0, 0.5, 0.7),
            decay=(0.1, 0.2),
            scale=0.8,
        ),
        {"learning_rate": 1.0, "batches_per_epoch": 3, "samples": "3d"},
    ),
    "pairs": (network(PAIR, weights=[*THREE[:2]] * 2, initial_second_layer="pairs"), {"learning_rate": 0.7, "batches_per_epoch": 2, "samples": "2d"}),
    "linear pairs, which stay opposite": (
        network(PAIR, weights=[*THREE[:1]] * 2, activation="he1", initial_second_layer="pairs", second_layer="fixed"),
        {"learning_rate": 0.2, "samples": "2d"},
    ),
    "spherical relus": (
        network(
            dynamics.Teacher.polynomial("x1 + x1*x2"),
            weights=THREE,
            activation="relu",
            first_layer="sphere",
            biases="fixed",
            initial_biases=[0.1, -0.2, 0.4],
        ),
        {"learning_rate": 0.3, "samples": "3d"},
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_vectors_move_as_the_equations_say(name):
    """Means over 24 runs in R^400 within 4 standard errors and 0.01 for 1/d: a false alarm in 1e-3 of such tests."""
    problem, arguments = CASES[name]
    arguments = {
        "steps": 6,
        "draws": 2**15,
        "samples": "1.5d",
        "learning_rate": 2.0,
        "batches_per_epoch": 1,
        "reshuffle": False,
    } | arguments
    found = solve(problem, **arguments)
    samples = int(float(arguments["samples"].removesuffix("d")) * problem.dimension)
    settings = samples, arguments["learning_rate"], arguments["steps"], arguments["batches_per_epoch"]
    runs = np.array([descend(problem, *settings, seed, arguments["reshuffle"]) for seed in range(24)])
    expected, error = of_answer(found), runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    off = np.abs(runs.mean(axis=0) - expected) / (4.0 * error + 0.01 * np.maximum(np.abs(expected), 0.5))
    assert off.max() <= 1.0, off.round(2)


def test_many_steps_of_networks_keep_their_errors():
    """Four neurons whose steps are nearly alike, at which covariances of their fields have no inverse."""
    near = np.tile(THREE[:2], (2, 1)) + 0.1 * np.random.default_rng(0).standard_normal((4, 5))
    problem = network(PAIR, weights=near, dimension=16, second_layer="fixed", initial_second_layer=[1, 1, -1, -1])
    found = solve(problem, samples="2d", learning_rate=0.2, steps=40, draws=2**14)
    assert found.loss_error.max() < 3e-3
    assert (np.diff(found.train_loss) < 0.0).all()


def test_a_new_order_in_every_epoch_has_a_larger_training_loss():
    """Differences of the two orders: 0 in the first epoch, then those of 24 pairs of runs in R^400, within 4 errors."""
    problem, given = one_neuron(dimension=400), {"batches_per_epoch": 4, "learning_rate": 0.7, "steps": 8}
    fixed, new = (solve(problem, **given, reshuffle=reshuffle) for reshuffle in (False, True))
    expected = (new.train_loss - fixed.train_loss).values
    error = 4.0 * np.hypot(fixed.train_loss_error, new.train_loss_error).values
    orders = [[descend(problem, 600, 0.7, 8, 4, seed, order)[:, -1] for order in (False, True)] for seed in range(24)]
    found = np.diff(orders, axis=1)[:, 0]
    assert (np.abs(expected[:5]) <= error[:5]).all()
    assert (expected[5:] > error[5:]).all()
    assert (np.abs(found.mean(axis=0) - expected) <= error + 4.0 * found.std(axis=0, ddof=1) / np.sqrt(24)).all()


def erf_loss(M, Q):
    """Return E(f − f*)² of an erf neuron and an erf teacher of |θ| = 1, in closed form."""
    pairs = (np.arcsin(Q / (1.0 + Q)), np.arcsin(M / np.sqrt(2.0 * (1.0 + Q))), np.arcsin(0.5))
    return 2.0 / np.pi * (pairs[0] - 2.0 * pairs[1] + pairs[2])


def test_a_small_output_has_the_steps_of_the_correlation_loss():
    """As above, for s = 1e-6 and rates 1/s against y ∇f at s = 1: without the loss, which is that of the output."""
    of = {"first_layer": "sphere", "second_layer": "fixed"}
    small = network(PAIR, weights=THREE[:2], scale=1e-6, rates=(1e6, 1e6, 1e6), **of)
    found = solve(small, samples="2d", learning_rate=0.5, steps=5, batches_per_epoch=2, draws=2**15)
    plain = network(PAIR, weights=THREE[:2], **of)
    runs = np.array([descend(plain, 800, 0.5, 5, 2, seed, correlation=True) for seed in range(24)])[:, :, :-1]
    expected, error = of_answer(found)[:, :-1], runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    off = np.abs(runs.mean(axis=0) - expected) / (4.0 * error + 0.01 * np.maximum(np.abs(expected), 0.5))
    assert off.max() <= 1.0, off.round(2)
    assert np.abs(expected[-1] - expected[0]).max() > 0.3


def test_the_test_loss_is_that_of_the_overlaps():
    """Against the closed form of erf at each step, from M and |w|² of the answer."""
    found = solve(steps=4, draws=2**12)
    np.testing.assert_allclose(found.loss, erf_loss(overlaps(found), found.squared_norm.values[:, 0]), atol=1e-4)


def test_a_schedule_changes_the_rate_of_every_step():
    constant = solve(steps=3, draws=2**12, learning_rate=0.5)
    varying = solve(steps=3, draws=2**12, learning_rate=dynamics.piecewise([0.5, 0.25], [2]))
    np.testing.assert_allclose(varying.time, [0.0, 0.5, 1.0, 1.25])
    np.testing.assert_array_equal(varying.loss[:3], constant.loss[:3])
    assert varying.loss[3] != constant.loss[3]


def test_the_answer_is_one_of_the_house(tmp_path):
    found = solve(steps=3, draws=2**12)
    again = solve(steps=3, draws=2**12)
    np.testing.assert_array_equal(found.train_loss, again.train_loss)
    dynamics.save(found, tmp_path / "reused.nc")
    loaded = dynamics.load(tmp_path / "reused.nc")
    assert loaded.attrs["answer"] == "reused-data"
    assert dynamics.Problem.from_dataset(loaded).width == 1
    assert "least test loss" in str(dynamics.summary(loaded))
    dynamics.write_report(loaded, tmp_path / "reused.html")
    assert (tmp_path / "reused.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("asked", "arguments", "said"),
    [
        ({}, {"samples": "d"}, r"`samples` must be a number, or one in units of the dimension such as '1.5d', but is 'd'"),
        ({}, {"samples": 0}, r"`samples` must be at least 1"),
        ({}, {"learning_rate": -1.0}, r"`learning_rate` must be finite and positive"),
        ({}, {"batches_per_epoch": 7}, r"`batches_per_epoch` must be at most the number of samples, 6, but is 7"),
        ({}, {"steps": 1500, "draws": 2**30}, r"`steps` must be at most \d+ for 1 neuron and 1073741824 draws, by the mem"),
        ({}, {"steps": 60, "draws": 2**10}, r"`steps` must be at most 16 for 1 neuron and 1024 draws, by the noise of so"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_in_a_sentence(asked, arguments, said):
    with pytest.raises(ValueError, match=said):
        solve(one_neuron(**asked), **arguments)


def test_steps_that_are_noise_are_left_out():
    """A neuron of h_2 lets single samples diverge, so that means of points say nothing."""
    with pytest.warns(UserWarning, match=r"Steps from 2 on are left out, since the standard error of the loss is"):
        found = solve(one_neuron(link="he2", teacher="he2"), learning_rate=1.0, steps=4, draws=2**12)
    assert np.isfinite(found.loss[0])
    assert found.loss[2:].isnull().all()
    assert found.attrs["stop_reason"] == "too_noisy"


def test_values_without_bound_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match=r"Steps from \d on are left out, since values grow without bound; a smaller"):
        found = solve(learning_rate=1e9, steps=4, draws=2**11)
    assert np.isfinite(found.loss[0])
    assert found.attrs["stop_reason"] == "not_finite"


def test_an_interrupted_run_keeps_the_groups_of_points_that_were_finished(monkeypatch):
    whole, own, begun = solve(steps=2, draws=2**12), reused_data.moments, []

    def moments(*given):
        begun.append(1)
        if len(begun) > wanted:
            raise GivenUp
        return own(*given)

    monkeypatch.setattr(reused_data, "moments", moments)
    wanted = 3
    with pytest.raises(dynamics.SolveInterrupted) as stop:
        solve(steps=2, draws=2**12)
    kept = stop.value.dataset
    assert kept.attrs["draws"] == 3 * 2**9
    assert kept.attrs["stop_reason"] == "interrupted"
    assert (np.abs(kept.loss - whole.loss) <= 10.0 * (kept.loss_error + whole.loss_error) + 1e-12).all()
    wanted = len(begun) + 1
    with pytest.raises(KeyboardInterrupt, match="before two groups of points were finished"):
        solve(steps=2, draws=2**12)


def test_an_interruption_after_the_last_group_is_not_lost(monkeypatch):
    whole, own = solve(steps=2, draws=2**12), reused_data.wait

    def wait(work, _):
        own(work)
        raise KeyboardInterrupt

    monkeypatch.setattr(reused_data, "wait", wait)
    with pytest.raises(dynamics.SolveInterrupted) as stop:
        solve(steps=2, draws=2**12)
    np.testing.assert_array_equal(stop.value.dataset.loss, whole.loss)


STUDY = """
[problem]
activation = "erf"
width = 1
dimension = 64
coefficients = [1.0]
label_noise = 0.4
student = {second_layer = "fixed", initial_second_layer = [1.0]}
[grid]
samples = ["1.5d", "4d"]
[study]
name = "reused-data"
learning_rate = 1.0
steps = 2
draws = 4096
"""


@pytest.mark.thorough
def test_the_front_door_study_files_and_sweeps_take_samples(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    asked = read_study_file(str(tmp_path / "study.toml"))
    swept = dynamics.sweep(
        asked.problem, asked.grid, study=asked.study, options=asked.options, workers=1, progress=False
    )
    found = dynamics.solve_problem(asked.problem, samples="1.5d", **asked.options)
    np.testing.assert_array_equal(swept.loss.sel(samples="1.5d"), found.loss)
    np.testing.assert_array_equal(found.loss, solve(asked.problem, **asked.options).loss)
    assert swept.loss[1, -1] < swept.loss[0, -1]


def test_the_command_tells_tests_and_training(here, capsys):
    line = ["--samples", "4d", "--epochs", "16", "--draws", "8192", "--no-progress", "--output", "run.nc"]
    assert solve_command(line) == 0
    assert "4 samples per dimension, 16 epochs of 1 batch: least test loss" in capsys.readouterr().out
    found = dynamics.load("run.nc")
    assert found.train_loss[-1] < found.loss[-1] < 0.05
    assert (here / "run.png").stat().st_size > 1000
    assert len(dynamics.plot_loss(found).get_legend().get_texts()) >= 2
    more = [
        "--batches", "4", "--reshuffle", "--learning-rate", "0.5", "--biases", "fixed", "--width", "2", "--dry-run",
        "--overwrite",
    ]  # fmt: skip
    assert solve_command([*line, *more]) == 0
    assert "64 steps, 8192 points in 8 groups" in capsys.readouterr().out
    assert solve_command([*line, "--batches", "99", "--overwrite"]) == 2
    assert "Option --epochs times --batches must be at most 128 for 1 neuron and 8192 draws" in capsys.readouterr().err
    failing = ["--learning-rate", "1e9", "--epochs", "2", "--draws", "1024", "--no-plot", "--output", "failed.nc"]
    assert solve_command(["--samples", "4d", *failing]) == 1
    told = capsys.readouterr().err
    assert "The run failed. What was computed is in failed.nc" in told
    assert "since values grow without bound" in told
    assert solve_command(["--model", "reused-data"]) == 2
    assert "Option --samples must be given for --model reused-data" in capsys.readouterr().err


# --- linear regression ------------------------------------------------------------------------------------------------

TIMES = [1, 2, 4, 8, 16]


def test_multi_pass_regression_has_the_accepted_numbers():
    found = multi_pass_regression(2.0, learning_rate=0.6, times=TIMES, label_noise=0.5)
    np.testing.assert_allclose(found.risk, [0.5599, 0.3956, 0.2829, 0.2469, 0.2642], atol=6e-5)
    np.testing.assert_allclose(found.train_loss, [0.5794, 0.3763, 0.2507, 0.1976, 0.1818], atol=6e-5)
    online = multi_pass_regression(np.inf, learning_rate=0.6, times=TIMES, label_noise=0.5)
    np.testing.assert_allclose(online.risk, [0.4926, 0.2735, 0.1382, 0.1082, 0.1071], atol=6e-5)


@pytest.mark.long
def test_sgd_on_vectors_has_the_accepted_numbers():
    """10 runs in R^1600: both losses within 4.5 standard errors and 2/d of the law, a false alarm in 1e-3."""
    d, n, noise, found = 1600, 3200, 0.5, []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((n, d)), np.zeros(d)
        theta = rng.standard_normal(d)
        theta /= np.linalg.norm(theta)
        y, own = x @ theta + noise * rng.standard_normal(n), []
        for step, i in enumerate(rng.integers(n, size=TIMES[-1] * d), 1):
            w -= 0.6 / d * (x[i] @ w - y[i]) * x[i]
            if step % d == 0 and step // d in TIMES:
                own.append((np.sum((w - theta) ** 2), np.mean((x @ w - y) ** 2)))
        found.append(own)
    runs = np.array(found)
    accepted = np.transpose([[0.5599, 0.3956, 0.2829, 0.2469, 0.2642], [0.5794, 0.3763, 0.2507, 0.1976, 0.1818]])
    error = runs.std(axis=0, ddof=1) / np.sqrt(10)
    assert (np.abs(runs.mean(axis=0) - accepted) < 4.5 * error + 2.0 / d).all()


@pytest.mark.parametrize(("ratio", "power"), [(0.5, 0.0), (1.0, 0.0), (2.0, 0.0), (0.5, 1.0), (2.0, 0.7)])
def test_sgd_on_vectors_has_the_risk_of_its_law(ratio, power):
    """16 runs in R^200 within 4 standard errors and 3 % for 1/d: a false alarm in 1e-3 of such tests."""
    d, c, noise, times = 200, 0.6, 0.5, np.array([1, 3, 8])
    lambdas = np.arange(1, d + 1.0) ** -power
    lambdas /= lambdas.mean()
    n, found = int(ratio * d), []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        x, theta = rng.standard_normal((n, d)) * np.sqrt(lambdas), rng.choice([-1.0, 1.0], d) / np.sqrt(d)
        y, w = x @ theta + noise * rng.standard_normal(n), np.zeros(d)
        drawn, own = rng.integers(n, size=times[-1] * d), []
        for step, i in enumerate(drawn, 1):
            w -= c / d * (x[i] @ w - y[i]) * x[i]
            if step % d == 0 and step // d in times:
                own.append((np.sum(lambdas * (w - theta) ** 2), np.mean((x @ w - y) ** 2)))
        found.append(own)
    runs = np.array(found)
    error = runs.std(axis=0, ddof=1) / 4.0
    spectrum = {} if power == 0.0 else {"eigenvalues": lambdas}
    risk = multi_pass_regression(ratio, learning_rate=c, times=times, label_noise=noise, **spectrum)
    expected = np.stack([risk.risk, risk.train_loss], axis=1)
    error = np.hypot(error, np.stack([risk.risk_error, risk.train_loss_error], axis=1))
    assert (np.abs(runs.mean(axis=0) - expected) <= 4.0 * error + 0.03 * expected).all()


@pytest.mark.parametrize(("ratio", "full_batch"), [(0.5, False), (2.0, True)])
def test_drawn_inputs_of_equal_eigenvalues_are_isotropic(ratio, full_batch):
    given = {"learning_rate": 0.6, "times": TIMES, "label_noise": 0.5, "full_batch": full_batch}
    drawn = multi_pass_regression(ratio, **given, eigenvalues=np.ones(400))
    law = multi_pass_regression(ratio, **given)
    np.testing.assert_allclose(drawn.risk, law.risk, rtol=0.03)
    np.testing.assert_allclose(drawn.train_loss, law.train_loss, rtol=0.03)


def test_full_batch_is_the_flow_on_all_samples():
    """Against one sample covariance in R^1000, by its own eigenvalues: no noise of single samples."""
    d, ratio, c = 1000, 2.0, 0.7
    rng, times = np.random.default_rng(0), np.array([0.0, 0.5, 2.0, 30.0])
    values = np.linalg.eigvalsh(np.cov(rng.standard_normal((d, int(ratio * d))), bias=True))
    found = multi_pass_regression(ratio, learning_rate=c, times=times, label_noise=0.5, full_batch=True)
    own = 0.25 / ratio / values
    gone = np.exp(-c * times[:, None] * values)
    np.testing.assert_allclose(found.risk, np.mean(gone**2 + own * (1.0 - gone) ** 2, axis=1), rtol=0.01)
    assert found.risk[0] == pytest.approx(1.0)
    assert found.train_loss[0] == pytest.approx(1.25)
    # Least squares in the end: τ² d/(n − d).
    late = multi_pass_regression(ratio, learning_rate=c, times=[1e4], label_noise=0.5, full_batch=True)
    assert late.risk[0] == pytest.approx(0.25)


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.97, 1.0, 1.03, 3.0, 1e3])
def test_the_law_of_eigenvalues_has_its_moments(ratio):
    g = 1.0 / ratio
    x, p = eigenvalue_law(g)
    assert p.sum() == pytest.approx(min(1.0, ratio), abs=1e-7)
    assert p @ x == pytest.approx(1.0)
    assert p @ x**2 == pytest.approx(1.0 + g)


def test_regression_refuses_what_is_no_number_of_samples():
    with pytest.raises(ValueError, match=r"`ratio` must be above 0, but is 0"):
        multi_pass_regression(0, learning_rate=0.5, times=[1.0])
    with pytest.raises(ValueError, match=r"`times` must be a list of finite numbers of at least 0"):
        multi_pass_regression(1.0, learning_rate=0.5, times=[-1.0])


def test_progress_begins_with_the_first_points_which_are_those_of_one_sequence():
    """Parts of points count as steps do, and parts of a sequence are the sequence."""
    problem = one_neuron()
    data, size = reused_data.checked_data(problem, "1.5d", 2.0, 3, 1, False, 2**13)
    looks, at_target, seen = [], [], []

    def target(z):
        at_target.append(len(looks))
        seen.append(z)
        return data.target(z)

    equations.moments(data._replace(target=target), size, np.random.default_rng(7), lambda: looks.append(1))
    assert at_target == [equations.PARTS]
    assert len(looks) == equations.PARTS + 3 + 1
    whole = qmc.Sobol(1 + 1 + 1 + 4, seed=np.random.default_rng(7)).random_base2(size.bit_length() - 1)
    np.testing.assert_array_equal(seen[0][0], ndtri(whole[:, 2] + equations.HALF_SPACING))
