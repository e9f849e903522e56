"""Tests of `python -m benchmarks.gpu` at small sizes on the CPU: its measurements, its table, and what it leaves out."""

import json

import numpy as np
import pytest
import torch
from processes import python
from scipy.stats import ks_2samp
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu

PLAN = gpu.quick("cpu")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What all parts note, measured in this process; torch has one thread, as in the processes of the parts."""
    results = gpu.Results(tmp_path_factory.mktemp("gpu") / "gpu.json")
    results.begin(PLAN)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for part in gpu.SHARES:
            gpu.measure(part, gpu.Session(PLAN, results, 100.0))
    finally:
        torch.set_num_threads(threads)
    return results.read()


def test_every_setting_of_blocks_is_timed_beside_the_projected_engine_and_the_floor(found):
    timed = {(e["way"], e["precision"], e["seeds"]): e for e in found["speed"] if e["way"] == "blocks"}
    assert set(timed) == {("blocks", precision, seeds) for precision in ("float32", "float64") for seeds in PLAN.seeds}
    for entry in found["speed"]:
        low, median, high = entry["steps_per_second"]
        assert 0 < low <= median <= high
    for (_, precision, _), entry in timed.items():
        need = gpu.needs("blocks", 4, PLAN.dimension, precision)
        assert entry["allowed_steps_per_second"] == pytest.approx(
            {"bytes": found["peaks"]["bytes"] / need["bytes"],
             "operations": found["peaks"][precision] / need["operations"]}
        )  # fmt: skip
    assert sum(e["way"] == "projected" for e in found["speed"]) == len(PLAN.sizes)


@pytest.mark.statistical
def test_runs_by_torch_have_the_law_of_the_projected_engine(found):
    """Seeds are fixed; four tests at the level 0.01/4, of which two take place, give a false alarm below 0.01."""
    assert [(e["way"], e["precision"]) for e in found["law"]] == [("blocks", "float32"), ("blocks", "float64")]
    assert found["tests"] == 4
    for entry in found["law"]:
        assert entry["level"] == pytest.approx(0.01 / 4)
        assert entry["agrees"], entry


@pytest.mark.statistical
def test_the_test_of_the_law_tells_a_learning_rate_that_is_a_tenth_too_large():
    """Seeds are fixed: p is 5e-5, and the level of the benchmark 0.01/12, the chance of a false "differs"."""
    problem = gpu.law_problem(8)
    right = gpu.losses_on_cpu(problem, range(1024))
    wrong = gpu.losses_on_cpu(problem, range(1024, 2048), 1.1 * gpu.LAW_RATE)
    assert ks_2samp(wrong, right).pvalue < gpu.FALSE_ALARM_RATE / gpu.Plan("cpu").tests


def test_losses_are_those_of_the_overlap_flow():
    problem = gpu.law_problem(3)
    system = gpu.OverlapSystem(problem)
    C, G, n = system.unpack(system.initial_state)
    assert gpu.losses(problem, C[None], G[None], n[None])[0] == pytest.approx(system.loss(C, G, n), rel=1e-14)
    assert gpu.losses(problem, C[None], G[None], np.full((1, 3), np.nan))[0] == np.inf


@pytest.mark.parametrize("size", [4, 40])
def test_operations_of_the_floor_are_those_that_torch_counts(size):
    """On one block of steps; 40 neurons in 1024 dimensions take blocks of 32 steps, 4 in 32 dimensions of 16."""
    dimension = {4: 32, 40: 1024}[size]
    taken = gpu.stepper("blocks", gpu.speed_problem(size, dimension), (0,), "float32", torch.device("cpu"))
    steps = gpu.block_steps(size, dimension, 1)
    with taken.running(), FlopCounterMode(display=False) as counter:
        taken.advance(torch.full((steps,), gpu.NO_RATE, dtype=torch.float64))
    assert counter.get_total_flops() == steps * gpu.needs("blocks", size, dimension, "float32")["operations"]


def test_the_flow_on_the_device_has_the_loss_of_the_cpu(found):
    assert [e["solver"] for e in found["flow"]] == ["device", "CPU"]
    (both,) = found["flow_compared"]
    assert both["reached"] == both["last"]
    assert both["agrees"]
    assert 0 < both["difference"] <= both["tolerance"] == 2e-5


def test_what_is_absent_is_said_in_one_sentence(found):
    assert {e["what"] for e in found["not_run"]} == {"triton"}
    (why,) = {e["why"] for e in found["not_run"]}
    assert why.endswith("so that the Triton kernel is left out.")
    assert gpu.table(found).count(why) == 1
    assert gpu.absent("triton", "cpu", 0, "3.2").startswith("PyTorch finds no CUDA device")
    assert gpu.absent("triton", "cuda", 1, None) == "Triton is not installed, so that its kernel is left out."
    assert gpu.absent("blocks", "cpu", 0, None) is gpu.absent("triton", "cuda", 1, "3.2") is None


def test_on_a_gpu_all_is_planned_that_the_ways_can_take(tmp_path):
    pytest.importorskip("triton", reason="the kernel needs Triton, which is made for Linux alone")
    results, plan = gpu.Results(tmp_path / "gpu.json"), gpu.Plan("cuda")
    results.begin(plan)
    planned = [tuple(what.values()) for what in gpu.Session(plan, results, 1.0).settings(gpu.WAYS)]
    blocks = [("blocks", x, size) for x in ("float32", "float64") for size in (8, 32, 128)]
    assert planned == [*blocks, ("triton", "float32", 8), ("triton", "float32", 32)]
    assert results.read()["not_run"] == [
        {"what": "triton, size 128", "why": "The Triton kernel takes 64 neurons at most."},
        {"what": "triton", "why": "The Triton kernel takes single precision alone."},
    ]


def test_what_does_not_fit_the_memory_is_left_out():
    what = {"way": "blocks", "precision": "float64", "size": 4, "seeds": 10**9}
    with pytest.raises(gpu.LeftOutError, match=r"It needs \d+\.\d GiB, and \d+\.\d GiB are free\."):
        gpu.torch_speed(PLAN, what, {})


def test_the_table_has_a_row_for_every_measurement(found):
    text = gpu.table(found)
    assert text.startswith("Measured on the CPU, beside ")
    for seeds in PLAN.seeds:
        assert f"| 4 | float32 | {seeds} |" in text
    assert text.count("| agrees |") == 2
    (both,) = found["flow_compared"]
    assert f"| 16, 256 | 1e-05 | {both['last']:.2g} | {both['last']:.2g} |" in text
    assert "within 2e-05" in text


def test_a_measurement_that_fails_or_has_no_time_is_a_sentence_and_the_next_one_runs(tmp_path):
    def fails():
        msg = "an illegal memory access\nand more"
        raise RuntimeError(msg)

    results = gpu.Results(tmp_path / "gpu.json")
    results.begin(PLAN)
    session = gpu.Session(PLAN, results, 100.0)
    assert session.attempt("law", {"way": "triton"}, fails) is None
    assert session.attempt("law", {"way": "blocks"}, lambda: {"p": 0.5}) == {"way": "blocks", "p": 0.5}
    assert gpu.Session(PLAN, results, 0.0).attempt("law", {"way": "late"}, lambda: {"p": 0.5}) is None
    assert gpu.Session(PLAN, results, 0.0).attempt("peaks", {}, lambda: {"bytes": 1.0}, in_time=False) is not None
    found = results.read()
    assert found["law"] == [{"way": "blocks", "p": 0.5}]
    assert found["not_run"] == [
        {"what": "law, way triton", "why": "It failed with RuntimeError: an illegal memory access"},
        {"what": "law, way late", "why": "The time of the part was over."},
    ]


def test_a_part_that_is_too_slow_is_ended_and_the_others_run(tmp_path):
    results = gpu.Results(tmp_path / "gpu.json")
    results.begin(PLAN)
    gpu.run_part("law", "cpu", results.path, 0.2, small=True)
    gpu.run_part("speed", "cpu", results.path, -1.0, small=True)
    gpu.run_part("peaks", "cpu", results.path, 100.0, small=True)
    found = results.read()
    assert found["not_run"] == [
        {"what": "law", "why": "The rest of this part was ended after 0 s."},
        {"what": "speed", "why": "The time of all parts was over."},
    ]
    assert set(found["peaks"]) == {"bytes", "normals", "float32", "float64"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_device_that_is_not_there_is_refused(tmp_path):
    done = python("-m", "benchmarks.gpu", "--device", "cuda", "--output", str(tmp_path / "gpu.json"))
    assert done.returncode == 2
    assert "PyTorch finds no CUDA device" in done.stderr


@pytest.mark.long
def test_the_command_writes_numbers_and_table(tmp_path):
    done = python("-m", "benchmarks.gpu", "--device", "cpu", "--quick", "--output", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["flow_compared"]
    text = (tmp_path / "gpu.md").read_text()
    assert text == gpu.table(found)
    assert done.stdout.endswith(text + "\n")
