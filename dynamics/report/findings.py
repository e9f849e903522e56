"""Findings on results: values from which text, JSON, pages and notebooks are made, and the functions that find them.

The functions for answers of this package are in `FINDINGS`; other installed packages add theirs as entry points of the
group `feature_emergence.findings`, named by the answer, so that reports of `dynamics` show their results too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib import metadata
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from dynamics.report.elements import Chart, Rounded, cell_text, element, table, verdict_elements
from dynamics.report.figures import figure_of, figure_style, spread_rows
from dynamics.runs.result import StopReason
from dynamics.runs.storage import main_part
from dynamics.runs.variables import VARIABLES
from dynamics.solve.registry import ANSWERS
from hermite.text.messages import refuse, require, rounded

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    Rows = list[dict[str, Any]]

#: Answer -> function of a result that returns `Findings`, or None if the result is of another family.
FINDINGS = {
    **{answer.name: answer.findings for answer in ANSWERS},
    **dict.fromkeys(
        ("scaling", "quadratic-scaling", "finite-size", "compute-frontier", "transfer"),
        "dynamics.report.laws:law_findings",
    ),
    **dict.fromkeys(
        (
            "theorem",
            "theorem-study",
            "decoupling",
            "width-for",
            "frontier",
            "methods",
            "edges",
            "paper",
            "composition-bounds",
            "surface-fit",
        ),
        "dynamics.report.claims:claim_findings",
    ),
    "inference": "dynamics.report.inference:inference_findings",
    "recovery": "dynamics.report.laws:recovery_findings",
    **dict.fromkeys(("kernel", "kernel-estimate"), "dynamics.report.kernel:kernel_findings"),
    "tokens-closed": "dynamics.report.tokens:closed_findings",
    "sweep": "dynamics.report.sweep:sweep_findings",
}
ENTRY_POINTS = "feature_emergence.findings"
#: Rows of a long table that a terminal and a notebook show.
MOST_LINES, MOST_ROWS = 20, 12


class Tone(StrEnum):
    """Tone of a verdict: good, caution or bad."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with the same keys in the same order, which are the titles of the columns; the first names the row."""

    caption: str
    #: Numbers, text or None.
    rows: Sequence[Mapping[str, object]]
    #: Sentences that explain the columns, each after its title and a colon; a terminal shows its own titles.
    note: str = ""
    #: Name of the rows in the plural, if a part of them tells enough; "" if all are shown.
    each: str = ""
    #: The columns that a terminal has room for -> their titles there; empty for all columns.
    short: Mapping[str, str] = field(default_factory=dict)
    #: Significant digits of the numbers in a terminal.
    digits: int = 4
    #: Columns of numbers -> those of their standard errors; both are rounded by the error.
    errors: Mapping[str, str] = field(default_factory=dict)
    #: Lines that a terminal shows instead of the table.
    in_words: Sequence[str] | None = None

    def spread(self, most: int) -> tuple[list[Mapping[str, object]], str]:
        """Return at most `most` rows, or all if they are few or all are shown, and the note."""
        count, note = len(self.rows), self.note
        chosen = spread_rows(count, most if self.each else count)
        if len(chosen) < count:
            note = f"{note} Shown: {len(chosen)} of {count} {self.each}.".lstrip()
        return [self._rounded(self.rows[at]) for at in chosen], note

    def lines(self) -> list[str]:
        """Return the lines of a terminal, after an empty one: text at the left of its column, numbers at the right."""
        if self.in_words is not None or not self.rows:
            return []
        rows, note = self.spread(MOST_LINES)
        columns = []
        for name, title in (self.short or {title: title for title in rows[0]}).items():
            values = [row[name] for row in rows]
            cells = [title, *(cell_text(value, self.digits, unknown="-") for value in values)]
            side = "<" if any(isinstance(value, str) for value in values) else ">"
            columns.append([f"{cell:{side}{max(map(len, cells))}}" for cell in cells])
        lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
        for title, short_title in self.short.items():
            note = note.replace(f"{title}:", f"{short_title}:")
        return ["", *lines, *([note] if note else [])]

    def _rounded(self, row: Mapping[str, object]) -> Mapping[str, object]:
        """Return a row with values and standard errors rounded by the error."""
        cells = dict(row)
        for name, error_name in self.errors.items():
            value, error = row.get(name), row.get(error_name)
            if isinstance(value, (float, int)) and isinstance(error, float) and 0.0 < error < math.inf:
                texts = rounded(value, error)
                cells |= {name: Rounded(value, texts[0]), error_name: Rounded(error, texts[1])}
        return cells


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure that is drawn when it is asked for."""

    draw: Callable[[], Figure]
    caption: str
    #: The figure in words for readers who do not see it.
    alt: str


def drawing_of(plot: Callable[..., object], *arguments: Any, caption: str, more: str = "", **layout: Any) -> Drawing:
    """Return the drawing by a function of some arguments and the axes, of `figure_of`; `more` follows its caption."""
    return Drawing(partial(figure_of, plot, *arguments, **layout), caption, f"{caption} {more}".rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings on a result."""

    tone: Tone
    #: The first sentence: how the run ended, or the verdict of a comparison.
    verdict: str
    #: Warnings that come before all numbers, one sentence each.
    cautions: Sequence[str] = ()
    #: Paragraphs.
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing] = ()
    #: Returns the curves that a page lets its reader explore.
    chart: Callable[[], Chart] | None = None
    #: Lines for a terminal that are sections of a page: notes, method, seconds.
    remarks: Sequence[str] = ()
    #: The numbers under the names that JSON gives them.
    values: Mapping[str, object] = field(default_factory=dict)
    #: Draws the figure that a command writes, everything in one.
    overview: Callable[[], Figure] | None = None
    #: Command that goes on with a run that has not ended, with "{file}" for its file.
    go_on: str = ""

    def drawn(self, style: str) -> Figure:
        """Return the figure that a command writes in a style; there must be one."""
        if self.overview is None:
            refuse("This result has no figure.")
        with figure_style(style):
            return self.overview()

    def as_text(self, files: Mapping[str, str | None]) -> str:
        """Return the text for a terminal: `lines`, then the written files."""
        return "\n".join([*self.lines(), f"written: {', '.join(file for file in files.values() if file)}"])

    def lines(self) -> list[str]:
        """Return the lines for a terminal: one per sentence, verdict first, then tables, then remarks."""
        tables = [line for table in self.tables for line in table.lines()]
        in_words = [line for table in self.tables for line in table.in_words or ()]
        end = [*([""] if tables else []), *in_words, *self.remarks]
        return [self.verdict, *self.cautions, *self.sentences, *tables, *end]

    def as_json(self, files: Mapping[str, str | None]) -> str:
        """Return the values and the files that were written as one JSON object."""
        return json.dumps(jsonable({**self.values, **files}))


