"""Networks on inputs that are not isotropic: against autograd in w, isotropic inputs, and other classes."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from kernel_calls import Kernels
from network_reference import is_smooth, paired_loss, smooth_loss, space, value_of

import dynamics
from dynamics.equations.network.system import NetworkClassSystem
from dynamics.solve.__main__ import main
from dynamics.theory.components import default_network_times

SPECTRUM = dynamics.Inputs([2.0, 0.7, 0.3])
TIGHT = {"rtol": 1e-11, "atol": 1e-13, "error_estimate": False, "progress": False}
UNITS = {"coefficients": [1.0, -0.6], "directions": [[1.0, 0.0], [0.6, 0.8]], "biases": [0.0, 0.3]}


def units(link):
    return dynamics.Teacher(**UNITS, links=[link] * 2)


def problem(link="erf", teacher=None, inputs=SPECTRUM, m=3, d=3, **given):
    """A start without ties, in w: W_ij = .7 cos(1 + 2i + 3j), v_i = .8 cos(1 + 2i), b_i = .3 sin(1 + i)."""
    i = np.arange(m)
    start = {"initial_second_layer": 0.8 * np.cos(1 + 2 * i), "initial_biases": 0.3 * np.sin(1 + i)}
    student = dynamics.Student(activation=link, width=m, **{"biases": "trained", **start, **given})
    weights = 0.7 * np.cos(1 + 2 * i[:, None] + 3 * np.arange(d))
    teacher = units(link) if teacher is None else teacher
    return dynamics.Problem(student=student, teacher=teacher, dimension=d, inputs=inputs, initial_weights=weights)


def rates_by_autograd(asked, link, unit_links):
    """Return v', b', Ŵ' of gradient flow of w with decay: ½ E(f − f*)² by quadrature, differentiated in w = Σ^-½ ŵ."""
    student, start = asked.student, asked.network_start()
    root = torch.tensor(np.sqrt(asked.inputs.eigenvalues_of_axes(asked.dimension)))
    v, b, w = (torch.tensor(np.array(part), requires_grad=True) for part in (*start[:2], asked.initial_weights))
    loss = smooth_loss if is_smooth(link, unit_links) else paired_loss
    gradients = torch.autograd.grad(0.5 * loss(asked, link, unit_links, v, b, w * root), (v, b, w))
    (rate_w, rate_v, rate_b), (decay_w, decay_v) = student.learning_rates, student.decay
    moved = -rate_v * gradients[0] - decay_v * v, -rate_b * gradients[1], -rate_w * gradients[2] - decay_w * w
    return moved[0].detach().numpy(), moved[1].detach().numpy(), (moved[2] * root).detach().numpy()


