"""The result of a study as text: a table of points, sentences about fits, or one JSON object.

Knows layout alone; what the points and the sentences are, each family of studies says itself.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from dynamics.report.tables import jsonable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import xarray as xr

__all__ = ["study_json", "study_text"]


def study_json(dataset: xr.Dataset, summary: dict[str, Any], output: Path, figure: Path | None) -> str:
    """Return one JSON object; what is not finite becomes null."""
    found = {
        "study": dataset.attrs["answer"],
        "stop_reason": dataset.attrs["stop_reason"],
        "wall_seconds": dataset.attrs["wall_seconds"],
        **summary,
        "output": str(output),
        "plot": None if figure is None else str(figure),
    }
    return json.dumps(jsonable(found))


def study_text(
    dataset: xr.Dataset, summary: dict[str, Any], sentences: Sequence[str], output: Path, figure: Path | None
) -> str:
    """Return the table of `summary["points"]`, one line per sentence, and the names of the files."""
    columns = list(summary["points"][0])
    rows = [[_short(point[column]) for column in columns] for point in summary["points"]]
    titles = [column.replace("_", " ") for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in [titles, *rows]]
    lines += ["", *sentences]
    lines.append(f"{dataset.attrs['wall_seconds']:.0f} s; written: {output}" + (f", {figure}" if figure else ""))
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, (int, str)):
        return str(value)
    if math.isnan(value):
        return "-"
    return "never" if math.isinf(value) else f"{value:.4g}"
