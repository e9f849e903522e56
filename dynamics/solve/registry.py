"""Every answer of the program, declared once: its problems, its function, and its abilities.

The front door `solve_problem`, `resume`, sweeps, the command line, files and reports read this table. It imports
nothing heavy: functions are named by their modules and found when they are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from dynamics.integrators import COMMITTEE_METHODS, FLOW_METHODS, METHODS, NETWORK_METHODS, PARTICLE_METHODS
from dynamics.problem.question import OWN

if TYPE_CHECKING:
    from dynamics.problem.question import Question

__all__ = ["ANSWERS", "CAPABILITIES", "Answer", "answer_of", "answers_that", "registered"]

#: Abilities of an answer, unless its entry says why it lacks one.
CAPABILITIES = {
    "watch": "shows progress, takes trackers and a budget of time, and gives back or raises a run that failed",
    "resume": "writes checkpoints, from which `dynamics.resume` goes on",
    "estimate": "estimates its numerical errors by a second run at ten times the tolerance",
    "sound": "stops where a recorded state breaks what holds exactly: |C| <= 1, n > 0, a loss that may not rise",
    "sweep": "can be asked at every point of a sweep",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One kind of answer to a problem.

    Parameters
    ----------
    name : str
        As the attribute `answer` of its datasets and in `dynamics.sweep(…, study=name)`.
    function : str
        "module:function" of (problem, *, …) that returns a Dataset.
    students : tuple of str
        Kinds of the problems that it takes: of those with Gaussian inputs, their students.
    fields : tuple of str
        Fields of a problem that it knows beyond those that all answers take; a problem that sets another is refused.
    methods : tuple of str
        What its argument `method` may be.
    build, prepare : str
        For an answer that sweeps ask for at many points: "module:function" of (run, **own arguments) that returns the
        `Integration`, and of a list of problems that returns further arguments of it for each, computed together.
    check : str
        "module:function" of (problem, options of the command line) that refuses what it cannot do, before any work.
    schedule : str
        "module:function" of (problem) that returns the times it saves by default.
    findings : str
        "module:function" that tells a result to people.
    lacks : mapping
        Capability -> why the answer has no use for it.
    """

    name: str
    function: str
    students: tuple[str, ...] = ("homogeneous",)
    fields: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    build: str = ""
    prepare: str = ""
    check: str = ""
    schedule: str = ""
    findings: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)

    def solve(self) -> Callable[..., Any]:
        """Return the function."""
        solve: Callable[..., Any] = resolve_name(self.function)
        return solve

    def defaults(self) -> dict[str, Any]:
        """Return the arguments of the function by name, with their defaults."""
        return {name: given.default for name, given in inspect.signature(self.solve()).parameters.items()}

    def can(self, capability: str) -> bool:
        """Return whether the answer has one of `CAPABILITIES`."""
        return capability not in self.lacks


_NO_TIME_STEPS = "it takes no time steps: formulas and quadrature of one matched pair at a time"
_EXACT = "it has no tolerance: its jumps by exponentials and Cholesky factors are exact"
_INSTANT = dict.fromkeys(("watch", "resume", "estimate", "sound"), _NO_TIME_STEPS)
_CORRELATION = ("objective", "smoothing")
_FLOW_TIMES = "dynamics.solve.overlaps:default_flow_schedule"
_FLOWS = "dynamics.report.flows:flow_findings"

#: The first answer that takes a problem's student and knows its fields is the one that `dynamics.solve_problem` gives.
ANSWERS = (
    Answer(
        name="overlaps",
        function="dynamics.solve.overlaps:solve_overlaps",
        fields=("inputs",),
        methods=FLOW_METHODS,
        build="dynamics.solve.overlaps:build",
        prepare="dynamics.solve.overlaps:prepare",
        check="dynamics.solve.overlaps:check",
        schedule=_FLOW_TIMES,
        findings=_FLOWS,
    ),
    Answer(
        name="decoupled",
        function="dynamics.solve.decoupled:solve_decoupled",
        check="dynamics.solve.decoupled:check",
        schedule=_FLOW_TIMES,
        findings=_FLOWS,
        lacks=_INSTANT,
    ),
    Answer(
        name="prediction",
        function="dynamics.solve.decoupled:predict_emergence",
        fields=("inputs", *_CORRELATION),
        findings=_FLOWS,
        lacks=_INSTANT,
    ),
    Answer(
        name="quadratic",
        function="dynamics.solve.quadratic:solve_quadratic",
        students=("stiefel", "homogeneous"),
        check="dynamics.solve.quadratic:check",
        schedule="dynamics.solve.quadratic:default_quadratic_schedule",
        findings="dynamics.report.networks:quadratic_findings",
        lacks=dict.fromkeys(("estimate", "sound"), _EXACT),
    ),
    Answer(
        name="committee",
        function="dynamics.solve.committee:solve_committee",
        students=("committee",),
        methods=COMMITTEE_METHODS,
        findings=_FLOWS,
    ),
    Answer(
        name="spherical",
        function="dynamics.solve.spherical:solve_spherical",
        students=("spherical",),
        methods=PARTICLE_METHODS,
        findings=_FLOWS,
    ),
    Answer(
        name="correlation",
        function="dynamics.solve.spherical:solve_correlation",
        students=("spherical",),
        fields=_CORRELATION,
        methods=COMMITTEE_METHODS,
        check="dynamics.solve.spherical:check",
        schedule=_FLOW_TIMES,
        findings=_FLOWS,
    ),
    Answer(
        name="network",
        function="dynamics.solve.network:solve_network",
        students=("network",),
        methods=NETWORK_METHODS,
        check="dynamics.solve.network:check",
        schedule="dynamics.theory.components:default_network_schedule",
        findings="dynamics.report.networks:network_findings",
    ),
    Answer(
        name="mean-field",
        function="dynamics.solve.mean_field:solve_mean_field",
        students=("spherical", "homogeneous"),
        methods=PARTICLE_METHODS,
        check="dynamics.solve.mean_field:check",
        schedule="dynamics.solve.mean_field:default_mean_field_schedule",
        findings="dynamics.report.mean_field:mean_field_findings",
        lacks={"estimate": "its error comes from the number of particles: solve again with twice as many"},
    ),
    Answer(
        name="coupling",
        function="dynamics.solve.spherical:solve_coupling",
        students=("spherical",),
        findings="dynamics.report.mean_field:coupling_findings",
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
        name="chaos",
        function="dynamics.laws.chaos:propagation_of_chaos",
        students=("spherical",),
        findings="dynamics.report.mean_field:chaos_findings",
        lacks={
            "watch": "its many runs are watched by one bar; an interrupt is heard between two of them",
            "resume": "its runs are short: the answer is begun anew",
            "estimate": "the scatter over its starts is larger than the error of a run",
            "sound": "its runs are answers of `spherical` and `mean-field`, which check themselves",
        },
    ),
    Answer(
        name="tokens",
        function="dynamics.tokens.answers:solve",
        students=("composition", "recall", "causal-graph", "memory"),
        methods=PARTICLE_METHODS,
        findings="dynamics.report.tokens:token_findings",
        lacks={
            "estimate": "its few numbers are integrated at a tolerance of 1e-10, and gradient descent has none",
            "sound": "its state is free: scores have no bounds to break",
        },
    ),
    Answer(
        name=OWN,
        function="dynamics.solve.system:solve_system",
        students=(OWN,),
        methods=METHODS,
        findings="dynamics.report.findings:system_findings",
        lacks={"sound": "what must hold of a state is known to the author of the system alone"},
    ),
)


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
