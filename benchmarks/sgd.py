"""Online SGD: the projected engine and the torch engine beside what one would write by hand, in turn in one run.

* `loop`: one run, torch autograd and `torch.optim.SGD`, as in a first script;
* `batched`: all runs at once by the gradient in closed form, a batch axis over seeds;
* `torch`, `projected`: the engines of this program.

The first two run on one thread of torch and on all, since neither number is always the better one; the better counts.

Rates of learning are so small that nothing moves: what is timed does not depend on it. The floor of SGD in R^d is what
no way of writing it can avoid: d normal numbers and 4 m d operations a step, each at the speed measured here.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.journal import Journal

#: m = P and d of the comparison, and seeds of what runs many at once.
SIZE, DIMENSION, SEEDS = 32, 4096, 16
PROJECTED_SIZES = (8, 32)
#: m = P of steps with momentum beside plain ones.
MOMENTUM_SIZES = (2, 8, 32)
DIMENSIONS = (10**3, 10**6, 10**9, 10**12)
ZEROTH_SIZE, ZEROTH_DIMENSIONS = 2, (100, 10**5, 10**9)
RATE = 1e-12
REPEATS, QUICK_REPEATS = 5, 2
SECONDS, QUICK_SECONDS = 0.6, 0.15
PEAK_SIZE = 768


def run(journal: Journal, *, quick: bool) -> dict[str, Any]:
    """Return seed-steps per second (smallest, median, largest) of everyone, and the floor."""
    effort = {"repeats": QUICK_REPEATS, "seconds": QUICK_SECONDS} if quick else {"repeats": REPEATS, "seconds": SECONDS}
    cores = os.cpu_count() or 1
    return {
        "size": SIZE,
        "dimension": DIMENSION,
        "seeds": SEEDS,
        "cores": cores,
        "contenders": journal.measure("sgd side by side", lambda: in_turn(contenders(), **effort)),
        "floor": journal.measure("floor of sgd in R^d", lambda: floor(**effort)),
        "projected": journal.measure("projected sgd on one core", lambda: in_turn(projected(), **effort)),
        "zeroth order": journal.measure("zeroth-order sgd on one core", lambda: in_turn(zeroth_order(), **effort)),
        "momentum": journal.measure("projected sgd with momentum", lambda: in_turn(with_momentum(), **effort)),
    }


def contenders() -> dict[str, tuple[int, Callable[[int], None]]]:
    """Return, by name, how many seeds take steps together, and what takes so many steps."""
    cores = os.cpu_count() or 1
    return {
        **{f"loop, threads {n}": (1, on_threads(n, loop())) for n in sorted({1, cores})},
        **{f"batched, threads {n}": (SEEDS, on_threads(n, batched())) for n in sorted({1, cores})},
        "torch": (SEEDS, engine("torch", SIZE, DIMENSION, range(SEEDS))),
        "projected": (SEEDS, engine("projected", SIZE, DIMENSION, range(SEEDS))),
    }


def projected() -> dict[str, tuple[int, Callable[[int], None]]]:
    """Return single runs of the projected engine, "m, d", each on one core."""
    return {f"{m}, {d}": (1, engine("projected", m, d, range(1))) for m in PROJECTED_SIZES for d in DIMENSIONS}


def zeroth_order() -> dict[str, tuple[int, Callable[[int], None]]]:
    """Return single runs of zeroth-order SGD in the projected engine, "m, d", each on one core."""
    optimizer = dynamics.ZerothOrder()
    return {
        f"{ZEROTH_SIZE}, {d}": (1, engine("projected", ZEROTH_SIZE, d, range(1), optimizer)) for d in ZEROTH_DIMENSIONS
    }


def with_momentum() -> dict[str, tuple[int, Callable[[int], None]]]:
    """Return single runs of the projected engine, plain and with momentum, "m, momentum"."""
    return {
        f"{m}, {momentum}": (1, engine("projected", m, DIMENSIONS[0], range(1), dynamics.SGD(momentum=momentum)))
        for m in MOMENTUM_SIZES
        for momentum in (0.0, 0.9)
    }


def problem(size: int, dimension: int) -> dynamics.Problem:
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    return dynamics.Problem(activation="he4", teacher=teacher, width=size, dimension=dimension, initial_norm=0.03)


def engine(
    name: str, size: int, dimension: int, seeds: Sequence[int], optimizer: dynamics.Optimizer | None = None
) -> Callable[[int], None]:
    from sgd_check.engines.registry import EngineOptions, make_engine

    options = EngineOptions(seeds=tuple(seeds), device="cpu", optimizer=optimizer or dynamics.SGD())
    made = make_engine(name, problem(size, dimension), options)

    # The noise of steps of zeroth order grows with d; they would blow up at the rate of others.
    rate = RATE if optimizer is None else RATE / dimension

    def take(steps: int) -> None:
        with made.running():
            made.advance(np.full(steps, rate))

    return take


def on_threads(threads: int, take: Callable[[int], None]) -> Callable[[int], None]:
    """Return `take` on so many threads of torch."""
    import torch

    def wrapped(steps: int) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            take(steps)
        finally:
            torch.set_num_threads(before)

    return wrapped


def loop() -> Callable[[int], None]:
    """One run by autograd, in single precision."""
    import torch

    given = problem(SIZE, DIMENSION)
    start = np.zeros((SIZE, DIMENSION), dtype=np.float32)
    start[:, : 2 * SIZE] = given.reduced_weights()
    weights = torch.tensor(start, requires_grad=True)
    a = torch.tensor(given.teacher.coefficients, dtype=torch.float32)
    optimizer = torch.optim.SGD([weights], lr=RATE)

    def sigma(z: torch.Tensor) -> torch.Tensor:
        return (z**4 - 6 * z**2 + 3) / 24**0.5

    def take(steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(DIMENSION)
            lengths = weights.norm(dim=1)
            prediction = (lengths**2 * sigma(weights @ x / lengths)).sum()
            loss = 0.5 * (prediction - (a * sigma(x[:SIZE])).sum()) ** 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return take


def batched() -> Callable[[int], None]:
    """All runs at once by the closed form, in single precision, one step after the other."""
    import torch

    given = problem(SIZE, DIMENSION)
    start = np.zeros((SIZE, DIMENSION), dtype=np.float32)
    start[:, : 2 * SIZE] = given.reduced_weights()
    weights = torch.tensor(start).repeat(SEEDS, 1, 1)
    a = torch.tensor(given.teacher.coefficients, dtype=torch.float32)
    root = 24**0.5

    @torch.inference_mode()
    def take(steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(SEEDS, DIMENSION)
            lengths = weights.norm(dim=2)
            z = torch.bmm(weights, x[:, :, None])[:, :, 0] / lengths
            sigma, slope = (z**4 - 6 * z**2 + 3) / root, (4 * z**3 - 12 * z) / root
            v = x[:, :SIZE]
            error = (lengths**2 * sigma).sum(1) - (a * (v**4 - 6 * v**2 + 3) / root).sum(1)
            step = RATE * error[:, None]
            weights.mul_((1 - step * (2 * sigma - z * slope))[:, :, None])
            weights.baddbmm_((step * lengths * slope)[:, :, None], x[:, None, :], alpha=-1)

    return take


def floor(*, repeats: int, seconds: float) -> dict[str, Any]:
    """Return seconds of the d normal numbers and of the 4 m d operations of one step, on one core."""
    import torch

    samples, generator = torch.empty(16, DIMENSION), torch.Generator()
    a, b, c = (torch.rand(PEAK_SIZE, PEAK_SIZE) for _ in range(3))

    def draw(times: int) -> None:
        for _ in range(times):
            samples.normal_(generator=generator)

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(a, b, out=c)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = in_turn({"draw": (1, draw), "multiply": (1, multiply)}, repeats=repeats, seconds=seconds)
    finally:
        torch.set_num_threads(before)
    number = 1.0 / (found["draw"][1] * samples.numel())
    operation = 1.0 / (found["multiply"][1] * 2 * PEAK_SIZE**3)
    return {
        "seconds_per_normal": number,
        "operations_per_second": 1.0 / operation,
        "normals": DIMENSION * number,
        "products": 4 * SIZE * DIMENSION * operation,
    }


def in_turn(
    who: dict[str, tuple[int, Callable[[int], None]]], *, repeats: int, seconds: float
) -> dict[str, list[float]]:
    """Return seed-steps per second of each, smallest, median and largest of rounds in which everyone has a turn."""
    steps = {name: _enough(take, seconds) for name, (_, take) in who.items()}
    found: dict[str, list[float]] = {name: [] for name in who}
    for _ in range(repeats):
        for name, (seeds, take) in who.items():
            found[name].append(seeds * steps[name] / _seconds(partial(take, steps[name])))
    return {name: [min(v), float(np.median(v)), max(v)] for name, v in found.items()}


def _enough(take: Callable[[int], None], seconds: float) -> int:
    """Return how many steps take about so long, after a warm-up."""
    steps = 1
    take(steps)
    while (spent := _seconds(partial(take, steps))) < 0.2 * seconds:
        steps *= 4
    return max(int(steps * seconds / spent), 1)


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
