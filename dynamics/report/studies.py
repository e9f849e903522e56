"""What a study shows: its points, fits and figure, by the tables and figures that its own command prints and draws.

Knows what studies have in common; each family brings its tables and figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dynamics.report.findings import Drawing, Findings, Table, Tone, end_of_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["chaos_findings", "law_findings", "study_findings"]

#: How a verdict of a study is to be taken; what is not here is no warning.
_TONES = {"undecided": Tone.CAUTION}
#: Entries of a summary that are tables of their own.
_LISTS = {"points": "Points", "fits": "Fits"}


class StudyTables(Protocol):
    """The words of a family of studies."""

    def summarise(self, dataset: xr.Dataset) -> dict[str, Any]:
        """Return what a study found as plain values, `points` among them."""
        ...

    def sentences(self, dataset: xr.Dataset) -> Sequence[str]:
        """Return what is to be said about them."""
        ...


class StudyFigures(Protocol):
    """The figures of a family of studies."""

    def plot_study(self, dataset: xr.Dataset) -> Figure:
        """Draw the figure of a study."""
        ...


def study_findings(dataset: xr.Dataset, tables: StudyTables, figures: StudyFigures) -> Findings:
    """Return what a study shows, from the modules of its family that print and draw it.

    Parameters
    ----------
    dataset : Dataset
        Result of a study.
    tables, figures : modules
        With `summarise` and `sentences`, and with `plot_study`.
    """
    tone, verdict = end_of_run(dataset)
    word = dataset.attrs.get("verdict")
    if word is not None:
        verdict = f"{str(word).capitalize()}. {verdict}"
        tone = _TONES.get(word, tone) if tone is Tone.GOOD else tone
    summary = tables.summarise(dataset)
    found = [Table(caption=title, rows=_titled(summary[name])) for name, title in _LISTS.items() if name in summary]
    title = str(dataset.attrs.get("title", dataset.attrs["answer"]))
    alt = f"Figure of the study: {title}. Its numbers are in the tables above."
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=_paragraphs(tables.sentences(dataset)),
        tables=found,
        drawings=[Drawing(figure=figures.plot_study(dataset), caption=f"{title}.", alt=alt)],
    )


def law_findings(dataset: xr.Dataset) -> Findings | None:
    """Return what a study of `python -m dynamics.laws` shows; None for SGD's study of transfer, of the same name."""
    from dynamics.report import law_tables as tables
    from dynamics.report.figures import laws as figures

    if dataset.attrs["answer"] == "transfer" and "edge" not in dataset.attrs:
        return None
    return study_findings(dataset, tables, figures)


def chaos_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `propagation_of_chaos` shows."""
    from dynamics.laws import chaos_study

    return study_findings(dataset, chaos_study, chaos_study)


def _paragraphs(lines: Sequence[str]) -> list[str]:
    """Join lines to paragraphs: one that is indented, or follows a line without a full stop, goes on with it."""
    found: list[str] = []
    for line in lines:
        if found and (line.startswith(" ") or not found[-1].endswith(".")):
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    return found


def _titled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{title.replace("_", " "): value for title, value in row.items()} for row in rows]
