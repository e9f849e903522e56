"""Questions about every flow: overlaps, inputs, committees, neurons on the sphere, networks, particles."""

import dataclasses
from functools import partial

import numpy as np

import dynamics
import dynamics.tokens
import hermite
from dynamics import Inputs, Problem, SaveAt, Student, Teacher

from .questions import AT, HE3, ONE, ROUNDING, SHORT, SKEW, TWO, Case, problem


def solve(function, asked, needs=None, bound=ROUNDING, **settings):
    return Case(partial(function, asked, **{"save_at": AT, "progress": False, **settings}), bound, needs)


overlaps, network = partial(solve, dynamics.solve_overlaps), partial(solve, dynamics.solve_network)
committee, spherical = partial(solve, dynamics.solve_committee), partial(solve, dynamics.solve_spherical)
correlation, mean_field = partial(solve, dynamics.solve_correlation), partial(solve, dynamics.solve_mean_field)


SIXTEEN = problem(teacher=Teacher.power_law(16, beta=1.0), width=16, dimension=256, initial_norm=0.03)
#: Tolerances per step of the referees. Their errors add up over the steps, to ten times that and more.
SCIPY = {"RK45": 1e-9, "RK23": 1e-7, "DOP853": 1e-9, "Radau": 1e-8, "BDF": 1e-8, "LSODA": 1e-9}
START = ([[0.3, 0.1], [-0.2, 0.4]], [[1.0, 0.1], [0.1, 1.0]], [0.05, 0.1])
#: Past the size of the compiled loop of small flows; and past that from which products are in single precision.
LARGE = problem(teacher=Teacher.power_law(40, beta=1.0), width=160, dimension=256, initial_norm=0.05)
VERY_LARGE = problem(teacher=Teacher.power_law(500, beta=1.0), width=500, dimension=1000, initial_norm=0.05)

OVERLAPS = {
    **{f"overlaps-{method}": overlaps(problem(), method=method) for method in ("explicit", "stiff", "bdf", "auto")},
    "overlaps-sundials": overlaps(problem(), method="sundials", needs="sksundae"),
    **{f"overlaps-scipy-{name}": overlaps(problem(), method=f"scipy:{name}", rtol=rtol, bound=1e-7) for name, rtol in SCIPY.items()},
    "overlaps-gradient-descent": overlaps(problem(), method="gradient-descent", learning_rate=0.02),
    "overlaps-default-times": overlaps(problem(width=2), save_at=None, keep="summary", rtol=1e-6),
    "overlaps-loose-stiff": overlaps(problem(), method="stiff", rtol=1e-5, keep="summary"),
    "overlaps-sixteen-explicit": overlaps(SIXTEEN, method="explicit", rtol=1e-6, keep="summary"),
    "overlaps-sixteen-stiff": overlaps(SIXTEEN, method="stiff", rtol=1e-6, keep="summary", save_at=SaveAt.geometric(1.0, 3e4, 8)),
    "overlaps-sixteen-bdf": overlaps(SIXTEEN, method="bdf", rtol=1e-6, keep="summary", save_at=SaveAt.geometric(1.0, 3e3, 8)),
    "overlaps-sixteen-descent": overlaps(
        SIXTEEN, method="gradient-descent", learning_rate=0.05, keep="summary", save_at=SaveAt.geometric(1.0, 3e4, 8)
    ),
    "overlaps-large-stiff": overlaps(LARGE, method="stiff", rtol=1e-5, keep="summary", save_at=SaveAt.geometric(1.0, 1000.0, 4)),
    "overlaps-large-explicit": overlaps(LARGE, method="explicit", rtol=1e-5, keep="summary", save_at=SaveAt.geometric(1.0, 10.0, 3)),
    "overlaps-large-bdf": overlaps(LARGE, method="bdf", rtol=1e-4, keep="summary", save_at=SaveAt.geometric(1.0, 10.0, 3), error_estimate=False),
    "overlaps-large-descent": overlaps(LARGE, method="gradient-descent", learning_rate=0.1, keep="summary", save_at=SaveAt.geometric(1.0, 50.0, 3)),
    "overlaps-single-precision": overlaps(
        VERY_LARGE, method="stiff", rtol=1e-4, keep="summary", save_at=SaveAt.at([0.05, 0.1]), error_estimate=False
    ),
    "overlaps-device-cpu": overlaps(problem(), method="stiff", device="cpu", rtol=1e-6, needs="torch"),
    "overlaps-h3": overlaps(HE3, method="stiff"),
    "overlaps-odd-and-even": overlaps(problem(activation={3: 0.8, 4: 0.6}), method="bdf"),
    "overlaps-h1": overlaps(problem(activation="he1 + 0.5*he3"), method="explicit"),
    "overlaps-h2": overlaps(problem(activation={2: 0.5, 4: 1.0})),
    "overlaps-constant": overlaps(problem(activation={0: 0.3, 3: 1.0}), method="stiff"),
    "overlaps-relu": overlaps(problem(activation="relu", order=12)),
    "overlaps-tanh": overlaps(problem(activation="tanh", order=9), method="bdf", rtol=1e-6),
    "overlaps-callable": overlaps(problem(activation=np.arctan, order=7), rtol=1e-6),
    "overlaps-skew": overlaps(problem(teacher=SKEW), method="bdf"),
    "overlaps-all-degrees": overlaps(problem(activation={2: 0.5, 4: 1.0}, learned_definition="all degrees")),
    "overlaps-given-start": overlaps(problem(width=2, initial_overlaps=START), method="explicit"),
    "overlaps-given-weights": overlaps(problem(width=2, dimension=3, initial_weights=[[0.3, 0.1, 0.2], [-0.1, 0.2, 0.3]]), method="stiff"),
    "overlaps-same-neurons": overlaps(
        problem(width=2, initial_overlaps=([[0.3, 0.1], [0.3, 0.1]], np.ones((2, 2)), [0.05, 0.05])), method="explicit"
    ),
    "overlaps-geometric-teacher": overlaps(problem(teacher=Teacher.geometric(3, 0.5)), method="stiff"),
    "overlaps-steady": overlaps(
        problem(width=2, initial_overlaps=START),
        method="explicit",
        save_at=SaveAt.geometric(1.0, 1e4, 5),
        trackers=[dynamics.SteadyState(1e-4)],
        # A state that hardly moves is at a given speed at a time that is known less well.
        bound=1e-6,
    ),
    "finite-step": overlaps(problem(), learning_rate=1e-4),
    "finite-step-batch": overlaps(problem(activation={3: 0.8, 4: 0.6}, label_noise=0.3), learning_rate=1e-3, batch_size=4, method="bdf"),
    "finite-step-infinite-d": overlaps(HE3, learning_rate=1e-3, step_theory="infinite-d", method="explicit"),
}  # fmt: skip


