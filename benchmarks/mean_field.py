"""The mean field of the spherical network: ours beside torch autograd over the same particles, at equal error.

The wanted number is t(L < 0.1) of h_4, and its error is that of the time steps: the reference is the flow of the same
particles, midpoint quantiles of equal weight, at a tight tolerance. In double precision:

* `euler`, `rk4`: what one would write by hand: the loss as a function of the N projections α by the moments that the
  kernel splits into, which costs O(N), its gradient by autograd, a fixed step, halved until the error is small enough.
  On one thread of torch and on all; the better counts;
* `pairs`: the same loop with the kernel K(α, α') of all N² pairs. A step of it takes so long that a few are timed, and
  the seconds of a solution are expected to be those of an evaluation times the fewest that a loop above needs;
* `ours`: the whole call of `solve_mean_field`, at the largest of a few tolerances that is accurate enough.

The run of 10^6 particles is timed apart.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics
from benchmarks.journal import Journal, machine
from benchmarks.sgd import on_threads
from dynamics.equations.mean_field import coordinate_moments, start_particles, zonal_coefficients, zonal_powers

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


LEVEL = 0.1
DIMENSION, PARTICLES, TARGETS = 64, 4096, (1e-3, 1e-4)
QUICK_DIMENSION, QUICK_PARTICLES, QUICK_TARGETS = 16, 512, (1e-3,)
LARGE_DIMENSION, LARGE_PARTICLES, QUICK_LARGE_PARTICLES = 128, 10**6, 10**5
#: The loop by hand starts from this step, near the limit of its stability.
LARGEST_STEP, HALVINGS = 0.25, 14
RTOLS = (5e-1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
REPEATS, PAIR_STEPS = 3, 3
EVALUATIONS = {"euler": 1, "rk4": 4}


def run(journal: Journal, *, quick: bool) -> dict[str, Any]:
    """Return seconds and errors of everyone at every target, and of the large run."""
    dimension, particles, targets = (
        (QUICK_DIMENSION, QUICK_PARTICLES, QUICK_TARGETS) if quick else (DIMENSION, PARTICLES, TARGETS)
    )
    many = QUICK_LARGE_PARTICLES if quick else LARGE_PARTICLES
    exact = crossing(dimension, particles, 1e-10)
    return {
        "dimension": dimension,
        "particles": particles,
        "cores": os.cpu_count() or 1,
        "processor": machine()["processor"],
        "reference": exact,
        "targets": [
            journal.measure(f"mean field at error {t:g}", partial(duel, dimension, particles, exact, t))
            for t in targets
        ],
        "pairs": journal.measure("mean field by pairs", lambda: pairs(dimension, particles)),
        "large": journal.measure("mean field of many particles", lambda: large(many, 1 if quick else REPEATS)),
    }


def problem(dimension: int) -> dynamics.Problem:
    return dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension, student="spherical"
    )


def crossing(dimension: int, particles: int, rtol: float) -> float:
    """Return t(L < 0.1) by `solve_mean_field`; theory says that it grows as the dimension, nearly."""
    flow = dynamics.solve_mean_field(
        problem(dimension),
        particles=particles,
        quadrature="quantiles",
        keep="summary",
        save_at=dynamics.SaveAt.at([1.7 * dimension]),
        rtol=rtol,
        progress=False,
    )
    return float(flow["loss_level_time"].sel(loss_level=LEVEL))


def duel(dimension: int, particles: int, exact: float, target: float) -> dict[str, Any]:
    """Return the settings that reach the target, and seconds (smallest, median, largest) of rounds taken in turn."""
    solvers: dict[str, Callable[[], float]] = {}
    found: dict[str, dict[str, Any]] = {}
    rtol = next(r for r in RTOLS if abs(crossing(dimension, particles, r) / exact - 1) <= target)
    solvers["ours"] = partial(crossing, dimension, particles, rtol)
    found["ours"] = {"rtol": rtol}
    for name, evaluations in EVALUATIONS.items():
        step = enough(lambda h, n=name: abs(Loop(dimension, particles).crossing(n, h) / exact - 1), target)
        found[name] = {"step": step, "evaluations": round(exact / step) * evaluations}
        for threads in sorted({1, os.cpu_count() or 1}):
            take = partial(Loop(dimension, particles).crossing, name, step)
            solvers[f"{name}, threads {threads}"] = lambda take=take, n=threads: threaded(n, take)
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    errors: dict[str, float] = {}
    for _ in range(REPEATS):
        for name, solve in solvers.items():
            began = time.perf_counter()
            value = solve()
            seconds[name].append(time.perf_counter() - began)
            errors[name] = abs(value / exact - 1)
    for name, settings in found.items():
        best = min((s for s in solvers if s.partition(",")[0] == name), key=lambda s: float(np.median(seconds[s])))
        settings |= {"who": best, "seconds": sorted(seconds[best]), "error": errors[best]}
    return {"target": target, **found}


def enough(error: Callable[[float], float], target: float) -> float:
    """Return the largest step, halved from `LARGEST_STEP`, whose error is small enough."""
    step = LARGEST_STEP
    for _ in range(HALVINGS):
        if error(step) <= target:
            return step
        step /= 2
    msg = f"Steps must reach the error {target:g}, but {step:g} does not."
    raise RuntimeError(msg)


def threaded(threads: int, take: Callable[[], float]) -> float:
    values: list[float] = []
    on_threads(threads, lambda _: values.append(take()))(1)
    return values[0]


@dataclass
class Loop:
    """The loop by hand over N projections, by moments or by pairs."""

    dimension: int
    particles: int
    by_pairs: bool = False

    def start(self) -> torch.Tensor:
        import torch

        return torch.tensor(start_particles(problem(self.dimension), self.particles, "quantiles")[0][:, 0])

    def loss(self, alpha: torch.Tensor) -> torch.Tensor:
        """E(f − f*)² of h_4: kernel s⁴, E z² and E z⁴ of a coordinate on the sphere of the other axes."""
        if self.by_pairs:
            _, second, fourth = coordinate_moments(self.dimension - 1, 3)
            p, rest = alpha[:, None] * alpha, 1 - alpha**2
            q = rest[:, None] * rest
            return (p**4 + 6 * second * p**2 * q + fourth * q**2).mean() - 2 * (alpha**4).mean() + 1
        weights = zonal_coefficients(np.eye(5)[4], self.dimension)
        powers, square = zonal_powers(self.dimension, 5), alpha**2
        two, four = square.mean(), (square**2).mean()
        first = powers[2, 0] + powers[2, 2] * two - 1
        second = powers[4, 0] + powers[4, 2] * two + powers[4, 4] * four - 1
        return weights[2] * first**2 + weights[4] * second**2

    def velocity(self, alpha: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return the velocities, and the loss on the way."""
        import torch

        leaf = alpha.detach().requires_grad_()
        loss = self.loss(leaf)
        (gradient,) = torch.autograd.grad(0.5 * self.particles * loss, leaf)
        return -(1 - alpha**2) * gradient, float(loss.detach())

    def step(self, name: str, alpha: torch.Tensor, h: float) -> tuple[torch.Tensor, float]:
        one, loss = self.velocity(alpha)
        if name == "euler":
            return alpha + h * one, loss
        two, _ = self.velocity(alpha + h / 2 * one)
        three, _ = self.velocity(alpha + h / 2 * two)
        four, _ = self.velocity(alpha + h * three)
        return alpha + h / 6 * (one + 2 * two + 2 * three + four), loss

    def crossing(self, name: str, h: float) -> float:
        """Return t(L < 0.1), interpolated between steps."""
        alpha, before = self.start(), math.inf
        for taken in range(round(3 * self.dimension / h)):
            alpha, loss = self.step(name, alpha, h)
            if not loss > LEVEL:
                return h * (taken - (LEVEL - loss) / (before - loss))
            before = loss
        return math.nan


def pairs(dimension: int, particles: int) -> dict[str, Any]:
    """Return seconds of one evaluation by pairs (smallest, median, largest), on one thread and on all."""
    loop = Loop(dimension, particles, by_pairs=True)
    alpha, seconds = loop.start(), {}
    assert abs(float(loop.loss(alpha) - Loop(dimension, particles).loss(alpha))) < 1e-12, "both are one loss"
    for threads in sorted({1, os.cpu_count() or 1}):
        found = []
        for _ in range(PAIR_STEPS):
            began = time.perf_counter()
            threaded(threads, lambda: loop.velocity(alpha)[1])
            found.append(time.perf_counter() - began)
        seconds[str(threads)] = sorted(found)
    return {"seconds_of_an_evaluation": seconds}


def large(particles: int, repeats: int) -> dict[str, Any]:
    """Return seconds (smallest, median, largest) to t(L < 0.1) at rtol 1e-3, and that time."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        value = crossing(LARGE_DIMENSION, particles, 1e-3)
        found.append(time.perf_counter() - began)
    return {"dimension": LARGE_DIMENSION, "particles": particles, "seconds": sorted(found), "crossing": value}
