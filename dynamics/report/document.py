"""`write_report`: any result as one HTML file, which opens from the disk, in a mail and in print."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dynamics.report.chart import chart_element, chart_script
from dynamics.report.findings import Findings, Tone, end_of_run, find_findings
from dynamics.report.page import cell_text, element, figure, page, section, table
from dynamics.report.sections import (
    notes_section,
    problem_section,
    provenance_section,
    settings_section,
    subtitle,
    variables_section,
)
from dynamics.runs.result import StopReason
from dynamics.runs.storage import CHECKPOINT, StorageError, check_target, load_tree, write_file
from dynamics.runs.tables import main_part, parts_of
from hermite.text.messages import shown
from hermite.version import PROGRAM

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import xarray as xr

    Result = xr.Dataset | xr.DataTree

#: Rows of a table that a page shows, where fewer than all tell enough.
MOST_ROWS = 48
#: Name of the section whose figure runs a script.
EXPLORE = "explore"


def write_report(
    result: xr.Dataset | xr.DataTree | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> Path:
    """Write one HTML file on a result: how it ended, what it shows, what was asked, where it comes from.

    The file needs nothing beside it and asks for nothing: figures are inside, and no link leaves the page. Its one
    script, on pages with curves to explore, is ours and draws them; a policy forbids any other. The same result gives
    the same bytes with the same libraries.

    Parameters
    ----------
    result : Dataset, DataTree or path
        Any result of this program, or its netCDF file. Of a file whose run has not ended the page says how it goes on.
    path : path
        File to write, usually ending in .html.
    overwrite : bool, default False
        Replace an existing file.

    Returns
    -------
    Path

    Raises
    ------
    TypeError
        If `result` is none of these.
    StorageError
        If the file of the result cannot be read, or the page cannot be written.

    Notes
    -----
    Tables and figures are those of the family that the attribute `answer` names; a result that none knows gets a page
    with what it says of itself alone. Text of a result is escaped, whatever it holds.
    """
    from_file = isinstance(result, (str, os.PathLike))
    target = check_page(path, result if from_file else None, overwrite=overwrite)
    write_page(read_subject(result) if from_file else _checked_subject(result), target, overwrite=overwrite)
    return target


class Subject(NamedTuple):
    """What a page is on: a result, the file it comes from, and whether its run can go on from there."""

    result: Result
    source: Path | None = None
    resumable: bool = False


def check_page(
    path: str | os.PathLike[str], source: str | os.PathLike[str] | None = None, *, overwrite: bool = False
) -> Path:
    """Return the path; raise StorageError unless a page may be written there, which is not the file that it is on."""
    target = check_target(path, overwrite=overwrite)
    if target.suffix.lower() == ".pdf":
        msg = f"Argument `path` must name a page, such as run.html, which browsers print, but is {shown(str(target))}."
        raise StorageError(msg)
    if source is not None and target.exists() and Path(source).exists() and target.samefile(source):
        msg = f"Argument `path` must not be the file of the result, but both are {str(target)!r}."
        raise StorageError(msg)
    return target


def read_subject(path: str | os.PathLike[str]) -> Subject:
    """Return the result in a file; raise StorageError if it cannot be read, or is none of this program."""
    tree = load_tree(path)
    answer = tree.drop_nodes(CHECKPOINT, errors="ignore")
    result = answer if answer.children else answer.to_dataset()
    return Subject(result, Path(path), resumable=CHECKPOINT in tree.children)


def write_page(subject: Subject, target: Path, *, overwrite: bool = False) -> None:
    """Write the page on a result to a file; raise StorageError if that could not be done."""
    text = _document(subject)
    write_file(target, lambda path: path.write_text(text, encoding="utf-8"), replaces=overwrite)


def _checked_subject(result: object) -> Subject:
    import xarray as xr

    if not isinstance(result, (xr.Dataset, xr.DataTree)):
        msg = f"Argument `result` must be a Dataset, a DataTree or a path, but is {type(result).__name__}."
        raise TypeError(msg)
    return Subject(result)


def _document(subject: Subject) -> str:
    result, source, _ = subject
    parts, main = parts_of(result), main_part(result)
    findings, shown = _findings(result)
    title = cell_text(main.attrs.get("title", "Result" if source is None else source.name))
    about = " · ".join(text for text in (subtitle(main), "" if source is None else source.name) if text)
    header = [element("h1", title), element("p", about, class_="about"), _verdict(findings)]
    header += _way_on(main, findings, subject)
    sections = [
        *shown,
        *notes_section(parts),
        *problem_section(main),
        settings_section(parts),
        provenance_section(parts),
        variables_section(parts),
    ]
    has_chart = any(one.get("id") == EXPLORE for one in sections)
    return page(title, header, sections, f"Page by {PROGRAM}.", chart_script() if has_chart else "")


def _findings(result: Result) -> tuple[Findings, list[Element]]:
    """Return what a result shows, and the section on it; a result that lacks what its answer promises shows less."""
    main = main_part(result)
    try:
        known = find_findings(result)
        if known is not None:
            return known, _findings_section(known)
        tone, verdict = end_of_run(main)
        return Findings(tone=tone, verdict=verdict, cautions=["No family of results knows this answer."]), []
    except Exception as error:  # what a file holds is anybody's, and the rest of the page is still true
        reason = f"{type(error).__name__}: {error}"
        missing = f"Tables and figures could not be made: the result is not as its answer should be ({reason})."
        return Findings(tone=Tone.CAUTION, verdict="Incomplete or foreign result.", cautions=[missing]), []


def _findings_section(findings: Findings) -> list[Element]:
    content = [element("p", sentence) for sentence in findings.sentences]
    for one in findings.tables:
        content += table(one.caption, *one.spread(MOST_ROWS))
    content += [figure(one.draw(), one.caption, one.alt) for one in findings.drawings]
    found = [section("Findings", *content, name="findings")] if content else []
    if findings.chart is not None:
        found.append(section("Explore", chart_element(findings.chart()), name=EXPLORE))
    return found


def _verdict(findings: Findings) -> Element:
    first = element("p", element("strong", findings.verdict))
    cautions = [element("ul", *(element("li", text) for text in findings.cautions))] if findings.cautions else []
    return element("div", first, *cautions, class_=f"verdict {findings.tone}")


def _way_on(main: xr.Dataset, findings: Findings, subject: Subject) -> list[Element]:
    """Say how a run that has not ended goes on."""
    reason = str(main.attrs.get("stop_reason"))
    if subject.source is None or not any(reason == each and each.resumable for each in StopReason):
        return []
    if not subject.resumable:
        return [element("p", "The file holds no checkpoint, so the run cannot go on from it.")]
    if not findings.go_on:
        return [element("p", "Go on with dynamics.resume or sgd_check.resume, from Python.")]
    command = findings.go_on.format(file=shlex.quote(str(subject.source)))
    return [element("p", "Go on with:"), element("pre", element("code", command))]
