"""The parts that can use a GPU, measured: `python -m benchmarks.gpu [--device cuda] [--output gpu.json] [--quick]`.

* `peaks`: what the device reaches, bytes per second of a copy and operations per second of a product of matrices;
* `law`: whether each way to take steps of SGD gives the law of the projected engine on the CPU;
* `speed`: steps per second of each way, beside the projected engine, and beside what the peaks allow;
* `flow`: the method "stiff" on the device beside the CPU, its time and the largest difference of the loss.

The ways are torch's calls for blocks of steps ("blocks"; a CUDA graph on a GPU) and the Triton kernel ("triton"), which
has parts of its own, `law-triton` and `speed-triton`.

Every part runs in a process of its own and has a share of `--seconds`; what an earlier part leaves over is added. So a
kernel that fails or hangs ends its part alone. The JSON file is written after every measurement, and the table beside
it, `gpu.md`, after every part. Whatever is left out is listed with its reason. Rates of learning in `speed` are so
small that nothing moves: what is timed does not depend on it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import ks_2samp

try:
    import torch
except ImportError as error:
    message = 'This benchmark measures PyTorch, which is not installed: pip install "feature-emergence[torch]".'
    raise SystemExit(message) from error

import dynamics
from benchmarks.problems import horizon, save_times, standard_problem
from dynamics.equations.overlaps import OverlapSystem
from dynamics.integrators.large_flow import LargeFlowStepper
from dynamics.integrators.large_flow.device import TorchFlowStepper
from dynamics.integrators.stepper import Status
from sgd_check.engines import EngineOptions, make_engine
from sgd_check.engines.torch.engine import (
    DELAYED_STEPS,
    FUSED_STEPS,
    LARGEST_WIDTH,
    FusedEngine,
    OnlineEngine,
    block_steps,
    drawn_steps,
    fusible,
)
from sgd_check.engines.torch.samples import aligned, triton_version
from sgd_check.engines.torch.weights import DTYPES, memory_limit, memory_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dynamics.integrators import Stepper
    from hermite.arrays import Array

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("blocks", "triton")
#: Share of the time that each part may take, in their order.
SHARES = {"peaks": 0.06, "law": 0.14, "law-triton": 0.12, "speed": 0.26, "speed-triton": 0.12, "flow": 0.30}
#: A part stops by itself at this share of its time, so that what it has measured is complete.
OWN_SHARE = 0.9
#: Probability that any of the tests of `law` says "differs" although all laws are equal.
FALSE_ALARM_RATE = 0.01
LAW_DIMENSION, LAW_STEPS, LAW_RATE = 320, 256, 1e-4
NO_RATE = 1e-12
#: Letters of an entry that are printed.
PRINTED = 300
REPEATS = 3
#: Every so many of the benchmarks' saved times are compared.
SAVED_EVERY = 5
#: Attempted steps of a flow between two looks at the clock.
FLOW_STEPS = 20


@dataclass(frozen=True)
class Plan:
    """What is measured: sizes m = P, numbers of seeds, d, and seconds of one timing.

    `law_runs` has the number of runs on each side, by m; `flows` m = P, d and rtol.
    """

    device: str
    sizes: tuple[int, ...] = (8, 32, 128)
    seeds: tuple[int, ...] = (64, 1024, 8192)
    dimension: int = 1024
    seconds: float = 0.3
    law_runs: tuple[int, ...] = (4096, 2048, 512)
    flows: tuple[tuple[int, int, float], ...] = ((256, 1024, 1e-5), (1024, 2048, 1e-5))
    side: int = 8192
    copied: int = 2**28

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it."""
        return torch.device(self.device)

    @property
    def tests(self) -> int:
        """The number of tests of `law`, those that are left out included."""
        return len(WAYS) * len(DTYPES) * len(self.sizes)


def quick(device: str) -> Plan:
    """Return a plan of small sizes, to see that everything runs."""
    return Plan(
        device=device,
        sizes=(4,),
        seeds=(2, 5),
        dimension=32,
        seconds=0.02,
        law_runs=(256,),
        flows=((16, 256, 1e-5),),
        side=128,
        copied=2**16,
    )


