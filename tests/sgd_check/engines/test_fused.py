"""The Triton kernels on the processor, by Triton's interpreter: random numbers, steps, and that they compile."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from dynamics import Problem, Teacher
from sgd_check.engines import EngineOptions
from sgd_check.engines.torch.engine import FusedEngine, KernelLink, OnlineEngine, fusible, kernel_link
from sgd_check.engines.torch.samples import CounterStreams, fill_normals

pytest.importorskip("triton", reason="the kernels need Triton, which is made for Linux alone")
pytestmark = pytest.mark.thorough

SEEDS = (0, 7, 2**32 - 1)
RUNS = (7, 2**32 - 1)
STEPS, CUT = 8, 3
# Name: link, student, d, label noise; dimensions within one group of 128 coordinates, at its end, and beyond it.
CASES = {
    "he4": ("he4", "homogeneous", 40, 0.3),
    "mixed": ({1: 0.3, 3: 0.8, 11: 0.02}, "homogeneous", 130, 0.0),
    "relu": ("relu", "homogeneous", 128, 0.0),
    "tanh": ("tanh", "homogeneous", 9, 0.0),
    "gelu": ("gelu", "homogeneous", 33, 0.0),
    "committee": ("erf", "committee", 40, 0.3),
}
NORMAL_SHAPE, FIRST = (96, 130), 2**32 - 50


def problem_of(link="he4", student="homogeneous", dimension=40, noise=0.0, width=3, **more):
    teacher = Teacher([0.8, 0.6])
    return Problem(
        activation=link, teacher=teacher, width=width, dimension=dimension, initial_norm=0.5, student=student,
        label_noise=noise, **more,
    )  # fmt: skip


def rates():
    return np.linspace(3e-4, 9e-4, STEPS)


def fused_and_plain(problem, *, cut):
    """Weights at the start, after the same steps by torch, by the kernel, and if `cut` by it in two launches."""
    options = EngineOptions(seeds=RUNS if cut else RUNS[1:], device="cpu", dtype="float64")

    def stepped(engine, *pieces):
        with engine.running():
            for piece in pieces:
                engine.advance(piece)
            return engine.current().numpy()

    def fused():
        return FusedEngine(problem, options, kernel_link(problem.activation))

    plain = OnlineEngine(problem, options)
    plain._streams = CounterStreams(options.seeds, torch.device("cpu"))
    found = [plain.current().clone().numpy(), stepped(plain, rates()), stepped(fused(), rates())]
    if cut:
        found.append(stepped(fused(), rates()[:CUT], rates()[CUT:]))
    return np.stack(found)


def write(path):
    """What the tests look at, computed under the interpreter."""
    found = {name: fused_and_plain(problem_of(*case), cut=name == "he4") for name, case in CASES.items()}
    for name, dtype in (("single", torch.float32), ("double", torch.float64)):
        samples = torch.empty(len(SEEDS), *NORMAL_SHAPE, dtype=dtype)
        noise = torch.empty(len(SEEDS), NORMAL_SHAPE[0], dtype=dtype)
        fill_normals(torch.tensor(SEEDS), FIRST, samples, noise)
        found |= {f"{name}_samples": samples.numpy(), f"{name}_noise": noise.numpy()}
    np.savez(path, **found)


def compile_for_hopper():
    """Machine code of both kernels for compute capability 9.0, and what it needs."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from sgd_check.engines.torch import fused_kernels

    real, whole = "*fp32", dict.fromkeys(("steps", "m", "d", "pitch", "P"), "i32")
    types = {"weights": real, "rates": real, "seeds": "*i64", "teacher": real, "first": "i64"}
    types |= whole | {"noise": "fp32"}
    fixed = {"K": 16, "M": 16, "LINK": "hermite", "HERMITE": (0.0, 0.0, 0.0, 1.0)}
    fixed |= {"FREE": False, "NOISY": True, "PRECISION": "tf32x3"}
    source = ASTSource(
        fn=fused_kernels.advance, signature={**types, **dict.fromkeys(fixed, "constexpr")}, constexprs=fixed
    )
    made = triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 1, "enable_fp_fusion": True}
    )
    print(
        json.dumps({"shared": made.metadata.shared, "cubin": len(made.asm["cubin"]), "mma": "mma" in made.asm["ptx"]})
    )


def run_as_script(*arguments, interpret, cache):
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpret)), "TRITON_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, __file__, *arguments], env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fused")
    run_as_script(str(folder / "found.npz"), interpret=True, cache=folder)
    with np.load(folder / "found.npz") as found:
        return dict(found)


