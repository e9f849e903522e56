"""Docstrings as they stand in the source, read as reStructuredText; the names of a module; the help of a command.

Docstrings write |w| for a norm, which reStructuredText takes for a substitution: bars are escaped outside code and
formulas.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_BAR = re.compile(r"(?<!\\)[|]")


def escaped(lines: list[str]) -> list[str]:
    """Return the lines with | escaped, but for code in backticks, doctests and directives."""
    found: list[str] = []
    margin: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if margin is not None and line.strip() and indent <= margin:
            margin = None
        if margin is None and line.lstrip().startswith(".. "):
            margin = indent
        if margin is not None or line.lstrip().startswith((">>>", "...")):
            found.append(line)
            continue
        parts = _CODE.split(line)
        found.append("".join(part if part.startswith("`") else _BAR.sub(r"\\\g<0>", part) for part in parts))
    return found


def escape_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape a docstring in place, before its sections are read."""
    del app, name, obj, options
    lines[:] = escaped(lines)
    if what == "property":
        # Of a property, "type: description" would be read from the first line.
        lines[0] = lines[0].replace(": ", " – ")


def once(app: Sphinx, modname: str | None, attribute: str) -> str | None:
    """Give no link to their source to names whose source leads back to another page or module.

    Those are names of `dynamics` that `sgd_check` has too, and names of a part of `dynamics` from files of which
    `dynamics` itself has names.
    """
    del app
    names = vars(import_module("dynamics"))["__all__"]
    if modname == "sgd_check":
        return modname if attribute in names else None
    if modname is None or not modname.startswith("dynamics."):
        return None
    sources = {getattr(getattr(import_module("dynamics"), name), "__module__", "") for name in names}
    return modname if getattr(getattr(import_module(modname), attribute, None), "__module__", "") in sources else None


class Names(SphinxDirective):
    """Show the docstrings of names of a module, one a line, and of members of a class that follow a colon (*: all)."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Let autodoc show each name by its kind."""
        lines = []
        for line in self.content:
            name, *members = line.split(": ")
            thing = getattr(import_module(self.arguments[0]), name)
            kind = "exception" if is_error(thing) else "class" if isinstance(thing, type) else "function"
            kind = "module" if isinstance(thing, ModuleType) else kind
            lines.append(f".. auto{kind}:: {self.arguments[0]}.{name}")
            lines.extend(f"   :members: {found.strip('*')}" for found in members)
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def is_error(thing: object) -> bool:
    """Tell whether a name is that of an exception."""
    return isinstance(thing, type) and issubclass(thing, BaseException)


class CommandHelp(SphinxDirective):
    """Show what ``python -m MODULE … --help`` prints."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Run the command, 100 columns wide."""
        command = [sys.executable, "-m", *self.arguments[0].split(), "--help"]
        environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
        if result.returncode != 0:
            msg = f"{' '.join(command[1:])} ended with {result.returncode}: {result.stderr}"
            raise self.error(msg)
        text = result.stdout.rstrip()
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all."""
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)
    app.connect("viewcode-follow-imported", once)
    app.add_directive("names", Names)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
