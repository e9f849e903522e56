"""Every answer of the program, declared once: its problems, its function, and its abilities.

The front door `solve_problem`, `resume`, sweeps, the command line, files and reports read this table. It imports
nothing heavy: functions are named by their modules and found when they are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, cast

from dynamics.integrators import COMMITTEE_METHODS, FLOW_METHODS, METHODS, NETWORK_METHODS, PARTICLE_METHODS
from dynamics.problem.question import OF_TOKENS, OWN, Question

#: Abilities of an answer, unless its entry says why it lacks one.
CAPABILITIES = {
    "watch": "shows progress, takes trackers and a budget of time, and gives back or raises a run that failed",
    "resume": "writes checkpoints, from which `dynamics.resume` goes on",
    "estimate": "estimates its numerical errors by a second run at ten times the tolerance",
    "sound": "stops where a recorded state breaks what holds exactly: |C| <= 1, n > 0, a loss that may not rise",
    "sweep": "can be asked at every point of a sweep",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of answer to a problem; functions are named "module:function"."""

    #: As the attribute `answer` of its datasets and in `dynamics.sweep(…, study=name)`.
    name: str
    #: (problem, *, …) -> Dataset. A model of the command line has beside it `check`, a function of problem and options
    #: that refuses what it cannot do, before any work.
    function: str
    #: Tells a result to people.
    findings: str
    #: Kinds of the problems that it takes: of those with Gaussian inputs, their students.
    students: tuple[str, ...] = ("homogeneous",)
    #: Values of its argument `method`.
    methods: tuple[str, ...] = ()
    #: Fields of a problem that it knows beyond those that all answers take; a problem that sets another is refused.
    fields: tuple[str, ...] = ()
    #: (problem) -> the times it saves by default.
    schedule: str = ""
    #: Capability -> why the answer has no use for it.
    lacks: Mapping[str, str] = field(default_factory=dict)

    def solve(self) -> Callable[..., Any]:
        """Return the function."""
        return cast("Callable[..., Any]", resolve_name(self.function))

    def build(self) -> Callable[..., Any]:
        """Return the function of a run and of the answer's further arguments that returns the integration."""
        return cast("Callable[..., Any]", inspect.unwrap(self.solve()))

    def defaults(self) -> dict[str, Any]:
        """Return the arguments of the function but the problem by name, with their defaults."""
        return {name: given.default for name, given in list(inspect.signature(self.solve()).parameters.items())[1:]}

    def can(self, capability: str) -> bool:
        """Return whether the answer has one of `CAPABILITIES`."""
        return capability not in self.lacks


_EXACT = "it has no tolerance: its jumps by exponentials and Cholesky factors are exact"
_INSTANT = dict.fromkeys(
    ("watch", "resume", "estimate", "sound"),
    "it takes no time steps: formulas and quadrature of one matched pair at a time",
)
_CORRELATION = ("objective", "smoothing")
_FLOW_TIMES = "dynamics.solve.overlaps:default_flow_schedule"
_FLOWS = "dynamics.report.flows:flow_findings"