def absent(way: str, device: str, cuda_devices: int, triton: str | None) -> str | None:
    """Return why a way cannot be measured on a device at all, or None if it can."""
    if way != "triton":
        return None
    if device == "cpu":
        found = "PyTorch finds no CUDA device" if cuda_devices == 0 else "The device asked for is the CPU"
        return f"{found}, so that the Triton kernel is left out."
    return "Triton is not installed, so that its kernel is left out." if triton is None else None


class LeftOutError(Exception):
    """Why something is not measured, in a sentence."""


class Results:
    """What was measured, in a file that is whole after every entry."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, plan: Plan) -> None:
        """Forget what the file held."""
        lists = ("law", "same_samples", "speed", "flow", "flow_compared", "not_run")
        self._write({"hardware": {}, "peaks": {}, "tests": plan.tests, **{name: [] for name in lists}})

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def note(self, name: str, entry: dict[str, Any]) -> None:
        """Add an entry to a list, or the items of an entry to a mapping."""
        found = self.read()
        if isinstance(found[name], dict):
            found[name] |= entry
        elif entry not in found[name]:
            found[name].append(entry)
        self._write(found)
        print(name, json.dumps(entry)[:PRINTED], flush=True)

    def not_run(self, what: str, why: str) -> None:
        self.note("not_run", {"what": what, "why": why})

    def _write(self, found: dict[str, Any]) -> None:
        beside = self.path.with_name(self.path.name + ".part")
        beside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.path)


class Session:
    """A part at work: what is planned, where it is noted, and the seconds that are left."""

    def __init__(self, plan: Plan, results: Results, seconds: float) -> None:
        self.plan, self.results = plan, results
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def attempt(
        self,
        name: str,
        what: dict[str, Any],
        measured: Callable[..., dict[str, Any]],
        *arguments: Any,
        in_time: bool = True,
    ) -> dict[str, Any] | None:
        """Note and return what a function measures; where it is left out or fails, note why, and return None.

        With `in_time` it is left out when the time of the part is over.
        """
        label = ", ".join([name, *(f"{key} {value}" for key, value in what.items())])
        entry = None
        try:
            if in_time and self.left() <= 0:
                msg = "The time of the part was over."
                raise LeftOutError(msg)
            entry = {**what, **measured(*arguments)}
            self.results.note(name, entry)
        except LeftOutError as error:
            self.results.not_run(label, str(error))
        except Exception as error:
            first = (str(error).strip() or "no message").splitlines()[0]
            self.results.not_run(label, f"It failed with {type(error).__name__}: {first}")
        gc.collect()
        torch.cuda.empty_cache()
        return entry

    def settings(self, ways: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield way, precision and size of all that can be measured, and note what cannot."""
        for way, precision, size in product(ways, DTYPES, self.plan.sizes):
            why = absent(way, self.plan.device, torch.cuda.device_count(), triton_version())
            if why is not None:
                self.results.not_run(way, why)
            elif way == "triton" and precision != "float32":
                self.results.not_run("triton", "The Triton kernel takes single precision alone.")
            elif way == "triton" and size > LARGEST_WIDTH:
                self.results.not_run(
                    f"triton, size {size}", f"The Triton kernel takes {LARGEST_WIDTH} neurons at most."
                )
            else:
                yield {"way": way, "precision": precision, "size": size}


# --- the steps that are measured --------------------------------------------------------------------------


def speed_problem(size: int, dimension: int) -> dynamics.Problem:
    """Return m = P neurons and directions, σ = h_4, small random weights."""
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    return dynamics.Problem(
        activation="he4", teacher=teacher, width=size, dimension=dimension, initial_norm=0.03, label_noise=0.1
    )


