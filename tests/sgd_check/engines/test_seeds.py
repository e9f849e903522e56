"""The bits of a seed: the same alone and beside others, however the run is cut, on any number of threads."""

import numpy as np
import pytest
import torch
from uneven_networks import uneven_network

import dynamics
import sgd_check
from dynamics import Problem, Teacher
from sgd_check.engines import seeded_runs

CROOKED = [[1.0, 0.0], [0.6, 0.8]]


def homogeneous(width, dimension, link="tanh(z) + 0.5*he2(z)"):
    """Neurons that are drawn, of overlaps that are given."""
    overlap = np.random.default_rng(0).uniform(-0.3, 0.3, (width, 2))
    start = (overlap, overlap @ overlap.T + np.diag(1 - np.sum(overlap**2, axis=1)), np.full(width, 0.3))
    return Problem(
        activation=link, teacher=Teacher([0.8, 0.6]), width=width, dimension=dimension, initial_overlaps=start,
        label_noise=0.2,
    )  # fmt: skip


def network(first_layer):
    return uneven_network("erf", Teacher.polynomial("x1 + x1*x2 - 0.3*x2^3 + 0.2"), 20, first_layer=first_layer)


SPHERICAL = Problem(
    activation={1: 0.3, 2: 0.2, 3: 0.5, 4: 0.7}, teacher=Teacher([0.6, 0.4], directions=CROOKED), width=19, dimension=11,
    student="spherical", label_noise=0.1,
)  # fmt: skip
SCALAR = Problem(
    activation="he3", teacher=Teacher([1.0]), width=1, dimension=64, student="spherical", objective="correlation",
    smoothing=2.0, initial_overlaps=([[0.125]], [[1.0]], [1.0]), label_noise=0.2,
)  # fmt: skip
#: Name -> problem, engine, its options, learning rate, steps.
CASES = {
    **{
        f"projected, m = {m}, d = {d}, B = {batch}": (homogeneous(m, d), "projected", {"batch_size": batch}, 1e-2 / d, 6000)
        for m, d, batch in ((1, 8, 1), (3, 7, 1), (8, 10**12, 1), (5, 64, 4), (2, 9, 6))
    },
    **{
        f"torch, m = {m}, d = {d}, B = {batch}, {dtype}": (homogeneous(m, d, "he4"), "torch", {"batch_size": batch, "dtype": dtype}, 1e-3 / d, 150)
        for m, d, batch, dtype in ((3, 7, 1, "float64"), (8, 100, 1, "float32"), (5, 64, 4, "float32"), (2, 1000, 1, "float32"))
    },
    **{
        f"network, {layer}, {engine}, B = {batch}": (network(layer), engine, {"batch_size": batch, "dtype": "float64"}, 0.01, 300)
        for layer, engine, batch in (("free", "projected", 1), ("sphere", "projected", 4), ("free", "torch", 4), ("sphere", "torch", 1))
    },
    **{
        f"{optimizer}": (network("free"), "projected", {"batch_size": 3, "optimizer": optimizer}, 1e-3, 300)
        for optimizer in (dynamics.SGD(momentum=0.8, average="polyak"), dynamics.ZerothOrder(directions=2))
    },
    **{
        f"spherical, {samples} samples, {dtype}": (SPHERICAL, "torch", {"batch_size": 4, "training_samples": samples, "dtype": dtype}, 0.02, 70)
        for samples, dtype in ((None, "float64"), (12, "float32"))
    },
    "scalar": (SCALAR, "scalar", {"batch_size": 2}, 1e-3, 9000),
    "diffusion, m = 1": (homogeneous(1, 10**6, "he4"), "diffusion", {}, 3e-9, 10**7),
    "diffusion, m = 2": (homogeneous(2, 10**6, "he4"), "diffusion", {}, 3e-9, 10**7),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The noise of a step has kurtosis")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_seed_gives_the_same_bits_alone_beside_others_in_pieces_and_in_threads(case, monkeypatch):
    problem, engine, options, rate, steps = case
    torch_engine = "sgd_check.engines.torch"
    for module, name in (
        (f"{torch_engine}.engine", "THREADED_NUMBERS"),
        (f"{torch_engine}.weights", "THREADED_NUMBERS"),
    ):
        monkeypatch.setattr(f"{module}.{name}", 1)
    monkeypatch.setattr(seeded_runs, "THREADED_OPERATIONS", 0)

    def final(seeds, cores, cuts=()):
        monkeypatch.setattr(seeded_runs, "available_cores", lambda: cores)
        monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
        # The spans of a diffusion are those between the saved times.
        at = rate * np.unique([*((steps // 10, steps) if engine == "diffusion" else (*cuts, steps))])
        runs = sgd_check.simulate(
            problem, learning_rate=rate, steps=steps, seeds=seeds, engine=engine, save_at=dynamics.SaveAt.at(at),
            progress=False, **options,
        ).isel(time=-1)  # fmt: skip
        names = ("teacher_overlap", "student_overlap", "squared_norm", "neuron_vector", "second_layer", "bias")
        return np.concatenate([runs[name].values.reshape(len(seeds), -1) for name in names if name in runs], axis=1)

    every = (3, 1, 4, 15, 9)
    together = final(every, 1)
    assert np.isfinite(together).all()
    assert len({row.tobytes() for row in together}) == 5
    cuts = [k for k in (1, 2, 63, 64, 65, 149, 299, 2047, 2048, 5999) if k < steps]
    for seeds, cores, given in ((every, 3, cuts), ((4,), 2, cuts[2:]), ((15, 4), 2, ()), ((9, 4, 3), 2, ())):
        np.testing.assert_array_equal(final(seeds, cores, given), together[[every.index(seed) for seed in seeds]])
