"""What kernels learn: stated numbers, spectra by quadrature and by sampling, and exact cases."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_cases import legendre_link, on_sphere, relu_tangent_kernel
from scipy import special

import dynamics
import hermite
from dynamics.problem import Teacher
from dynamics.theory.kernels import (
    MAX_DEGREE,
    KernelModes,
    feature_modes,
    flow_error,
    harmonics,
    kernel_modes,
    mean_powers,
    online_error,
    online_floor,
    ridge_error,
    unit_parts,
)


def modes_of(student, k, d, **options):
    """Return the modes for the teacher √N_k P_k(θ·x/√d)."""
    units = Teacher([1.0]).units(legendre_link(k, d))
    return kernel_modes(hermite.expand(student), units, d, **options)


def gaussian_modes(student, k, d):
    return kernel_modes(hermite.expand(student), Teacher([1.0]).units(hermite.expand(f"he{k}")), d, gaussian=True)


def ridge(modes, samples, strength, noise):
    return ridge_error(modes, np.array(samples, dtype=float), strength, noise).sum(axis=1)


def stated(*numbers):
    """Return a comparison with numbers that are given to four digits after the point."""
    return pytest.approx(np.array(numbers), abs=6e-5)


def by_recursion(order, s, d):
    """Return P_0 … P_order in d dimensions by the three-term recursion."""
    P = [np.ones_like(s), s]
    for ell in range(1, order):
        P.append(((2 * ell + d - 2) * s * P[ell] - ell * P[ell - 1]) / (ell + d - 2))
    return np.array(P)


def test_ridge_regression_without_noise():
    assert ridge(modes_of("relu", 2, 10), [100, 300], 1e-3, 0.0) == stated(0.1290, 0.0070)
    assert ridge(modes_of("relu", 4, 10), [300, 1000, 2500], 1e-3, 0.0) == pytest.approx(
        [0.991, 0.4568, 0.1455], abs=1e-4
    )
    assert ridge(modes_of("relu", 2, 20), [100, 300, 1000, 2500], 1e-3, 0.0) == stated(0.7956, 0.2020, 0.0111, 0.0013)
    assert ridge(modes_of("relu", 4, 20), [2500], 1e-3, 0.0) == pytest.approx([0.939], abs=5e-4)


def test_ridge_regression_with_noise():
    assert ridge(modes_of("relu", 4, 10), [200, 600, 2000], 0.1, 0.3) == stated(1.2126, 0.8733, 0.4625)
    assert ridge(modes_of("erf", 3, 20), [1500], 0.01, 0.2) == stated(0.3217)
    assert ridge(modes_of("relu", 2, 40), [400, 1500], 0.05, 0.3) == stated(0.7499, 0.1984)


def test_random_features():
    """The stated numbers leave out what the kernel has above degree 40, a thousandth of the error."""
    modes = feature_modes(hermite.expand("relu"), Teacher([1.0]).units(legendre_link(2, 10)), 10)
    low = modes.degree <= 40
    cut = KernelModes(*(getattr(modes, name)[low] for name in ("degree", "eigenvalue", "multiplicity", "target")), 0.0)
    for width, error in {100: 0.1771, 300: 0.0497, 600: 0.0304}.items():
        assert ridge_error(cut, np.array([300.0]), 0.01, 0.2, width) == stated(error)
        assert ridge_error(modes, np.array([300.0]), 0.01, 0.2, width) == pytest.approx([error], rel=3e-3)
    endless, kernel = ridge_error(modes, np.array([300.0]), 0.01, 0.2, 1e12), ridge(modes, [300], 0.01, 0.2)
    assert endless == pytest.approx(kernel, rel=1e-8)


def test_the_flow_on_few_samples():
    modes = modes_of("relu", 2, 10).limited(300)
    rate = modes.eigenvalue[modes.degree == 2][0]
    times = np.array([0.2, 0.7, 2.0, 6.0, 50.0]) / rate
    assert flow_error(modes, 300, times, 0.3).sum(axis=1) == stated(0.7139, 0.3308, 0.0889, 0.0318, 0.0329)
    # Its ends are the start and interpolation; that of endless samples is exponential.
    assert flow_error(modes, 300, np.array([1e-9, 1e9]) / rate, 0.0).sum(axis=1) == pytest.approx(
        [1.0, ridge(modes, [300], 0.0, 0.0)[0]], rel=1e-4
    )
    assert flow_error(modes, 1e12, times[:3], 0.0).sum(axis=1) == pytest.approx(
        np.exp(-2.0 * rate * times[:3]), rel=1e-6
    )


def test_online_steps():
    modes = modes_of("erf", 3, 10)
    rate, samples = 0.8 / modes.trace, np.array([20, 60, 166, 300])
    error = online_error(modes.limited(300), samples, rate, 0.2)
    assert error.sum(axis=1) == stated(1.5157, 1.5718, 1.4992, 1.4103)
    kept = modes.limited(300)
    R, curve = kept.target.copy(), []
    for _ in range(300):
        size = kept.eigenvalue * kept.multiplicity
        R = R * (1.0 - 2.0 * rate * kept.eigenvalue) + rate**2 * size * kept.eigenvalue * (R.sum() + 0.2**2)
        curve.append(R.copy())
    np.testing.assert_allclose(error, np.array(curve)[samples - 1], rtol=1e-12)
    x = 0.4
    assert online_floor(modes, rate, 0.2) == pytest.approx(0.2**2 * x / (1.0 - x), rel=1e-12)
    unordered = online_error(kept, samples[[2, 0]], rate, 0.2)
    np.testing.assert_allclose(unordered, error[[2, 0]], rtol=1e-12)


def test_gaussian_inputs():
    for d, samples, errors in ((10, [100, 300, 1000], [0.381, 0.187, 0.154]), (30, [500, 1500], [0.4425, 0.1234])):
        assert ridge(gaussian_modes("relu", 2, d), samples, 0.05, 0.2) == pytest.approx(errors, abs=5e-4)
    for d, shares in {10: (0.868, 0.440), 40: (0.964, 0.783), 100: (0.985, 0.903)}.items():
        for k, share in zip((2, 4), shares, strict=True):
            modes = gaussian_modes("relu", k, d)
            assert 1.0 - modes.lost == pytest.approx(share, abs=5e-4)
            assert modes.target.sum() == pytest.approx(1.0, abs=1e-12)  # E h_k² = 1


def test_samples_to_half_grow_as_powers_of_the_dimension():
    stated_samples = {16: 113.7, 32: 395.4, 64: 1451.0, 128: 5520.0, 256: 21490.0}
    found = {d: half("relu", 2, d) for d in stated_samples}
    assert list(found.values()) == pytest.approx(list(stated_samples.values()), rel=5e-4)
    for student, k, factor, exponent in (("relu", 2, None, 1.961), ("erf", 3, 0.56, 2.987), ("relu", 4, 1.30, 3.977)):
        first, last = half(student, k, 128), half(student, k, 256)
        assert np.log2(last / first) == pytest.approx(exponent, abs=6e-4)
        if factor is not None:
            assert first / harmonics([k], 128)[0] == pytest.approx(factor, abs=0.01)


def half(student, k, d):
    found = dynamics.predict_kernel(legendre_link(k, d), dimension=d, student=student, protocol="ridge", ridge=1e-3)
    return float(found.samples_to_level.sel(loss_level=0.5))


@pytest.mark.parametrize("d", [3, 10, 60])
def test_eigenvalues_are_those_of_gegenbauer_quadrature(d):
    s, weights = special.roots_jacobi(600, (d - 3) / 2, (d - 3) / 2)
    P, weights = by_recursion(8, s, d), weights / weights.sum()
    powers = mean_powers(np.arange(21.0), d)
    np.testing.assert_allclose(powers[:, :9], (s[None] ** np.arange(21)[:, None] * weights) @ P.T, atol=1e-13)
    modes = modes_of("relu", 2, d)
    values = np.array([modes.eigenvalue[modes.degree == ell].max() for ell in range(9)])
    # The series ends at degree 300: its rest shows at d = 3, where points come close.
    np.testing.assert_allclose(values, P @ (weights * relu_tangent_kernel(s)), atol=3e-4 if d == 3 else 1e-9)
    assert modes.trace == pytest.approx(1.0, abs=1e-12)


def test_eigenvalues_are_those_of_points_on_the_sphere():
    """Means over 400 000 pairs; of six the largest deviation passes 4.5 standard errors once in 25 000 times."""
    d, n, rng = 8, 400_000, np.random.default_rng(7)
    s = np.sum(on_sphere(rng, n, d) * on_sphere(rng, n, d), axis=1) / d
    sampled = by_recursion(5, s, d) * relu_tangent_kernel(s)
    modes = modes_of("relu", 2, d)
    values = np.array([modes.eigenvalue[modes.degree == ell].max() for ell in range(6)])
    z = (sampled.mean(axis=1) - values) / (sampled.std(axis=1) / n**0.5)
    assert np.abs(z).max() < 4.5


def test_blind_degrees():
    relu, odd = modes_of("relu", 3, 12), modes_of("erf", 4, 12)
    assert [relu.lost, odd.lost] == pytest.approx([1.0, 1.0])
    assert modes_of("relu", 4, 12).lost == modes_of("erf", 3, 12).lost == 0.0


@pytest.mark.parametrize(
    "teacher",
    [
        Teacher.polynomial("x1 + x1*x2*x3 + h2(x1)*x2"),
        Teacher(
            [0.8, -0.5, 0.4],
            directions=[[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]],
            links=["he3", "relu", "erf"],
            biases=[0.0, 0.3, 0.0],
        ),
        Teacher([1.0, 0.7, 0.5]),
    ],
    ids=["polynomial", "units", "directions"],
)
def test_teachers_by_degree(teacher):
    """Means over 300 000 pairs; of 18 one passes 4.5 standard errors once in 8000 times."""
    d, n, rng = 7, 300_000, np.random.default_rng(5)
    link = hermite.expand("he4")
    x, other = on_sphere(rng, n, d), on_sphere(rng, n, d)

    def f(points):
        if teacher.target is not None:
            return teacher.target.value(points[:, : teacher.target.span])
        units = teacher.units(link)
        return sum(u.coefficient * u.link.value(points[:, : u.direction.size] @ u.direction + u.bias) for u in units)

    count = harmonics(np.arange(6), d)[:, None]
    sampled = count * by_recursion(5, np.sum(x * other, axis=1) / d, d) * f(x) * f(other)
    modes = kernel_modes(hermite.expand("sigmoid"), teacher.target or teacher.units(link), d)
    parts = modes.by_degree(modes.target, 5)
    errors = np.maximum(sampled.std(axis=1) / n**0.5, 1e-12)
    assert np.abs((sampled.mean(axis=1) - parts) / errors).max() < 4.5
    square = f(x) ** 2
    assert abs(square.mean() - modes.target.sum()) < 4.5 * square.std() / n**0.5


def test_the_teacher_and_the_polynomial_of_one_direction_are_one():
    relu, d = hermite.expand("relu"), 10
    one = kernel_modes(relu, Teacher([1.0]).units(hermite.expand("he4")), d)
    other = kernel_modes(relu, Teacher.polynomial("h4(x1)").target, d)
    np.testing.assert_allclose(one.by_degree(one.target, 6), other.by_degree(other.target, 6), atol=1e-12)


def test_far_degrees_change_nothing():
    modes = modes_of("relu", 4, 10)
    limited = modes.limited(2000)
    assert limited.eigenvalue.size < modes.eigenvalue.size
    assert limited.trace == pytest.approx(modes.trace, rel=1e-12)
    assert ridge(limited, [2000], 0.1, 0.3) == pytest.approx(ridge(modes, [2000], 0.1, 0.3), rel=1e-6)
    full = online_error(modes, np.array([2000]), 0.8, 0.3).sum()
    assert online_error(limited, np.array([2000]), 0.8, 0.3).sum() == pytest.approx(full, rel=1e-6)


def test_harmonics_are_counted():
    for d in (2, 3, 7):
        exact = [1] + [
            special.comb(ell + d - 1, ell, exact=True)
            - (special.comb(ell + d - 3, ell - 2, exact=True) if ell > 1 else 0)
            for ell in range(1, 12)
        ]
        np.testing.assert_allclose(harmonics(np.arange(12), d), exact, rtol=1e-12)
    assert np.isfinite(harmonics([MAX_DEGREE], 10**6)).all()


def test_large_dimensions_stay_finite():
    found = dynamics.predict_kernel("he4", dimension=10**5, student="relu", samples=10)
    assert np.isfinite(found.test_error)
    assert np.isnan(found.samples_to_level[0])  # beyond 1e18 samples
    assert replace(modes_of("relu", 2, 10), tail=0.0).trace < 1.0


@pytest.mark.parametrize("d", [2, 3, 4])
def test_harmonics_of_all_degrees_are_resolved_in_few_dimensions(d):
    """The parts of h_3 in degree 3 and in degree 1 on the sphere are of exact moments; all others are 0."""
    parts = unit_parts(hermite.expand("he3"), 0.0, 1.0, d)
    first = 1.5 * (1.0 - d / (d + 2.0)) ** 2
    whole = (15.0 * d**3 / (d * (d + 2.0) * (d + 4.0)) - 18.0 * d / (d + 2.0) + 9.0) / 6.0
    expected = np.zeros(MAX_DEGREE + 2)
    expected[[1, 3]] = first, whole - first
    np.testing.assert_allclose(parts**2, expected, atol=1e-14)
    assert kernel_modes(hermite.expand("he3"), Teacher([1.0]).units(hermite.expand("he3")), d).lost == 0.0
