"""What a result shows, in words, tables and drawings that any page can set, and who says it of which answer.

The families of answers of this package are in `FINDINGS`; other installed packages add theirs as entry points of the
group `feature_emergence.findings`, named by the answer, so that `dynamics` draws their results without knowing them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from dynamics.runs.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FINDINGS",
    "Drawing",
    "Findings",
    "Table",
    "Tone",
    "answer_of",
    "drawing_of",
    "end_of_run",
    "find_findings",
    "main_part",
    "new_axes",
    "parts_of",
    "stored_parameters",
]

#: Answer -> function of a result that returns `Findings`, or None if the result is of another family.
FINDINGS = {
    "overlaps": "dynamics.report.flows:flow_findings",
    "decoupled": "dynamics.report.flows:flow_findings",
    "prediction": "dynamics.report.flows:flow_findings",
    "committee": "dynamics.report.flows:flow_findings",
    "spherical": "dynamics.report.flows:flow_findings",
    "mean-field": "dynamics.report.particles:mean_field_findings",
    "coupling": "dynamics.report.particles:coupling_findings",
    "chaos": "dynamics.report.studies:chaos_findings",
    "scaling": "dynamics.report.studies:law_findings",
    "finite-size": "dynamics.report.studies:law_findings",
    "compute-frontier": "dynamics.report.studies:law_findings",
    "transfer": "dynamics.report.studies:law_findings",
    "sweep": "dynamics.report.sweep:sweep_findings",
}
ENTRY_POINTS = "feature_emergence.findings"
#: Group of a tree that judges the others.
JUDGE = "comparison"


class Tone(StrEnum):
    """How a result is to be taken."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with the same keys in the same order, which are the titles of the columns; the first names the row.

    Attributes
    ----------
    caption : str
    rows : sequence of mapping
        Numbers, text or None.
    note : str
        What must be known to read it.
    """

    caption: str
    rows: Sequence[Mapping[str, Any]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure, what it shows, and the same in words for those who do not see it."""

    figure: Figure
    caption: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a result shows.

    Attributes
    ----------
    tone : Tone
    verdict : str
        What is to be read first: how the run ended, or what a comparison says.
    cautions : sequence of str
        What else must be known before any number is read, one sentence each.
    sentences : sequence of str
        Paragraphs before the tables.
    tables, drawings : sequence
    go_on : str
        Command that goes on with a run that has not ended, with "{file}" in place of its file.
    """

    tone: Tone
    verdict: str
    cautions: Sequence[str] = ()
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing] = ()
    go_on: str = ""


def find_findings(result: xr.Dataset | xr.DataTree) -> Findings | None:
    """Return what a result shows, or None if no installed package knows its answer."""
    for path in _paths(answer_of(main_part(result))):
        module, _, name = path.partition(":")
        found: Findings | None = getattr(import_module(module), name)(result)
        if found is not None:
            return found
    return None


def _paths(answer: str) -> Iterator[str]:
    """Yield the functions that may know an answer; two families may use one word."""
    if answer in FINDINGS:
        yield FINDINGS[answer]
    yield from (entry.value for entry in metadata.entry_points(group=ENTRY_POINTS, name=answer))


def parts_of(result: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """Return the datasets of a result by the path of their group, "/" for one that is all."""
    import xarray as xr

    if isinstance(result, xr.Dataset):
        return {"/": result}
    datasets = {node.path: node.to_dataset(inherit=False) for node in result.subtree}
    return {path: one for path, one in datasets.items() if one.variables or one.attrs}


def main_part(result: xr.Dataset | xr.DataTree) -> xr.Dataset:
    """Return the dataset that speaks for a result: the comparison of a tree, else its first."""
    import xarray as xr

    parts = parts_of(result)
    return parts.get(f"/{JUDGE}", next(iter(parts.values()), xr.Dataset()))


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


def end_of_run(dataset: xr.Dataset) -> tuple[Tone, str]:
    """Return how a run ended, in a sentence or two; an answer without a run is complete."""
    if "stop_reason" not in dataset.attrs:
        return Tone.GOOD, "Complete: this answer needs no time stepping."
    word = str(dataset.attrs["stop_reason"])
    if word not in set(StopReason):
        return Tone.BAD, f"Failed ({word.replace('_', ' ')})."
    reason = StopReason(word)
    if reason is StopReason.REACHED_END:
        return Tone.GOOD, f"Reached its end. {reason.advice}"
    if reason is StopReason.STEADY_STATE:
        return Tone.GOOD, f"Reached a steady state. {reason.advice}"
    where = f" at t = {float(dataset.attrs['end_time']):.5g}" if "end_time" in dataset.attrs else ""
    if reason.failed:
        return Tone.BAD, f"Failed{where} ({word.replace('_', ' ')}). {reason.advice}"
    return Tone.CAUTION, f"Not finished: stopped early{where} ({word.replace('_', ' ')}). {reason.advice}"


def drawing_of(ax: Axes, caption: str, more: str = "") -> Drawing:
    """Return the figure of some axes as a drawing; `more` is what those read who do not see it."""
    figure: Any = ax.figure
    return Drawing(figure=figure, caption=caption, alt=f"{caption} {more}".rstrip())


def new_axes(width: float = 6.8, height: float = 4.4) -> Axes:
    """Return the axes of a new figure that no window shows; inches."""
    from matplotlib.figure import Figure as NewFigure

    axes: Axes = NewFigure(figsize=(width, height), layout="constrained").subplots()
    return axes
