"""Bad arguments of every command: exit code 2, one sentence on stderr, no file touched; and the same by subprocesses."""

import os
from itertools import islice

import numpy as np
import pytest
from fuzz_calls import problem
from fuzz_commands import EXISTING, PREDICTION, STUDY_FILE, commands
from fuzz_guard import Case, Ended, complaint_of_command, ended, report
from fuzz_tiers import share
from processes import SMALL_STUDY, python

import dynamics
from hermite.text.messages import shown

#: How often two options are bad.
SECOND = 0.2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with what commands are given: files that are read, and files that must stay as they are."""
    where = tmp_path_factory.mktemp("commands")
    dynamics.save(dynamics.predict_emergence(problem()), where / PREDICTION)
    for name in (EXISTING, "existing.png", "existing.html"):
        (where / name).write_bytes(b"not ours")
    (where / STUDY_FILE).write_text(SMALL_STUDY)
    os.mkfifo(where / "fifo")
    return where


def arguments(command, number):
    """Yield so many different bad argument lists: the whole ones first, then options with bad values."""
    rng = np.random.default_rng([2, *command.name.encode()])
    for whole in islice(command.wholes, max(number // 3, 2)):
        is_flags = not whole or whole[0].startswith("--")
        yield [*command.good, *whole] if is_flags and command.good[0].startswith("--") else list(whole)
    names, seen = list(command.kinds), set()
    while len(seen) < number:
        given = list(command.good)
        for name in rng.permutation(names)[: 1 + (rng.random() < SECOND)]:
            value = command.kinds[str(name)](rng)
            given += [f"--{name}={value}"] if value.startswith("-") or rng.random() < 0.5 else [f"--{name}", value]
        if tuple(given) not in seen:
            seen.add(tuple(given))
            yield given


@pytest.mark.thorough
@pytest.mark.longer
@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.name.replace(" ", "-"))
def test_bad_flags(command, folder, record_property, monkeypatch):
    monkeypatch.chdir(folder)
    complaints, count = {}, 0
    for given in arguments(command, share("flags", len(command.kinds))):
        count += 1
        label = shown(given[-4:])
        complaint = complaint_of_command(Case("flags", label, lambda given=given: ended(command.main, given)), folder)
        if complaint is not None:
            complaints[label] = complaint
    record_property("bad inputs: flags", count)
    assert not complaints, report(complaints)


def by_subprocess(module, given, folder):
    done = python("-m", module, *given, cwd=folder, timeout=60)
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.thorough
@pytest.mark.longer
def test_bad_flags_of_real_processes(folder, record_property):
    every = [
        (command.name.split(",")[0].split(" ")[0], [word for word in given if "\0" not in word])
        for command in commands()
        for given in islice(arguments(command, 12), 3, 7)
        if not any("\0" in word for word in given)
    ]
    chosen = np.random.default_rng(3).permutation(len(every))[: share("processes")]
    complaints = {}
    for module, given in (every[at] for at in chosen):
        case = Case("processes", f"{module} {shown(given)}", lambda: by_subprocess(module, given, folder))  # noqa: B023
        complaint = complaint_of_command(case, folder)
        if complaint is not None:
            complaints[case.label] = complaint
    record_property("bad inputs: processes", len(chosen))
    assert not complaints, report(complaints)
