"""What a result shows, as values that text, JSON and pages render, and the function that finds them for each answer.

The functions for answers of this package are in `FINDINGS`; other installed packages add theirs as entry points of the
group `feature_emergence.findings`, named by the answer, so that reports of `dynamics` show their results too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.as_json import jsonable
from dynamics.report.as_text import Rounded, table_lines
from dynamics.runs.result import StopReason
from dynamics.runs.tables import main_part
from dynamics.solve.registry import ANSWERS
from hermite.text.messages import rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr
    from matplotlib.figure import Figure

    from dynamics.report.chart import Chart

LAWS = ("scaling", "quadratic-scaling", "finite-size", "compute-frontier", "transfer")
#: Answer -> function of a result that returns `Findings`, or None if the result is of another family.
FINDINGS = {
    **{answer.name: answer.findings for answer in ANSWERS},
    **dict.fromkeys(LAWS, "dynamics.report.laws:law_findings"),
    "recovery": "dynamics.report.recovery:recovery_findings",
    "sweep": "dynamics.report.sweep:sweep_findings",
}
ENTRY_POINTS = "feature_emergence.findings"
#: Rows of a table that a terminal shows, where fewer than all tell enough.
MOST_LINES = 20


class Tone(StrEnum):
    """How a result is to be taken."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with the same keys in the same order, which are the titles of the columns; the first names the row."""

    caption: str
    #: Numbers, text or None.
    rows: Sequence[Mapping[str, Any]]
    #: What must be known to read it.
    note: str = ""
    #: What a row is, in the plural, if a part of the rows tells enough; "" if all are shown.
    each: str = ""
    #: The columns that a terminal has room for -> their titles there; empty for all columns.
    short: Mapping[str, str] = field(default_factory=dict)
    #: Significant digits of the numbers in a terminal.
    digits: int = 4
    #: Columns of numbers -> those of their standard errors, by which both are rounded.
    errors: Mapping[str, str] = field(default_factory=dict)
    #: Lines that a terminal shows in place of the table.
    in_words: Sequence[str] | None = None

    def spread(self, most: int) -> tuple[list[Mapping[str, Any]], str]:
        """Return the rows that are shown where there is room for `most`, and the note."""
        count = len(self.rows)
        if not self.each or count <= most:
            return [self._rounded(row) for row in self.rows], self.note
        chosen = spread_rows(count, most)
        note = f"{self.note} Shown: {len(chosen)} of {count} {self.each}.".lstrip()
        return [self._rounded(self.rows[at]) for at in chosen], note

    def _rounded(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row with its numbers as their errors leave them."""
        found = dict(row)
        for name, error_name in self.errors.items():
            value, error = row.get(name), row.get(error_name)
            if isinstance(value, (float, int)) and isinstance(error, float) and 0.0 < error < math.inf:
                texts = rounded(value, error)
                found |= {name: Rounded(value, texts[0]), error_name: Rounded(error, texts[1])}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure, drawn when it is asked for; what it shows; and the same in words for those who do not see it."""

    draw: Callable[[], Figure]
    caption: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a result shows."""

    tone: Tone
    #: What is to be read first: how the run ended, or what a comparison says.
    verdict: str
    #: What else must be known before any number is read, one sentence each.
    cautions: Sequence[str] = ()
    #: Paragraphs beside the tables.
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing] = ()
    #: Returns the curves that a page lets its reader explore.
    chart: Callable[[], Chart] | None = None
    #: Lines for a terminal, which a page tells in sections of its own: notes, method, seconds.
    remarks: Sequence[str] = ()
    #: The numbers of all this under the names that JSON gives them.
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Draws the figure that a command writes, everything in one.
    overview: Callable[[], Figure] | None = None
    #: Command that goes on with a run that has not ended, with "{file}" in place of its file.
    go_on: str = ""

    def drawn(self, style: str) -> Figure:
        """Return the figure that a command writes in a style; there must be one."""
        from dynamics.report.figures.style import figure_style

        if self.overview is None:
            msg = "This result has no figure."
            raise ValueError(msg)
        with figure_style(style):
            return self.overview()

    def as_text(self, files: Mapping[str, str | None]) -> str:
        """Return what a terminal shows: a line per sentence, the verdict first, then tables, then the files written."""
        tables = []
        for table in self.tables:
            if table.in_words is None and table.rows:
                rows, note = table.spread(MOST_LINES)
                lines = table_lines(rows, table.short or {title: title for title in rows[0]}, table.digits)
                tables += ["", *lines, *([note] if note else [])]
        told = [line for table in self.tables for line in table.in_words or ()]
        written = ", ".join(file for file in files.values() if file)
        end = [*([""] if tables else []), *told, *self.remarks, f"written: {written}"]
        return "\n".join([self.verdict, *self.cautions, *self.sentences, *tables, *end])

    def as_json(self, files: Mapping[str, str | None]) -> str:
        """Return the values and the files that were written as one JSON object."""
        return json.dumps(jsonable({**self.values, **files}))


def find_findings(result: xr.Dataset | xr.DataTree) -> Findings | None:
    """Return what a result shows, or None if no installed package knows its answer."""
    for path in _paths(answer_of(main_part(result))):
        found: Findings | None = resolve_name(path)(result)
        if found is not None:
            return found
    return None


def _paths(answer: str) -> Iterator[str]:
    """Yield the functions that may know an answer; two families may use one word."""
    if answer in FINDINGS:
        yield FINDINGS[answer]
    yield from (entry.value for entry in metadata.entry_points(group=ENTRY_POINTS, name=answer))


def stored_parameters(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Return the attribute `parameters`: "problem" and "solver", empty where they cannot be read."""
    try:
        found = json.loads(dataset.attrs["parameters"])
        return {name: dict(found[name]) for name in ("problem", "solver")}
    except (KeyError, TypeError, ValueError, RecursionError):  # the last of JSON without an end
        return {"problem": {}, "solver": {}}


def answer_of(dataset: xr.Dataset) -> str:
    """Return what a dataset is the answer to, "" if it does not say."""
    return str(dataset.attrs.get("answer", stored_parameters(dataset)["solver"].get("answer", "")))


def end_of_run(dataset: xr.Dataset, cautions: Sequence[str] = ()) -> tuple[Tone, str]:
    """Return how a run ended, in a sentence or two; an answer without a run is complete.

    A good end with cautions is to be taken with caution.
    """
    good = Tone.CAUTION if cautions else Tone.GOOD
    if "stop_reason" not in dataset.attrs:
        return good, "Complete: this answer needs no time stepping."
    word = str(dataset.attrs["stop_reason"])
    if word not in set(StopReason):
        return Tone.BAD, f"Failed ({word.replace('_', ' ')})."
    reason = StopReason(word)
    if reason is StopReason.REACHED_END:
        return good, f"Reached its end. {reason.advice}"
    if reason is StopReason.STEADY_STATE:
        return good, f"Reached a steady state. {reason.advice}"
    where = f" at t = {float(dataset.attrs['end_time']):.5g}" if "end_time" in dataset.attrs else ""
    if reason.failed:
        return Tone.BAD, f"Failed{where} ({word.replace('_', ' ')}). {reason.advice}"
    return Tone.CAUTION, f"Unfinished: stopped early{where} ({word.replace('_', ' ')}). {reason.advice}"


def renamed(records: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a table: titles of columns -> values that records have under other names."""
    return [{title: record[name] for title, name in columns.items()} for record in records]


def spread_rows(count: int, most: int) -> list[int]:
    """Return which of `count` rows are shown: all, or at most `most`, spread evenly in the logarithm."""
    if count <= most:
        return list(range(count))
    return sorted({round(x) - 1 for x in np.geomspace(1, count, most)})
