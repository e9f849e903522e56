"""`write_report`: any result as one HTML page, which opens from the disk, in a mail and in print.

The page has no link that leaves it, no resource but data inside it, and at most one script of this program: a policy in
its head names that script by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from dynamics.report.elements import cell_text, chart_element, element, figure, resource, table, verdict_elements
from dynamics.report.findings import Findings, Tone, any_findings, stored_parameters
from dynamics.runs.result import StopReason
from dynamics.runs.storage import CHECKPOINT, StorageError, check_target, load_tree, main_part, parts_of, write_file
from hermite.text.messages import require, shown
from hermite.version import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    Element = ElementTree.Element
    Result = xr.Dataset | xr.DataTree

#: Rows of a long table that a page shows.
MOST_ROWS = 48
_PROBLEM = {
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
#: Text of a value that differs between the points of a sweep.
VARIED = "differs, see the grid"
#: Key of a grid -> the values that it changes, where these have other names.
_SET_BY = {
    "k": ("activation",),
    "alpha": ("inputs",),
    "beta": ("beta", "teacher_coefficients"),
    "num_directions": ("num_directions", "teacher_coefficients"),
    "teacher": ("num_directions", "beta", "teacher_coefficients", "teacher_directions"),
    "student": ("student", "width", "activation"),
}
_PROVENANCE = {
    "source": "written by",
    "git_commit": "commit of the source",
    "date_created": "date",
    "history": "command",
    "environment": "machine and versions",
    "references": "references",
    "Conventions": "conventions",
    "schema_version": "version of the file format",
}
_NOTES = {"notes": "", "scaling_notes": "Scaling laws: "}
#: Attributes that other sections than the settings show.
_ELSEWHERE = {"parameters", "title", "answer", "reasons", "loss_statement", "stop_message", "sweep"}
_ELSEWHERE |= _PROVENANCE.keys() | _NOTES.keys()


def write_report(
    result: xr.Dataset | xr.DataTree | str | os.PathLike[str], path: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Write one HTML file on a result: its end, its findings, its problem and its origin.

    The file needs nothing beside it and asks for nothing: figures are inside, and no link leaves the page. Its one
    script, on pages with curves to explore, is ours and draws them; a policy forbids any other. Text of a result is
    escaped, whatever it holds. The same result gives the same bytes with the same libraries.

    `result` is any result of this program, or its netCDF file, else TypeError is raised; of a file whose run has not
    ended the page says how it goes on. Tables and figures are those of the family that the attribute `answer` names; a
    page of another result has its attributes alone. An existing file `path` is replaced with `overwrite` alone. The
    path is returned; StorageError is raised if a file cannot be read or written.

    Examples
    --------
    >>> import tempfile
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(dynamics.solve_decoupled(problem), f"{folder}/answer.html")
    ...     path.name, path.read_text(encoding="utf-8")[:15]
    ('answer.html', '<!DOCTYPE html>')
    """
    import xarray as xr

    if isinstance(result, (str, os.PathLike)):
        target = check_page(path, result, overwrite=overwrite)
        stored, resumable = read_result(result)
        return write_page(stored, target, Path(result), resumable=resumable, overwrite=overwrite)
    target = check_page(path, overwrite=overwrite)
    require(
        isinstance(result, (xr.Dataset, xr.DataTree)),
        f"Argument `result` must be a Dataset, a DataTree or a path, but is {type(result).__name__}.",
        TypeError,
    )
    return write_page(result, target, overwrite=overwrite)


def check_page(
    path: str | os.PathLike[str], source: str | os.PathLike[str] | None = None, *, overwrite: bool = False
) -> Path:
    """Return the path; raise StorageError unless a page may be written there, which is not the file of the result."""
    target = check_target(path, overwrite=overwrite)
    require(
        target.suffix.lower() != ".pdf",
        f"Argument `path` must name a page, such as run.html, which browsers print, but is {shown(str(target))}.",
        StorageError,
    )
    is_source = source is not None and target.exists() and Path(source).exists() and target.samefile(source)
    require(
        not is_source,
        f"Argument `path` must not be the file of the result, but both are {str(target)!r}.",
        StorageError,
    )
    return target


def read_result(path: str | os.PathLike[str]) -> tuple[Result, bool]:
    """Return the result in a file, and whether its run can go on; raise StorageError if it cannot be read."""
    tree = load_tree(path)
    answer = tree.drop_nodes(CHECKPOINT, errors="ignore")
    return answer if answer.children else answer.to_dataset(), CHECKPOINT in tree.children


