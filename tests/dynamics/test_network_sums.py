"""Sums over all pairs of neurons, several at once, against the same sums pair by pair, and their functions by mpmath."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from dynamics import Problem, Student, Teacher
from dynamics.compiler.compilation import Piece, kernel_pieces, load
from dynamics.equations.network import system as network
from dynamics.equations.network.system import MEANS, THEORY, NetworkSystem

WIDTH = 21
CALLS = """
from dynamics.compiler.compilation import entry

@entry("void(f8[::1], f8[::1], i8[::1], f8[::1])")
def sum_pairs(y, parameters, sizes, work):
    m = sizes[WIDTH]
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    write_gram(y, sizes, matrix(work, 0, m + sizes[AXES], m + sizes[AXES]))
    for i in range(m):
        write_row(0, work[i * (m + sizes[AXES]) + i], y[m + i], parameters[sizes[NUMBERS_AT]:], rows[i])
    add_neuron_means(y, parameters, sizes, work)
"""
#: The means of two neurons from those of a pair, in both orders.
MUTUAL = """
from dynamics.compiler.compilation import kernel

@kernel
def mutual_values(c, row_i, row_j, numbers):
    value, slope_i, both, bend_i = list_pair(c, row_i, row_j, numbers)
    _, slope_j, _, bend_j = list_pair(c, row_j, row_i, numbers)
    return value, slope_i, slope_j, both, bend_i, bend_j
"""
CUBIC = "z + 0.3*z**3"
PICK = """
from dynamics.compiler.compilation import entry

@entry("void(f8[::1], f8[::1], f8[::1])")
def pick(u, bell, odd):
    for n in range(len(u)):
        bell[n], odd[n] = bell_and_odd(u[n])
"""


def network_of(link, biases, rng, second_layer="trained"):
    """Return a problem whose neurons have lengths from 1e-3 to 5, some alike in direction, one bias of 9 lengths."""
    W = rng.normal(size=(WIDTH, 12))
    W *= 10.0 ** rng.uniform(-3.0, 0.7, size=(WIDTH, 1)) / np.linalg.norm(W, axis=1, keepdims=True)
    W[1], W[2], W[3] = 1.7 * W[0], -0.4 * W[0], W[0] + 1e-5 * rng.normal(size=12)
    W[5] = W[4] + 0.9 * np.linalg.norm(W[4]) * rng.normal(size=12) / 3.0
    b = rng.normal(size=WIDTH)
    b[0], b[1], b[6] = 0.5, 0.5 * 1.7, 9.0 * np.linalg.norm(W[6])
    student = Student(activation=link, width=WIDTH, biases=biases, initial_biases=b, second_layer=second_layer)
    return Problem(student=student, teacher=Teacher.polynomial("x1 + x1*x2"), dimension=12, initial_weights=W)


def sums(problem, kernels, *, theory):
    """Return Ψ, Ψ1, Ψ2 (3, m) of the neurons and A₀ (m, m) by the kernels of a module."""
    system = NetworkSystem(problem)
    (own, *_), here = own_kernels(problem), "dynamics.equations.network"
    pieces = (
        *system.pieces[: system.pieces.index(own)],
        *kernels,
        *kernel_pieces(f"{here}.polynomial_teacher_kernels", f"{here}.network_kernels"),
        Piece("calls of the test", CALLS),
    )
    sizes, work = system.sizes.copy(), np.zeros(system.work_size)
    sizes[THEORY] = theory
    y = system.initial_state
    load(pieces).namespace.sum_pairs(y, system.parameters, sizes, work)
    n, units, m = WIDTH + problem.teacher.span, 0, WIDTH
    at = n * n + (m + units) * system.pairs.row_size + m * (problem.teacher.span + 3)
    return work[at : at + 3 * m].reshape(3, m), work[at + 3 * m : at + 3 * m + m * m].reshape(m, m)


def own_kernels(problem):
    """The source of the sums that the system takes."""
    link = NetworkSystem(problem).pairs.links[0]
    return network._kernels_of_neurons(link, biased=problem.student.has_biases)


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("link", ["erf", "relu", CUBIC])
def test_all_pairs_at_once_are_the_pairs_one_by_one(link):
    """To a thousand roundings of the largest sum."""
    problem = network_of(link, "trained", np.random.default_rng(3))
    one_by_one = kernel_pieces("dynamics.equations.network.neuron_kernels")
    if link == CUBIC:
        one_by_one = (Piece("mutual_values of the test", MUTUAL), *one_by_one)
    for theory in (0, MEANS):
        pulls, slopes = sums(problem, own_kernels(problem), theory=theory)
        expected, A = sums(problem, one_by_one, theory=theory)
        np.testing.assert_allclose(pulls, expected, rtol=0.0, atol=1e-13 * np.abs(expected).max())
        np.testing.assert_allclose(slopes, A, rtol=0.0, atol=1e-13 * np.abs(A).max())


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("link", ["erf", CUBIC])
def test_with_fixed_layers_what_moves_nothing_is_left_out(link):
    """K and K1 are zero then, K2 and K12 as ever."""
    problem = network_of(link, "fixed", np.random.default_rng(4), second_layer="fixed")
    pulls, slopes = sums(problem, own_kernels(problem), theory=0)
    whole, A = sums(problem, own_kernels(problem), theory=MEANS)
    assert not pulls[0].any()
    np.testing.assert_array_equal(pulls[2], whole[2])
    np.testing.assert_array_equal(slopes, A)


def test_the_density_and_the_error_function_are_right_to_rounding():
    u = np.concatenate([[0.0, -0.0], np.geomspace(1e-9, 60.0, 400), -np.geomspace(1e-9, 60.0, 400), [np.inf, -np.inf]])
    bell, odd = np.empty_like(u), np.empty_like(u)
    parts = ("normal", "power_sum", "threshold", "many_normals")
    pieces = kernel_pieces(*(f"dynamics.equations.network.{part}_kernels" for part in parts))
    load((*pieces, Piece("calls of the test", PICK))).namespace.pick(u, bell, odd)
    expected = [math.copysign(float(mp.erf(mp.mpf(abs(x)) / mp.sqrt(2))), x) for x in u]
    np.testing.assert_allclose(odd, expected, rtol=0.0, atol=5e-16)
    np.testing.assert_allclose(bell, [float(mp.exp(-(mp.mpf(x) ** 2) / 2)) for x in u], rtol=0.0, atol=5e-16)
    assert (odd[0], odd[1], bell[0]) == (0.0, 0.0, 1.0)