CLASSES = problem(teacher=Teacher([0.8, 0.5]), width=3, dimension=40, inputs=Inputs([2.0, 0.5], [4, 36]))
SPECTRUM = problem(width=3, dimension=16, inputs=Inputs.power_law(0.25))
OBLIQUE = problem(
    teacher=Teacher([0.8, 0.5], directions=[[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]]),
    activation={3: 0.8, 4: 0.6},
    width=3,
    dimension=20,
    inputs=Inputs([3.0, 0.5], [2, 18]),
)
INPUTS = {
    "classes-explicit": overlaps(CLASSES, method="explicit"),
    "classes-bdf": overlaps(CLASSES, method="bdf"),
    "classes-spectrum": overlaps(SPECTRUM),
    "classes-oblique": overlaps(OBLIQUE, rtol=1e-6),
    "classes-huge": overlaps(dataclasses.replace(CLASSES, dimension=10**9, inputs=Inputs([2.0, 0.5], [10, 10**9 - 10])), rtol=1e-6),
    "classes-descent": overlaps(CLASSES, method="gradient-descent", learning_rate=0.02),
    "classes-finite-step": overlaps(CLASSES, learning_rate=1e-4, rtol=1e-6),
    "classes-finite-step-infinite-d": overlaps(CLASSES, learning_rate=1e-4, step_theory="infinite-d", batch_size=2),
    "classes-prediction": Case(partial(dynamics.predict_emergence, CLASSES, save_at=AT), 1e-8),
}  # fmt: skip


FORMS = {
    "decoupled": Case(partial(dynamics.solve_decoupled, problem(), save_at=AT), 1e-8),
    "decoupled-mixed": Case(partial(dynamics.solve_decoupled, problem(activation={3: 0.8, 5: 0.6}), save_at=AT), 1e-8),
    "prediction": Case(partial(dynamics.predict_emergence, problem(), save_at=AT), 1e-8),
    "prediction-mixed": Case(partial(dynamics.predict_emergence, problem(activation={3: 0.8, 5: 0.6}), save_at=AT), 1e-8),
    "prediction-many": Case(partial(dynamics.predict_emergence, SIXTEEN, save_at=SHORT), 1e-8),
    "prediction-linear": Case(partial(dynamics.predict_emergence, problem(activation="he2"), save_at=AT), 1e-8),
}  # fmt: skip


