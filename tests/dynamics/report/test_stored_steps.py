"""Steps of SGD until a direction is learned: they are kept in the file, told by its page, and asked for by a check."""

import numpy as np
import pytest

import dynamics
from dynamics.report.findings import find_findings
from dynamics.report.page import write_page
from dynamics.solve.__main__ import main
from dynamics.solve.learning_steps import steps_of, stored_steps
from sgd_check.run import __main__ as run


@pytest.fixture
def answer(tmp_path, capsys):
    line = "--model decoupled --coefficients 0.8,0.6,0.4 --width 12 --dimension 24 --learning-steps 2 --no-plot"
    assert main([*line.split(), "--output", str(tmp_path / "run.nc")]) == 0
    return dynamics.load(tmp_path / "run.nc"), capsys.readouterr().out


def test_steps_are_in_the_file_and_on_its_page(answer, tmp_path):
    answer, told = answer
    steps = steps_of(answer)
    assert [(each.direction, each.event) for each in steps] == [(2, "emergence"), (2, "learned")]
    assert str(steps[0]) == str(dynamics.learning_steps(answer, direction=2, learning_rate="0.1x"))
    found = find_findings(answer)
    for each in steps:
        assert str(each) in found.sentences
        assert str(each) in told
    assert found.values["learning_steps"][0]["steps"] == steps[0].steps
    write_page(answer, tmp_path / "run.html", tmp_path / "run.nc", resumable=False, overwrite=False)
    assert "direction 2, emergence: " in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_a_check_asks_for_all_directions_that_emerge_until_the_stored_one(answer):
    answer, _ = answer
    times = answer["emergence_time"].values
    assert run._wanted_directions(answer) == int((times <= times[1]).sum())
    assert run._wanted_directions(answer.drop_attrs()) == 0


@pytest.mark.parametrize("longest", [660.0, 0.0])
def test_a_check_goes_to_the_stored_direction_or_says_its_price(answer, tmp_path, monkeypatch, capsys, longest):
    def stopped(*_given, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgd_check.verdicts.check.AFFORDABLE_SECONDS", 1e-9)
    monkeypatch.setattr("sgd_check.verdicts.check.carry_out", stopped)
    monkeypatch.setattr(run, "LONG_RUN_SECONDS", longest)
    wanted = run._wanted_directions(answer[0])
    assert wanted > 1
    assert run.main([str(tmp_path / "run.nc"), "--seeds", "8"]) == 130
    told = capsys.readouterr().err
    assert f"made for {wanted if longest else 1} of 3 directions" in told
    assert (f"need --directions {wanted}, which takes about" in told) == (longest == 0.0)


def test_steps_that_are_unknown_or_never_are_kept(answer):
    answer, _ = answer
    unknown = dynamics.learning_steps(answer, direction=3, learning_rate=1e-3)
    never = dynamics.LearningSteps(
        **{name: getattr(unknown, name) for name in unknown.__slots__} | {"steps": np.inf, "steps_high": np.nan}
    )
    assert repr(steps_of(answer.assign_attrs(stored_steps([never])))) == repr([never])
