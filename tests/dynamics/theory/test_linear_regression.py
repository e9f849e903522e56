"""Linear regression under SGD, momentum and steps of zeroth order: the recursion against runs in R^d and known numbers."""

import re

import numpy as np
import pytest

import dynamics
from dynamics import SGD, ZerothOrder


@pytest.mark.parametrize(("d", "ratio"), [(30, 32), (100, 102)])
def test_isotropic_inputs_cost_zeroth_order_a_factor_of_the_dimension(d, ratio):
    plain, along = (
        dynamics.fastest_linear_regression([1.0] * d, [1.0] * d, optimizer=each) for each in (None, "zeroth-order")
    )
    # E|δ|² is multiplied by 1 − 2η + (d + 2) η², or (d + 2)² η²: by 1 − 1/(d + 2) and 1 − 1/(d + 2)² at the best η.
    for found, size in ((plain, d + 2), (along, (d + 2) ** 2)):
        assert found.learning_rate == pytest.approx(1.0 / size, rel=1e-4)
        assert found.steps == pytest.approx(np.log(0.1) / np.log1p(-1.0 / size), rel=1e-6)
    assert np.ceil(along.steps) / np.ceil(plain.steps) == pytest.approx(ratio, abs=0.5)


@pytest.mark.parametrize(("d", "ratio"), [(30, 8.5), (100, 9.0), (300, 9.1), (1000, 9.15), (3000, 9.15)])
def test_inputs_of_a_power_law_cost_it_an_effective_rank(d, ratio):
    """Of λ_l = l^−2 at the accepted numbers, which count 13 whole steps of SGD; 12 are enough at d = 30 just so."""
    values = np.arange(1.0, d + 1.0) ** -2
    plain, along = (
        dynamics.fastest_linear_regression(values, values**0.5, optimizer=each) for each in (None, "zeroth-order")
    )
    assert 11.99 < plain.steps < 12.07
    assert np.ceil(along.steps) / 13.0 == pytest.approx(ratio, abs=0.051)


def runs(values, squares, rate, steps, optimizer, batch=1, noise=0.0, count=3000, seed=1):
    """Return means and errors of the risk of w and of the average, (2, 2, steps + 1), by runs in R^d."""
    rng, d = np.random.default_rng(seed), values.size
    w = np.tile(np.sqrt(squares), (count, 1))
    u, average, out = np.zeros_like(w), w.copy(), []
    for n in range(steps + 1):
        risks = np.stack([w**2 @ values, average**2 @ values])
        out.append((risks.mean(axis=1), risks.std(axis=1) / np.sqrt(count)))
        x = rng.standard_normal((count, batch, d)) * np.sqrt(values)
        error = np.einsum("rbd,rd->rb", x, w) - noise * rng.standard_normal((count, batch))
        g = np.einsum("rb,rbd->rd", error, x) / batch
        if isinstance(optimizer, ZerothOrder):
            z = rng.standard_normal((count, optimizer.directions, d))
            w = w - rate * np.einsum("rk,rkd->rd", np.einsum("rkd,rd->rk", z, g), z) / optimizer.directions
            continue
        u = optimizer.momentum * u + (1.0 - optimizer.dampening if n else 1.0) * g
        w = w - rate * (g + optimizer.momentum * u if optimizer.nesterov else u)
        share = 1.0 / (n + 2) if optimizer.average == "polyak" else optimizer.average or 0.0
        average = average + share * (w - average)
    return np.moveaxis(np.array(out), 0, 2)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("optimizer", "batch"),
    [
        (SGD(), 1),
        (SGD(), 3),
        (ZerothOrder(), 1),
        (ZerothOrder(directions=3), 2),
        (SGD(momentum=0.8, dampening=0.3, average=0.1), 1),
        (SGD(momentum=0.7, nesterov=True, average="polyak"), 2),
    ],
    ids=str,
)
def test_the_recursion_is_the_mean_of_runs(optimizer, batch):
    """3000 runs in R^8, six looks: |z| below 3.9 of means, false-alarm rate 1e-3 per test; the seed is fixed."""
    values, noise = np.arange(1.0, 9.0) ** -1.0, 0.3
    squares = np.linspace(0.2, 1.0, 8)
    rate = 0.25 * dynamics.linear_regression_limit(values, optimizer=optimizer, batch_size=batch)
    steps = 120
    given = {"learning_rate": rate, "steps": steps, "batch_size": batch, "optimizer": optimizer, "label_noise": noise}
    found = dynamics.linear_regression_steps(values, squares, **given)
    means, errors = runs(values, squares, rate, steps, optimizer, batch, noise)
    looks = [1, 2, 5, 20, 60, 120]
    z = (means[0] - found.risk)[looks] / errors[0, looks]
    assert np.abs(z).max() < 3.9, z
    if getattr(optimizer, "average", None) is None:
        assert found.average_risk is None
    else:
        z = (means[1] - found.average_risk)[looks] / errors[1, looks]
        assert np.abs(z).max() < 3.9, z


def map_of(rate, momentum, d):
    """Return the map of |δ|², δ·v and |v|²: v ← βv − η x x·δ, then δ ← δ + v."""
    v = np.array([rate**2 * (d + 2), -2.0 * momentum * rate, momentum**2])
    cross = np.array([-rate, momentum, 0.0])
    return np.array([[1.0, 0.0, 0.0] + 2.0 * cross + v, cross + v, v])


def radius(rate, momentum, d):
    return np.abs(np.linalg.eigvals(map_of(rate, momentum, d))).max()


def critical_rate(momentum, d):
    """Return the rate at which the spectral radius of the map is 1, by bisection."""
    low, high = 1e-7, 1.0
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if radius(middle, momentum, d) < 1.0 else (low, middle)
    return high


