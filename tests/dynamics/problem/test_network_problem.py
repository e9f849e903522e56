"""`Student`, the grown `Teacher` and the problem that they make: values, refusals, files and sweeps' changes."""

import itertools
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from gaussian_rules import gauss_grid

import dynamics
from dynamics import Problem, SaveAt, Student, Teacher, solve_committee, solve_network
from dynamics.runs.dataset import make_dataset
from dynamics.sweeps.grid import changed_problem


def hermite(j, z):
    return np.polynomial.hermite_e.hermeval(z, [0.0] * j + [1.0]) / math.sqrt(math.factorial(j))


@pytest.mark.parametrize(
    "text", ["x1 + x1*x2 + x1*x2*x3", "h2(x1)*x2 - x1/3", "(x1 + 0.5*x3)^4 - 2", "x2*h3(x1 - x2)", "h2(h2(x1))"]
)
def test_components_are_gaussian_means(text):
    target = Teacher.polynomial(text).target
    x, weight = gauss_grid(14, target.span)
    values = target.value(x)
    assert weight @ values == pytest.approx(target.mean, abs=1e-12)
    total = target.mean**2
    for component in target.components:
        basis = np.prod([hermite(j, x[:, a]) for a, j in enumerate(component.degrees)], axis=0)
        assert weight @ (values * basis) == pytest.approx(component.value, rel=1e-11)
        total += component.value**2
    # No component is missing.
    assert weight @ values**2 == pytest.approx(total, rel=1e-11)
    # Its name is the text of itself.
    for component in target.components:
        assert [own.degrees[: target.span] for own in Teacher.polynomial(component.name).components] == [
            component.degrees[: Teacher.polynomial(component.name).span]
        ]


@pytest.mark.parametrize(
    ("text", "order", "leap"),
    [
        ("x1*x2*x3 + x1*x2 + x1", ("x1", "x1*x2", "x1*x2*x3"), 1),
        ("x1*x2*x3", ("x1*x2*x3",), 3),
        ("x1 + x1*x2*x3", ("x1", "x1*x2*x3"), 2),
        ("h2(x1) + x1*x2", ("h2(x1)", "x1*x2"), 2),
        ("h4(x2) + x1", ("x1", "h4(x2)"), 4),
    ],
)
def test_the_leap_is_that_of_the_cheapest_order(text, order, leap):
    teacher = Teacher.polynomial(text)
    assert (teacher.order, teacher.leap) == (order, leap)
    # The least over all orders of the largest cost: what the greedy order must reach.
    best = math.inf
    for sequence in itertools.permutations(teacher.components):
        known, largest = set(), 0
        for component in sequence:
            largest = max(largest, sum(n for a, n in enumerate(component.degrees) if a not in known))
            known.update(component.axes)
        best = min(best, largest)
    assert teacher.leap == best


def test_the_variables_may_have_the_names_of_hermite_leap():
    assert Teacher.polynomial("z1 + h2(Z3)*x2") == Teacher.polynomial("x1 + h2(x3)*x2")
    sentence = (
        r"^Argument `text` must be a polynomial in x1 \.\.\. x9 \(or z1 \.\.\. z9\), but contains the name 'z'\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        Teacher.polynomial("z + z1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x1**7*x2**6", "has a total degree above 12"),
        ("(x1+x2+x3+x4+x5+x6)**6", "has more than 200 terms"),
        ("__import__('os')", "contains \"__import__('os')\""),
        ("x1/x2", "divides by what is no number"),
        ("3", "depends on none of x1 ... x9"),
        ("x10", "contains the name 'x10'"),
        ("x1**0.5", "has an exponent that is no integer"),
        ("x1 if x1 else x2", "contains 'x1 if x1 else x2'"),
        ("x1*(1+" * 60 + "x1" + ")" * 60, "is nested more than 40 deep"),
    ],
)
def test_what_is_no_small_polynomial_is_refused(text, words):
    with pytest.raises(ValueError, match="must be a polynomial") as caught:
        Teacher.polynomial(text)
    assert words in str(caught.value)