def write_page(
    result: Result, target: Path, source: Path | None = None, *, resumable: bool = False, overwrite: bool = False
) -> Path:
    """Write the page on a result, which `source` holds if any; return its path; raise StorageError if that fails."""
    parts, main = parts_of(result), main_part(result)
    findings, sections = _findings(result)
    file = "" if source is None else source.name
    title = cell_text(main.attrs.get("title", file or "Result"))
    about = " · ".join(text for text in (subtitle(main), file) if text)
    verdict = element("div", *verdict_elements(findings.verdict, findings.cautions), class_=f"verdict {findings.tone}")
    header = [element("h1", title), element("p", about, class_="about"), verdict]
    can_go_on = [reason for reason in StopReason if reason.resumable]
    if source is not None and main.attrs.get("stop_reason") in can_go_on:
        if not resumable:
            header.append(element("p", "The file holds no checkpoint, so the run cannot go on from it."))
        elif findings.go_on:
            code = element("code", findings.go_on.format(file=shlex.quote(str(source))))
            header += [element("p", "Go on with:"), element("pre", code)]
        else:
            header.append(element("p", "Go on with dynamics.resume or sgd_check.resume, from Python."))
    notes = [
        f"{lead}{dataset.attrs[name]}"
        for dataset in parts.values()
        for name, lead in _NOTES.items()
        if str(dataset.attrs.get(name, ""))
    ]
    items = (element("li", cell_text(text)) for text in dict.fromkeys(notes))
    sections += [_section("Notes", element("ul", *items))] if notes else []
    sections += [*_problem(main), *_stored(parts)]
    text = _document(title, header, sections, "" if findings.chart is None else resource("chart.js"))
    write_file(target, lambda path: path.write_text(text, encoding="utf-8"), replaces=overwrite)
    return target


