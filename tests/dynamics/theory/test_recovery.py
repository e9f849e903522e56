"""Laws of recovery: numbers of the page, quadrature in place of the rule, exact cases, and what is asked and stored."""

import numpy as np
import pytest
from scipy import integrate, optimize, special

import dynamics
import hermite
from dynamics.report.findings import find_findings
from dynamics.theory.recovery import make_estimator, outlier, threshold_ratio


def cut(level):
    return make_estimator(hermite.expand(f"min(z**2, {level})"), 0.0, 2, "labels")


def predicted(link, **options):
    return dynamics.predict_recovery(link, **{"dimension": 100, **options})


def test_thresholds_of_cut_squares():
    for level, ratio in {1: 2.07672, 2: 1.05743, 3: 0.80090, 4: 0.72305, 6: 0.76545, 9: 1.11684}.items():
        assert cut(level).threshold(1) == pytest.approx(ratio, abs=1e-5)


def test_the_law_at_four_samples_per_dimension():
    assert cut(2).outlier(100, 400).overlap_squared == pytest.approx(0.43060, abs=5e-6)
    overlap, eigenvalue = cut(4).outlier(100, 400)
    assert overlap == pytest.approx(0.48753, abs=5e-6)
    assert eigenvalue == pytest.approx(3.64067, abs=5e-6)


def test_the_roots_are_those_of_adaptive_quadrature():
    """min(z², M) by quadrature of its smooth part and the atom at M, both conditions solved at once by another method."""
    level, ratio = 3.0, 2.5
    tail = 2.0 * (1.0 - 0.5 * (1.0 + special.erf(np.sqrt(level / 2))))
    square = tail + 2.0 * np.sqrt(level) * np.exp(-level / 2) / np.sqrt(2 * np.pi)

    def mean(function, at_top, power):
        def integrand(z):
            return 2.0 * function(z * z) * z**power * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

        inside = integrate.quad(integrand, 0.0, np.sqrt(level), epsabs=1e-13, epsrel=1e-13)[0]
        return inside + at_top * (tail if power == 0 else square)

    def balance(x):
        return (
            1 / ratio
            + mean(lambda T: T / (x - T), level / (x - level), 0)
            - mean(lambda T: T / (x - T), level / (x - level), 2)
        )

    def slope(x):
        return 1 / ratio - mean(lambda T: (T / (x - T)) ** 2, (level / (x - level)) ** 2, 0)

    edge = optimize.brentq(slope, level + 0.1, 100.0, xtol=1e-14)
    root = optimize.brentq(balance, edge, 100.0, xtol=1e-14)
    rest = mean(lambda T: (T / (root - T)) ** 2, (level / (root - level)) ** 2, 2)
    eigenvalue = root * mean(lambda T: T / (root - T), level / (root - level), 2)
    np.testing.assert_allclose(cut(3).outlier(100, 250), [slope(root) / (slope(root) + rest), eigenvalue], rtol=1e-10)


def test_nothing_below_the_threshold_and_the_overlap_grows_from_nothing():
    threshold = cut(4).threshold(1000)
    for factor, low, high in ((0.5, 0.0, 0.0), (0.999, 0.0, 0.0), (1.001, 1e-5, 1e-2), (1e4, 0.999, 1.0)):
        assert low <= outlier(cut(4).law, factor * threshold / 1000).overlap_squared <= high


def test_labels_that_fall_with_z_squared_are_turned_over():
    cosine, turned = (make_estimator(hermite.expand(text), 0.0, 2, "labels") for text in ("cos(z)", "-cos(z)"))
    assert (cosine.sign, turned.sign) == (-1.0, 1.0)
    assert cosine.threshold(1) == pytest.approx(turned.threshold(1), rel=1e-12)
    assert cosine.outlier(10, 60)[1] == pytest.approx(-turned.outlier(10, 60)[1], rel=1e-12)


def test_a_transformation_without_even_parts_shows_nothing_at_degree_two():
    assert threshold_ratio(make_estimator(hermite.expand("z"), 0.0, 2, np.sign).law) == np.inf
    assert predicted("z", degree=2, transform=np.sign, samples=10**6).predicted_overlap_squared == 0.0


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("dimension", "samples"),
    [(1000, 2200), *(pytest.param(*sizes, marks=pytest.mark.long) for sizes in ((10_000, 51_000), (100_000, 770_000)))],
)
def test_half_the_draws_of_squares_have_an_outlier(dimension, samples):
    """40 draws at p = 0.5 lie within 20 ± 11 but for 3e-4."""
    found = predicted("z**2", dimension=dimension, samples=samples, degree=2, seeds=40)
    assert 9 <= int((found.predicted_overlap_squared > 0).sum()) <= 31