def law_problem(size: int) -> dynamics.Problem:
    """Return m = P neurons, each halfway to a direction of its own: labels, noise and overlaps all move the loss."""
    weights, i = np.zeros((size, LAW_DIMENSION)), np.arange(size)
    weights[i, i], weights[i, size + i] = 0.5, np.sqrt(0.75)
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    return dynamics.Problem(
        activation="he4",
        teacher=teacher,
        width=size,
        dimension=LAW_DIMENSION,
        initial_weights=np.sqrt(0.05) * weights,
        label_noise=1.0,
    )


def runs_of(way: str, problem: dynamics.Problem, seeds: Sequence[int], precision: str, device: torch.device) -> Any:
    """Return what takes the steps of one run per seed that way, at the start of the problem."""
    options = EngineOptions(seeds=tuple(seeds), device=device.type, dtype=precision)
    if way == "blocks":
        return OnlineEngine(problem, options)
    link = fusible(problem, 1, DTYPES[precision])
    if link is None:
        msg = "The Triton kernel does not take this problem."
        raise LeftOutError(msg)
    return FusedEngine(problem, options, link)


def finish(device: torch.device) -> None:
    """Wait until the device has done all that it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- law --------------------------------------------------------------------------------------------------


def losses_on_cpu(problem: dynamics.Problem, seeds: Sequence[int], rate: float = LAW_RATE) -> Array:
    """Return the loss E(f − f*)² of each run of the projected engine after the steps of `law`."""
    engine = make_engine("projected", problem, EngineOptions(seeds=tuple(seeds)))
    with engine.running():
        engine.advance(np.full(LAW_STEPS, rate))
        found = engine.measure(student=True)
    assert found.student_overlap is not None
    return losses(problem, found.teacher_overlap, found.student_overlap, found.squared_norm)


def losses_by_torch(
    way: str, problem: dynamics.Problem, seeds: Sequence[int], precision: str, device: torch.device
) -> Array:
    """Return the same of runs by torch."""
    taken = runs_of(way, problem, seeds, precision, device)
    with taken.running():
        taken.advance(np.full(LAW_STEPS, LAW_RATE))
        weights = taken.current().to(torch.float64)
        length = torch.linalg.vector_norm(weights, dim=2)
        unit = weights / length[..., None]
        G = torch.bmm(unit, unit.transpose(1, 2))
        C = unit[..., : problem.num_directions]
        return losses(problem, C.cpu().numpy(), G.cpu().numpy(), (length * length).cpu().numpy())


def losses(problem: dynamics.Problem, C: Array, G: Array, n: Array) -> Array:
    """Return n·g(G) n − 2 n·g(C) a + g(1) a·a of every run; infinite for one that diverged."""
    g, a = problem.activation.kernel, problem.teacher.coefficients
    with np.errstate(all="ignore"):
        students = np.sum(n * (g(G) @ n[..., None])[..., 0], axis=1)
        found: Array = students - 2.0 * np.sum(n * (g(C) @ a), axis=1) + float(g(1.0)) * float(a @ a)
    return np.nan_to_num(found, nan=np.inf, posinf=np.inf)


def measure_law(session: Session, ways: Sequence[str]) -> None:
    """Test of every way, precision and size whether losses have the law of those of the projected engine."""
    plan, reference = session.plan, dict[int, "Array"]()
    runs = dict(zip(plan.sizes, plan.law_runs, strict=True))
    for what in session.settings(ways):
        session.attempt("law", what, law, plan, what, runs[what["size"]], reference)
    # A CUDA device with Triton draws samples that are a function of the seed alone; elsewhere they are not the same.
    if plan.device != "cpu" and triton_version() is not None:
        for what in session.settings(ways):
            session.attempt("same_samples", what, same_samples, plan, what)


def law(plan: Plan, what: dict[str, Any], runs: int, reference: dict[int, Array]) -> dict[str, Any]:
    """Test one by Kolmogorov and Smirnov's test of two samples, with other seeds on the two sides.

    The level is `FALSE_ALARM_RATE` divided by the number of all tests. `reference` keeps the projected engine's losses.
    """
    way, precision, size = what.values()
    problem = law_problem(size)
    if size not in reference:
        reference[size] = losses_on_cpu(problem, range(runs))
    found = losses_by_torch(way, problem, range(runs, 2 * runs), precision, plan.torch_device)
    p, level = float(ks_2samp(found, reference[size]).pvalue), FALSE_ALARM_RATE / plan.tests
    medians = [float(np.median(found)), float(np.median(reference[size]))]
    return {"runs": runs, "medians": medians, "p": p, "level": level, "agrees": p >= level}


def same_samples(plan: Plan, what: dict[str, Any]) -> dict[str, Any]:
    """Return the largest difference from blocks in float64 on the same samples, and how far these move."""
    way, precision, size = what.values()
    ends = []
    for name, number in ((way, precision), ("blocks", "float64")):
        taken = runs_of(name, law_problem(size), (3, 2**32 - 1), number, plan.torch_device)
        with taken.running():
            start = taken.current().to(torch.float64, copy=True)
            taken.advance(np.full(LAW_STEPS, LAW_RATE))
            ends.append(taken.current().to(torch.float64, copy=True))
    return {
        "largest_move": float((ends[1] - start).abs().max()),
        "difference": float((ends[0] - ends[1]).abs().max()),
    }


# --- speed ------------------------------------------------------------------------------------------------


def measure_speed(session: Session, ways: Sequence[str]) -> None:
    """Note seed-steps per second of every way, precision, size and number of seeds, and of the projected engine."""
    plan, peaks = session.plan, session.results.read()["peaks"]
    for size in plan.sizes if "blocks" in ways else ():
        what = {"way": "projected", "precision": "float64", "size": size, "seeds": 2 * (os.cpu_count() or 1)}
        session.attempt("speed", what, projected_speed, plan, what)
    for setting in session.settings(ways):
        for seeds in plan.seeds:
            what = {**setting, "seeds": seeds}
            session.attempt("speed", what, torch_speed, plan, what, peaks)


def projected_speed(plan: Plan, what: dict[str, Any]) -> dict[str, Any]:
    """Return seed-steps per second of the projected engine on all cores of the CPU."""
    options = EngineOptions(seeds=tuple(range(what["seeds"])))
    engine = make_engine("projected", speed_problem(what["size"], plan.dimension), options)
    with engine.running():
        rates = steps_per_second(lambda steps: engine.advance(np.full(steps, NO_RATE)), what["seeds"], 64, plan.seconds)
    return {"steps_per_second": rates}


def torch_speed(plan: Plan, what: dict[str, Any], peaks: dict[str, float]) -> dict[str, Any]:
    """Return seed-steps per second of one way, and what the peaks allow."""
    way, precision, size, seeds = what.values()
    device, columns = plan.torch_device, aligned(plan.dimension)
    drawn = FUSED_STEPS if way == "triton" else drawn_steps(size, plan.dimension, 1, device)
    need, free = memory_needed(seeds, size, columns, drawn, DTYPES[precision]), free_memory(device)
    if need > free:
        msg = f"It needs {need / 2**30:.1f} GiB, and may take {free / 2**30:.1f} GiB."
        raise LeftOutError(msg)
    taken = runs_of(way, speed_problem(size, plan.dimension), range(seeds), precision, device)

    def take(steps: int) -> None:
        taken.advance(np.full(steps, NO_RATE))
        finish(device)

    with taken.running():
        rates = steps_per_second(take, seeds, DELAYED_STEPS, plan.seconds)
    return {"steps_per_second": rates, "allowed_steps_per_second": allowed(way, size, plan.dimension, precision, peaks)}


def steps_per_second(take: Callable[[int], None], seeds: int, block: int, seconds: float) -> list[float]:
    """Return seed-steps per second of `take(steps)`, smallest, median and largest, in whole blocks of steps."""

    def spent(steps: int) -> float:
        began = time.perf_counter()
        take(steps)
        return time.perf_counter() - began

    steps = block
    take(steps)
    while (once := spent(steps)) < 0.2 * seconds:
        steps *= 4
    steps = block * max(round(steps / block * seconds / once), 1)
    return sorted(seeds * steps / spent(steps) for _ in range(REPEATS))


def free_memory(device: torch.device) -> int:
    """Return the bytes that may be taken: as many as the engines take, on the CPU half of what the host has at most."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return memory_limit(device) if device.type == "cuda" else min(memory_limit(device), half)