FIELDS = {
    "erf, rates and decay": (problem(rates=(1, 0.5, 0.25), decay=(0.1, 0.2), scale="1/sqrt(m)"), ("erf", "erf")),
    "erf, fixed second layer": (problem(second_layer="fixed", biases="fixed"), ("erf", "erf")),
    "erf, staircase": (problem(teacher=dynamics.Teacher.polynomial("x1 + x1*x2 + x1*x2*x3")), ()),
    "relu": (problem("relu"), ("relu", "relu")),
    "tanh learns relu and he3": (problem("tanh", dynamics.Teacher([1.0, -0.4], links=["erf", "he3"])), ("erf", {3: 1 / 6**0.5, 1: -3 / 6**0.5})),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.kernels
def test_the_field_is_the_gradient_in_w(name):
    asked, unit_links = FIELDS[name]
    expected = np.concatenate([part.ravel() for part in rates_by_autograd(asked, asked.activation.name, unit_links)])
    found = Kernels(NetworkClassSystem(asked)).rhs()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert np.abs(expected).max() > 0.05


def test_degrees_of_the_loss_are_those_of_whitened_coordinates():
    """The part of degree 1 is Σ_l (E (f − f*) z_l)², by the rule of trapezoids in R³; that of degree 0 (E f − f*)²."""
    asked = problem(scale="1/sqrt(m)")
    z, measure = space(3)
    v, b, W = (torch.tensor(np.array(part)) for part in asked.network_start())
    f = asked.student.output_scale * value_of("erf")(z @ W.T + b) @ v
    for unit in asked.teacher.units(asked.teacher_link):
        f = f - unit.coefficient * value_of("erf")(z[:, :2] @ torch.tensor(unit.direction) + unit.bias)
    flow = dynamics.solve_problem(asked, save_at=dynamics.SaveAt.at([0.0, 0.1]), **TIGHT)
    expected = [float(measure @ f) ** 2, float(torch.sum(((measure * f) @ z) ** 2))]
    np.testing.assert_allclose(flow.degree_loss.values[0, :2], expected, rtol=0, atol=1e-11)
    assert min(expected) > 1e-3


def test_relu_keeps_what_homogeneous_layers_keep():
    """σ(t z) = t σ(z): |w_i|² + b_i² − v_i² is constant, with |w|² = Σ ŵ_l²/s_l; steps of order 8 keep it to 1e-10."""
    asked = problem("relu")
    kernels = Kernels(NetworkClassSystem(asked))
    v, b, W = np.split(kernels.state, [3, 6])
    dv, db, dW = np.split(kernels.rhs(), [3, 6])
    s = np.tile(asked.inputs.eigenvalues, 3)
    kept = (W * dW / s).reshape(3, 3).sum(axis=1) + b * db - v * dv
    np.testing.assert_allclose(kept, 0.0, atol=1e-13)
    assert np.abs(v * dv).min() > 1e-3


@pytest.mark.parametrize(("link", "decay"), [("relu", (0.0, 0.0)), ("erf", (0.1, 0.2))])
def test_inputs_of_eigenvalue_one_are_isotropic(link, decay):
    times = dynamics.SaveAt.at([0.0, 1.0, 5.0, 20.0])
    asked = problem(link, d=6, inputs=dynamics.Inputs([1.0], [6]), decay=decay)
    one, other = (dynamics.solve_problem(each, save_at=times, **TIGHT) for each in (asked, replace(asked, inputs=None)))
    names = ["loss", "second_layer", "bias", "squared_norm", "teacher_overlap", "student_overlap", "sensitivity"]
    for name in names:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=2e-10)
    np.testing.assert_allclose(one.emergence_time, other.emergence_time, rtol=1e-8)
    assert one.attrs["answer"] == "network"
    assert one.loss[-1] < 0.5 * one.loss[0]


@pytest.mark.parametrize("method", ["explicit", pytest.param("bdf", marks=pytest.mark.long)])
def test_classes_are_all_their_axes(method):
    """Classes of 7 and 5 axes, each reduced to the teacher's and two more, against twelve eigenvalues that differ by 1e-13."""
    classes, values = dynamics.Inputs([1.5, 0.6], [7, 5]), np.repeat([1.5, 0.6], [7, 5])
    apart = dynamics.Inputs(values * (1.0 + 1e-13 * np.arange(12)))
    teacher = dynamics.Teacher([1.0, -0.6], links=["relu", "relu"])
    asked = problem("relu", teacher, classes, m=2, d=12)
    times = dynamics.SaveAt.at([0.0, 1.0, 5.0, 20.0])
    assert asked.reduced_weights().shape == (2, 2 + 2 + 2)
    given = TIGHT | ({} if method == "explicit" else {"rtol": 1e-9, "atol": 1e-11})
    found, whole = (
        dynamics.solve_problem(each, save_at=times, method=method, **given)
        for each in (asked, replace(asked, inputs=apart))
    )
    allowed = 1e-9 if method == "explicit" else 1e-6
    for name in ("loss", "second_layer", "bias", "squared_norm", "student_overlap"):
        np.testing.assert_allclose(found[name], whole[name], rtol=0, atol=allowed)
    assert found.attrs["method"] == method
    assert found.loss[-1] < 0.5 * found.loss[0]


