"""Questions that the golden answers hold: runs of every engine of SGD, and verdicts on runs."""

import dataclasses
from functools import partial

import dynamics
import dynamics.tokens
import sgd_check
import sgd_check.tokens
from dynamics import Inputs, SaveAt

from .flows import CLASSES, ERF, FRAME, SIXTEEN, SPECTRUM, SPHERE, UNITS, net, one_neuron
from .laws import COMPOSITION, MEMORY
from .questions import HE3, ONE, ROUNDING, SINGLE, SKEW, Case, problem, quietly


def simulate(asked, bound=ROUNDING, needs=None, **settings):
    given = {"learning_rate": 2e-3, "steps": 1000, "seeds": 2, "progress": False, **settings}
    rate = given["learning_rate"]
    if not callable(rate):
        given.setdefault("save_at", SaveAt.at([0.0, 0.25 * rate * given["steps"], rate * given["steps"]]))
    return Case(partial(sgd_check.simulate, asked, **given), bound, needs)


projected = partial(simulate, engine="projected")
in_space = partial(simulate, engine="torch", device="cpu", dtype="float64", steps=300, needs="torch")


def flow_and_runs(asked, **settings):
    flow = dynamics.solve_overlaps(asked, save_at=SaveAt.geometric(0.1, 10.0, 6), progress=False)
    runs = simulate(asked, **{"steps": 8000, "seeds": 4, "save_at": SaveAt.at([0.0, 2.0, 16.0]), **settings}).ask()
    return sgd_check.compare(flow, runs)


EASY = problem(activation="he3", teacher=ONE, width=2)
ALONE = problem(activation="he3", teacher=ONE, width=1, dimension=24)
SGD = {
    "sgd-projected": projected(HE3),
    "sgd-projected-even": projected(problem(), learning_rate=1e-3),
    "sgd-projected-batch": projected(HE3, batch_size=3),
    "sgd-projected-noise": projected(problem(activation={3: 0.8, 4: 0.6}, label_noise=0.3), seeds=[3, 7]),
    "sgd-projected-relu": projected(problem(activation="relu"), learning_rate=1e-2, steps=200),
    "sgd-projected-tanh": projected(problem(activation="tanh"), learning_rate=1e-2, steps=200),
    "sgd-projected-schedule": projected(HE3, learning_rate=sgd_check.power_law_decay(0.004, 0.5), save_at=SaveAt.at([0.0, 0.2])),
    "sgd-projected-huge": projected(problem(activation="he3", dimension=10**9), learning_rate=1e-10),
    "sgd-projected-many": projected(SIXTEEN, learning_rate=1e-4, steps=200),
    "sgd-projected-skew": projected(problem(activation="he3", teacher=SKEW)),
    "sgd-class": projected(CLASSES, learning_rate=1e-3),
    "sgd-class-batch": projected(CLASSES, learning_rate=1e-3, batch_size=4),
    "sgd-class-spectrum": projected(SPECTRUM, learning_rate=1e-3),
    "sgd-class-huge": projected(dataclasses.replace(CLASSES, dimension=10**9, inputs=Inputs([2.0, 0.5], [10, 10**9 - 10])), learning_rate=1e-10),
    "sgd-stiefel": projected(FRAME, learning_rate=1e-3, steps=200, bound=1e-8),
    "sgd-stiefel-torch": in_space(FRAME, learning_rate=1e-3, steps=100, bound=1e-8),
    "sgd-stiefel-diffusion": simulate(FRAME, engine="diffusion", learning_rate=1e-4, steps=200, bound=1e-8),
    "sgd-diffusion": simulate(problem(teacher=ONE, width=1), engine="diffusion", learning_rate=1e-6, steps=2_000_000, bound=1e-8),
    "sgd-diffusion-two": simulate(problem(width=2), engine="diffusion", learning_rate=1e-6, steps=2_000_000, bound=1e-8),
    "sgd-scalar": simulate(one_neuron(), engine="scalar"),
    "sgd-scalar-smoothed": simulate(one_neuron(smoothing=2.0, label_noise=0.2), engine="scalar", batch_size=2),
    "sgd-scalar-relu": simulate(one_neuron("relu"), engine="scalar"),
    "sgd-network-relu": projected(net("relu", biases="trained"), learning_rate=0.02, steps=200),
    "sgd-network-erf": projected(net("erf", UNITS, second_layer="fixed"), learning_rate=0.02, steps=200),
    "sgd-network-sphere": projected(net("erf", biases="fixed", first_layer="sphere"), learning_rate=0.02, steps=200, batch_size=4),
    "sgd-network-polynomial": projected(net("he2 + he3"), learning_rate=0.002, steps=200),
    "sgd-network-torch": in_space(net("erf", UNITS, biases="trained"), learning_rate=0.02, steps=100),
    "sgd-torch": in_space(HE3),
    "sgd-torch-batch": in_space(HE3, batch_size=4),
    "sgd-torch-single": in_space(HE3, dtype="float32", bound=SINGLE),
    "sgd-torch-spherical": in_space(SPHERE, learning_rate=0.01),
    "sgd-torch-spherical-starts": in_space(SPHERE, learning_rate=0.01, starts=[3, 4]),
    "sgd-torch-training-samples": in_space(SPHERE, learning_rate=0.01, training_samples=32, batch_size=8),
    "sgd-torch-classes": in_space(CLASSES, learning_rate=1e-3, steps=100),
    "sgd-torch-committee": in_space(ERF, learning_rate=0.01, steps=100),
    "sgd-compare": Case(partial(flow_and_runs, EASY)),
    "sgd-check": Case(partial(sgd_check.check, EASY, learning_rate=2e-3, steps=8000, seeds=4, save_at=SaveAt.at([0.0, 8.0]), progress=False), 1e-7),
    "sgd-estimate": Case(quietly(partial(sgd_check.estimate_direction, ALONE, samples=2000, seeds=2)), 1e-6),
    "sgd-sample-complexity": Case(quietly(sgd_check.sample_complexity, information_exponents=(3,), dimensions=(12, 16), rate=0.02, seeds=2)),
    "sgd-step-size": Case(quietly(sgd_check.step_size_phases, information_exponent=3, dimension=12, seeds=2, learning_rates=(1e-3, 1e-2)), 1e-7),
    "sgd-transfer": Case(
        quietly(
            sgd_check.sgd_transfer,
            information_exponent=3,
            directions=2,
            dimension=12,
            widths=(1, 2, 3, 4),
            samples=400,
            starts=2,
            seeds=2,
        )
    ),
    "sgd-tokens-composition": Case(
        partial(
            sgd_check.tokens.simulate, COMPOSITION, learning_rate=0.25, steps=10, seeds=4, device="cpu", progress=False
        ),
        SINGLE,
        "torch",
    ),
    "sgd-tokens-memory": Case(
        partial(sgd_check.tokens.simulate, MEMORY, learning_rate=0.1, steps=60, seeds=4, device="cpu", progress=False),
        SINGLE,
        "torch",
    ),
}  # fmt: skip
