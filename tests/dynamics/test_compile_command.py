"""Tests of `feature-emergence compile`: it runs the jobs that are named, and reports each job that fails."""

import pytest

from dynamics import compile as command


def test_jobs_of_methods_come_first_and_a_word_chooses_some(capsys):
    assert command.main(["--list", "finite steps"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"finite steps", "classes, finite steps"} < set(listed)
    names = list(command.jobs())
    assert [name.startswith("method") for name in names] == sorted(
        (name.startswith("method") for name in names), reverse=True
    )


def test_a_process_runs_the_job_of_its_whole_name_alone(monkeypatch):
    ran = []
    made = {name: (lambda name=name: ran.append(name)) for name in command.jobs()}
    monkeypatch.setattr(command, "jobs", lambda: made)
    assert command.main(["--here", "finite steps"]) == 0
    assert ran == ["finite steps"]


def test_a_job_that_fails_is_named_with_its_last_line():
    (sentence,) = command.compile_in_processes(["no such job"], 1).values()
    assert sentence == "error: Argument JOB must be part of a name that --list prints, but is no such job."


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--workers", "0"], "Argument --workers must be at least 1, but is 0."), (["nothing"], "but is nothing.")],
)
def test_wrong_arguments_are_refused(words, message, capsys):
    assert command.main(words) == 2
    assert message in capsys.readouterr().err