def test_slow_axes_are_learned_late():
    """One neuron of he1 with fixed v = 1 on a teacher x_2 of eigenvalue s: ŵ_2 = 1 + (ŵ_2(0) − 1) exp(−s t)."""
    for s in (1.0, 0.25):
        student = dynamics.Student(activation="he1", width=1, second_layer="fixed")
        weights = np.array([[0.3, 0.1]]) / np.sqrt([1.0, s])
        asked = dynamics.Problem(
            student=student, teacher=dynamics.Teacher([1.0], directions=[[0.0, 1.0]]), dimension=2,
            inputs=dynamics.Inputs([1.0, s]), initial_weights=weights, teacher_activation="he1",
        )  # fmt: skip
        flow = dynamics.solve_problem(asked, save_at=dynamics.SaveAt.at([0.0, 2.0]), **TIGHT)
        found = flow.teacher_overlap.values[:, 0] * np.sqrt(flow.squared_norm.values)
        expected = [0.3 * np.exp(-2.0), 1.0 - 0.9 * np.exp(-2.0 * s)]
        np.testing.assert_allclose(found[1], expected, rtol=0, atol=1e-10)


@pytest.mark.slow_to_compile
def test_the_diagonal_of_a_linear_network_is_exact():
    """One neuron of he1 with v = 0.8: its Jacobian is diagonal, −s_l v² − κ_w; by differences of the field."""
    student = dynamics.Student(
        activation="he1", width=1, second_layer="fixed", initial_second_layer=[0.8], decay=(0.3, 0)
    )
    asked = dynamics.Problem(
        student=student, teacher=dynamics.Teacher([1.0]), dimension=3, inputs=SPECTRUM,
        initial_weights=[[0.3, 0.1, 0.2]],
    )  # fmt: skip
    kernels = Kernels(NetworkClassSystem(asked), "bdf")
    slopes = [kernels.rhs(kernels.state + e) - kernels.rhs(kernels.state - e) for e in 0.5 * np.eye(5)[2:]]
    expected = -SPECTRUM.eigenvalues * 0.64 - 0.3
    np.testing.assert_allclose(np.array(slopes)[:, 2:], np.diag(expected), rtol=0, atol=1e-13)
    np.testing.assert_allclose(kernels.diagonal()[2:], expected, rtol=0, atol=1e-14)
    square = asked.reduced_weights()[0] ** 2
    np.testing.assert_allclose(kernels.events(), square[0] / square.sum() - 0.5, rtol=1e-13)


def test_a_step_of_descent_is_one_in_w():
    asked, eta = problem(decay=(0.1, 0.2)), 0.3
    dv, db, dW = rates_by_autograd(asked, "erf", ("erf", "erf"))
    v, b, W = asked.network_start()
    stepped = dynamics.solve_problem(
        asked, save_at=dynamics.SaveAt.at([0.0, eta]), method="gradient-descent", learning_rate=eta, progress=False
    )
    moved = W + eta * dW
    length = np.sum(moved**2, axis=1)
    np.testing.assert_allclose(stepped.second_layer[1], v + eta * dv, rtol=0, atol=1e-11)
    np.testing.assert_allclose(stepped.bias[1], b + eta * db, rtol=0, atol=1e-11)
    np.testing.assert_allclose(stepped.squared_norm[1], length, rtol=0, atol=1e-11)
    np.testing.assert_allclose(stepped.teacher_overlap[1], moved[:, :2] / np.sqrt(length)[:, None], rtol=0, atol=1e-11)


def test_pairs_start_alike_and_random_neurons_have_whitened_length_one():
    student = dynamics.Student(activation="relu", width=6, initial_second_layer="pairs", biases="trained")
    for inputs in (dynamics.Inputs([2.0, 0.5], [10, 30]), dynamics.Inputs.power_law(1.0)):
        asked = dynamics.Problem(student=student, teacher=units("relu"), dimension=40, inputs=inputs, seed=1)
        weights = asked.reduced_weights()
        np.testing.assert_array_equal(weights[:3], weights[3:])
        np.testing.assert_allclose(np.sum(weights**2, axis=1), 1.0, rtol=1e-12)
        flow = dynamics.solve_problem(asked, save_at=dynamics.SaveAt.at([0.0, 0.1]), progress=False)
        assert flow.loss[0] == pytest.approx(flow.attrs["teacher_loss"], abs=1e-12)


