"""Findings that all studies by name have in common: points, fits, what is said of them, and the study's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamics.report.findings import Drawing, Findings, Table, Tone, end_of_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import xarray as xr
    from matplotlib.figure import Figure

#: Columns of numbers -> those of their standard errors.
_ERRORS = {
    "measured": "error",
    "pairs": "error",
    "sum formula": "sum error",
    "ideal sum": "ideal error",
    **{name: f"{name} error" for name in ("gap", "drift", "cost", "function gap exponent", "coupling exponent")},
    "exponent": "standard error",
    "steps": "s.e.",
    "samples": "s.e.",
    "disagree": "s.e.",
}
#: How a verdict of a study is to be taken; what is not here is no warning.
_TONES = {"undecided": Tone.CAUTION}


def study_findings(
    dataset: xr.Dataset, summary: dict[str, Any], sentences: Sequence[str], draw: Callable[[], Figure]
) -> Findings:
    """Return what a study shows: a list of rows `points`, perhaps one of `fits`, and single numbers in `summary`."""
    attrs = dataset.attrs
    tone, verdict = end_of_run(dataset)
    word = attrs.get("verdict")
    if word is not None:
        said = f"{str(word).capitalize()}."
        verdict = f"{said} {verdict}" if tone is Tone.GOOD else f"{verdict} {said}"
        tone = _TONES.get(word, tone) if tone is Tone.GOOD else tone
    tables = [Table(caption="Points", rows=_titled(summary["points"]), errors=_ERRORS)]
    if "fits" in summary:  # the sentences say them
        tables.append(Table(caption="Fits", rows=_titled(summary["fits"]), errors=_ERRORS, in_words=()))
    title, seconds = str(attrs.get("title", attrs["answer"])), attrs.get("wall_seconds")
    alt = f"Figure of the study: {title}. Its numbers are in the tables above."
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=sentences,
        tables=tables,
        drawings=[Drawing(draw=draw, caption=f"{title}.", alt=alt)],
        remarks=[] if seconds is None else [f"time: {seconds:.0f} s"],
        values={"study": attrs["answer"], "stop_reason": attrs.get("stop_reason"), "wall_seconds": seconds, **summary},
        overview=draw,
    )


def _titled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{title.replace("_", " "): value for title, value in row.items()} for row in rows]
