"""Names go in a later major version only, with a warning that says when and what to use."""

import ast
import importlib
import re
import tomllib

import pytest
from processes import ROOT

from hermite.deprecation import deprecate, former_place

PACKAGES = ("hermite", "dynamics", "sgd_check")
HELPERS = ("deprecate", "former_place")


def calls():
    """Yield every call of a helper in the packages: its file, and its two versions."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS:
                    words = {word.arg: word.value for word in node.keywords}
                    if all(isinstance(words[name], ast.Constant) for name in ("since", "until")):
                        yield path.relative_to(ROOT), words["since"].value, words["until"].value


def number(version):
    return tuple(map(int, version.split(".")))


def test_the_warning_has_both_versions_and_the_line_of_the_user():
    with pytest.warns(FutureWarning) as caught:
        deprecate("Option --lr", "--learning-rate", since="1.2", until="2.0")
    assert [str(warning.message) for warning in caught] == [
        "Option --lr is deprecated since version 1.2 and goes in 2.0: use --learning-rate."
    ]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("since", "until"), [("1.2", "1.9"), ("1.2", "1.0"), ("2.0", "2.0"), ("1.2", "2.1"), ("1", "2.0"), ("1.2", "2")]
)
def test_a_name_cannot_go_within_a_major_version(since, until):
    with pytest.raises(ValueError, match=re.escape(f"which is {since!r}, but is {until!r}")):
        deprecate("Option --lr", "--learning-rate", since=since, until=until)


def test_a_former_module_gives_its_names_alone():
    moved = former_place("hermite.old", {"expand": "hermite.expansion"}, since="1.0", until="2.0")
    with pytest.warns(
        FutureWarning,
        match=r"`hermite\.old\.expand` is deprecated since version 1\.0 and goes in 2\.0: use `hermite\.exp",
    ):
        assert moved("expand") is importlib.import_module("hermite.expansion").expand
    with pytest.raises(AttributeError, match=r"module 'hermite\.old' has no attribute 'leap'"):
        moved("leap")


def test_what_was_to_go_by_now_has_gone():
    """The version to come is that of pyproject.toml, or the newest heading of the changelog."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    headings = re.findall(r"^## (\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    present = max(
        map(number, [".".join(project["tool"]["hatch"]["version"]["fallback-version"].split(".")[:2]), *headings])
    )
    found = list(calls())
    assert len(found) >= 3
    assert [file for file, since, until in found if not number(since) <= present < number(until)] == []
