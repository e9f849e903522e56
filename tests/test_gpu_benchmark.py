"""Tests of `python -m benchmarks.gpu` at small sizes on the CPU: its measurements, its table, and what it leaves out."""

import pytest
import torch
from scipy.stats import ks_2samp

from benchmarks import gpu
from sgd_check.engines.torch import weights

pytestmark = pytest.mark.thorough

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


def test_the_flow_on_the_device_has_the_loss_of_the_cpu(found):
    assert [e["solver"] for e in found["flow"]] == ["device", "CPU"]
    (both,) = found["flow_compared"]
    assert both["reached"] == both["last"]
    assert both["agrees"]
    assert 0 < both["difference"] <= both["tolerance"] == 2e-5


@pytest.mark.parametrize("way", gpu.WAYS)
def test_what_needs_more_memory_than_engines_take_is_left_out(way, monkeypatch):
    """An engine may use all free memory of a CUDA device, so 18 GiB suffice for the largest row."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * 2**30, 96 * 2**30))
    assert weights.memory_limit(torch.device("cuda")) == gpu.free_memory(torch.device("cuda")) == 80 * 2**30
    assert weights.memory_needed(8192, 128, 1024, 32, torch.float64) == 18 * 2**30
    monkeypatch.setattr(weights, "MEMORY_LIMIT", 2**10)
    what = {"way": way, "precision": "float32", "size": 4, "seeds": 2}
    with pytest.raises(gpu.LeftOutError, match=r"^It needs 0\.0 GiB, and may take 0\.0 GiB\.$"):
        gpu.torch_speed(PLAN, what, {})


def test_what_is_absent_is_said_in_one_sentence(found):
    assert {e["what"] for e in found["not_run"]} == {"triton"}
    (why,) = {e["why"] for e in found["not_run"]}
    assert why.endswith("so that the Triton kernel is left out.")
    assert gpu.table(found).count(why) == 1
    assert gpu.absent("triton", "cpu", 0, "3.2").startswith("PyTorch finds no CUDA device")
    assert gpu.absent("triton", "cuda", 1, None) == "Triton is not installed, so that its kernel is left out."
    assert gpu.absent("blocks", "cpu", 0, None) is gpu.absent("triton", "cuda", 1, "3.2") is None
