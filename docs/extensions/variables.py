"""The variables of datasets as tables, made from the tables of the code when the pages are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from dynamics.runs import variables
from dynamics.tokens import system

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sphinx.application import Sphinx

#: Argument of the directive -> variables: those of all answers; those that models on tokens add or define otherwise.
LISTS = {
    "answers": variables.VARIABLES,
    "tokens": {name: found for name, found in system.TOKEN_VARIABLES.items() if variables.VARIABLES.get(name) != found},
}
#: Beginning of the meaning of an error, and what its name adds to that of its quantity.
ERRORS = (
    ("estimated numerical error", "_error"),
    ("estimated error by the cut series of the link", "_truncation_error"),
    ("standard error", "_error"),
    ("relative standard error", "_error"),
)
#: Heading and relative width of each column.
COLUMNS = {"name": 33, "meaning": 41, "symbol": 19, "unit": 7}


def grouped(table: Mapping[str, variables.Variable]) -> dict[str, list[str]]:
    """Return the names of variables below the dims of each, in the order of the table; errors of quantities last."""
    by_dims: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    for name, found in table.items():
        kinds = (
            (kind, name.removesuffix(end)) for kind, end in ERRORS if found.long_name.startswith(kind.split(" by ")[0])
        )
        kind, of = next(kinds, ("", ""))
        if of != name and of in table and table[of].dims == found.dims:
            errors.setdefault(f"{kind}, with the dims of its quantity", []).append(name)
            continue
        dims = "its own dim" if found.dims == (name,) else ", ".join(found.dims) or "no dim"
        by_dims.setdefault(dims, []).append(name)
    return by_dims | errors


def row(*cells: nodes.Node | None) -> nodes.row:
    """Return a row of a table, with one node in each cell."""
    entries = [nodes.entry("", *([nodes.paragraph("", "", cell)] if cell else [])) for cell in cells]
    return nodes.row("", *entries)


class Variables(SphinxDirective):
    """Show one list of variables: a table for each group of dims."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Return the tables; a change of the code makes the page anew."""
        for path in (variables.__file__, system.__file__, __file__):
            self.env.note_dependency(path)
        table = LISTS[self.arguments[0]]
        return [self.of_group(head, {name: table[name] for name in names}) for head, names in grouped(table).items()]

    def of_group(self, head: str, rows: Mapping[str, variables.Variable]) -> nodes.table:
        """Return the table of a group."""
        body = [
            row(
                nodes.literal(name, name),
                nodes.Text(found.long_name),
                nodes.math(found.symbol, found.symbol) if found.symbol else None,
                nodes.Text(found.units),
            )
            for name, found in rows.items()
        ]
        group = nodes.tgroup(
            "",
            *(nodes.colspec(colwidth=width) for width in COLUMNS.values()),
            nodes.thead("", row(*map(nodes.Text, COLUMNS))),
            nodes.tbody("", *body),
            cols=len(COLUMNS),
        )
        return nodes.table("", nodes.title("", head), group, classes=["variables", "colwidths-given"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("variables", Variables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
