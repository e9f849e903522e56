"""Trajectories in the words of public codes, and the same in ours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics
from dynamics.equations.committee import CommitteeSystem
from dynamics.equations.network.steps import NetworkStepSystem
from dynamics.equations.network.system import NetworkSystem

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.equations.interface import EquationSystem

    Array = NDArray[np.float64]

#: Our absolute tolerance over rtol.
ATOL_FACTOR = 1e-2
#: Noise without the other term of second order is the limit of a small rate at fixed rate · noise².
SMALL = 1e-6


@dataclass(frozen=True)
class Case:
    """A trajectory in the words of a public code.

    mean : whether the networks are means over their units, not sums
    part : its generalisation error over E(f − f*)²
    rate : η, or the factor of the terms of second order, γ/p over the batch's part of d, which may be 0
    noise : standard deviation of the labels' noise, or its variance where networks are means
    second_order : whether the term in the squared error is there; that of the noise always is
    step, last : step and end, in the code's time
    both : whether the second layer, random at the start, is trained
    sphere : whether neurons have unit length and keep it
    start : standard deviation of the student's weights, and of those of the second layer, at the start
    axes : dimension in which the start is drawn
    """

    name: str
    code: str
    width: int
    directions: int
    rate: float
    noise: float
    step: float
    last: float
    mean: bool = False
    second_order: bool = True
    both: bool = False
    sphere: bool = False
    link: str = "erf"
    start: tuple[float, float] = (1.0, 1.0)
    axes: int = 500
    part: float = 0.5

    @property
    def steps(self) -> int:
        return round(self.last / self.step)

    def weights(self) -> Array:
        """Return a random start, shape (m, r + m), the teacher's axes first; each |w_i| is about `start[0]`."""
        drawn = np.random.default_rng(0).standard_normal((self.width, self.axes)) * self.start[0] / math.sqrt(self.axes)
        if self.sphere:
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        rest = drawn[:, self.directions :]
        values, vectors = np.linalg.eigh(rest @ rest.T)
        return np.hstack([drawn[:, : self.directions], vectors * np.sqrt(np.maximum(values, 0.0))])

    def second_layer(self) -> Array:
        if not self.both:
            return np.ones(self.width)
        return np.random.default_rng(1).standard_normal(self.width) * self.start[1]


NN2PP = Case("nn2pp, its defaults", "nn2pp", 4, 4, rate=0.5, noise=0.0, step=0.01, last=1000.0)
LEE = Case(
    "teacher_student_dynamics",
    "teacher_student_dynamics",
    4,
    2,
    rate=0.2,
    noise=0.0,
    step=1e-3,
    last=10.0,
    both=True,
    # It starts from 1e-3, where nothing moves before the end.
    start=(1.0, 0.5),
    axes=10_000,
)
CLASSIC = Case(
    "committee_learning, notebook of the classic limit",
    "DimensionlessDynamicsSGD",
    10,
    2,
    rate=0.005,
    noise=1e-3,
    step=1e-3,
    last=1e4,
    mean=True,
    second_order=False,
    axes=3,
)
GIANT = Case(
    "giant_learning, erf",
    "batch-size-time-complexity-tradeoffs",
    2,
    2,
    rate=4.0,
    noise=1e-2,
    step=0.04,
    last=400.0,
    mean=True,
    axes=10_000,
    # Its covariance of two erf is half the true one, and its error half the sum of these.
    part=0.25,
)
HE3 = replace(
    GIANT,
    name="giant_learning, He3",
    link="He3",
    part=0.5,
    width=4,
    directions=1,
    rate=0.005 / 16,
    noise=1e-6,
    step=0.005 / 16,
    last=3000 * 0.005 / 16,
    axes=256,
)
CASES = (
    NN2PP,
    replace(NN2PP, name="nn2pp, both layers", directions=2, both=True),
    replace(NN2PP, name="nn2pp, both layers, noise", directions=2, both=True, noise=0.1),
    LEE,
    replace(LEE, name="teacher_student_dynamics, longer", last=200.0),
    CLASSIC,
    replace(CLASSIC, name="committee_learning, all terms of second order", second_order=True, last=100.0),
    GIANT,
    replace(GIANT, name="giant_learning, erf on the sphere", sphere=True),
    replace(GIANT, name="giant_learning, erf on the sphere, flow", rate=0.0, step=5e-4, last=5.0, sphere=True),
    HE3,
    replace(HE3, name="giant_learning, He3 on the sphere", sphere=True),
)
QUICK_CASES = tuple(replace(case, last=min(case.last, 100 * case.step)) for case in (NN2PP, LEE, CLASSIC, GIANT))


@dataclass(frozen=True)
class Translation:
    """A case in our words: the sum of units that learns the sum a Σ_r g(θ_r·x), in time η · step.

    time : our time over theirs
    rate : η d
    label_noise : τ
    coefficient : a
    loss : their generalisation error over our loss E(f − f*)²
    """

    time: float
    rate: float
    label_noise: float
    coefficient: float
    loss: float


def translated(case: Case) -> Translation:
    """Return the case in our words; a mean of m units is their sum over m, its error m times as small as ours."""
    if case.mean:
        m = case.width
        found = Translation(1 / m, case.rate / m, m * math.sqrt(case.noise), m / case.directions, case.part / m**2)
    else:
        found = Translation(case.rate, case.rate, case.noise, 1.0, case.part)
    if case.second_order:
        return found
    return replace(found, rate=found.rate * SMALL**2, label_noise=found.label_noise / SMALL)


def our_problem(case: Case) -> dynamics.Problem:
    words, weights = translated(case), case.weights()
    link = "erf" if case.link == "erf" else {3: math.sqrt(6.0)}
    given: dict[str, Any] = {"activation": link, "width": case.width, "student": "committee"}
    if case.both or case.sphere:
        student = dynamics.Student(
            activation=link,
            width=case.width,
            second_layer="trained" if case.both else "fixed",
            initial_second_layer=case.second_layer(),
            first_layer="sphere" if case.sphere else "free",
        )
        given = {"student": student}
    return dynamics.Problem(
        teacher=dynamics.Teacher([words.coefficient] * case.directions),
        dimension=weights.shape[1],
        initial_weights=weights,
        label_noise=words.label_noise,
        **given,
    )


def our_system(case: Case) -> EquationSystem:
    """Return the equations that our answer integrates."""
    problem = our_problem(case)
    step = translated(case).rate / problem.dimension
    if problem.kind == "committee":
        return CommitteeSystem(problem, step, "infinite-d")
    return NetworkStepSystem(problem, step, "infinite-d") if step else NetworkSystem(problem)


def our_loss(case: Case, times: Array, rtol: float) -> tuple[Array, xr.Dataset]:
    """Return the generalisation error in the code's words at its `times`, and the whole answer."""
    words, problem = translated(case), our_problem(case)
    answer = dynamics.solve_problem(
        problem,
        learning_rate=words.rate / problem.dimension or None,
        step_theory="infinite-d" if words.rate else None,
        save_at=dynamics.SaveAt.at(words.time * times),
        rtol=rtol,
        atol=rtol * ATOL_FACTOR,
        keep="summary",
        error_estimate=False,
        progress=False,
    )
    return words.loss * answer["loss"].to_numpy(), answer
