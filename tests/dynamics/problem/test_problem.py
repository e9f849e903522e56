"""Teachers, problems and starts: what they accept, what they refuse and in which words, and the law of a start."""

import pickle

import numpy as np
import pytest
from scipy import stats

import dynamics
from dynamics.problem.start import overlaps_from_weights, random_weights, weights_from_overlaps
from dynamics.theory.learning_rates import descent_limit

TEACHER = dynamics.Teacher([1.0, 0.5])
ROWS = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])


def problem(**changes):
    return dynamics.Problem(**({"activation": "he4", "teacher": TEACHER, "width": 3, "dimension": 8} | changes))


def start(C=((0.1, 0.2),), G=((1.0,),), n=(1.0,)):
    return {"width": len(C), "initial_overlaps": (C, G, n)}


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: dynamics.Teacher([]), ValueError, "Argument `coefficients` must have shape (num_directions,), but has shape (0,)."),
        (lambda: dynamics.Teacher([1, 0]), ValueError, "Argument `coefficients` must be finite and not zero, but entry 2 of 2 is 0.0."),
        (lambda: dynamics.Teacher([1.0, 1e160]), ValueError, "Argument `coefficients` must have sizes from 1e-200 to 1e+30, but entry 2 of 2 is 1e+160."),
        (lambda: problem(activation={2: 1.0, 4: -1e90}), ValueError, "Argument `activation` must have Hermite coefficients of at most 1e+30, but c_4 is -1e+90."),
        (lambda: dynamics.Student(activation="erf", width=2, scale=1e200), ValueError, "Argument `scale` must be at most 1e+30, but is 1e+200."),
        (lambda: dynamics.SaveAt.at([False, True]), TypeError, "Argument `times` must be an array of real numbers, but is [False, True]."),
        (lambda: dynamics.Teacher(["a"]), TypeError, "Argument `coefficients` must be an array of real numbers, but is ['a']."),
        (lambda: dynamics.Teacher([1.0], directions=[[1.0], [1.0]]), ValueError, "Argument `directions` must have shape (num_directions, r) = (1, r), but has shape (2, 1)."),
        (lambda: dynamics.Teacher([1.0], directions=[[2.0, 0.0]]), ValueError, "Argument `directions` must have rows of unit length, but row 1 of 1 has length 2."),
        (lambda: dynamics.Teacher.power_law(0, 1.0), ValueError, "Argument `num_directions` must be at least 1, but is 0."),
        (lambda: dynamics.Teacher.power_law(2, -1.0), ValueError, "Argument `beta` must be finite and at least 0, but is -1.0."),
        (lambda: problem(teacher=[1.0]), TypeError, "Argument `teacher` must be a Teacher, but is [1.0]."),
        (lambda: problem(width=0), ValueError, "Argument `width` must be at least 1, but is 0."),
        (lambda: problem(activation="tahn"), ValueError, "Argument `activation` must be a formula, but contains the name 'tahn', which is not z, x, pi or e. Did you mean 'tanh'?"),
        (
            lambda: problem(student="comittee"),
            ValueError,
            "Argument `student` must be one of 'homogeneous', 'committee', 'spherical', 'stiefel', but is 'comittee'. Did you mean 'committee'?",
        ),
        (lambda: problem(width=2.5), TypeError, "Argument `width` must be an integer, but is 2.5."),
        (lambda: problem(dimension=1), ValueError, "Argument `dimension` must be at least 2, the number of axes that the teacher spans, but is 1."),
        (lambda: problem(initial_norm=0), ValueError, "Argument `initial_norm` must be finite and positive, but is 0."),
        (lambda: problem(initial_norm="x"), TypeError, "Argument `initial_norm` must be a real number, but is 'x'."),
        (lambda: problem(label_noise=-1.0), ValueError, "Argument `label_noise` must be finite and at least 0, but is -1.0."),
        (lambda: problem(student="planar"), ValueError, "Argument `student` must be one of 'homogeneous', 'committee', 'spherical', 'stiefel', but is 'planar'."),
        (lambda: problem(teacher_activation="he3"), ValueError, "Argument `teacher_activation` must equal `activation` for the homogeneous student, but is he3 against he4."),
        (lambda: problem(initial_weights=np.ones((3, 7))), ValueError, "Argument `initial_weights` must have shape (width, dimension) = (3, 8), but has shape (3, 7)."),
        (lambda: problem(initial_weights=np.zeros((3, 8))), ValueError, "Argument `initial_weights` must have finite rows of positive length, but has a row without."),
        (lambda: problem(initial_weights=np.ones((3, 8)), seed=4), ValueError, "Argument `seed` must be absent when `initial_weights` is given, but is 4."),
        (lambda: problem(initial_weights=np.ones((1, 8)), **start()), ValueError, "Argument `initial_overlaps` must be absent when `initial_weights` is given, but both are given."),
        (lambda: problem(width=1, initial_overlaps=3), TypeError, "Argument `initial_overlaps` must be a tuple (C, G, n), but is 3."),
        (lambda: problem(**start(C=((0.1,),))), ValueError, "Argument `initial_overlaps` must have C of shape (1, 2), but it has shape (1, 1)."),
        (lambda: problem(**start(C=((np.nan, 0.0),))), ValueError, "Argument `initial_overlaps` must be finite, but C is not."),
        (lambda: problem(**start(n=(0.0,))), ValueError, "Argument `initial_overlaps` must have positive squared norms n, but the smallest is 0.0."),
        (lambda: problem(**start(G=((0.9,),))), ValueError, "Argument `initial_overlaps` must have a symmetric G with ones on the diagonal, but it has not."),
        (lambda: problem(**start(C=((0.9, 0.9),))), ValueError, "Argument `initial_overlaps` must leave G - C T^-1 C^T positive semidefinite, but its smallest eigenvalue is -0.62."),
        (
            lambda: problem(teacher=dynamics.Teacher([1, 1], directions=[[1.0], [1.0]]), **start(C=((0.1, 0.2),))),
            ValueError,
            "Argument `initial_overlaps` must have C in the range of the teacher's Gram matrix, but it is not.",
        ),
        (lambda: setattr(TEACHER, "coefficients", 1), AttributeError, "Teacher is frozen: make a new one instead of setting `coefficients`."),
        (lambda: dynamics.Problem.from_dataset({}), ValueError, "Argument `dataset` must hold `parameters` with a problem and `teacher_coefficient`, but does not."),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == sentence


