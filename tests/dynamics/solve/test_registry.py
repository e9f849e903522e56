"""The registry of answers: every entry is what it says, and the front door takes every student."""

import inspect
import re
from pkgutil import resolve_name

import numpy as np
import pytest
from own_systems import Logistic

import dynamics
from dynamics.solve.integration import Integration
from dynamics.solve.registry import ANSWERS

TEACHER = dynamics.Teacher([0.6, 0.4])
SAVE_AT = dynamics.SaveAt.at([0.0, 0.1, 0.2])
WATCHING = {"trackers", "progress", "max_runtime", "on_failure"}
ESTIMATING = [answer for answer in ANSWERS if "error_estimate" in answer.defaults()]
SOUND = [answer for answer in ANSWERS if answer.methods and answer.name not in ("system", "tokens")]


def problem(student="homogeneous", fields=()):
    if student == "system":
        return Logistic()
    if "objective" in fields and student == "spherical":
        one = dynamics.Teacher([1.0])
        return dynamics.Problem(
            activation="he4", teacher=one, width=1, dimension=8, student=student, objective="correlation"
        )
    if student == "network":
        return dynamics.Problem(student=dynamics.Student(activation="erf", width=3), teacher=TEACHER, dimension=8)
    link = "erf" if student == "committee" else "he4"
    return dynamics.Problem(activation=link, teacher=TEACHER, width=3, dimension=8, student=student)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)
def test_an_entry_says_what_its_function_takes(answer):
    parameters = inspect.signature(answer.solve()).parameters
    assert answer.resumes == ("checkpoint" in parameters) == (parameters.keys() >= WATCHING)
    assert bool(answer.methods) == ("method" in parameters)
    # When a user's own system does something is known to the user alone.
    if answer.name == "reused-data":  # every step of a few is saved
        assert "save_at" not in parameters
    else:
        assert parameters["save_at"].default is (inspect.Parameter.empty if answer.name == "system" else None)
    assert callable(resolve_name(answer.findings))


@pytest.mark.parametrize("student", ["homogeneous", "committee", "spherical", "network"])
def test_the_front_door_gives_each_student_to_its_own_function(student):
    asked = problem(student)
    answer = next(answer for answer in ANSWERS if student in answer.students)
    found = dynamics.solve_problem(asked, save_at=SAVE_AT, progress=False)
    direct = answer.solve()(asked, save_at=SAVE_AT, progress=False)
    assert found.attrs["answer"] == answer.name == {"homogeneous": "overlaps"}.get(student, student)
    for name in direct.data_vars:
        np.testing.assert_array_equal(found[name], direct[name])


def test_the_front_door_names_what_it_cannot_pass_on():
    with pytest.raises(TypeError, match=r"^Argument `rtoll` must be one of `solve_overlaps`.*Did you mean `rtol`\?$"):
        dynamics.solve_problem(problem(), rtoll=1e-3)
    with pytest.raises(TypeError, match=r"^Argument `device` must be one of `solve_spherical`"):
        dynamics.solve_problem(problem("spherical"), device="cpu")
    with pytest.raises(TypeError, match=r"^Argument `problem` must be a Problem, but is int"):
        dynamics.solve_problem(3)


@pytest.mark.parametrize("answer", ESTIMATING, ids=lambda answer: answer.name)
def test_every_integrated_answer_estimates_its_errors(answer):
    asked = problem(answer.students[0], answer.fields)
    found = answer.solve()(asked, save_at=SAVE_AT, progress=False)
    errors = [name for name in found.data_vars if str(name).endswith("_error")]
    event = "half_time" if answer.name == "system" else "emergence_time"
    assert {"loss_error", f"{event}_error"} <= set(errors)
    assert ("learned_time" in found) == ("learned_time_error" in errors)
    assert np.isfinite(found.loss_error).all()
    without = answer.solve()(asked, save_at=SAVE_AT, progress=False, error_estimate=False)
    assert not any(str(name).endswith("_error") for name in without.data_vars)
    # The estimate is a run of its own: it changes no bit of the answer.
    np.testing.assert_array_equal(found.loss, without.loss)


@pytest.mark.filterwarnings("ignore:The loss rises by up to")
@pytest.mark.parametrize("answer", SOUND, ids=lambda answer: answer.name)
def test_every_integrated_answer_stops_where_its_loss_rises(answer, monkeypatch):
    asked = problem(answer.students[0], answer.fields)
    losses = iter([1.0, 2.0, 3.0])

    class Rising(Integration):
        def __init__(self, *, observe, **settings):
            super().__init__(observe=lambda state: {**observe(state), "loss": next(losses)}, **settings)

    monkeypatch.setitem(inspect.unwrap(answer.solve()).__globals__, "Integration", Rising)
    given = {"error_estimate": False} if answer in ESTIMATING else {}
    with pytest.raises(dynamics.SolveError, match="loss_rose") as caught:
        answer.solve()(asked, save_at=SAVE_AT, progress=False, **given)
    assert caught.value.dataset.attrs["stop_reason"] == "loss_rose"


def test_docstrings_say_of_shared_arguments_what_holds_of_the_answer():
    order = ["Parameters", "Returns", "Other Parameters", "Raises", "Warns", "Notes", "References", "Examples"]
    solves = [answer for answer in ANSWERS if "on_failure" in answer.defaults() and answer.name != "tokens"]
    assert len(solves) == 8
    for answer in solves:
        text, parameters = inspect.getdoc(answer.solve()), inspect.signature(answer.solve()).parameters
        sections = re.findall(r"\n([A-Z][\w ]+)\n---", text)
        assert sections == [name for name in order if name in sections]
        assert max(map(len, text.splitlines())) <= 120
        menu = re.search(r"\nmethod : \{(.*)\}\n", text)
        assert bool(menu) == bool(answer.methods)
        for name in ("auto", "explicit", "bdf", "sundials"):
            assert (f'"{name}"' in menu[1] if menu else False) == (name in answer.methods)
        for name in (*WATCHING, "error_estimate", "checkpoint", "rtol"):
            assert bool(re.search(rf"\n(\w+, )?{name}(, \w+)? : ", text)) == (name in parameters)