#: The first answer that takes a problem's student and knows its fields is the one that `dynamics.solve_problem` gives.
ANSWERS = (
    Answer(
        "overlaps", "dynamics.solve.overlaps:solve_overlaps", _FLOWS, methods=FLOW_METHODS, fields=("inputs",),
        schedule=_FLOW_TIMES,
    ),
    Answer("decoupled", "dynamics.solve.decoupled:solve_decoupled", _FLOWS, schedule=_FLOW_TIMES, lacks=_INSTANT),
    Answer(
        "prediction", "dynamics.solve.decoupled:predict_emergence", _FLOWS, fields=("inputs", *_CORRELATION),
        lacks=_INSTANT,
    ),
    Answer(
        "quadratic", "dynamics.solve.quadratic:solve_quadratic", "dynamics.report.networks:quadratic_findings",
        ("stiefel", "homogeneous"), schedule="dynamics.solve.quadratic:default_quadratic_schedule",
        lacks=dict.fromkeys(("estimate", "sound"), _EXACT),
    ),
    Answer("committee", "dynamics.solve.overlaps:solve_committee", _FLOWS, ("committee",), COMMITTEE_METHODS),
    Answer("spherical", "dynamics.solve.spherical:solve_spherical", _FLOWS, ("spherical",), PARTICLE_METHODS),
    Answer(
        "correlation", "dynamics.solve.spherical:solve_correlation", _FLOWS, ("spherical",), COMMITTEE_METHODS,
        _CORRELATION, schedule=_FLOW_TIMES,
    ),
    Answer(
        "network", "dynamics.solve.network:solve_network", "dynamics.report.networks:network_findings", ("network",),
        NETWORK_METHODS, ("inputs",), schedule="dynamics.theory.components:default_network_schedule",
    ),
    Answer(
        "reused-data", "dynamics.solve.reused_data:solve_reused_data",
        "dynamics.report.networks:reused_data_findings", ("network",),
        lacks={
            "watch": "its groups of points are watched by one bar, and those finished before Ctrl-C are kept",
            "resume": "its steps take seconds: the answer is begun anew",
            "estimate": "its groups of points give a standard error of every number",
            "sound": "each group of points is exact for what it draws: scatter is told as an error",
        },
    ),
    Answer(
        "mean-field", "dynamics.solve.mean_field:solve_mean_field", "dynamics.report.mean_field:mean_field_findings",
        ("spherical", "homogeneous"), PARTICLE_METHODS,
        schedule="dynamics.solve.mean_field:default_mean_field_schedule",
        lacks={"estimate": "its error comes from the number of particles: solve again with twice as many"},
    ),
    Answer(
        "coupling", "dynamics.solve.spherical:solve_coupling", "dynamics.report.mean_field:coupling_findings",
        ("spherical",),
        lacks={
            **dict.fromkeys(
                ("watch", "resume"), "it is one linear equation along a mean field that it solves itself, in seconds"
            ),
            "estimate": "its error is that of the nodes: solve again with half of `largest_step`",
            "sound": "a linear equation keeps no such bound",
            "sweep": "its array of all neurons at all times is for one network; `chaos` measures many",
        },
    ),
    Answer(
        "chaos", "dynamics.laws.chaos:propagation_of_chaos", "dynamics.report.mean_field:chaos_findings",
        ("spherical",),
        lacks={
            "watch": "its many runs are watched by one bar; an interrupt is heard between two of them",
            "resume": "its runs are short: the answer is begun anew",
            "estimate": "the scatter over its starts is larger than the error of a run",
            "sound": "its runs are answers of `spherical` and `mean-field`, which check themselves",
        },
    ),
    Answer(
        "tokens", "dynamics.tokens.answers:solve", "dynamics.report.tokens:token_findings",
        OF_TOKENS, PARTICLE_METHODS,
        lacks={
            "estimate": "its few numbers are integrated at a tolerance of 1e-10, and gradient descent has none",
            "sound": "its state is free: scores have no bounds to break",
        },
    ),
    Answer(
        OWN, "dynamics.solve.system:solve_system", "dynamics.report.findings:system_findings", (OWN,), METHODS,
        lacks={"sound": "what must hold of a state is known to the author of the system alone"},
    ),
)  # fmt: skip


def answer_of(problem: Question) -> Answer:
    """Return the first answer that takes the kind of a problem and all fields that it declares."""
    takers = [answer for answer in ANSWERS if problem.kind in answer.students]
    declared = set(getattr(problem, "declared_fields", ()))
    return next((answer for answer in takers if declared <= set(answer.fields)), takers[0])


def registered(name: str) -> Answer:
    """Return the answer of a name that this package has."""
    return next(answer for answer in ANSWERS if answer.name == name)


def answers_that(capability: str) -> tuple[Answer, ...]:
    """Return the answers that have one of `CAPABILITIES`, in the order of the table."""
    return tuple(answer for answer in ANSWERS if answer.can(capability))
