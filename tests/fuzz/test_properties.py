"""Test properties of every link, spectrum, shape and tolerance; FULL_TESTS=1 draws more of each."""

from fractions import Fraction

import numpy as np
import pytest
from fuzz_tiers import FULL
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss

import dynamics
import hermite
from dynamics import Problem, SaveAt, Teacher

pytestmark = [pytest.mark.timeout(600), pytest.mark.longer]

many = settings(max_examples=500 if FULL else 25)
several = settings(max_examples=100 if FULL else 12)
few = settings(max_examples=100 if FULL else 3)

DEGREES = st.integers(0, 12)
NUMBERS = st.floats(-3.0, 3.0).filter(lambda x: abs(x) > 1e-3)
SERIES = st.dictionaries(DEGREES, NUMBERS, min_size=1, max_size=5)
VARYING = SERIES.filter(any)  # not constant
#: Links of flows: each costs a compilation.
FLOW_LINKS = st.sampled_from(["he4", "0.8*h3(z) + 0.6*h5(z)"])
NODES, WEIGHTS = hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@st.composite
def spectra(draw, most=4):
    return sorted(draw(st.lists(st.floats(0.2, 1.0), min_size=1, max_size=most)), reverse=True)


@st.composite
def problems(draw, links=FLOW_LINKS, most=4):
    coefficients = draw(spectra(most))
    width = draw(st.integers(1, 5))
    return Problem(
        activation=draw(links), teacher=Teacher(coefficients), width=width,
        dimension=draw(st.integers(len(coefficients) + width, 40)), initial_norm=draw(st.floats(1e-3, 5e-2)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )  # fmt: skip


@st.composite
def schedules(draw, last=20.0):
    times = draw(st.lists(st.floats(0.0, last), min_size=1, max_size=8, unique=True))
    return SaveAt.at(sorted(times))


@pytest.mark.thorough
@many
@given(st.lists(st.fractions(-3, 3, max_denominator=64), min_size=2, max_size=7).filter(lambda c: any(c[1:])))
def test_a_formula_is_what_it_says(coefficients):
    """A polynomial as text has its values, and the text of its expansion expands to it again."""
    text = " + ".join(f"({c.numerator}/{c.denominator})*z^{j}" for j, c in enumerate(coefficients) if c)
    link = hermite.expand(text)
    z = np.linspace(-2.0, 2.0, 9)
    expected = np.polynomial.Polynomial([float(c) for c in coefficients])(z)
    np.testing.assert_allclose(link.value(z), expected, rtol=1e-11, atol=1e-11)
    assert link.text is not None
    np.testing.assert_allclose(hermite.expand(link.text).coefficients, link.coefficients, rtol=1e-13, atol=1e-15)


@many
@given(problems(st.sampled_from(["he3", "he4", "he5", "he6"])), schedules(1e6))
def test_predicted_times_are_between_their_bounds(problem, save_at):
    """With 1 − s² between ½ and 1 on the way to s² = ½, the transit takes once to twice T (1 − (√2 C_0)^(k−2))."""
    prediction = dynamics.predict_emergence(problem, save_at=save_at)
    k = problem.information_exponent
    overlap = problem.start().teacher_overlap
    for p, neuron in enumerate(prediction.matched_neuron.values):
        emerged = float(prediction.predicted_emergence_time[p])
        if neuron < 0:
            assert np.isinf(emerged)
            continue
        lead = abs(float(overlap[neuron, p]))
        if lead**2 >= 0.5:
            assert emerged == 0.0
        elif not (k % 2 and overlap[neuron, p] < 0):
            least = float(prediction.leading_order_time[p]) * (1 - (np.sqrt(2) * lead) ** (k - 2))
            assert least * (1 - 1e-9) <= emerged <= 2 * least * (1 + 1e-9)
        assert float(prediction.predicted_learned_time[p]) >= emerged
    np.testing.assert_array_equal(prediction.time, save_at.times)
    loss = prediction.loss.values
    whole = np.sum(problem.teacher.coefficients**2) * problem.activation.norm_squared
    assert (np.diff(loss) <= 0).all()
    assert (-1e-12 * whole <= loss).all()
    assert (loss <= whole * (1 + 1e-12)).all()


def solved(problem, save_at, rtol=1e-8):
    return dynamics.solve_overlaps(
        problem, save_at=save_at, method="explicit", rtol=rtol, error_estimate=False, progress=False
    )


@several
@given(problems(), schedules(), st.floats(-10.0, -3.0))
def test_a_flow_stays_in_its_bounds(problem, save_at, log_rtol):
    """Loss from E f*² or so downwards and never negative, |C| ≤ 1, n > 0, and times exactly as asked."""
    rtol = 10.0**log_rtol
    flow = solved(problem, save_at, rtol)
    slack = 100 * rtol
    np.testing.assert_array_equal(flow.time, save_at.times)
    whole = np.sum(problem.teacher.coefficients**2) * problem.activation.norm_squared
    assert (flow.loss >= -slack * whole).all()
    assert (flow.loss.diff("time") <= slack * whole).all()
    assert (abs(flow.teacher_overlap) <= 1 + slack).all()
    assert (abs(flow.student_overlap) <= 1 + slack).all()
    assert (flow.squared_norm > 0).all()


@several
@given(problems(), schedules(), st.randoms(use_true_random=False))
def test_names_of_neurons_and_directions_do_not_matter(problem, save_at, shuffler):
    """The flow from a permuted start is the permuted flow, whatever the order of neurons and directions."""
    m, P = problem.width, problem.num_directions
    neurons, directions = (shuffler.sample(range(n), n) for n in (m, P))
    C, G, n = problem.start()
    fields = {"activation": problem.activation, "width": m, "dimension": problem.dimension}
    one = Problem(**fields, teacher=problem.teacher, initial_overlaps=(C, G, n))
    other = Problem(
        **fields,
        teacher=Teacher(problem.teacher.coefficients[directions]),
        initial_overlaps=(C[np.ix_(neurons, directions)], G[np.ix_(neurons, neurons)], n[neurons]),
    )
    first, second = solved(one, save_at, 1e-9), solved(other, save_at, 1e-9)
    np.testing.assert_allclose(second.loss, first.loss, rtol=1e-6, atol=1e-8)
    permuted = first.teacher_overlap.values[:, neurons][:, :, directions]
    np.testing.assert_allclose(second.teacher_overlap, permuted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(second.squared_norm, first.squared_norm[:, neurons], rtol=1e-6, atol=1e-8)


@st.composite
def spectra_of_inputs(draw, *, exponents=6.0, most=12):
    """Draw eigenvalues between 10^∓`exponents`, and multiplicities."""
    values = draw(st.lists(st.floats(-exponents, exponents), min_size=1, max_size=5))
    counts = draw(st.lists(st.integers(1, most), min_size=len(values), max_size=len(values)))
    return 10.0 ** np.array(values), counts


@st.composite
def problems_of_inputs(draw):
    """Draw a problem of one to three directions, on axes or spread, at a start of any size."""
    values, counts = draw(spectra_of_inputs())
    dimension, rng = sum(counts), np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, min(3, dimension)))
    directions = np.linalg.qr(rng.standard_normal((dimension, count)))[0].T if draw(st.booleans()) else None
    return Problem(
        activation="he4", teacher=Teacher(np.sort(rng.uniform(0.2, 1.0, count))[::-1], directions=directions),
        width=draw(st.integers(1, 4)), dimension=dimension, inputs=dynamics.Inputs(values, counts),
        initial_norm=draw(st.floats(1e-3, 0.5)), label_noise=draw(st.floats(0.0, 1.0)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )  # fmt: skip


@pytest.mark.thorough
@few
@given(problems_of_inputs(), st.floats(0.1, 20.0))
def test_a_flow_by_classes_stays_in_its_bounds(tmp_path_factory, problem, last):
    """Eigenvalues over twelve decades, directions on axes and spread: the loss falls, |C| ≤ 1, n > 0, a file keeps all."""
    save_at = SaveAt.at(np.linspace(0.0, last / problem.input_axes().eigenvalue.max(), 5))
    flow = solved(problem, save_at)
    slack = 1e-6
    whole = np.sum(problem.teacher.coefficients**2) * problem.activation.norm_squared + float(flow.loss[0])
    assert (flow.loss >= -slack * whole).all()
    assert (flow.loss.diff("time") <= slack * whole).all()
    assert (abs(flow.teacher_overlap) <= 1 + slack).all()
    assert (flow.squared_norm > 0).all()
    path = dynamics.save(flow, tmp_path_factory.mktemp("inputs") / "a.nc")
    assert Problem.from_dataset(dynamics.load(path)) == problem


@few
@given(st.floats(-2.0, 2.0), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**32))
def test_one_eigenvalue_in_many_runs_is_a_clock(exponent, width, runs, seed):
    """With Σ = s·1 the flow is that of isotropic inputs in the whitened weights, s times as fast."""
    s, dimension = 10.0**exponent, 3 * runs
    weights = 0.1 * np.random.default_rng(seed).standard_normal((width, dimension))
    fields = {"activation": "he4", "teacher": Teacher([0.8]), "width": width, "dimension": dimension}
    inputs = dynamics.Inputs([s] * runs, [3] * runs)
    slow = solved(Problem(**fields, initial_weights=weights), SaveAt.at([0.0, 5.0]))
    fast = solved(Problem(**fields, inputs=inputs, initial_weights=weights / np.sqrt(s)), SaveAt.at([0.0, 5.0 / s]))
    for name in ("loss", "teacher_overlap", "squared_norm"):
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-6, atol=1e-8)