def run_findings(dataset: xr.Dataset, *, cautions: Sequence[str] = (), **parts: Any) -> Findings:
    """Return findings that begin with how a run ended; `parts` are other fields of `Findings`."""
    tone, verdict = end_of_run(dataset, cautions)
    return Findings(tone=tone, verdict=verdict, cautions=cautions, **parts)


def records(columns: Mapping[str, object]) -> Rows:
    """Return rows of plain values: one mapping for each entry of the columns, which have one length."""
    values = (np.asarray(column).tolist() for column in columns.values())
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def rows_of(dataset: xr.Dataset, columns: Mapping[str, str]) -> Rows:
    """Return rows of plain values: title -> variable of one dimension."""
    return records({title: dataset[name] for title, name in columns.items()})


def renamed(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> Rows:
    """Return rows with other keys: `columns` maps each new title to the key of a row."""
    return [{title: row[name] for title, name in columns.items()} for row in rows]


def jsonable(value: object) -> Any:
    """Return plain values for JSON: a number that is not finite becomes None."""
    if isinstance(value, dict):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [jsonable(entry) for entry in value]
    value = value.item() if isinstance(value, np.generic) else value
    return value if not isinstance(value, float) or math.isfinite(value) else None


def find_findings(result: xr.Dataset | xr.DataTree) -> Findings | None:
    """Return the findings on a result, or None if no installed package knows its answer."""
    answer = answer_of(main_part(result))
    entries = metadata.entry_points(group=ENTRY_POINTS, name=answer)
    paths = [FINDINGS.get(answer), *(entry.value for entry in entries)]
    # Two families may use one word.
    candidates = (resolve_name(path)(result) for path in paths if path)
    return next((findings for findings in candidates if findings is not None), None)


def any_findings(result: xr.Dataset | xr.DataTree) -> Findings:
    """Return the findings on a result, or only its end if no installed package knows its answer."""
    tone, verdict = end_of_run(main_part(result))
    unknown = ["No family of results knows this answer."]
    return find_findings(result) or Findings(tone=tone, verdict=verdict, cautions=unknown)


def stored_parameters(dataset: xr.Dataset) -> dict[str, dict[str, object]]:
    """Return the attribute `parameters`: "problem" and "solver", empty where they cannot be read."""
    try:
        parameters = json.loads(dataset.attrs["parameters"])
        return {name: dict(parameters[name]) for name in ("problem", "solver")}
    except (KeyError, TypeError, ValueError, RecursionError):  # the last of JSON without an end
        return {"problem": {}, "solver": {}}


def answer_of(dataset: xr.Dataset) -> str:
    """Return the name of a dataset's answer, "" if it does not say."""
    return str(dataset.attrs.get("answer", stored_parameters(dataset)["solver"].get("answer", "")))


def end_of_run(dataset: xr.Dataset, cautions: Sequence[str] = ()) -> tuple[Tone, str]:
    """Return the tone of a run and how it ended, in a sentence or two; an answer without a run is complete.

    A good end with cautions has the tone of a caution.
    """
    good, word = Tone.CAUTION if cautions else Tone.GOOD, dataset.attrs.get("stop_reason")
    if word is None:
        return good, "Complete: this answer needs no time stepping."
    words = str(word).replace("_", " ")
    if word not in set(StopReason):
        return Tone.BAD, f"Failed ({words})."
    reason = StopReason(word)
    ends = {StopReason.REACHED_END: "its end", StopReason.STEADY_STATE: "a steady state"}
    if reason in ends:
        return good, f"Reached {ends[reason]}. {reason.advice}"
    place = f" at t = {float(dataset.attrs['end_time']):.5g}" if "end_time" in dataset.attrs else ""
    if reason.failed:
        return Tone.BAD, f"Failed{place} ({words}). {reason.advice}"
    return Tone.CAUTION, f"Unfinished: stopped early{place} ({words}). {reason.advice}"


def system_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `dynamics.solve_system`: the end of the run, and its events."""
    attrs, rows = dataset.attrs, list[dict[str, object]]()
    for name in str(attrs.get("event_times", "")).split():
        times, error = dataset[name], dataset.get(f"{name}_error")
        for place in np.ndindex(times.shape):
            labels = [str(dataset[dim].values[at]) for dim, at in zip(times.dims, place, strict=True)]
            row = {"event": " ".join([name.replace("_", " "), *labels]), "time": float(times.values[place])}
            rows.append(row | ({} if error is None else {"error": float(error.values[place])}))
    names = ("stop_reason", "end_time", "solve_seconds")
    return run_findings(
        dataset,
        sentences=[f"{attrs['title']}, by method {attrs['method']}."],
        tables=[Table(caption="When events happened", rows=rows, each="events")] if rows else [],
        values={"title": str(attrs["title"]), **{name: attrs.get(name) for name in names}, "events": rows},
    )


#: Columns of studies -> those of their standard errors.
_STUDY_ERRORS = {
    **dict.fromkeys(("measured", "pairs"), "error"),
    **dict.fromkeys(("steps", "samples", "disagree"), "s.e."),
    "sum formula": "sum error",
    "ideal sum": "ideal error",
    **{name: f"{name} error" for name in ("gap", "drift", "cost", "function gap exponent", "coupling exponent")},
    "exponent": "standard error",
}


def study_findings(
    dataset: xr.Dataset, summary: dict[str, Any], sentences: Sequence[str], draw: Callable[[], Figure]
) -> Findings:
    """Return the findings on a study; `summary` has rows `points`, perhaps rows `fits`, and single numbers."""
    attrs = dataset.attrs
    tone, verdict = end_of_run(dataset)
    if "verdict" in attrs:
        word = f"{str(attrs['verdict']).capitalize()}."
        verdict = f"{word} {verdict}" if tone is Tone.GOOD else f"{verdict} {word}"
        tone = Tone.CAUTION if tone is Tone.GOOD and attrs["verdict"] == "undecided" else tone
    tables = []
    for name, in_words in (("points", None), ("fits", ())):  # the sentences say the fits
        if name in summary:
            rows = [{title.replace("_", " "): value for title, value in row.items()} for row in summary[name]]
            tables.append(Table(caption=name.capitalize(), rows=rows, errors=_STUDY_ERRORS, in_words=in_words))
    title, seconds = str(attrs.get("title", attrs["answer"])), attrs.get("wall_seconds")
    alt = f"Figure of the study: {title}. Its numbers are in the tables above."
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=sentences,
        tables=tables,
        drawings=[Drawing(draw, f"{title}.", alt)],
        remarks=[] if seconds is None else [f"time: {seconds:.0f} s"],
        values={"study": attrs["answer"], "stop_reason": attrs.get("stop_reason"), "wall_seconds": seconds, **summary},
        overview=draw,
    )


class Summary:
    """The findings of an answer, verdict first, with its tables: printed in lines or shown in a notebook.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> found = dynamics.summary(dynamics.predict_emergence(problem))
    >>> print(repr(found).splitlines()[1])
    learned: 2 of 2 directions by t = 1966.7; loss at the end: 0
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def __repr__(self) -> str:
        """Return the lines that a command prints on the answer, the verdict in front."""
        return "\n".join(self._findings.lines())

    def _repr_html_(self) -> str:
        """Return the verdict, the sentences and the tables of an answer as HTML, for notebooks."""
        findings = self._findings
        sentences = [element("p", text) for text in findings.sentences]
        parts = [*verdict_elements(findings.verdict, findings.cautions), *sentences]
        for rows in findings.tables:
            parts += table(rows.caption, *rows.spread(MOST_ROWS))
        return ElementTree.tostring(element("div", *parts), encoding="unicode", method="html")


def fault_of(dataset: xr.Dataset, error: Exception) -> str:
    """Return the end of a message that says which variable or dim of a dataset raised `error`."""
    if isinstance(error, KeyError):
        named = re.search(r"'(\w+)'", str(error))
        return f"lacks {named[0] if named else error}"
    leading = set() if answer_of(dataset) in {answer.name for answer in ANSWERS} else {"seed"}
    for name, variable in dataset.variables.items():
        expected = VARIABLES[str(name)].dims if name in VARIABLES else variable.dims
        if set(variable.dims) - leading != set(expected):
            actual, dims = (", ".join(map(str, names)) for names in (variable.dims, expected))
            return f"has `{name}({actual})`, not `{name}({dims})`"
    if empty := next((str(dim) for dim, size in dataset.sizes.items() if not size), ""):
        return f"has no {empty}"
    return f"has others ({type(error).__name__}: {error})"


def checked_findings(answer: xr.Dataset | xr.DataTree) -> Findings:
    """Return the findings of an answer; raise TypeError for other objects, ValueError for a changed answer."""
    import xarray as xr

    is_answer = isinstance(answer, (xr.Dataset, xr.DataTree))
    require(is_answer, f"Argument `answer` must be a Dataset or DataTree, but is {type(answer).__name__}.", TypeError)
    try:
        return any_findings(answer)
    except Exception as error:  # somebody may have changed it in any way
        return refuse(
            "Argument `answer` must have the variables, dims and attributes with which this program returned it, but "
            f"{fault_of(main_part(answer), error)}."
        )


def summary(answer: xr.Dataset | xr.DataTree) -> Summary:
    """Return the findings of an answer, to be printed or left as the last line of a cell of a notebook.

    First comes how the run ended, "Unfinished" if it was stopped, or what a comparison says; then what must be known
    before a number is read, and the tables that the command of the answer prints. `answer` is any Dataset or DataTree
    that this program returned or `dynamics.load` read; TypeError is raised for anything else, and ValueError for one
    that lacks variables or attributes, or has other dims, as several that were concatenated.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> answer = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 10.0]))
    >>> str(dynamics.summary(answer)).splitlines()[0]
    'Complete: this answer needs no time stepping.'
    """
    return Summary(checked_findings(answer))


def plot(answer: xr.Dataset | xr.DataTree, *, style: str | None = None) -> Figure:
    """Return the figure of an answer that its command writes, or the first one of its page.

    `answer` is any Dataset or DataTree that this program returned or `dynamics.load` read. TypeError is raised for
    anything else, ValueError for an answer that has no figure. For `style` see `figure_style`. The figure is shown by a
    notebook, and written by ``figure.savefig("answer.png")``.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> figure = dynamics.plot(dynamics.predict_emergence(problem))
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['flow time $t$', 'predicted emergence time']
    """
    findings = checked_findings(answer)
    draw = findings.overview or next((drawing.draw for drawing in findings.drawings), None)
    if draw is None:
        refuse("Argument `answer` must be a result with a figure, but this one has none.")
    with figure_style(style):
        return draw()
