"""The interface of problems of all kinds to runs, files and sweeps, and the kinds that files name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hermite.text.messages import refuse, require, shown

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array

#: Kind -> class of the problems of that kind. Files of problems with Gaussian inputs name no kind.
GAUSSIAN = "gaussian"
#: Kind of a user's own system of equations; no file names its class.
OWN = "system"
KINDS = {
    GAUSSIAN: "dynamics.problem.problem:Problem",
    "composition": "dynamics.tokens.problems:Composition",
    "recall": "dynamics.tokens.problems:FactualRecall",
    "causal-graph": "dynamics.tokens.problems:CausalGraph",
    "memory": "dynamics.tokens.problems:AssociativeMemory",
    "trigger": "dynamics.tokens.problems:TriggerTask",
    "selection": "dynamics.tokens.problems:Selection",
    "policy-gradient": "dynamics.tokens.problems:PolicyGradient",
    "chain": "dynamics.tokens.problems:ChainOfThought",
    OWN: "dynamics.solve.system:StoredSystem",
}
#: Kinds of models of attention and memory, of shortcuts, lengths and rewards.
OF_TOKENS = tuple(kind for kind in KINDS if kind not in (GAUSSIAN, OWN))


class Compared:
    """A value that equals another one of its class where `_identity` returns the same."""

    __slots__ = ()

    def _identity(self) -> object:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())


@runtime_checkable
class Question(Protocol):
    """A frozen problem of any kind: `dynamics.Problem`, or another dataclass whose parameters name its kind."""

    @property
    def kind(self) -> str:
        """Its name in the registry of answers."""

    def parameters(self) -> dict[str, object]:
        """Return the scalar parameters as a JSON-ready dict, with "kind" unless inputs are Gaussian."""

    def arrays(self) -> Mapping[str, tuple[tuple[str, ...], Array]]:
        """Return the array-valued inputs as {variable name: (dims, values)}."""


def stored_question(dataset: xr.Dataset) -> Question:
    """Return the problem that a result answers, of the kind that it names; ValueError if it holds none."""
    kind = GAUSSIAN
    try:
        kind = json.loads(dataset.attrs["parameters"])["problem"].get("kind", GAUSSIAN)
        path = KINDS[kind]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):  # the last of endless JSON
        refuse(f"Argument `dataset` must hold `parameters` with a problem of a known kind, but has {shown(kind)}.")
    question: Question = resolve_name(path).from_dataset(dataset)
    return question


def check_question(problem: object, kinds: Sequence[str] = ()) -> None:
    """Raise TypeError unless `problem` is a problem, and ValueError if `kinds` are given and its kind is not one."""
    if not isinstance(problem, Question):
        refuse(f"Argument `problem` must be a Problem, but is {type(problem).__name__}.", error=TypeError)
    require(
        not kinds or problem.kind in kinds,
        f"Argument `problem` must be of the kind {' or '.join(map(repr, kinds))}, but is of {problem.kind!r}.",
    )
