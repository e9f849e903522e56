"""Tests of the engine "torch" on a CUDA device against the same engine on the processor: the same law of the loss."""

import pytest
import torch
from scipy.stats import ks_2samp

import dynamics
import sgd_check

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"), pytest.mark.statistical]

RUNS = 256
TEACHER = dynamics.Teacher.power_law(4, beta=1.0)
SIZE = {"dimension": 64, "seed": 1}


def overlaps(activation, **fields):
    return dynamics.Problem(
        activation=activation, teacher=TEACHER, width=4, initial_norm=0.3, label_noise=0.1, **SIZE, **fields
    )


NETWORK = dynamics.Problem(
    student=dynamics.Student(activation="relu", width=4, second_layer="trained", biases="trained"),
    teacher=dynamics.Teacher([1.0, 0.5], links=["relu", "relu"]),
    **SIZE,
)
SPHERE = dynamics.Problem(
    activation="he3", teacher=dynamics.Teacher([1.0]), width=1, student="spherical", **SIZE
)  # fmt: skip
IN_TURN = dynamics.Problem(
    student=dynamics.Student(activation="he3", width=4, first_layer="sphere", rates=(1.0, 1.0, 0.0), layer_wise=0.2),
    teacher=TEACHER,
    **SIZE,
)
LABELS = dynamics.Problem(
    student=dynamics.Student(activation="erf", width=4, second_layer="trained", biases="trained"),
    teacher=dynamics.Teacher([1.0, 0.5], links=["erf", "erf"]),
    objective="logistic",
    labels="bernoulli",
    flip=0.1,
    **SIZE,
)
CLUSTERS = dynamics.Problem(
    student=dynamics.Student(activation="erf", width=4, initial_second_layer=[[0.5] * 4, [-0.5] * 4, [0.1] * 4]),
    inputs=dynamics.Mixture([[0.8, 0.1], [-0.6, 0.5], [0.0, -0.9]], labels=[0, 1, 2], snr=1.5),
    objective="softmax",
    **SIZE,
)
CASES = {
    "Triton, polynomial": (overlaps("he4"), {"learning_rate": 8e-5, "steps": 6000}),
    "Triton, relu": (overlaps("relu"), {"learning_rate": 2e-3, "steps": 1500}),
    "Triton, committee": (overlaps("erf", student="committee"), {"learning_rate": 2e-3, "steps": 1500}),
    "blocks": (overlaps("he4"), {"learning_rate": 8e-5, "steps": 6000, "dtype": "float64"}),
    "batches": (overlaps("gelu"), {"learning_rate": 8e-3, "steps": 400, "batch_size": 8}),
    "network of both layers": (NETWORK, {"learning_rate": 5e-3, "steps": 1000}),
    "layers in turn": (IN_TURN, {"learning_rate": 5e-4, "steps": 1000}),
    "logistic loss": (LABELS, {"learning_rate": 1.5e-2, "steps": 330}),
    "cross-entropy": (CLUSTERS, {"learning_rate": 2.5e-2, "steps": 200}),
    "sphere": (SPHERE, {"learning_rate": 5e-3, "steps": 500}),
    "momentum": (NETWORK, {"learning_rate": 1e-3, "steps": 300, "optimizer": "SGD(momentum=0.9)"}),
    "zeroth order": (NETWORK, {"learning_rate": 1e-4, "steps": 300, "optimizer": "ZerothOrder(directions=2)"}),
    "Adam": (NETWORK, {"learning_rate": 2e-3, "steps": 300, "optimizer": "adam"}),
    "inputs": (overlaps("he3", inputs=dynamics.Inputs([2.0, 0.5], [4, 60])), {"learning_rate": 5e-4, "steps": 1000}),
}


@pytest.mark.parametrize("case", CASES)
def test_runs_have_the_law_of_the_processor(case):
    """Two samples with seeds of their own; all cases together give a false alarm with probability 0.01."""
    problem, options = CASES[case]
    losses = [
        sgd_check.simulate(
            problem, seeds=range(first, first + RUNS), engine="torch", device=device, progress=False, **options
        )["loss"].values[..., -1]
        for first, device in ((0, "cpu"), (RUNS, "cuda"))
    ]
    assert losses[0].shape == losses[1].shape == (RUNS,)
    assert ks_2samp(*losses).pvalue >= 0.01 / len(CASES)
