"""Online SGD on a graphics processor: `python -m benchmarks.gpu_sgd [--device cuda] [--output FILE] [--quick]`.

Measures, in this order, and writes the file again after each: what a step needs at least; whether every kernel takes
the steps of torch in double precision on the same samples, and has the law of the processor's own samples; seed-steps
per second of the fused kernel, of CUDA graphs and of plain torch calls, at sizes whose weights take 8, 128 and 512 kB.
On the processor (`--device cpu`) only the plain steps take part, to see that the script runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import dynamics
from sgd_check.engines.torch.blocks import DELAYED_STEPS, BlockStepper, Setting
from sgd_check.engines.torch.fused import STEPS, FusedStepper, fill_normals, fusible, triton_version
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.recursion import aligned
from sgd_check.engines.torch.samples import TorchTeacher
from sgd_check.engines.torch.streams import make_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: m = P and d.
SIZES = ((8, 256), (32, 1024), (32, 4096))
SEEDS = (1, 132, 1056, 4224)
SECONDS = 1.0
#: Memory that samples and weights of one measurement may take.
MEMORY = 24 * 2**30
PEAK_SIZE = 4096


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_sgd", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, … or cpu (default: cuda)")
    parser.add_argument("--output", type=Path, default=Path("gpu_sgd.json"), help="file to write")
    parser.add_argument("--quick", action="store_true", help="one small size, to see that it runs")
    options = parser.parse_args()
    device = torch.device(options.device)
    sizes, seeds = (((4, 64),), (2,)) if options.quick else (SIZES, SEEDS)
    kinds = ("plain",) if device.type == "cpu" else ("fused", "graph", "plain")
    results: dict[str, Any] = {"hardware": hardware(device), "floor": [], "same_samples": [], "law": [], "speed": []}

    def note(part: str, entry: dict[str, Any]) -> None:
        results[part].append(entry)
        options.output.write_text(json.dumps(results, indent=1) + "\n")
        print(part, json.dumps(entry), flush=True)

    print(json.dumps(results["hardware"]))
    machine = peaks(device)
    for size in sizes:
        note("floor", floor(*size, machine))
    for kind in kinds:
        for size in sizes:
            note("same_samples", same_samples(kind, *size, device))
        note("law", law(kind, device, count=64 if options.quick else 2048))
    for size in sizes:
        for count in seeds:
            for kind in kinds:
                note("speed", speed(kind, *size, count, device, seconds=0.1 if options.quick else SECONDS))


def hardware(device: torch.device) -> dict[str, Any]:
    """Return the name of the device and of what drives it."""
    found: dict[str, Any] = {"device": "cpu", "torch": torch.__version__, "cores": os.cpu_count()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "device": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "triton": triton_version(),
        }
    return found


# --- what takes part --------------------------------------------------------------------------------------


def problem(size: int, dimension: int, norm: float = 0.03) -> dynamics.Problem:
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    return dynamics.Problem(
        activation="he4", teacher=teacher, width=size, dimension=dimension, initial_norm=norm, label_noise=0.1
    )


def stepper(
    kind: str, given: dynamics.Problem, seeds: Sequence[int], device: torch.device, dtype: torch.dtype = torch.float32
) -> Any:
    """Return what takes the steps of that kind, from the start of the problem."""
    start = np.zeros((given.width, aligned(given.dimension)))
    reduced = given.reduced_weights()
    start[:, : reduced.shape[1]] = reduced
    weights = torch.tensor(start, dtype=dtype, device=device).repeat(len(seeds), 1, 1)
    teacher = TorchTeacher.of(given, dtype, device)
    if kind == "fused":
        link = fusible(given, 1, dtype)
        if link is None:
            msg = "The fused kernel must be able to take the problem, but cannot: is Triton installed?"
            raise RuntimeError(msg)
        return FusedStepper(
            weights, teacher.coefficients, given.dimension, seeds, link=link, noise=given.label_noise, free=False
        )
    setting = Setting(
        link=make_link(given.activation, dtype, device)[0],
        teacher=teacher,
        dimension=given.dimension,
        batch=1,
        free=False,
    )
    return BlockStepper(setting, weights, make_streams(seeds, dtype, device), graph=kind == "graph")


# --- correctness ------------------------------------------------------------------------------------------


def same_samples(kind: str, size: int, dimension: int, device: torch.device) -> dict[str, Any]:
    """Return the largest difference to plain steps in double precision on the same samples, relative to the move."""
    given, seeds, steps = problem(size, dimension, norm=0.3), (3, 2**32 - 1), 200
    rates = torch.full((steps,), 0.03 / dimension**2, dtype=torch.float64)
    found = []
    for name, dtype in ((kind, torch.float32), ("plain", torch.float64)):
        taken = stepper(name, given, seeds, device, dtype)
        with taken.running():
            start = taken.current().to(torch.float64, copy=True)
            taken.advance(rates)
            found.append(taken.current().to(torch.float64))
    move = (found[1] - start).abs().max()
    comparable = device.type == "cuda" and triton_version() is not None
    return {
        "kind": kind,
        "size": size,
        "dimension": dimension,
        "largest_move": float(move),
        "difference": float((found[0] - found[1]).abs().max()) if comparable else None,
    }


def law(kind: str, device: torch.device, *, count: int) -> dict[str, Any]:
    """Return z-scores of mean overlap and log norm of one neuron against plain steps on the processor's samples.

    Beyond 5 is a false alarm with probability 6e-7 each; "moved" says by how many errors the runs left their start.
    """
    weights = np.zeros((1, 16))
    weights[0, :2] = 0.05, 0.0866
    given = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([0.8]), width=1, dimension=16, initial_weights=weights
    )
    rates = torch.full((600,), 2e-4, dtype=torch.float64)
    values = []
    cpu = torch.device("cpu")
    for name, where, seeds in ((kind, device, range(count)), ("plain", cpu, range(count, 2 * count))):
        taken = stepper(name, given, tuple(seeds), where)
        with taken.running():
            taken.advance(rates)
            found = taken.current().to(torch.float64).cpu().numpy()[:, 0]
        norm = np.linalg.norm(found, axis=1)
        values.append(np.stack([found[:, 0] / norm, np.log(norm)]))
    a, b = values
    z = (a.mean(1) - b.mean(1)) / np.sqrt((a.var(1) + b.var(1)) / count)
    moved = (b.mean(1) - [0.5, np.log(0.1)]) / np.sqrt(b.var(1) / count)
    return {"kind": kind, "runs": count, "z": z.tolist(), "moved": moved.tolist(), "agree": bool(np.abs(z).max() < 5)}


# --- speed ------------------------------------------------------------------------------------------------


def speed(kind: str, size: int, dimension: int, count: int, device: torch.device, *, seconds: float) -> dict[str, Any]:
    """Return seed-steps per second."""
    entry: dict[str, Any] = {"kind": kind, "size": size, "dimension": dimension, "seeds": count}
    need = 4 * count * aligned(dimension) * (size + (0 if kind == "fused" else DELAYED_STEPS))
    if need > MEMORY:
        return {**entry, "status": "too large"}
    taken = stepper(kind, problem(size, dimension), range(count), device)
    with taken.running():

        def seconds_of(steps: int) -> float:
            began = time.perf_counter()
            taken.advance(torch.full((steps,), 1e-12, dtype=torch.float64))
            finish(device)
            return time.perf_counter() - began

        steps = DELAYED_STEPS
        seconds_of(steps)
        while (spent := seconds_of(steps)) < 0.2 * seconds:
            steps *= 4
        steps = max(int(steps * seconds / spent), 1) // DELAYED_STEPS * DELAYED_STEPS + DELAYED_STEPS
        rates = sorted(count * steps / seconds_of(steps) for _ in range(3))
    return {**entry, "status": "done", "steps": steps, "seed_steps_per_second": rates}


def peaks(device: torch.device) -> dict[str, float]:
    """Return measured speeds: normal numbers, operations in single precision, bytes read and written per second."""
    large = device.type == "cuda"
    side = PEAK_SIZE if large else 512
    a, b = torch.rand(side, side, device=device), torch.rand(side, side, device=device)
    samples = torch.empty(64, 1024, 1024 if large else 4, device=device)
    product, seeds = torch.empty_like(a), torch.arange(64, device=device)
    counted = large and triton_version() is not None
    draw: Callable[[], object] = (lambda: fill_normals(seeds, 0, samples, None)) if counted else samples.normal_
    work: dict[str, tuple[float, Callable[[], object]]] = {
        "normals": (samples.numel(), draw),
        "operations": (2 * a.shape[0] ** 3, lambda: torch.mm(a, b, out=product)),
        "bytes": (2 * 4 * samples.numel(), lambda: samples.mul_(1.0)),
    }
    found = {}
    for name, (amount, call) in work.items():
        call()
        finish(device)

        def several(call: Callable[[], object] = call) -> None:
            for _ in range(10):
                call()
            finish(device)

        found[name] = 10 * amount / min(elapsed(several) for _ in range(3))
    return found


def floor(size: int, dimension: int, machine: dict[str, float]) -> dict[str, Any]:
    """Return what one step of one seed needs, counted, and how many a second the measured peaks allow of each.

    Needed by SGD itself: d normal numbers and 4 m d operations. As done here: 2 d (2 m + K) operations, and 8 m d/K
    bytes of weights where they do not stay in a cache.
    """
    needs = {"normals": dimension, "operations": 4 * size * dimension}
    done = {"operations": 2 * dimension * (2 * size + STEPS), "bytes": 8 * size * dimension / STEPS}
    return {
        "size": size,
        "dimension": dimension,
        "measured_per_second": machine,
        "needed": needs,
        "needed_seed_steps_per_second": {name: machine[name] / amount for name, amount in needs.items()},
        "done": done,
        "done_seed_steps_per_second": {name: machine[name] / amount for name, amount in done.items()},
    }


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def elapsed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