@pytest.mark.long
def test_kernel_compiles_for_hopper_within_its_shared_memory(tmp_path):
    found = json.loads(run_as_script("compile", interpret=False, cache=tmp_path))
    assert found["cubin"] > 0
    assert found["shared"] <= 227 * 1024 // 4, "four runs on one multiprocessor"
    assert found["mma"], "its matrix products must use the tensor cores"


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_plain_engine_on_the_same_samples(interpreted, case):
    start, plain, *fused = interpreted[case]
    assert np.abs(plain - start).max() > 1e-4, "the runs must have moved"
    for weights in fused:
        np.testing.assert_allclose(weights, plain, rtol=0, atol=1e-13)


def philox(counter, key):
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011), after the paper: counter (4, …), key (2, …)."""
    c, k = [np.asarray(v, dtype=np.uint64) for v in counter], [np.asarray(v, dtype=np.uint64) for v in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(second >> np.uint64(32)) ^ c[1] ^ k[0], second & low, (first >> np.uint64(32)) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def test_the_referees_philox_gives_the_published_numbers():
    assert [int(v) for v in philox((0, 0, 0, 0), (0, 0))] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize(("precision", "tolerance"), [("single", 3e-6), ("double", 1e-13)])
def test_samples_and_noise_are_a_function_of_seed_sample_and_coordinate(interpreted, precision, tolerance):
    rows, columns = NORMAL_SHAPE
    sample = (FIRST + np.arange(rows))[:, None]
    column = np.arange(columns)
    # Four normal numbers per counter, 32 coordinates apart.
    group, part, place = column // 128, column // 32 % 4, column % 32

    def expected(seed, counter, which, stream):
        zero = sample * 0 + counter * 0
        bits = philox((zero + counter, zero + (sample & 0xFFFFFFFF), zero + (sample >> 32), zero + stream), (seed, 0))
        a, b, c, d = ((v + 1.0) / 2.0**32 for v in bits)
        first, second = np.sqrt(-2 * np.log(a)), np.sqrt(-2 * np.log(c))
        angle, other = 2 * np.pi * b, 2 * np.pi * d
        four = [first * np.cos(angle), first * np.sin(angle), second * np.cos(other), second * np.sin(other)]
        return np.choose(which, four)

    for lane, seed in enumerate(SEEDS):
        samples, noise = (interpreted[f"{precision}_{name}"][lane] for name in ("samples", "noise"))
        # Near u = 1 the logarithm has few digits left in single precision, where numbers are near zero.
        np.testing.assert_allclose(samples, expected(seed, group * 32 + place, part, 0), rtol=0, atol=100 * tolerance)
        assert np.median(np.abs(samples - expected(seed, group * 32 + place, part, 0))) < tolerance
        np.testing.assert_allclose(noise[:, None], expected(seed, np.zeros(1, int), 0, 1), rtol=0, atol=100 * tolerance)


@pytest.mark.statistical
def test_samples_are_standard_normal_and_independent(interpreted):
    """Moments to the fourth, and correlations of neighbours and seeds; fourteen z beyond 5: false alarms below 1e-5."""
    x = interpreted["double_samples"]
    count = x[0].size
    for lane in range(3):
        for power, mean, variance in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
            assert abs(np.mean(x[lane] ** power) - mean) < 5 * np.sqrt(variance / count)
    shifts = [(x[:, 1:], x[:, :-1]), (x[..., 1:], x[..., :-1]), (x[..., 32:], x[..., :-32]), (x[1], x[0]), (x[2], x[0])]
    for a, b in shifts:
        assert abs(np.mean(a * b)) < 5 / np.sqrt(a.size)


def test_what_the_kernel_takes_and_what_it_leaves_to_the_graph():
    def taken(problem, batch=1, dtype=torch.float32):
        return fusible(problem, batch, dtype)

    assert taken(problem_of()) == KernelLink("hermite", (0.0, 0.0, 0.0, 0.0, 1.0))
    assert taken(problem_of("erf")) == KernelLink("erf")
    assert taken(problem_of("exp(-x^2)")) is None
    assert taken(problem_of({65: 1.0}, order=65)) is None
    assert taken(problem_of(), batch=2) is None
    assert taken(problem_of(), dtype=torch.float64) is None
    assert taken(problem_of(width=65, dimension=70)) is None
    crooked = Problem(
        activation="he4", teacher=Teacher([1.0, 0.5], directions=[[1, 0], [0.6, 0.8]]), width=2, dimension=9
    )
    assert taken(crooked) is None


if __name__ == "__main__":
    if sys.argv[1] == "compile":
        compile_for_hopper()
    else:
        write(sys.argv[1])