def test_laws_of_the_page_at_degree_one_three_and_four():
    assert predicted("z**3 - 3*z", dimension=1600, samples=8 * 1600, transform=np.tanh).predicted_overlap_squared == (
        pytest.approx(0.6355, abs=2e-4)
    )
    third = predicted("he3", dimension=48, degree=3, transform=np.sign, samples=[333, 665, 1330])
    assert third.attrs["rho_squared"] == pytest.approx(0.38003, abs=1e-5)
    assert third.attrs["kappa"] == pytest.approx(2.0, abs=1e-9)
    np.testing.assert_allclose(third.predicted_overlap_squared, [0.55, 0.85, 0.946], atol=4e-3)
    assert third.attrs["threshold_samples"] == pytest.approx(48**1.5 / (np.sqrt(18) * 0.3800232), rel=1e-6)
    fourth = predicted("x^2 exp(-x^2)", dimension=64, samples=10**4)
    threshold = fourth.attrs["threshold_samples"]
    assert (fourth.attrs["degree"], fourth.attrs["label_sign"]) == (4, -1)
    assert fourth.attrs["rho_squared"] == pytest.approx(0.16499, abs=5e-6)
    assert threshold == pytest.approx(64**2 / (12 * 0.164986), rel=1e-5)
    assert fourth.predicted_overlap_squared == pytest.approx(1 - threshold / 10**4)


def test_a_label_without_the_component_shows_nothing():
    found = predicted("he4", degree=3, samples=10**8)
    assert (found.predicted_overlap_squared, found.attrs["threshold_samples"]) == (0.0, np.inf)


@pytest.mark.parametrize(("name", "degree"), [("relu", 1), ("he2", 2), ("he3", 3), ("he4", 4)])
def test_auto_is_the_first_degree_that_labels_have(name, degree):
    assert predicted(name, samples=300).attrs["degree"] == degree


@pytest.mark.parametrize(("transform", "signal"), [("labels", lambda v: 1 / v), (np.sign, lambda v: 2 / (np.pi * v))])
def test_label_noise_lowers_the_signal(transform, signal):
    """Of y = z + τξ, exactly; the rule with noise resolves jumps to 1e-3."""
    found = predicted("z", samples=100, label_noise=0.5, transform=transform)
    assert found.attrs["rho_squared"] == pytest.approx(signal(1.25), rel=1e-3)


@pytest.mark.parametrize(("link", "degree", "correlation"), [("he3", 1, 0.66783), ("x^2 exp(-x^2)", 4, 0.22996)])
def test_the_best_transformation_shows_the_generative_exponent(link, degree, correlation):
    found = predicted(link, samples=500, transform="optimal")
    assert (found.attrs["degree"], found.attrs["transform"]) == (degree, "optimal")
    assert found.attrs["rho_squared"] == pytest.approx(correlation, abs=1e-5)
    assert (
        found.attrs["rho_squared"] > predicted(link, samples=500, transform=np.tanh, degree=degree).attrs["rho_squared"]
    )


def test_the_best_transformation_of_a_square_is_itself():
    """ζ_2 = (y − 1)/√2 below the cut, and E[h_2 | z² > 4] at it."""
    link = hermite.expand("min(z**2, 4)")
    best = make_estimator(link, 0.0, 2, "optimal")
    y = np.array([0.01, 0.5, 1.0, 3.0])
    np.testing.assert_allclose(best.transform(y), (y - 1.0) / np.sqrt(2.0), atol=1e-2)
    tail = np.sqrt(2.0) * np.exp(-2.0) / np.sqrt(2 * np.pi) / (0.5 * special.erfc(np.sqrt(2.0)))
    assert best.transform(np.array([4.0]))[0] == pytest.approx(tail, rel=1e-5)


def test_a_problem_is_asked_about_as_its_link_is(tmp_path):
    problem = dynamics.Problem(
        activation="he3", teacher=dynamics.Teacher([1.0]), width=3, dimension=40, student="committee", label_noise=0.1
    )
    found = dynamics.predict_recovery(problem, samples=[100, 9000], transform=np.tanh)
    apart = predicted("he3", dimension=40, label_noise=0.1, samples=[100, 9000], transform=np.tanh)
    np.testing.assert_array_equal(found.predicted_overlap_squared, apart.predicted_overlap_squared)
    path = dynamics.save(found, tmp_path / "law.nc")
    stored = dynamics.load(path)
    assert dynamics.Problem.from_dataset(stored) == problem
    np.testing.assert_array_equal(stored.predicted_overlap_squared, found.predicted_overlap_squared)