# --- the floor --------------------------------------------------------------------------------------------


def measure_peaks(session: Session) -> None:
    """Note the device and what it reaches per second."""
    device, peaks = session.plan.torch_device, ["bytes", "normals", *DTYPES]
    session.attempt("hardware", {}, hardware, device)
    for name in [*peaks, "tf32"] if device.type == "cuda" else peaks:
        session.attempt("peaks", {}, peak, session.plan, name)


def peak(plan: Plan, name: str) -> dict[str, float]:
    """Return the bytes per second of a copy, the normal numbers drawn, or the operations of a product of matrices."""
    device = plan.torch_device
    if name in {"bytes", "normals"}:
        a = torch.zeros(plan.copied, device=device)
        b = torch.zeros_like(a)
        if name == "bytes":
            return {name: 2 * 4 * plan.copied / best_seconds(lambda: b.copy_(a), device)}
        return {name: plan.copied / best_seconds(a.normal_, device)}
    dtype = torch.float64 if name == "float64" else torch.float32
    a, b, c = (torch.rand(plan.side, plan.side, dtype=dtype, device=device) for _ in range(3))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        return {name: 2 * plan.side**3 / best_seconds(lambda: torch.mm(a, b, out=c), device)}
    finally:
        torch.set_float32_matmul_precision(before)