@pytest.mark.parametrize(
    ("behind", "critical", "decay"),
    [(200.0, 2.000, 0.99), (20.0, 2.009, 0.97), (10.0, 2.010, 0.95), (2.0, 2.010, 0.76), (0.5, 2.010, 0.38)],
)
def test_momentum_never_helps_at_batch_1(behind, critical, decay):
    """1 − β is `behind`/d at d = 200: critical rates and best decay per d steps are the accepted ones, by the map.

    It loses stability half a per cent later than the limit says.
    """
    d = 200
    momentum = 1.0 - behind / d
    unit = (1.0 - momentum) / (d + 2)
    exact = critical_rate(momentum, d)
    assert exact / unit == pytest.approx(critical, abs=6e-4)
    student = dynamics.Problem(
        activation={1: 1.0}, teacher=dynamics.Teacher([1.0]), width=1, dimension=d, student="committee"
    )
    for formula in (
        dynamics.linear_regression_limit([1.0] * d, optimizer=SGD(momentum=momentum)),
        dynamics.learning_rate_limit(student, optimizer=SGD(momentum=momentum)),
    ):
        assert exact == pytest.approx(formula, rel=5.5e-3)
        assert exact >= formula * (1.0 - 1e-9)
    shares = np.linspace(0.02, 2.2, 219)
    radii = np.array([radius(share * unit, momentum, d) for share in shares])
    best = shares[np.argmin(radii)]
    assert -d * np.log(radii.min()) == pytest.approx(decay, abs=0.011)
    # The recursion is the map, at the best rate and beyond the critical one.
    for share, grows in ((best, False), (1.02 * critical, True)):
        given = {"learning_rate": share * unit, "steps": 40 * d, "optimizer": SGD(momentum=momentum)}
        risk = dynamics.linear_regression_steps([1.0] * d, [1.0 / d] * d, **given).risk
        moments, step = np.array([1.0, 0.0, 0.0]), np.linalg.matrix_power(map_of(share * unit, momentum, d), 40)
        for look in range(40, 40 * d + 1, 40):
            moments = step @ moments
            assert risk[look] == pytest.approx(moments[0], rel=1e-8)
        assert (risk[-1] > risk[-10 * d]) == grows


def test_momentum_at_half_the_limit():
    d, momentum = 200, 1.0 - 2.0 / 200
    given = {"learning_rate": 0.5 * critical_rate(momentum, d), "steps": 3 * d, "optimizer": SGD(momentum=momentum)}
    risk = dynamics.linear_regression_steps([1.0] * d, [1.0 / d] * d, **given).risk
    np.testing.assert_allclose(risk[[d, 2 * d, 3 * d]], [0.48838, 0.25006, 0.13343], atol=2e-5)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("count", [None, 1, 3])
def test_the_limit_is_that_of_the_matrix(batch, count):
    """Of second moments of six axes, two alike and one without inputs, formed whole."""
    values = np.array([2.0, 1.0, 1.0, 0.3, 0.1, 0.0])
    optimizer = None if count is None else ZerothOrder(directions=count)
    limit = dynamics.linear_regression_limit(values, batch_size=batch, optimizer=optimizer)
    T = (np.outer(values, values) + 2.0 * np.diag(values**2)) / batch + (1.0 - 1.0 / batch) * np.diag(values**2)
    if count is not None:
        T = np.ones((6, 6)) @ T / count + (1.0 + 1.0 / count) * T
    seen = values > 0.0
    for share, grows in ((0.999, False), (1.001, True)):
        step = np.eye(6) - 2.0 * share * limit * np.diag(values) + (share * limit) ** 2 * T
        assert (np.abs(np.linalg.eigvals(step[np.ix_(seen, seen)])).max() > 1.0) == grows


def test_a_schedule_has_a_rate_for_every_step():
    from dynamics import piecewise

    given = {"steps": 6, "optimizer": SGD(momentum=0.5)}
    found = dynamics.linear_regression_steps([1.0, 0.5], [1.0, 1.0], learning_rate=piecewise([0.1, 0.02], [3]), **given)
    first = dynamics.linear_regression_steps([1.0, 0.5], [1.0, 1.0], learning_rate=0.1, **given)
    np.testing.assert_array_equal(found.risk[:4], first.risk[:4])
    assert (found.risk[4:] != first.risk[4:]).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"optimizer": "adam"}, "`optimizer` must be SGD or ZerothOrder for linear regression, whose second moments"),
        ({"eigenvalues": [1.0, -1.0]}, "`eigenvalues` must be a list of finite numbers of at least 0"),
        ({"eigenvalues": [0.0, 0.0]}, "`eigenvalues` must hold a number above 0"),
        ({"squares": [1.0]}, "`squares` must have 2 entries, as `eigenvalues`, but has 1"),
        ({"steps": 0}, "`steps` must be"),
        ({"learning_rate": -1.0}, "`learning_rate` must be"),
    ],
)
def test_what_is_not_known_is_refused(given, sentence):
    usual = {"eigenvalues": [1.0, 0.5], "squares": [1.0, 1.0], "learning_rate": 0.1, "steps": 3}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        dynamics.linear_regression_steps(**(usual | given))


def test_the_fastest_rate_needs_a_risk_and_a_share():
    with pytest.raises(ValueError, match="`share` must be above 0 and below 1"):
        dynamics.fastest_linear_regression([1.0], [1.0], share=1.0)
    with pytest.raises(ValueError, match="`squares` must have a risk above 0"):
        dynamics.fastest_linear_regression([1.0, 0.0], [0.0, 1.0])