STUDENT = {"activation": "erf", "width": 4}


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Student(**STUDENT, rates=(1, 2)), TypeError, "Argument `rates` must hold 3 numbers (ε_w, ε_v, ε_b), but is (1, 2)."),
        (lambda: Student(**STUDENT, scale="m"), ValueError, "Argument `scale` must be one of '1/m', '1/sqrt(m)', but is 'm'."),
        (lambda: Student(activation="erf", width=3, initial_second_layer="pairs"), ValueError, "Argument `width` must be even where `initial_second_layer` is 'pairs', but is 3."),
        (
            lambda: Student(activation="erf", width=2, initial_second_layer=[1.0, -1e31]),
            ValueError,
            "Argument `initial_second_layer` must hold numbers of at most 1e+30, but is [1.0, -1e+31].",
        ),
        (
            lambda: Student(activation="erf", width=1, biases="fixed", initial_biases=[1e160]),
            ValueError,
            "Argument `initial_biases` must hold numbers of at most 1e+30, but is [1e+160].",
        ),
        (lambda: Student(**STUDENT, initial_biases=0.5), ValueError, "Argument `initial_biases` must be absent where `biases` is 'none', but is 0.5."),
        (
            lambda: Problem(student=Student(**STUDENT), width=3, teacher=Teacher([1.0]), dimension=9),
            ValueError,
            "Argument `width` must be absent where `student` is a Student, but is 3.",
        ),
        (
            lambda: Problem(activation="he4", width=3, teacher=Teacher([1.0, -0.5]), dimension=9),
            ValueError,
            "Argument `teacher` must have positive coefficients, but entry 2 of 2 is -0.5, which the homogeneous student "
            "cannot learn; a `Student` can.",
        ),
        (
            lambda: Problem(
                activation="erf", width=3, teacher=Teacher.polynomial("x1"), dimension=9, student="committee"
            ),
            ValueError,
            "Argument `teacher` must have units, but is a polynomial, which the committee student cannot learn; "
            "a `Student` can.",
        ),
        (lambda: Problem(teacher=Teacher([1.0]), dimension=9), TypeError, "Argument `activation` must be given for the homogeneous student, but is absent."),
        (lambda: Teacher([1.0, 2.0], links=["erf"]), ValueError, "Argument `links` must hold one link for each of 2 units, but holds 1."),
        (lambda: Teacher([1.0], biases=[math.nan]), ValueError, "Argument `biases` must hold one finite number for each of 1 units, but is [nan]."),
        (
            lambda: dynamics.solve_overlaps(Problem(student=Student(**STUDENT), teacher=Teacher([1.0]), dimension=9)),
            ValueError,
            "Argument `problem` must have the homogeneous student here, but has a Student, whose overlaps "
            "`dynamics.solve_network` integrates.",
        ),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(make, error, sentence):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("solve", "given"),
    [
        (solve_network, {"student": Student(activation="erf", width=100)}),
        (solve_committee, {"student": "committee", "activation": "erf", "width": 100}),
    ],
    ids=["network", "committee"],
)
def test_a_width_beyond_the_memory_is_refused_before_any_work(solve, given, monkeypatch):
    """2.5 MB of arrays where there is one; 10^5 neurons ended in a MemoryError of numpy's."""
    problem = Problem(**given, teacher=Teacher([1.0]), dimension=10)
    monkeypatch.setattr("dynamics.problem.checks.machine_memory", lambda: 1e6)
    with pytest.raises(ValueError, match=r"`width` must leave room in memory, but 100 takes 0\.00\d+ GB, more than"):
        solve(problem, save_at=SaveAt.at([1.0]))


PROBLEMS = [
    Problem(student=Student(**STUDENT), teacher=Teacher.polynomial("x1 + h2(x1)*x2"), dimension=1e6, seed=3),
    Problem(
        student=Student(
            activation="relu", width=2, second_layer="fixed", initial_second_layer=[0.5, -0.25], biases="trained",
            initial_biases=[0.0, 1.5], first_layer="sphere", scale="1/sqrt(m)", rates="mean-field", decay=(0.1, 0.0),
        ),
        teacher=Teacher([1.0, -0.6], directions=[[1, 0], [0.6, 0.8]], links=["he3", "tanh(z)"], biases=[0.2, 0.0]),
        dimension=3, initial_weights=[[1.0, 2.0, 0.5], [0.0, 0.3, -1.0]], label_noise=0.2,
    ),
    Problem(
        student=Student(activation="he3", width=6, initial_second_layer="pairs", biases="fixed", initial_biases=0.3),
        teacher=Teacher.power_law(3, 1.0), teacher_activation="erf", dimension=40, initial_norm=0.7,
    ),
]  # fmt: skip


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_comes_back_from_its_file_and_its_pickle(problem, tmp_path):
    dataset = make_dataset({}, problem=problem, title="test", coords={}, solver={}, attributes={})
    dataset.to_netcdf(tmp_path / "problem.nc")
    with xr.open_dataset(tmp_path / "problem.nc") as stored:
        again = Problem.from_dataset(stored)
    for other in (again, pickle.loads(pickle.dumps(problem))):
        assert other == problem
        assert hash(other) == hash(problem)
        assert other.teacher == problem.teacher
        assert other.student == problem.student
        for mine, theirs in zip(problem.network_start(), other.network_start(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert replace(problem, label_noise=0.3) != problem


def test_pairs_start_as_zero():
    v, b, W = PROBLEMS[2].network_start()
    x = np.random.default_rng(0).standard_normal((W.shape[1], 5))
    f = v @ PROBLEMS[2].activation.value(W @ x + b[:, None])
    np.testing.assert_allclose(f, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(W, axis=1), 0.7, rtol=1e-14)


def test_students_change_in_a_sweep_by_the_names_of_a_problem():
    wider = changed_problem(PROBLEMS[0], {"width": 8, "activation": "relu"})
    assert (wider.width, wider.student.width, wider.activation.name) == (8, 8, "relu")
    other = changed_problem(PROBLEMS[0], {"student": replace(PROBLEMS[0].student, width=6)})
    assert other.width == 6