ERF = problem(activation="erf", teacher=Teacher([1.0, 1.0]), width=3, student="committee", initial_norm=0.5)
POLYNOMIAL = problem(activation={2: 0.4, 3: 1.0}, width=3, student="committee", initial_norm=0.3)
SYMMETRIC = problem(
    activation="erf",
    teacher=Teacher([1.0, 1.0]),
    width=2,
    student="committee",
    initial_overlaps=([[0.3, 0.2], [0.2, 0.3]], [[1.0, 0.5], [0.5, 1.0]], [0.5, 0.5]),
)
SPHERE = problem(student="spherical", width=3)
NEURONS = dynamics.coupled_problem(SPHERE, width=4, seed=5)
COMMITTEE = {
    "committee": committee(problem(student="committee")),
    "committee-bdf": committee(problem(student="committee"), method="bdf", rtol=1e-6),
    "committee-erf": committee(ERF),
    "committee-erf-bdf": committee(ERF, method="bdf", rtol=1e-6),
    "committee-erf-symmetric": committee(SYMMETRIC, method="explicit"),
    "committee-polynomial": committee(POLYNOMIAL, method="explicit"),
    "committee-series": committee(dataclasses.replace(ERF, activation=hermite.expand("relu", order=6).truncated(), order=None), rtol=1e-6),
    "committee-skew": committee(dataclasses.replace(ERF, teacher=SKEW), rtol=1e-6),
    "committee-step": committee(ERF, learning_rate=0.02, rtol=1e-6),
    "committee-polynomial-step": committee(POLYNOMIAL, learning_rate=1e-3, batch_size=2),
    "committee-scipy": committee(ERF, method="scipy:DOP853", rtol=1e-6),
    "committee-sundials": committee(ERF, method="sundials", rtol=1e-6, needs="sksundae"),
}  # fmt: skip
SPHERICAL = {
    "spherical": spherical(NEURONS),
    "spherical-h3-skew": spherical(problem(activation="he3", teacher=SKEW, student="spherical")),
    "spherical-relu": spherical(problem(activation="relu", order=8, student="spherical"), rtol=1e-6),
    "spherical-teacher-link": spherical(problem(activation={4: 1.0, 6: 1.0}, teacher_activation={4: 0.6, 6: 0.3}, student="spherical")),
    "spherical-step": spherical(NEURONS, learning_rate=1e-3),
    "spherical-step-batch": spherical(problem(activation={3: 0.8, 4: 0.6}, student="spherical", label_noise=0.2), learning_rate=1e-2, batch_size=3),
    "spherical-scipy": spherical(NEURONS, method="scipy:LSODA", rtol=1e-6),
}  # fmt: skip


def one_neuron(link="he3", smoothing=0.0, overlap=0.2, **given):
    return Problem(
        activation=link,
        teacher=ONE,
        width=1,
        dimension=64,
        student="spherical",
        objective="correlation",
        smoothing=smoothing,
        initial_overlaps=([[overlap]], [[1.0]], [1.0]),
        **given,
    )


CORRELATION = {
    "correlation": correlation(one_neuron()),
    "correlation-smoothed": correlation(one_neuron(smoothing=2.0, overlap=-0.125)),
    "correlation-smoothed-bdf": correlation(one_neuron({3: 0.8, 4: 0.6}, 1.0), method="bdf", rtol=1e-6),
    "correlation-relu": correlation(one_neuron("relu", order=8), rtol=1e-6),
    "correlation-step": correlation(one_neuron(smoothing=1.0), learning_rate=1e-3),
    "correlation-step-noise": correlation(one_neuron(label_noise=0.5), learning_rate=1e-3, batch_size=4),
    "correlation-prediction": Case(partial(dynamics.predict_emergence, one_neuron(smoothing=2.0)), 1e-8),
}


STAIRCASE = Teacher.polynomial("x1 + x1*x2 + x1*x2*x3")
UNITS = Teacher([1.0, -0.6], directions=[[1.0, 0.0], [0.6, 0.8]], links=["erf", "relu"], biases=[0.2, 0.0])


def net(link, teacher=STAIRCASE, width=4, d=12, seed=1, **given):
    student = Student(activation=link, width=width, **{"scale": "1/m", "rates": "mean-field", **given})
    return Problem(student=student, teacher=teacher, dimension=d, seed=seed)