def hardware(device: torch.device) -> dict[str, Any]:
    """Return the names and versions of what takes part."""
    found: dict[str, Any] = {
        "device": "the CPU",
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "triton": triton_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"device": properties.name, "multiprocessors": properties.multi_processor_count}
    return found


def best_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the least seconds of a call, a mean over five in a row, after one that is not counted."""
    call()
    finish(device)
    best = np.inf
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(5):
            call()
        finish(device)
        best = min(best, (time.perf_counter() - began) / 5)
    return float(best)


def needs(way: str, size: int, dimension: int, precision: str) -> dict[str, float]:
    """Return bytes and operations of one step of one seed, which waits with K − 1 others for one matrix product.

    Operations: 2 d (2 m + K) for Z = V Xᵀ, G = X Xᵀ and the update V − c X. Bytes of torch's calls: samples are written
    once and read by each of the three products, 4 d; weights are read for Z and for their lengths, read and written by
    the update and by the scale, 6 m d in K steps. The Triton kernel reads and writes weights once in K steps, 2 m d,
    and keeps samples on the chip. Smaller arrays do not count.
    """
    number = DTYPES[precision].itemsize
    steps = FUSED_STEPS if way == "triton" else block_steps(size, dimension, 1)
    passes = 2 * size / steps if way == "triton" else 4 + 6 * size / steps
    return {"bytes": number * dimension * passes, "operations": 2.0 * dimension * (2 * size + steps)}


def allowed(way: str, size: int, dimension: int, precision: str, peaks: dict[str, float]) -> dict[str, float]:
    """Return the seed-steps per second that the measured peaks allow, by bytes and by operations.

    The Triton kernel splits numbers of single precision into two of TF32 each and multiplies three pairs of them.
    """
    need, most = needs(way, size, dimension, precision), {}
    if "bytes" in peaks:
        most["bytes"] = peaks["bytes"] / need["bytes"]
    if way == "triton" and "tf32" in peaks:
        most["operations"] = peaks["tf32"] / 3 / need["operations"]
    elif way != "triton" and precision in peaks:
        most["operations"] = peaks[precision] / need["operations"]
    return most


# --- the large flow ---------------------------------------------------------------------------------------


def measure_flow(session: Session) -> None:
    """Note times and losses of the standard problem by the method "stiff", on the device and on the CPU.

    A run that the clock ends is compared at the times that it has reached.
    """
    plan, peaks = session.plan, session.results.read()["peaks"]
    waiting = 2 * len(plan.flows)
    for size, dimension, rtol in plan.flows:
        setting, done = {"size": size, "dimension": dimension, "rtol": rtol}, []
        for solver in ("device", "CPU"):
            limit = session.left() / waiting
            what = {"solver": solver, **setting}
            done.append(session.attempt("flow", what, solve, plan, *what.values(), limit, peaks))
            waiting -= 1
        if all(done):
            session.attempt("flow_compared", setting, compared, *done, in_time=False)


def make_flow(
    plan: Plan, solver: str, problem: dynamics.Problem, rtol: float
) -> tuple[Stepper, Callable[[float], float]]:
    """Return the stepper of the method "stiff", and what gives its loss at a time within the last step."""
    if solver == "device":
        on_device = TorchFlowStepper(problem, rtol=rtol, atol=1e-2 * rtol, device=plan.device)
        return on_device, on_device.loss
    system, on_cpu = OverlapSystem(problem), LargeFlowStepper(problem, rtol=rtol, atol=1e-2 * rtol)
    return on_cpu, lambda t: float(system.loss(*system.unpack(on_cpu.interpolate(t))))


def solve(
    plan: Plan, solver: str, size: int, dimension: int, rtol: float, limit: float, peaks: dict[str, float]
) -> dict[str, Any]:
    """Return losses at the saved times, the seconds until each without those of the losses, and the floor of all.

    The first steps load libraries, so some are taken before on a small problem; compiling is not counted.
    """
    make_flow(plan, solver, standard_problem(16, 256), rtol)[0].advance(np.inf, 5)
    flow, loss = make_flow(plan, solver, standard_problem(size, dimension), rtol)
    times = save_times(horizon(size, dimension))[::-SAVED_EVERY][::-1].tolist()
    found, seconds, spent = [], [], 0.0
    for t in times:
        status = Status.MAX_STEPS
        while status == Status.MAX_STEPS and spent < limit:
            began = time.perf_counter()
            status = flow.advance(t, FLOW_STEPS)
            spent += time.perf_counter() - began
        if status == Status.MAX_STEPS:
            break
        if status != Status.REACHED:
            msg = f"The flow must reach t = {t:g}, but ended at {flow.time:g} with {status!r}."
            raise RuntimeError(msg)
        found.append(loss(t))
        seconds.append(spent)
    counts, floor = flow.statistics(), flow_floor(size, dimension, peaks)
    return {
        "times": times[: len(found)],
        "loss": found,
        "seconds": seconds,
        "spent": spent,
        "last": times[-1],
        "floor_seconds": {name: counts["rhs_evaluations"] * one for name, one in floor.items()},
        **counts,
    }


def flow_floor(size: int, dimension: int, peaks: dict[str, float]) -> dict[str, float]:
    """Return the seconds that one evaluation of the field needs at the measured peaks, by bytes and by operations.

    With D = min(d, 2 m): two products, 4 m² D operations. Bytes: six passes over the 2 m² overlaps of neurons with
    neurons and directions (written, read for g and g', both written, both read), and eleven over the state, m D (three
    in the products, eight in the sum of stages, a mean over the stages of a step).
    """
    columns = min(dimension, 2 * size)
    need = {"bytes": 8 * (12.0 * size**2 + 11.0 * size * columns), "float64": 4.0 * size**2 * columns}
    return {name: amount / peaks[name] for name, amount in need.items() if name in peaks}


def compared(device: dict[str, Any], cpu: dict[str, Any]) -> dict[str, Any]:
    """Return times and the largest difference of the loss, up to the last saved time that both reached.

    The tests hold the error of each loss to rtol, so that two may differ by twice that.
    """
    count = min(len(device["loss"]), len(cpu["loss"]))
    if count == 0:
        msg = "One of the two reached no saved time."
        raise LeftOutError(msg)
    difference = float(np.max(np.abs(np.subtract(device["loss"][:count], cpu["loss"][:count]))))
    return {
        "reached": device["times"][count - 1],
        "last": device["last"],
        "seconds": device["seconds"][count - 1],
        "seconds_on_cpu": cpu["seconds"][count - 1],
        "floor_share": max(device["floor_seconds"].values(), default=0.0) / device["spent"],
        "difference": difference,
        "tolerance": 2 * device["rtol"],
        "agrees": difference <= 2 * device["rtol"],
    }


# --- the table --------------------------------------------------------------------------------------------


def table(found: dict[str, Any]) -> str:
    """Return what was measured as Markdown; docs/gpu.md quotes from it."""
    parts = (_heading, _speed_table, _law_table, _flow_table, _left_out)
    return "\n\n".join(text for part in parts if (text := part(found))) + "\n"


def _heading(found: dict[str, Any]) -> str:
    machine, peaks = found["hardware"], found["peaks"]
    if not machine:
        return "The device was not reached."
    triton = f"Triton {machine['triton']}" if machine["triton"] else "no Triton"
    units = {
        "bytes": "bytes copied",
        "float32": "operations in float32",
        "tf32": "in TF32",
        "float64": "in float64",
        "normals": "normal numbers drawn",
    }
    reached = ", ".join(f"{peaks[name]:.2g} {unit}" for name, unit in units.items() if name in peaks)
    return (
        f"Measured on {machine['device']}, beside {machine['cores']} cores ({machine['processor']}), PyTorch "
        f"{machine['torch']}, {triton}, {machine['date']}. Reached per second: {reached or 'not measured'}."
    )


def _speed_table(found: dict[str, Any]) -> str:
    """One row per size, precision and number of seeds; beside each speed its share of what the floor allows."""
    speeds = {(e["size"], e["precision"], e["seeds"], e["way"]): e for e in found["speed"]}
    alone = {size: entry["steps_per_second"][1] for (size, _, _, way), entry in speeds.items() if way == "projected"}
    rows = sorted({key[:3] for key in speeds if key[3] != "projected"})
    if not rows:
        return ""
    lines = [
        "Seed-steps a second, median of three, and the share of what the floor of bytes and operations allows:",
        "",
        "| m = P | precision | seeds | blocks | Triton | projected, CPU |",
        "|---|---|---|---|---|---|",
    ]
    for size, precision, seeds in rows:
        cells = [_speed_cell(speeds.get((size, precision, seeds, way))) for way in WAYS]
        beside = f"{alone[size]:.2e}" if size in alone else "not measured"
        lines.append(f"| {size} | {precision} | {seeds} | {' | '.join(cells)} | {beside} |")
    return "\n".join(lines)


def _speed_cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not measured"
    rate, most = entry["steps_per_second"][1], entry["allowed_steps_per_second"]
    if not most:
        return f"{rate:.2e}"
    least = min(most, key=lambda name: most[name])
    return f"{rate:.2e} ({100 * rate / most[least]:.2g} % of {least})"


def _law_table(found: dict[str, Any]) -> str:
    if not found["law"]:
        return ""
    tests = found["tests"]
    lines = [
        "Agreement in law with the projected engine on the CPU: the loss at the end of each run, by Kolmogorov and "
        f"Smirnov's test of two samples. Each has the level {FALSE_ALARM_RATE:g}/{tests}, so that {tests} together "
        f"give a false alarm with probability {FALSE_ALARM_RATE:g} at most. Where samples can be the same, the last "
        "column is the largest difference from blocks in float64, over their largest move:",
        "",
        "| way | precision | m = P | runs on each side | p | verdict | on the same samples |",
        "|---|---|---|---|---|---|---|",
    ]
    same = {(e["way"], e["precision"], e["size"]): e["difference"] / e["largest_move"] for e in found["same_samples"]}
    for e in found["law"]:
        key = e["way"], e["precision"], e["size"]
        cells = [*key, e["runs"], f"{e['p']:.2g}", "agrees" if e["agrees"] else "differs"]
        lines.append(_row([*cells, f"{same[key]:.1e}" if key in same else "not measured"]))
    return "\n".join(lines)


def _flow_table(found: dict[str, Any]) -> str:
    if not found["flow_compared"]:
        return ""
    lines = [
        "The method `stiff` on the device beside the CPU, to the last saved time that both reached; the floor of bytes "
        "and operations of its evaluations is a share of the time on the device:",
        "",
        "| m = P, d | rtol | to t | of T | seconds | on the CPU | ratio | difference of the loss | floor |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for e in found["flow_compared"]:
        cells = [f"{e['size']}, {e['dimension']}", f"{e['rtol']:g}", f"{e['reached']:.2g}", f"{e['last']:.2g}"]
        cells += [f"{e['seconds']:.3g}", f"{e['seconds_on_cpu']:.3g}", f"{e['seconds_on_cpu'] / e['seconds']:.2g}"]
        cells += [f"{e['difference']:.1e}, {'within' if e['agrees'] else 'beyond'} {e['tolerance']:.0e}"]
        lines.append(_row([*cells, f"{100 * e['floor_share']:.2g} %" if e["floor_share"] else "not measured"]))
    return "\n".join(lines)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _left_out(found: dict[str, Any]) -> str:
    """What was left out, by reason, each reason once."""
    reasons: dict[str, list[str]] = {}
    for entry in found["not_run"]:
        reasons.setdefault(entry["why"], []).append(entry["what"])
    lines = [f"* {why} ({'; '.join(what)})" for why, what in reasons.items()]
    return "\n".join(["Not run:", "", *lines]) if lines else ""


# --- the parts, each in a process of its own ----------------------------------------------------------------


def measure(part: str, session: Session) -> None:
    """Measure one part and note it."""
    kind, _, triton = part.partition("-")
    ways = WAYS[1:] if triton else WAYS[:1]
    if kind == "peaks":
        measure_peaks(session)
    elif kind == "law":
        measure_law(session, ways)
    elif kind == "speed":
        measure_speed(session, ways)
    else:
        measure_flow(session)


def run_part(part: str, device: str, output: Path, seconds: float, *, small: bool) -> None:
    """Measure one part in a process that is ended after so many seconds; note how it ended if that is not well."""
    if seconds <= 0:
        Results(output).not_run(part, "The time of all parts was over.")
        return
    words = ["--part", part, "--device", device, "--output", str(output), "--seconds", f"{seconds:.1f}"]
    command = [sys.executable, "-m", "benchmarks.gpu", *words, *(["--quick"] if small else [])]
    try:
        code = subprocess.run(command, cwd=ROOT, check=False, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        Results(output).not_run(part, f"The rest of this part was ended after {seconds:.0f} s.")
    else:
        if code != 0:
            Results(output).not_run(part, f"The process of this part ended with code {code}.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="The parts that can use a GPU.")
    parser.add_argument(
        "--device", default="auto", choices=("auto", "cuda", "cpu"), help="default: a GPU if there is one"
    )
    parser.add_argument("--output", type=Path, default=Path("gpu.json"), help="file to write; the table goes beside it")
    parser.add_argument("--seconds", type=float, default=460.0, help="time for everything (default: 460)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--part", choices=tuple(SHARES), help="measure this part alone and add it to the file")
    options = parser.parse_args()
    began = time.monotonic()
    available = torch.cuda.is_available()
    if options.device == "cuda" and not available:
        parser.error("--device cuda: PyTorch finds no CUDA device")
    device = "cpu" if options.device == "cpu" or not available else "cuda"
    output = options.output.resolve()
    plan, results = quick(device) if options.quick else Plan(device=device), Results(output)
    if options.part is not None:
        if device == "cpu":
            torch.set_num_threads(1)  # Threads of torch wait for each other busily, which takes long on shared cores.
        measure(options.part, Session(plan, results, OWN_SHARE * options.seconds))
        return
    results.begin(plan)
    end = began
    try:
        for part, share in SHARES.items():
            end += share * options.seconds
            run_part(part, device, output, end - time.monotonic(), small=options.quick)
            output.with_suffix(".md").write_text(table(results.read()), encoding="utf-8")
    finally:
        print(table(results.read()))


if __name__ == "__main__":
    main()