@many
@given(spectra_of_inputs(exponents=25.0, most=10**12), st.integers(1, 4), st.integers(1, 5))
def test_limits_scale_as_one_over_the_eigenvalues(spectrum, batch, width):
    """The limit of the learning rate is finite, shrinks as eigenvalues grow, and is divided where they are multiplied."""
    values, counts = spectrum
    fields = {"activation": "he3", "teacher": Teacher([0.8]), "width": width, "dimension": sum(counts)}
    limits = [
        dynamics.learning_rate_limit(
            Problem(**fields, inputs=dynamics.Inputs(factor * values, counts)), batch_size=batch
        )
        for factor in (1.0, 3.0)
    ]
    assert 0.0 < limits[0] < np.inf
    assert limits[0] == pytest.approx(3.0 * limits[1], rel=1e-6)


@st.composite
def questions(draw):
    """Draw a problem of any student, with a start of any kind and directions that need not be orthonormal."""
    student = draw(st.sampled_from(["homogeneous", "committee", "spherical"]))
    count, width = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    dimension = draw(st.integers(count + width, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    directions = None
    if draw(st.booleans()):
        directions = rng.standard_normal((count, count))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    coefficients = rng.uniform(0.2, 1.0, count)
    weights = rng.standard_normal((width, dimension)) * (1.0 if student == "spherical" else 0.1)
    if student == "spherical":
        coefficients /= coefficients.sum()
        weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    start = {"initial_weights": weights} if draw(st.booleans()) else {"seed": draw(st.integers(0, 2**63 - 1))}
    return Problem(
        activation=draw(st.one_of(VARYING, st.sampled_from(["relu", "tanh", "he4", "z^3 - 3*z"]))),
        teacher=Teacher(coefficients, directions=directions), width=width, dimension=dimension, student=student,
        label_noise=draw(st.floats(0.0, 2.0)), order=draw(st.one_of(st.none(), st.integers(12, 20))), **start,
    )  # fmt: skip


@several
@given(questions())
def test_a_question_comes_back_from_its_answer(tmp_path_factory, problem):
    """From the dataset in memory, and from the file, on every attribute and bit of its arrays."""
    from dynamics.runs.dataset import make_dataset

    answer = make_dataset(
        {"loss": np.array([0.0])}, problem=problem, title="nothing", coords={"time": np.array([0.0])},
        solver={"answer": "overlaps"}, attributes={"answer": "overlaps"},
    )  # fmt: skip
    assert Problem.from_dataset(answer) == problem
    path = dynamics.save(answer, tmp_path_factory.mktemp("question") / "a.nc")
    stored = dynamics.load(path)
    assert stored.identical(answer)
    assert Problem.from_dataset(stored) == problem


@many
@given(st.fractions(0, 2, max_denominator=50), st.integers(1, 40))
def test_a_power_law_is_one(beta: Fraction, count):
    """a_p/a_1 = p^(−β), Σ a_p² = 1, and a geometric teacher has the ratio that it was made with."""
    a = Teacher.power_law(count, float(beta)).coefficients
    np.testing.assert_allclose(a / a[0], np.arange(1.0, count + 1) ** -float(beta), rtol=1e-13)
    assert np.sum(a**2) == pytest.approx(1.0, rel=1e-13)
    ratio = float(beta) / 2.5 + 0.1
    assert Teacher.geometric(count + 2, ratio).ratio == pytest.approx(ratio, rel=1e-10)
