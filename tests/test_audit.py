"""The audit of pinned packages says what it does not know; the pins that the test command needs stand in a file of their own."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import dynamics

ROOT = Path(dynamics.__file__).parent.parent
FILES = [ROOT / "constraints.txt", ROOT / ".ci" / "constraints.txt"]


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pins(tmp_path):
    """Return two files with three pins."""
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    files[0].write_text("# a==1\nb==1\nc==2\n")
    files[1].write_text("d==3\n")
    return [str(path) for path in files]


def test_what_no_database_answered_for_is_said_in_red_and_is_no_success(audit, pins, monkeypatch, capsys):
    monkeypatch.setattr(audit, "answer", lambda *_: [])
    assert audit.main(pins) == audit.NOT_AUDITED
    assert "NOT AUDITED: 3 of 3 pinned packages" in capsys.readouterr().out
    monkeypatch.setattr(audit, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert audit.in_red("x") == "\033[1;31mx\033[0m"


@pytest.mark.parametrize(("vulnerabilities", "code"), [([], 0), ([{"id": "CVE-1"}], 1)])
def test_what_all_files_hold_is_asked_for(audit, pins, monkeypatch, capsys, vulnerabilities, code):
    known = {
        "one.txt": [
            {"name": "b", "version": "1", "vulns": vulnerabilities},
            {"name": "c", "version": "2", "vulns": []},
        ],
        "two.txt": [{"name": "d", "version": "3", "vulns": []}],
    }
    monkeypatch.setattr(audit, "answer", lambda _, path: known[path.name])
    assert audit.main(pins) == code
    told = capsys.readouterr().out
    assert "3 of 3 pinned packages were answered for" in told
    assert ("VULNERABLE: b 1" in told) == bool(vulnerabilities)


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(distribution, extras, found):
    """Add to `found` what a distribution needs with these extras, and what that needs."""
    try:
        wanted = requires(distribution) or []
    except PackageNotFoundError:  # of another platform
        return
    for requirement in map(Requirement, wanted):
        holds = [requirement.marker is None or requirement.marker.evaluate({"extra": each}) for each in ("", *extras)]
        entry = (canonical(requirement.name), frozenset(requirement.extras))
        if any(holds) and entry not in found:
            found.add(entry)
            needed(requirement.name, requirement.extras, found)


def test_the_test_command_needs_the_first_file_alone():
    """No pin of it is for documents and lint only, and no pin of the second file is for the tests."""
    names = {}
    for extra in ("test", "docs", "lint"):
        found = set()
        needed("feature-emergence", (extra,), found)
        names[extra] = {name for name, _ in found}
    first, second = (
        {canonical(line.partition("==")[0]) for line in path.read_text().splitlines() if line[0] != "#"}
        for path in FILES
    )
    assert not first & second
    assert not second & names["test"]
    assert not first & (names["docs"] | names["lint"]) - names["test"]
    assert "numpy" in first & names["test"]
