"""Evidence: one row for each test of a comparison; the word of the verdict is a function of the rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np
import xarray as xr

from dynamics.problem.checks import field_values


class Decision(StrEnum):
    """The decision of a row, and the word of a verdict."""

    AGREE = "agree"
    DISAGREE = "disagree"
    UNDECIDED = "undecided"


class RowKind(StrEnum):
    """Kinds of rows; times of directions that are tested one by one have the noun of their event instead."""

    CURVE = "curve"
    TIME = "time"
    START = "start"
    PATH = "path"
    RANKS = "ranks"
    SCATTER = "scatter"
    NUMBER = "number"
    FRESH = "fresh samples"
    REQUIREMENT = "requirement"


#: Name of a variable with one column of the rows, or the beginning of it.
EVIDENCE = "evidence"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One test of a comparison and what follows from it; numbers that do not apply are NaN, all are dimensionless.

    `quantity` and `label` name what was tested, such as "emergence time of direction" and "2", and `kind` how. `value`
    is the mean of the runs less theory, in parts of the range of a curve and as ln of a ratio of times, ln of a ratio
    of standard deviations, or a number of runs; theory allows `low` to `high`. `time` is where a curve is farthest from
    theory, or the predicted time. `z` is the distance from the band as a normal score. `p_value` is to be compared with
    the whole rate of false alarms. `power` is the probability that an error of 30 % is seen, `visible_error` the least
    error that is seen.

    A row that is `required` has to agree before the word "agree" is said. `cause` says why nothing was decided.
    """

    quantity: str
    label: str = ""
    kind: str = RowKind.NUMBER
    time: float = np.nan
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    z: float = np.nan
    p_value: float = np.nan
    power: float = np.nan
    visible_error: float = np.nan
    runs: float = np.nan
    required: bool = False
    decision: Decision = Decision.UNDECIDED
    cause: str = ""

    @property
    def name(self) -> str:
        """Name of the tested quantity, as sentences write it."""
        return f"{self.quantity} {self.label}".strip()

    @property
    def agrees(self) -> bool:
        """Whether it agrees with theory."""
        return self.decision == Decision.AGREE

    @property
    def disagrees(self) -> bool:
        """Whether it refutes theory."""
        return self.decision == Decision.DISAGREE


def judged(
    rate: float,
    *,
    p_value: float,
    seen: bool,
    required: bool = False,
    cause: str = "",
    excuse: str = "",
    **numbers: Any,
) -> Row:
    """Return the row of a test at a rate of false alarms.

    It disagrees if p is smaller, but for an `excuse`, another cause of the difference, and must then be decided. Else
    it agrees if an error would have been `seen`.
    """
    refutes = p_value < rate
    if refutes:
        decision, cause = Decision.UNDECIDED if excuse else Decision.DISAGREE, excuse
    elif seen:
        decision, cause = Decision.AGREE, ""
    else:
        decision = Decision.UNDECIDED
    return Row(p_value=p_value, required=required or refutes, decision=decision, cause=cause, **numbers)


def word_of(rows: Iterable[Row]) -> Decision:
    """Return "disagree" if a row does, "agree" if there are required rows and all of them do, else "undecided".

    Examples
    --------
    >>> print(word_of([Row(quantity="loss", required=True, decision=Decision.AGREE), Row(quantity="bias")]))
    agree
    >>> print(word_of([]))
    undecided
    """
    evidence = list(rows)
    if any(row.disagrees for row in evidence):
        return Decision.DISAGREE
    required = [row.agrees for row in evidence if row.required]
    return Decision.AGREE if required and all(required) else Decision.UNDECIDED


def global_p_value(rows: Iterable[Row]) -> float:
    """Return the least p-value of the rows, which have their shares of the rate; 1 if nothing was tested."""
    return float(min([1.0, *(row.p_value for row in rows if not np.isnan(row.p_value))]))


def named(rows: Iterable[Row]) -> str:
    """Return the names of rows in words, labels of one quantity together."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        labels.setdefault(row.quantity, []).append(row.label)
    return " and ".join(f"{quantity} {', '.join(words)}".strip() for quantity, words in labels.items())


def labels_of(rows: Iterable[Row]) -> str:
    """Return the labels of rows in words."""
    return ", ".join(row.label for row in rows)


def evidence_variables(rows: Sequence[Row]) -> dict[str, object]:
    """Return the variables (row,) that store the rows."""
    types = {"required": np.int8, "quantity": np.str_, "label": np.str_, "kind": np.str_, "decision": np.str_}
    types["cause"] = np.str_
    fields_of_rows = [field_values(row) for row in rows]
    return {
        variable: np.array([values[name] for values in fields_of_rows], dtype=types.get(name, np.float64))
        for name, variable in _COLUMNS.items()
    }


def rows_of(comparison: xr.Dataset | Mapping[str, object]) -> list[Row]:
    """Return the rows that a comparison stores; none of a file of an earlier version."""
    if EVIDENCE not in comparison:
        return []
    columns = [np.asarray(comparison[variable]).tolist() for variable in _COLUMNS.values()]
    rows = [dict(zip(_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)]
    return [Row(**row | {"required": bool(row["required"]), "decision": Decision(row["decision"])}) for row in rows]


#: Field of a row -> the variable that stores it.
_COLUMNS = {one.name: EVIDENCE if one.name == "quantity" else f"{EVIDENCE}_{one.name}" for one in fields(Row)}