def _document(title: str, header: Sequence[Element], sections: Sequence[Element], script: str) -> str:
    """Return the text of the page; the header lists the sections, and "" is no script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    policy += f"; script-src 'sha256-{digest}'" if script else ""
    links = (element("li", element("a", *section[0].itertext(), href=f"#{section.get('id')}")) for section in sections)
    document = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            element("style", resource("page.css")),
        ),
        element(
            "body",
            element("header", *header, element("nav", element("ul", *links), aria_label="Contents")),
            element("main", *sections),
            element("footer", element("p", f"Page by {PROGRAM}, whose docs/glossary.md explains the words.")),
            *([element("script", script)] if script else []),
        ),
        lang="en",
    )
    return "<!DOCTYPE html>\n" + ElementTree.tostring(document, encoding="unicode", method="html") + "\n"


def _section(title: str, *children: Element) -> Element:
    """Return a section with a heading of the second level; its title in small letters is its name."""
    name = title.lower()
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=heading.attrib["id"])


def subtitle(dataset: xr.Dataset) -> str:
    """Return link and sizes of the problem in one line, "" if none is stored; for a sweep the values of all points."""
    problem = _problem_of(dataset)
    symbols = {"activation": "σ", "num_directions": "P", "width": "m", "dimension": "d", "beta": "β"}
    values = {name: problem[name] for name in symbols if problem.get(name) not in (None, VARIED)}
    return ", ".join(f"{symbols[name]} = {cell_text(_problem_value(name, value))}" for name, value in values.items())


def _problem_of(dataset: xr.Dataset) -> dict[str, object]:
    """Return the stored problem; of a sweep that of its first point, with `VARIED` for values that differ."""
    problem = stored_parameters(dataset)["problem"]
    axes: list[str] = []
    with suppress(KeyError, TypeError, ValueError, RecursionError):  # a file may hold anything
        axes = list(map(str, json.loads(dataset.attrs["sweep"])["axes"]))
    varied = {name for axis in axes for name in _SET_BY.get(axis, (axis,))}
    return {name: VARIED if name in varied else value for name, value in problem.items()}


def _findings(result: Result) -> tuple[Findings, list[Element]]:
    """Return the findings on a result, and the sections on them; none if it lacks parts of its answer."""
    try:
        findings = any_findings(result)
        content = [element("p", sentence) for sentence in findings.sentences]
        for rows in findings.tables:
            content += table(rows.caption, *rows.spread(MOST_ROWS))
        content += [figure(drawing.draw(), drawing.caption, drawing.alt) for drawing in findings.drawings]
        sections = [_section("Findings", *content)] if content else []
        if findings.chart is not None:
            sections.append(_section("Explore", chart_element(findings.chart())))
    except Exception as error:  # a file may hold anything, and the rest of the page is still true
        reason = f"{type(error).__name__}: {error}"
        missing = f"Tables and figures could not be made: the result is not as its answer should be ({reason})."
        return Findings(tone=Tone.CAUTION, verdict="Incomplete or foreign result.", cautions=[missing]), []
    return findings, sections


def _problem(dataset: xr.Dataset) -> list[Element]:
    """Return the section of the problem, none if it is not stored."""
    problem = _problem_of(dataset)
    if not problem:
        return []
    rows = {_PROBLEM.get(name, name): _problem_value(name, value) for name, value in problem.items()}
    # The coefficients of a sweep differ between its points.
    if "teacher_coefficient" in dataset and dataset["teacher_coefficient"].ndim == 1:
        rows["teacher coefficients a_p"] = dataset["teacher_coefficient"].values
    return [_section("Problem", *_pairs("What was asked", rows))]


def _stored(parts: Mapping[str, xr.Dataset]) -> list[Element]:
    """Return the sections of the settings and counts of each part, of its origin, and of its variables."""
    sections: dict[str, list[Element]] = {"Settings": [], "Provenance": [], "Variables": []}
    for path, dataset in parts.items():
        of = "" if path == "/" else f" of {path}"
        provenance = {word: _plain(dataset.attrs[name]) for name, word in _PROVENANCE.items() if name in dataset.attrs}
        settings = {}
        for name, value in {**stored_parameters(dataset)["solver"], **dataset.attrs}.items():
            if name == "seeds" or name.endswith("_seconds"):
                provenance[name.replace("_", " ")] = _plain(value)
            elif name not in _ELSEWHERE:
                settings[name.replace("_", " ")] = _plain(value)
        sections["Settings"] += _pairs(f"Settings and counts{of}", settings)
        sections["Provenance"] += _pairs(f"Where the result comes from{of}", provenance)
        rows = [_variable(str(name), array) for name, array in dataset.variables.items()]
        sections["Variables"] += table(f"Variables{of}", rows, "Least and largest: of the values that are finite.")
    return [_section(title, *content) for title, content in sections.items()]


def _variable(name: str, array: xr.Variable) -> dict[str, object]:
    """Return the row of a variable: its meaning, shape, units, and range of finite values."""
    sizes = ", ".join(f"{dim}: {size}" for dim, size in array.sizes.items())
    row: dict[str, object] = {
        "name": name,
        "meaning": str(array.attrs.get("long_name", "")),
        "shape": f"({sizes})" if sizes else "one value",
        "units": str(array.attrs.get("units", "")),
        **dict.fromkeys(("least", "largest", "finite values")),
    }
    values = array.values
    if np.issubdtype(values.dtype, np.number) or values.dtype == bool:
        finite = values[np.isfinite(values)]
        if finite.size:
            row |= {"least": finite.min(), "largest": finite.max()}
        row["finite values"] = "all" if finite.size == values.size else f"{finite.size} of {values.size}"
    return row


def _pairs(caption: str, rows: Mapping[str, object]) -> list[Element]:
    """Return a table of names and values as elements of a page, or no element without rows."""
    return table(caption, [{"name": name, "value": cell_text(value)} for name, value in rows.items()]) if rows else []


def _inputs_in_words(value: Any) -> str:
    """Return stored inputs in words."""
    if value is None:
        return "the identity"
    if "snr" in value:
        return f"clusters, each of variance 1/{value['snr']:g} along an axis"
    return "diagonal, by its eigenvalues" if value["alpha"] is None else f"eigenvalues l^(-{value['alpha']:g})"


def _problem_value(name: str, value: Any) -> object:
    """Return a value of a stored problem for readers: a link by its name, Σ by its power law."""
    if value == VARIED:
        return value
    if name == "inputs":
        return _inputs_in_words(value)
    if name == "objective" and isinstance(value, dict):
        return value["own"]
    if name not in ("activation", "teacher_activation"):
        return value
    return cell_text(value["name"] if isinstance(value, dict) and "name" in value else _plain(value))


def _plain(value: object) -> object:
    """Return a stored value without the marks of JSON."""
    # JSON of many brackets is shown as it stands, since nesting may exceed the stack of Python.
    if isinstance(value, str) and value.startswith("{") and value.count("{") + value.count("[") <= 200:
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, dict):
        return "; ".join(f"{name} {cell_text(_plain(entry))}" for name, entry in value.items())
    return value
