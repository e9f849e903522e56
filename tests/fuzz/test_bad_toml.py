"""Bad TOML files, given to `dynamics.solve --config` and to `dynamics.study`: refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz_commands import EXISTING
from fuzz_guard import Case, complaint_of_command, ended, report
from fuzz_tiers import share
from fuzz_toml import configurations, mutated, studies
from processes import SMALL_STUDY

from dynamics import study
from dynamics.solve import __main__ as solve
from hermite.text.messages import shown

CONFIGURATION = b"""\
k = 4
directions = 2
width = 3
dimension = 16
save = "geometric:20"
rtol = 1e-6
method = "explicit"
"""
SOLVE = ("--config", "given.toml", "--output", "new.nc", "--no-plot")
STUDY = ("given.toml", "--output", "new.nc")

pytestmark = pytest.mark.longer


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / EXISTING).write_bytes(b"not ours")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(main, given, contents, folder, record_property, *, readable=False):
    complaints, count = {}, 0
    for content in contents:
        count += 1
        (folder / "given.toml").write_bytes(content)
        case = Case("toml", shown(content[-150:]), lambda: ended(main, list(given)))
        complaint = complaint_of_command(case, folder, readable=readable)
        if complaint is not None:
            complaints[case.label] = complaint
    record_property("bad inputs: TOML", count)
    assert not complaints, report(complaints)


def test_bad_configurations(folder, record_property):
    check(solve.main, SOLVE, configurations(np.random.default_rng(4), share("toml")), folder, record_property)


def test_bad_studies(folder, record_property):
    given = [word for word in STUDY if word not in ("--output", "new.nc")]
    check(study.main, given, studies(np.random.default_rng(5), share("toml")), folder, record_property)


@pytest.mark.parametrize(
    ("main", "given", "content"), [(solve.main, SOLVE, CONFIGURATION), (study.main, STUDY, SMALL_STUDY.encode())]
)
def test_damaged_toml(main, given, content, folder, record_property):
    rng = np.random.default_rng(6)
    contents = (mutated(rng, content) for _ in range(share("toml")))
    check(main, (*given, "--dry-run"), contents, folder, record_property, readable=True)
