"""Every answer of the program, declared once, for `solve_problem`, `resume`, sweeps, commands, files and reports.

Nothing heavy is imported: functions are named by their modules and found when they are called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from dynamics.integrators import (
    COMMITTEE_METHODS,
    CORRELATION_METHODS,
    FLOW_METHODS,
    METHODS,
    NETWORK_METHODS,
    PARTICLE_METHODS,
)
from dynamics.problem.question import OF_TOKENS, OWN, Question

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of answer to a problem; functions are named "module:function"."""

    #: As the attribute `answer` of its datasets and in `dynamics.sweep(…, study=name)`.
    name: str
    #: (problem, *, …) -> Dataset. The module of a model of the command line also has a function `check(problem,
    #: options)`, which refuses unsuitable problems and options before any work.
    function: str
    #: Tells a result to people.
    findings: str
    #: Kinds of the problems that it takes: of those with Gaussian inputs, their students.
    students: tuple[str, ...] = ("homogeneous",)
    #: Values of its argument `method`.
    methods: tuple[str, ...] = ()
    #: Fields of a problem that it knows beyond those that all answers take; a problem that sets another is refused.
    fields: tuple[str, ...] = ()
    #: (run, *, arguments that this answer alone has) -> its integration, where the end of a run decides on the method.
    integration: str = ""
    #: (problem) -> the times it saves by default.
    saved_times: str = ""
    #: Whether it writes checkpoints, from which `dynamics.resume` goes on: others are begun anew.
    resumes: bool = True
    #: Whether it can be asked at every point of a sweep.
    sweeps: bool = True

    def solve(self) -> Callable[..., xr.Dataset]:
        """Return the function that solves for the answer."""
        function: Callable[..., xr.Dataset] = resolve_name(self.function)
        return function

    def defaults(self) -> Mapping[str, object]:
        """Return the default of every argument of the function except the problem, by name."""
        return _defaults(self.function)


@functools.cache
def _defaults(function: str) -> dict[str, object]:
    """Return the default of every parameter of the function at a path "module:function", except the first, by name."""
    parameters = list(inspect.signature(resolve_name(function)).parameters.items())[1:]
    return {name: parameter.default for name, parameter in parameters}


_CORRELATION = ("objective", "smoothing")
#: Fields of problems with another loss than the squared one, labels that are classes, or a mixture.
OF_CLASSES = ("objective", "labels", "flip", "threshold", "mixture")
_FLOW_TIMES = "dynamics.solve.overlaps:default_flow_times"
_FLOWS = "dynamics.report.flows:flow_findings"

#: The first answer that takes a problem's student and knows its fields is the one that `dynamics.solve_problem` gives.
ANSWERS = (
    Answer(
        "overlaps", "dynamics.solve.overlaps:solve_overlaps", _FLOWS, methods=FLOW_METHODS, fields=("inputs",),
        integration="dynamics.solve.overlaps:overlap_integration", saved_times=_FLOW_TIMES,
    ),
    Answer("decoupled", "dynamics.solve.decoupled:solve_decoupled", _FLOWS, saved_times=_FLOW_TIMES, resumes=False),
    Answer(
        "prediction", "dynamics.solve.decoupled:predict_emergence", _FLOWS, fields=("inputs", *_CORRELATION),
        resumes=False,
    ),
    Answer(
        "quadratic", "dynamics.solve.quadratic:solve_quadratic", "dynamics.report.networks:quadratic_findings",
        ("stiefel", "homogeneous"), saved_times="dynamics.solve.quadratic:default_quadratic_times",
    ),
    Answer("committee", "dynamics.solve.overlaps:solve_committee", _FLOWS, ("committee",), COMMITTEE_METHODS),
    Answer("spherical", "dynamics.solve.spherical:solve_spherical", _FLOWS, ("spherical",), PARTICLE_METHODS),
    Answer(
        "correlation", "dynamics.solve.spherical:solve_correlation", _FLOWS, ("spherical",), CORRELATION_METHODS,
        _CORRELATION, saved_times=_FLOW_TIMES,
    ),
    Answer(
        "network", "dynamics.solve.network:solve_network", "dynamics.report.networks:network_findings", ("network",),
        NETWORK_METHODS, ("inputs", *OF_CLASSES), saved_times="dynamics.theory.components:default_network_times",
    ),
    Answer(
        "reused-data", "dynamics.solve.reused_data:solve_reused_data",
        "dynamics.report.networks:reused_data_findings", ("network",), resumes=False,
    ),
    Answer(
        "mean-field", "dynamics.solve.mean_field:solve_mean_field", "dynamics.report.mean_field:mean_field_findings",
        ("spherical", "homogeneous"), PARTICLE_METHODS,
        saved_times="dynamics.solve.mean_field:default_mean_field_times",
    ),
    Answer(
        "coupling", "dynamics.solve.spherical:solve_coupling", "dynamics.report.mean_field:coupling_findings",
        ("spherical",), resumes=False, sweeps=False,
    ),
    Answer(
        "chaos", "dynamics.laws.chaos:propagation_of_chaos", "dynamics.report.mean_field:chaos_findings",
        ("spherical",), resumes=False,
    ),
    Answer(
        "tokens", "dynamics.tokens.answers:solve", "dynamics.report.tokens:token_findings", OF_TOKENS,
        PARTICLE_METHODS,
    ),
    Answer(
        OWN, "dynamics.solve.system:solve_system", "dynamics.report.findings:system_findings", (OWN,), METHODS
    ),
)  # fmt: skip


def answer_of(problem: Question) -> Answer:
    """Return the first answer that takes the kind of a problem and all fields that it declares."""
    from dynamics.problem import Problem

    takers = [answer for answer in ANSWERS if problem.kind in answer.students]
    declared = set(problem.declared_fields) if isinstance(problem, Problem) else set()
    return next((answer for answer in takers if declared <= set(answer.fields)), takers[0])


def registered(name: str) -> Answer:
    """Return the answer of this package with a name."""
    return next(answer for answer in ANSWERS if answer.name == name)