def test_what_it_shows():
    for samples in (300, [1200, 300]):
        found = find_findings(predicted("min(z**2, 4)", degree=2, samples=samples))
        assert "Degree 2, T = labels, rho^2 = 0.5245; threshold 72.31 samples." in found.as_text({})
        (panel,) = found.overview().axes
        assert panel.get_lines()[0].get_xdata().tolist() == sorted(np.atleast_1d(samples).tolist())
        assert [row["samples"] for row in found.values["points"]] == np.atleast_1d(samples).tolist()
    with_draws = find_findings(predicted("z**2", degree=2, samples=300, seeds=3))
    assert len(with_draws.overview().axes[0].get_lines()) == 4


TWO = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0, 0.5]), width=2, dimension=9)


@pytest.mark.parametrize(
    ("link", "options", "kind", "sentence"),
    [
        ("he3", {"dimension": None}, TypeError, "Argument `dimension` must be given for a link, but is absent."),
        ("he3", {"dimension": 1}, ValueError, "Argument `dimension` must be at least 2, but is 1."),
        ("he3", {"samples": "9"}, TypeError, "Argument `samples` must be an integer, but is '9'."),
        ("he3", {"degree": 5}, ValueError, "Argument `degree` must be 1, 2, 3, 4 or 'auto', but is 5."),
        ("he5", {}, ValueError, "Argument `degree` must be given where T(y) has no component of degree 1 to 4, as for he5, but is 'auto'."),
        ("he3", {"seeds": 2}, ValueError, "Argument `seeds` must be absent at degree 3, whose law draws no sample, but is given."),
        ("he3", {"label_noise": -1.0}, ValueError, "Argument `label_noise` must be finite and at least 0, but is -1.0."),
        ("he3", {"transform": lambda y: y[:2]}, ValueError, "Argument `transform` must keep the shape (400,) of labels, but returns (2,)."),
        ("he3", {"transform": lambda y: 0 * y}, ValueError, "Argument `transform` must leave labels that vary, but T(y) is constant."),
        ("sign", {"degree": 2, "transform": "optimal"}, ValueError, "Argument `degree` must be one at which labels tell something of sign, but is 2."),
        ("he3", {"label_noise": 0.1, "transform": "optimal"}, ValueError, "Argument `transform` must be 'labels' or a function where labels are noisy, but is 'optimal'."),
        ("he3", {"transform": "best"}, ValueError, "Argument `transform` must be 'labels', 'optimal' or a function of labels, but is 'best'."),
        ("he2", {"samples": 10**18}, ValueError, "Argument `samples` must leave room in memory, but 1000000000000000000 takes 6.4e+10 GB, more than there is."),
        ("tanh", {"degree": 2, "transform": lambda y: y - 2}, ValueError, "Argument `transform` must leave labels with a positive maximum for degree 2, but it is -1."),
        (TWO, {"dimension": None}, ValueError, "Argument `problem` must have a student with a name and a teacher of one direction of coefficient 1, but has coefficients [1.0, 0.5]."),
        (TWO, {}, ValueError, "Argument `dimension` must be absent where a Problem is given, but is 100."),
    ],
)  # fmt: skip
def test_refusals_say_what_must_hold_and_what_was_given(link, options, kind, sentence):
    with pytest.raises(kind) as caught:
        predicted(link, **{"samples": 50, **options})
    assert str(caught.value) == sentence


def test_a_transformation_that_fails_is_named():
    with pytest.raises(TypeError, match="`transform` must take an array of labels, but failed on one: 'no such'"):
        predicted("he3", samples=5, transform=lambda y: (_ for _ in ()).throw(KeyError("no such")))
    with pytest.raises(ValueError, match=r"`transform` must be finite, but is not at the label -"):
        predicted("he3", samples=5, transform=np.log)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_transformation_that_looks_at_other_labels_is_refused(noise):
    """Standardised by a sample, labels have another law than those that quadrature finds."""
    with pytest.raises(ValueError, match=r"^Argument `transform` must have one value at a point, whatever the other"):
        predicted("he3", samples=5, label_noise=noise, transform=lambda y: (y - y.mean()) / y.std())
