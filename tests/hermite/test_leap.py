"""Leaps of functions of several directions: flags of the literature, rotations, exact cases, and refusals."""

import numpy as np
import pytest
from scipy.stats import special_ortho_group

import hermite
from dynamics import Teacher


def span(*rows):
    """The projector on the span of rows, and of those of a flag: what two bases of one space share."""
    basis = np.linalg.qr(np.array(rows, dtype=float).T)[0]
    return basis @ basis.T


def check_flag(found, expected, atol=1e-6):
    assert [step.degree for step in found.flag] == [degree for degree, _ in expected]
    for step, (_, rows) in zip(found.flag, expected, strict=True):
        np.testing.assert_allclose(step.directions.T @ step.directions, span(*rows), atol=atol)
        assert np.allclose(step.directions @ step.directions.T, np.eye(len(step.directions)), atol=1e-9)
    assert found.leap == max(degree for degree, _ in expected)


X, Y, Z = np.eye(3)
#: Function, flag with generative exponents, of arXiv:2506.05500 recomputed.
FLAGS = [
    ("sign(z1*z2*z3)", [(3, [X, Y, Z])]),
    ("z1*z2*z3", [(2, [X, Y, Z])]),
    ("sign(z1) + sign(z1*z2*z3)", [(1, [X]), (2, [Y, Z])]),
    ("heaviside(z1)*heaviside(z2)", [(1, [X[:2] + Y[:2]]), (2, [X[:2] - Y[:2]])]),
    ("sign(z1) + sign(z1*z2) + sign(z1*z2*z3)", [(1, [X, Y + Z]), (1, [Y - Z])]),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("function", "flag"), FLAGS, ids=[case[0] for case in FLAGS])
def test_accepted_flags(function, flag):
    found = hermite.leap(function)
    check_flag(found, flag)
    assert found.complete
    assert found.kind == "generative"


TURNED = [
    (lambda z: np.sign(z[0]) + np.sign(z[0] * z[1] * z[2]), [(1, [X]), (2, [Y, Z])]),
    (lambda z: np.sign(z[0]) + np.sign(z[0] * z[1]) + np.sign(z[0] * z[1] * z[2]), [(1, [X, Y + Z]), (1, [Y - Z])]),
    # Continuous labels: once the directions are known up to an error, the error must not be found.
    (lambda z: z[0] ** 2 * np.exp(-(z[0] ** 2)), [(4, [X])]),
    (lambda z: z[0] + z[1] ** 3 - 3 * z[1], [(1, [X, Y])]),
    (lambda z: np.maximum(z[0], 0) + 2 * np.maximum(-z[1], 0) + np.maximum(z[2], 0), [(1, [X + Z, Y]), (2, [X - Z])]),
]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(("function", "flag"), TURNED)
def test_a_rotation_of_the_inputs_turns_the_flag(function, flag, seed):
    turn = special_ortho_group.rvs(3, random_state=seed)
    found = hermite.leap(lambda z: function((z @ turn.T).T), axes=3)
    check_flag(found, [(degree, [row @ turn for row in rows]) for degree, rows in flag], atol=0.01)
    assert found.complete


@pytest.mark.parametrize(
    "polynomial",
    ["x1 + x1*x2*x3", "x1*x2*x3", "x1 + x1*x2 + x1*x2*x3", "h2(x1) + x1*x2", "h3(x1) + h2(x2)", "x1*x2 + x1*x3"],
)
def test_information_leaps_of_polynomials_are_those_of_the_teacher(polynomial):
    """`Teacher.leap` counts degrees on coordinates; these have no direction that coordinates would hide."""
    assert hermite.leap(polynomial, kind="information").leap == Teacher.polynomial(polynomial).leap


def test_information_leaps_of_polynomials_are_exact_in_any_basis():
    turn = special_ortho_group.rvs(3, random_state=4)

    def turned(z1, z2, z3):
        x, y, z = turn @ np.array([z1, z2, z3])
        return x + x * y * z + 0.01 * (y**2 - 1) * z

    found = hermite.leap(turned, kind="information")
    check_flag(found, [(1, [turn[0]]), (2, [turn[1], turn[2]])], atol=1e-9)
    # Var = 1 + 1 + 2e-4; E|ζ_1|² = 1/Var, and ζ_2 given x is x y z alone.
    assert [step.strength for step in found.flag] == pytest.approx([1 / 2.0002, 1 / 2.0002], rel=1e-9)


