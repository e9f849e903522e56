"""The large-flow solver on a graphics processor: `python -m benchmarks.gpu_flow [--device cuda] [--output FILE]`.

Measures, in this order, and writes the file again after each: the parts of a step at every size; solutions at small
sizes against the solver of the host, with their errors; solutions at large sizes. A problem is the standard one, to
t = 6 d P.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.problems import Outcome, errors, horizon, save_times, standard_problem
from dynamics.equations.overlaps.system import OverlapSystem
from dynamics.integrators.large_flow import LargeFlowStepper
from dynamics.integrators.large_flow.device.stepper import TorchFlowStepper

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators import Stepper

#: m = P, d: compared with the host, and too large for that.
COMPARED = ((128, 1024), (256, 1024))
LARGE = ((512, 1024), (1024, 2048))
RTOLS = (1e-7, 1e-8)
REFERENCE_RTOL = 1e-9
REPEATS = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_flow", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, … or cpu (default: cuda)")
    parser.add_argument("--output", type=Path, default=Path("gpu_flow.json"), help="file to write")
    parser.add_argument("--quick", action="store_true", help="m = P = 16 and 32 only, to see that it runs")
    options = parser.parse_args()
    compared, large = (((16, 256),), ((32, 256),)) if options.quick else (COMPARED, LARGE)
    graphs = (False,) if options.device == "cpu" else (False, True)
    if options.device == "cpu":
        # Threads of torch wait for each other busily: on shared cores a step takes ten times as long with two.
        import_module("torch").set_num_threads(1)
    results: dict[str, Any] = {"hardware": hardware(options.device), "parts": [], "compared": [], "large": []}

    def note(kind: str, entry: dict[str, Any]) -> None:
        results[kind].append(entry)
        options.output.write_text(json.dumps(results, indent=1) + "\n")
        print(kind, json.dumps(entry), flush=True)

    print(json.dumps(results["hardware"]))
    for size in compared + large:
        note("parts", parts(*size, options.device, graphs))
    for size, dimension in compared:
        reference, host = on_host(size, dimension, REFERENCE_RTOL)
        note("compared", {**host, "rtol": REFERENCE_RTOL})
        for rtol in RTOLS:
            for outcome, entry in (
                on_host(size, dimension, rtol),
                *(on_device(size, dimension, rtol, options.device, graph=graph) for graph in graphs),
            ):
                found = errors(outcome, reference)
                note("compared", {**entry, "rtol": rtol, "loss_error": found.loss, "missed": found.missed,
                                  "emergence_time_error": found.emergence_time})  # fmt: skip
    for size, dimension in large:
        for rtol in RTOLS:
            for graph in reversed(graphs):
                note("large", {**on_device(size, dimension, rtol, options.device, graph=graph)[1], "rtol": rtol})


def hardware(device: str) -> dict[str, Any]:
    """Return the name of the device and of what drives it."""
    torch = import_module("torch")
    name = torch.cuda.get_device_name(device) if device != "cpu" else "cpu"
    return {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "cores": os.cpu_count()}


def on_host(size: int, dimension: int, rtol: float) -> tuple[Outcome, dict[str, Any]]:
    """Solve with the compiled solver of the host, all cores."""
    stepper = LargeFlowStepper(standard_problem(size, dimension), rtol=rtol, atol=1e-2 * rtol)
    outcome, entry = solved(stepper, size, dimension, lambda t: loss_on_host(stepper, size, dimension, t))
    return outcome, {"solver": "host", **entry}


def on_device(size: int, dimension: int, rtol: float, device: str, *, graph: bool) -> tuple[Outcome, dict[str, Any]]:
    """Solve on the device; losses are computed there."""
    problem = standard_problem(size, dimension)
    stepper = TorchFlowStepper(problem, rtol=rtol, atol=1e-2 * rtol, device=device, graph=graph)
    outcome, entry = solved(stepper, size, dimension, stepper.loss)
    return outcome, {"solver": "device", "graph": graph, **entry}


def solved(
    stepper: Stepper, size: int, dimension: int, loss: Callable[[float], float]
) -> tuple[Outcome, dict[str, Any]]:
    """Take a stepper to the horizon, observing losses; seconds include them, `observing` says how much."""
    times = save_times(horizon(size, dimension))
    losses, observing = np.empty(times.size), 0.0
    began = time.perf_counter()
    for i, t in enumerate(times.tolist()):
        status = stepper.advance(t, 10**9)
        if status != 0:
            msg = f"The run must reach t = {t:g}, but ended at {stepper.time:g} with {status!r}."
            raise RuntimeError(msg)
        asked = time.perf_counter()
        losses[i] = loss(t)
        observing += time.perf_counter() - asked
    seconds = time.perf_counter() - began
    statistics = stepper.statistics()
    outcome = Outcome(losses, stepper.event_times[:size], seconds, statistics["rhs_evaluations"])
    steps = statistics["steps_accepted"] + statistics["steps_rejected"]
    return outcome, {
        "size": size,
        "dimension": dimension,
        "seconds": seconds,
        "observing": observing,
        "milliseconds_per_step": 1e3 * (seconds - observing) / steps,
        "emerged": int(np.isfinite(outcome.emergence_time).sum()),
        **statistics,
    }


def loss_on_host(stepper: LargeFlowStepper, size: int, dimension: int, t: float) -> float:
    system = _SYSTEMS.setdefault((size, dimension), OverlapSystem(standard_problem(size, dimension)))
    return system.loss(*system.unpack(stepper.interpolate(t)))


_SYSTEMS: dict[tuple[int, int], OverlapSystem] = {}


def parts(size: int, dimension: int, device: str, graphs: tuple[bool, ...]) -> dict[str, Any]:
    """Return milliseconds of each part of a step, and of what is asked inside one."""
    torch = import_module("torch")
    entry: dict[str, Any] = {"size": size, "dimension": dimension}
    for graph in graphs:
        flow = TorchFlowStepper(standard_problem(size, dimension), rtol=1e-7, atol=1e-9, device=device, graph=graph)
        flow.advance(np.inf, 5)
        step = flow._step
        h, middle = step.length, 0.5 * (flow._time_last + flow.time)
        assert h is not None
        # An attempt overwrites the state at the end of a step, so it comes last.
        work: dict[str, Callable[[], object]] = {}
        if not graph:
            rates = torch.zeros_like(step.now)
            n = torch.exp(step.begin[:, flow._D])
            work = {
                "field": lambda step=step, rates=rates: step.field.rates(step.begin, rates),
                "slowing": lambda step=step, rates=rates, n=n: step.clusters.slow(rates, n),
                "combination": lambda step=step: step._add_stages(6, step._stage),
                "dense": lambda flow=flow: (setattr(flow._step, "_dense", None), flow._step.at(0.5)),
                "overlaps on the host": lambda flow=flow, t=middle: flow.interpolate(t),
                "summary": lambda flow=flow, t=middle: flow.summary(t),
                "loss": lambda flow=flow, t=middle: flow.loss(t),
                "settling": step.settle,
                "preparing": step.prepare,
            }
        work["attempt as a graph" if graph else "attempt"] = lambda step=step, h=h: step.attempt(h)
        for name, call in work.items():
            entry[name] = milliseconds(call, device, torch)
    m, D = size, min(dimension, 2 * size)
    entry["field, TFLOP/s"] = 4e-9 * m * m * D / entry["field"]
    return entry


def milliseconds(call: Callable[[], object], device: str, torch: Any) -> float:
    """Return the mean wall-clock milliseconds of a call, launches and all, after one that is not counted."""

    def finish() -> None:
        if device != "cpu":
            torch.cuda.synchronize(device)

    call()
    finish()
    began = time.perf_counter()
    for _ in range(REPEATS):
        call()
    finish()
    return 1e3 * (time.perf_counter() - began) / REPEATS


if __name__ == "__main__":
    main()