def test_default_times_wait_for_the_slowest_axis():
    for text, factor in (("x1", 1.0), ("x2", 4.0)):
        teacher = dynamics.Teacher.polynomial(text)
        ends = [
            float(default_network_times(problem(teacher=teacher, inputs=inputs, d=4)).times[-1])
            for inputs in (dynamics.Inputs([1.0, 0.25], [1, 3]), dynamics.Inputs([1.0], [4]))
        ]
        assert ends[0] == pytest.approx(factor * ends[1], rel=0.5)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: problem(first_layer="sphere"), f"Argument `inputs` must be None for neurons on the sphere, but is {SPECTRUM!r}."),
        (lambda: replace(problem(), initial_weights=np.ones((3, 2))), "Argument `initial_weights` must have shape (width, dimension) = (3, 3), but has shape (3, 2)."),
        (
            lambda: dynamics.solve_problem(problem(), learning_rate=0.01),
            f"Argument `problem` must have isotropic inputs for the mean step of SGD of a Student, but has {SPECTRUM!r}; "
            "`sgd_check.simulate` takes such steps.",
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(act, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        act()


def test_neurons_apart_in_one_class_alone_are_told_apart():
    """Two neurons have equal M and length; their parts beyond the teacher lie in two classes."""
    weights = np.array([[0.3, 0.6, 0.0], [0.3, 0.0, 0.6]])
    student = dynamics.Student(activation="relu", width=2, initial_second_layer=[1.0, 1.0])
    given = {"student": student, "teacher": dynamics.Teacher([1.0]), "dimension": 3}
    inputs = dynamics.Inputs([1.0, 4.0, 0.25])
    asked = dynamics.Problem(**given, inputs=inputs, initial_weights=weights / np.sqrt(inputs.eigenvalues))
    flow = dynamics.solve_problem(asked, save_at=dynamics.SaveAt.at([0.0, 1.0]), **TIGHT)
    assert flow.squared_norm[0, 0] == pytest.approx(float(flow.squared_norm[0, 1]))
    assert abs(float(flow.squared_norm[1, 0] - flow.squared_norm[1, 1])) > 0.01
    with pytest.raises(ValueError, match="neurons 0 and 1 start alike"):
        dynamics.solve_problem(dynamics.Problem(**given, initial_weights=weights))


def test_a_command_and_a_sweep_take_a_spectrum(here, capsys):
    words = [
        "--model", "network", "--activation", "relu", "--width", "4", "--dimension", "12", "--spectrum", "0.5",
        "--biases", "trained", "--coefficients", "1,-0.6", "--t-max", "5", "--quiet", "--no-plot",
    ]  # fmt: skip
    assert main([*words, "--output", "network.nc"]) == 0
    stored = dynamics.load(here / "network.nc")
    asked = dynamics.Problem.from_dataset(stored)
    assert (asked.inputs, asked.kind) == (dynamics.Inputs.power_law(0.5), "network")
    assert main([*words[:-2], "--dry-run"]) == 0
    assert f"state {4 * 12 + 2 * 4} numbers" in capsys.readouterr().out
    assert main([*words, "--learning-rate", "0.01"]) == 2
    assert "must have isotropic inputs for the mean step of SGD of a Student" in capsys.readouterr().err
    options = {"save_at": dynamics.SaveAt.at([0.0, 5.0])}
    found = dynamics.sweep(
        replace(asked, inputs=None), {"alpha": [0.25, 0.5]}, study="network", options=options, workers=0, progress=False
    )
    assert dynamics.Problem.from_dataset(found.sel(alpha=0.5)) == asked
    assert float(found.loss[1, -1]) == pytest.approx(float(stored.loss[-1]), rel=1e-6)
