"""The sections that the page of every result has: notes, problem, settings, provenance, variables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.findings import stored_parameters
from dynamics.report.page import cell_text, element, section, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from xml.etree.ElementTree import Element

    import xarray as xr

PROBLEM_WORDS = {
    "activation": "link σ",
    "teacher_activation": "link of the teacher",
    "student": "student",
    "num_directions": "teacher directions P",
    "beta": "decay β of the teacher's coefficients",
    "width": "width m",
    "dimension": "input dimension d",
    "initial_norm": "norm of the starting weights",
    "seed": "seed of the start",
    "label_noise": "label noise τ",
    "inputs": "covariance of the inputs",
}
PROVENANCE_WORDS = {
    "source": "written by",
    "git_commit": "commit of the source",
    "date_created": "date",
    "history": "command",
    "environment": "machine and versions",
    "references": "references",
    "Conventions": "conventions",
    "schema_version": "version of the file format",
}
#: Brackets of stored JSON beyond which it is shown as it stands: deep nesting has no end that Python's stack knows.
MOST_BRACKETS = 200
NOTES = {"notes": "", "scaling_notes": "Scaling laws: "}
#: Shown elsewhere on the page.
ELSEWHERE = {
    "parameters",
    "title",
    "answer",
    "reasons",
    "loss_statement",
    "stop_message",
    "sweep",
    *PROVENANCE_WORDS,
    *NOTES,
}


def subtitle(dataset: xr.Dataset) -> str:
    """Return link and sizes of the problem in one line, "" where they are not stored."""
    problem = stored_parameters(dataset)["problem"]
    symbols = {"activation": "σ", "num_directions": "P", "width": "m", "dimension": "d", "beta": "β"}
    known = {name: _problem_value(name, problem[name]) for name in symbols if problem.get(name) is not None}
    return ", ".join(f"{symbols[name]} = {cell_text(value)}" for name, value in known.items())


def notes_section(parts: Mapping[str, xr.Dataset]) -> list[Element]:
    """Return the section of the notes that the parts of a result hold, each note once; nothing if there is none."""
    texts = [
        f"{lead}{dataset.attrs[name]}"
        for dataset in parts.values()
        for name, lead in NOTES.items()
        if str(dataset.attrs.get(name, ""))
    ]
    if not texts:
        return []
    items = (element("li", cell_text(text)) for text in dict.fromkeys(texts))
    return [section("Notes", element("ul", *items), name="notes")]


def problem_section(dataset: xr.Dataset) -> list[Element]:
    """Return what was asked; nothing if that is not stored."""
    problem = stored_parameters(dataset)["problem"]
    if not problem:
        return []
    rows = {PROBLEM_WORDS.get(name, name): _problem_value(name, value) for name, value in problem.items()}
    # A sweep has coefficients of its own at every point.
    if "teacher_coefficient" in dataset and dataset["teacher_coefficient"].ndim == 1:
        rows["teacher coefficients a_p"] = dataset["teacher_coefficient"].values
    return [section("Problem", *_pairs("What was asked", rows), name="problem")]


def settings_section(parts: Mapping[str, xr.Dataset]) -> Element:
    """Return the section of the arguments of the call, and of the method and the counts of the run."""
    found = []
    for path, dataset in parts.items():
        said = {**stored_parameters(dataset)["solver"], **dataset.attrs}
        shown = {name: value for name, value in said.items() if name not in ELSEWHERE and not _is_cost(name)}
        found += _pairs(f"Settings and counts{_of(path)}", _named(shown))
    return section("Settings", *found, name="settings")


def provenance_section(parts: Mapping[str, xr.Dataset]) -> Element:
    """Return where each part of a result comes from: program, machine, date, command, seeds, seconds."""
    found = []
    for path, dataset in parts.items():
        attrs = dataset.attrs
        rows = {word: _plain(attrs[name]) for name, word in PROVENANCE_WORDS.items() if name in attrs}
        said = {**stored_parameters(dataset)["solver"], **attrs}
        rows |= _named({name: value for name, value in said.items() if _is_cost(name)})
        found += _pairs(f"Where the result comes from{_of(path)}", rows)
    return section("Provenance", *found, name="provenance")


def variables_section(parts: Mapping[str, xr.Dataset]) -> Element:
    """Return every variable with its meaning, dims, units and range."""
    found = []
    for path, dataset in parts.items():
        rows = [_variable(str(name), array) for name, array in dataset.variables.items()]
        found += table(f"Variables{_of(path)}", rows, "Least and largest: of the values that are finite.")
    return section("Variables", *found, name="variables")


def _variable(name: str, array: xr.Variable) -> dict[str, Any]:
    sizes = ", ".join(f"{dim}: {size}" for dim, size in array.sizes.items())
    return {
        "name": name,
        "meaning": str(array.attrs.get("long_name", "")),
        "shape": f"({sizes})" if sizes else "one value",
        "units": str(array.attrs.get("units", "")),
        **_range(array.values),
    }


def _range(values: Any) -> dict[str, Any]:
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool):
        return {"least": None, "largest": None, "finite values": None}
    finite = values[np.isfinite(values)]
    known = finite.size > 0
    return {
        "least": finite.min() if known else None,
        "largest": finite.max() if known else None,
        "finite values": "all" if finite.size == values.size else f"{finite.size} of {values.size}",
    }


def _pairs(caption: str, rows: Mapping[str, Any]) -> list[Element]:
    return table(caption, [{"name": name, "value": cell_text(value)} for name, value in rows.items()]) if rows else []


def _is_cost(name: str) -> bool:
    return name == "seeds" or name.endswith("_seconds")


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): _plain(value) for name, value in values.items()}


def _of(path: str) -> str:
    return "" if path == "/" else f" of {path}"


def _problem_value(name: str, value: Any) -> Any:
    """Return a value of a stored problem as it is shown: a link by its name."""
    if name == "inputs":
        return "the identity" if value is None else _covariance(value["alpha"])
    if name not in ("activation", "teacher_activation"):
        return value
    return cell_text(value["name"] if isinstance(value, dict) and "name" in value else _plain(value))


def _covariance(alpha: float | None) -> str:
    """Return what Σ is: a power law, or what the table of eigenvalues says."""
    return "diagonal, by its eigenvalues" if alpha is None else f"eigenvalues l^(-{alpha:g})"


def _plain(value: Any) -> Any:
    """Return a stored value without the marks of JSON."""
    if isinstance(value, str) and value.startswith("{"):
        if value.count("{") + value.count("[") > MOST_BRACKETS:
            return value
        try:
            value = json.loads(value)
        except ValueError:
            return value
    if isinstance(value, dict):
        return "; ".join(f"{name} {cell_text(_plain(entry))}" for name, entry in value.items())
    return value