def test_values_are_frozen_equal_by_value_and_survive_pickling():
    first = problem(initial_weights=np.ones((3, 8)))
    again = pickle.loads(pickle.dumps(first))
    assert again == first
    assert hash(again) == hash(first)
    assert first != problem()
    assert problem(seed=1) != problem(seed=2)
    tilted = dynamics.Teacher([1.0, 0.5], directions=ROWS)
    assert pickle.loads(pickle.dumps(tilted)) == tilted
    assert tilted != TEACHER
    with pytest.raises(ValueError, match="read-only"):
        first.initial_weights[0, 0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        again.teacher.coefficients[0] = 2.0


@pytest.mark.statistical
@pytest.mark.parametrize("dimension", [4, 12, 10**12])
def test_random_starts_are_uniform_on_the_sphere(dimension):
    """KS tests of squared overlaps with an axis and between neurons against Beta(½, (d−1)/2); fixed seed, 0.1 % each."""
    rng = np.random.default_rng(5)
    teacher = dynamics.Teacher([1.0, 0.5])
    first, between = [], []
    for _ in range(2000):
        C, G, n = overlaps_from_weights(random_weights(rng, 2, 2, dimension, 0.3), teacher)
        np.testing.assert_allclose(n, 0.09, rtol=1e-12)
        first.append(C[1, 0])
        between.append(G[0, 1])
    law = stats.beta(0.5, (dimension - 1) / 2)
    for sample in (first, between):
        scaled = np.array(sample) ** 2
        assert stats.kstest(scaled * dimension, lambda x: law.cdf(np.minimum(x / dimension, 1.0))).pvalue > 1e-3
        assert abs(np.mean(np.sign(sample))) < 3.3 / np.sqrt(2000)


@pytest.mark.parametrize("dimension", [3, 4, 5, 40])
def test_weights_rebuilt_from_overlaps_have_those_overlaps(dimension):
    for teacher in (dynamics.Teacher([1.0, 0.5]), dynamics.Teacher([1.0, 0.5], directions=ROWS)):
        given = problem(teacher=teacher, width=4, dimension=dimension, initial_norm=0.7).start()
        weights = weights_from_overlaps(given, teacher)
        assert weights.shape[1] <= dimension
        for found, expected in zip(overlaps_from_weights(weights, teacher), given, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize(
    "question",
    [
        dynamics.predict_emergence, dynamics.solve_decoupled, dynamics.solve_overlaps, dynamics.one_step_moments,
        descent_limit,
    ],
)  # fmt: skip
def test_theories_of_the_homogeneous_student_refuse_a_committee(question):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        question(problem(student="committee"))
    assert str(caught.value) == (
        "Argument `problem` must have the homogeneous student here, but has the committee student, whose overlaps "
        "`dynamics.solve_committee` integrates."
    )


def test_every_start_gives_reduced_weights_with_its_overlaps():
    given = problem(initial_weights=np.random.default_rng(0).standard_normal((3, 8)))
    same = problem(initial_overlaps=tuple(given.start()))
    for found, expected in zip(overlaps_from_weights(same.reduced_weights(), TEACHER), given.start(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    assert problem().reduced_weights().shape == (3, 5)
    assert problem(dimension=4).reduced_weights().shape == (3, 4)


def test_a_start_that_a_caller_changes_is_not_that_of_the_problem():
    asked = problem()
    asked.reduced_weights()[...] = 0.0
    np.testing.assert_array_equal(asked.reduced_weights(), problem().reduced_weights())
    assert asked == problem()