NETWORKS = {
    "network-relu": network(net("relu"), rtol=1e-6),
    "network-relu-biases": network(net("relu", biases="trained"), rtol=1e-6),
    "network-relu-units": network(net("relu", UNITS, second_layer="fixed"), rtol=1e-6),
    "network-erf": network(net("erf", UNITS)),
    "network-erf-sphere": network(net("erf", second_layer="fixed", biases="fixed", first_layer="sphere", rates=(4.0, 0.0, 0.0))),
    "network-erf-biases-bdf": network(net("erf", UNITS, biases="trained"), method="bdf", rtol=1e-6),
    "network-erf-decay": network(net("erf", biases="trained", decay=(0.01, 0.02)), method="explicit"),
    "network-polynomial": network(net("z + 0.3*h2(z) + 0.2*h3(z)", biases="trained")),
    "network-polynomial-pairs": network(net("he2 + he3", initial_second_layer="pairs"), method="explicit"),
    "network-threshold-teacher": network(net("erf", Teacher([1.0, 0.5], links=["sign", "step"], biases=[0.0, 0.3])), rtol=1e-6),
    "network-leaky-relu": network(net("0.7*relu(z) + 0.3*z", UNITS), rtol=1e-6),
    "network-tanh": network(net("tanh", width=3), rtol=1e-5, save_at=SHORT),
    "network-tanh-fixed-biases": network(net("tanh", width=3, biases="fixed"), rtol=1e-5, save_at=SHORT),
    "network-descent": network(net("erf", UNITS), method="gradient-descent", learning_rate=0.05),
    "network-step": network(net("he2 + he3", Teacher([0.8, -0.5], links=["he2", "he3"])), learning_rate=1e-3),
    "network-step-erf": network(net("erf", Teacher([1.0, -0.6], links=["erf", "erf"])), learning_rate=1e-2, rtol=1e-6),
    "network-scipy": network(net("erf", UNITS), method="scipy:DOP853", rtol=1e-6),
    "network-front-door": Case(partial(dynamics.solve_problem, net("relu", width=6, biases="fixed"), rtol=1e-5, save_at=SHORT, progress=False)),
}  # fmt: skip


SPHERE_ONE = problem(teacher=ONE, width=1, student="spherical")
QUADRATIC = Problem(activation="he2", teacher=TWO, width=4, dimension=32, seed=1)
FRAME = dataclasses.replace(QUADRATIC, student="stiefel", initial_norm=None)
PARTICLES = {
    # At an overlap of 1 - 5e-7 an error of it is 1000 times that of the angle, to which the speed is proportional.
    "mean-field-one": mean_field(SPHERE_ONE, particles=64, bound=1e-7),
    "mean-field-quantiles": mean_field(SPHERE_ONE, particles=32, quadrature="quantiles"),
    # Particles that have nearly arrived move by their errors times rates above 1.
    "mean-field-two": mean_field(SPHERE, particles=24, tracers=[[0.3, 0.1], [0.0, 0.2]], bound=1e-7),
    "mean-field-odd": mean_field(problem(activation="he3", teacher=SKEW, student="spherical"), particles=24),
    "mean-field-relu": mean_field(problem(activation="relu", order=8, teacher=ONE, student="spherical"), particles=32),
    "mean-field-homogeneous": mean_field(problem(), particles=24, keep="summary"),
    "mean-field-scipy": mean_field(SPHERE, particles=16, method="scipy:DOP853", rtol=1e-6),
    "coupling": Case(partial(dynamics.solve_coupling, SPHERE, particles=16, save_at=SHORT), 1e-6),
    "chaos": Case(partial(dynamics.propagation_of_chaos, SPHERE, widths=(4, 8), seeds=2, particles=16, save_at=SaveAt.at([0.5, 2.0])), 1e-6),
    "quadratic": Case(partial(dynamics.solve_quadratic, QUADRATIC, save_at=AT, progress=False), 1e-8),
    "quadratic-frame": Case(partial(dynamics.solve_quadratic, FRAME, save_at=AT, progress=False), 1e-8),
    "quadratic-huge": Case(
        partial(
            dynamics.solve_quadratic,
            Problem(activation="he2", teacher=Teacher.power_law(12, 1.0), width=5, dimension=10**9, initial_norm=0.5),
            save_at=SaveAt.geometric(1.0, 100.0, 6),
            progress=False,
        ),
        1e-8,
    ),
}  # fmt: skip

FLOWS = {**OVERLAPS, **INPUTS, **FORMS, **COMMITTEE, **SPHERICAL, **CORRELATION, **NETWORKS, **PARTICLES}
