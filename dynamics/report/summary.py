"""`summary`: what an answer shows, its verdict first, where it is asked for in Python or in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from dynamics.report.findings import Findings, end_of_run, find_findings
from dynamics.report.page import element, table
from dynamics.runs.tables import main_part

if TYPE_CHECKING:
    import xarray as xr

#: Rows of a table that a notebook shows, where fewer than all tell enough.
MOST_ROWS = 12


class Summary:
    """What an answer shows, verdict first: printed in lines, in a notebook with its tables; made by `summary`."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def __repr__(self) -> str:
        """Return what a command prints on the answer, the verdict in front."""
        found = self._findings
        return "\n".join([found.verdict, *found.cautions, *found.sentences, *found.remarks])

    def _repr_html_(self) -> str:
        found = self._findings
        parts = [element("p", element("strong", found.verdict))]
        if found.cautions:
            parts.append(element("ul", *(element("li", text) for text in found.cautions)))
        parts += [element("p", text) for text in found.sentences]
        for each in found.tables:
            parts += table(each.caption, *each.spread(MOST_ROWS))
        return ElementTree.tostring(element("div", *parts), encoding="unicode", method="html")


def summary(answer: xr.Dataset | xr.DataTree) -> Summary:
    """Return what an answer shows, to be printed or left as the last line of a cell of a notebook.

    First comes how the run ended, "Unfinished" if it was stopped, or what a comparison says; then what must be known
    before a number is read, and the tables that the command of the answer prints.

    Parameters
    ----------
    answer : Dataset or DataTree
        What a solve, prediction, simulation, comparison, study or sweep returned, or `dynamics.load` read.

    Returns
    -------
    Summary

    Raises
    ------
    TypeError
        If the answer is of another type.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> answer = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 10.0]))
    >>> str(dynamics.summary(answer)).splitlines()[0]
    'Complete: this answer needs no time stepping.'
    """
    import xarray as xr

    given: object = answer
    if not isinstance(given, (xr.Dataset, xr.DataTree)):
        msg = f"Argument `answer` must be a Dataset or DataTree, but is {type(given).__name__}."
        raise TypeError(msg)
    found = find_findings(answer)
    if found is None:
        tone, verdict = end_of_run(main_part(answer))
        found = Findings(tone=tone, verdict=verdict, cautions=["No family of results knows this answer."])
    return Summary(found)