def test_directions_hidden_from_coordinates_are_found():
    """A teacher of h_2((z1 + z2)/√2): no coordinate alone is right, the eigenvector is."""
    found = hermite.leap("h2((z1 + z2)/sqrt(2))", kind="information")
    check_flag(found, [(2, [[1, 1]])], atol=1e-9)
    assert repr(found) == "information leap 2: 2 {z1 + z2}"


def test_one_direction_is_the_exponent_of_the_link():
    for link in ("he3", {4: 1}, hermite.expand("sin"), "x1^2 + x1"):
        found = hermite.leap(link)
        assert (found.leap, found.flag[0].strength) == hermite.generative_exponent(
            "z^2 + z" if link == "x1^2 + x1" else link
        )
        np.testing.assert_array_equal(found.flag[0].directions, [[1.0]])
    assert hermite.leap(np.tanh, axes=1, kind="information").leap == 1
    assert hermite.leap(lambda z: z[..., 0] ** 2, axes=1).leap == 2
    assert hermite.leap("he3", kind="information").leap == 3


def test_every_way_to_give_a_function():
    expected = [(1, [[1, 0]]), (2, [[0, 1]])]
    for function, axes in (
        ("z1 + z2^2", None),
        ("x1 + x2^2", 2),
        (lambda z1, z2: z1 + z2**2, None),
        (lambda *z: z[0] + z[1] ** 2, 2),
        (lambda z: z[..., 0] + z[..., 1] ** 2, 2),
        (lambda z: z[0] + z[1] ** 2, 2),
        (lambda z, power=2: z[:, 0] + z[:, 1] ** power, 2),
    ):
        check_flag(hermite.leap(function, axes, "information"), expected, atol=1e-9)
    assert hermite.leap(np.multiply, kind="information").leap == 2


def test_what_degree_6_does_not_see_is_told():
    found = hermite.leap("sin(20*z1) + sign(z2)", kind="information")
    assert repr(found) == "information leap 1: 1 {z2}, and more beyond"
    assert not found.complete
    with pytest.raises(
        ValueError, match=r"^Argument `f` must have a leap of at most 6, but no λ_k² of 'sin\(20\*z1\)\*z2'"
    ):
        hermite.leap("sin(20*z1)*z2", kind="information")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("z1", 4), "Argument `axes` must be from 1 to 3, but is 4."),
        (("z1", 2.5), "Argument `axes` must be an integer from 1 to 3, but is 2.5."),
        (("z1", True), "Argument `axes` must be an integer from 1 to 3, but is True."),
        (("z1*z3", 2), "Argument `axes` must be at least 3 for 'z1*z3', which names z3, but is 2."),
        (("3", 2), "Argument `f` must contain one of the variables z1, z2 and z3, but is '3'."),
        (("z1*z2", None, "both"), "Argument `kind` must be one of 'generative', 'information', but is 'both'."),
        (("z1 + z",), "Argument `x` must be a formula, but contains the name 'z', which is not z1, z2, z3, pi or e."),
        (("z1*0 + z2*0",), "Argument `f` must contain one of the variables z1, z2 and z3, but is 'z1*0 + z2*0'."),
        ((3, 2), "Argument `f` must be a formula in z1, z2 and z3, a vectorised callable or, for one direction, what"),
        ((np.tanh,), "Argument `axes` must be given for a callable of one array, but is not for 'tanh'."),
        ((lambda a, b, c, d: a,), "Argument `f` must be a function of at most 3 directions, but '<lambda>' has 4."),
        ((lambda a, b: 0 * a,), "Argument `f` must have a leap of at most 6, but '<lambda>' is constant."),
        ((lambda a, b: 1j * a,), "Argument `f` must be a vectorised function f(z1, …) of 2 arrays, or f(z) of one of"),
        ((lambda z: z, 2), "Argument `f` must be a vectorised function f(z1, …) of 2 arrays, or f(z) of one of"),
        (("log(z1) + z2",), "Argument `f` must be a vectorised function f(z1, …) of 2 arrays, or f(z) of one of"),
        ((lambda a, b: a.nothing,), "Argument `f` must be a vectorised function f(z1, …) of 2 arrays, or f(z) of one of"),
        (("__import__('os').system(z1)",), "Argument `x` must be a formula, but contains"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(arguments, sentence):
    with pytest.raises((TypeError, ValueError)) as caught:
        hermite.leap(*arguments)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
