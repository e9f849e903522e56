"""Names of arguments that papers and other programs use, last times, and what is drawn and printed of every answer."""

import inspect

import numpy as np
import pytest

import dynamics
import sgd_check


def pair(**fields):
    given = {"activation": "he4", "teacher": dynamics.Teacher([0.8, 0.6]), "width": 6, "dimension": 32}
    return dynamics.Problem(**(given | fields))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: dynamics.Problem(k=4), "`activation`"),
        (lambda: dynamics.Problem(activation="he4", P=4), "`teacher`"),
        (lambda: dynamics.Problem(activation="he4", dim=4), "`dimension`"),
        (lambda: dynamics.Problem(activation="he4", dimensoin=4), "`dimension`"),
        (lambda: dynamics.Student(link="erf"), "`activation`"),
        (lambda: dynamics.Teacher([1.0], linsk=["erf"]), "`links`"),
        (lambda: dynamics.solve_overlaps(pair(), lr=0.1), "`learning_rate`"),
        (lambda: dynamics.solve_network(pair(), t_end=4.0), "`t_max`"),
        (lambda: dynamics.solve_decoupled(pair(), times=[1.0]), "`save_at`"),
        (lambda: sgd_check.simulate(pair(), n_runs=4), "`seeds`"),
        (lambda: sgd_check.check(pair(), eta=4), "`learning_rate`"),
    ],
)
def test_an_unknown_argument_names_the_one_that_is_meant(call, named):
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as caught:
        call()
    assert named in str(caught.value)


def test_other_unknown_arguments_have_pythons_message_and_signatures_stay():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'qqq'$"):
        dynamics.Problem(qqq=4)
    assert "activation" in inspect.signature(dynamics.Problem).parameters
    assert inspect.signature(sgd_check.check).parameters["seeds"].default is not inspect.Parameter.empty


@pytest.mark.parametrize("solve", [dynamics.solve_overlaps, dynamics.solve_decoupled, dynamics.predict_emergence])
def test_a_last_time_ends_the_default_times(solve):
    bar = {"progress": False} if solve is dynamics.solve_overlaps else {}
    answer, usual = solve(pair(), t_max=3.0, **bar), solve(pair(), **bar)
    assert answer.time.values[-1] == 3.0
    assert answer.sizes["time"] == usual.sizes["time"]
    assert answer.time.values[0] == pytest.approx(min(usual.time.values[0], 0.03))
    with pytest.raises(ValueError, match="`t_max` must be None where `save_at` is given"):
        solve(pair(), t_max=3.0, save_at=dynamics.SaveAt.at([1.0]))
    with pytest.raises(ValueError, match="`t_max` must be finite and positive"):
        solve(pair(), t_max=-3.0)


def test_every_flow_takes_a_last_time():
    flows = "overlaps decoupled quadratic network committee spherical correlation mean_field".split()
    for name in flows:
        assert "t_max" in inspect.signature(getattr(dynamics, f"solve_{name}")).parameters, name


def test_the_figure_of_an_answer_is_that_of_its_command():
    figure = dynamics.plot(dynamics.solve_decoupled(pair()), style="talk")
    assert [ax.get_xlabel() for ax in figure.axes][-1] == "predicted emergence time"
    assert figure.style == "talk"
    with pytest.raises(TypeError, match="`answer` must be a Dataset or DataTree, but is list"):
        dynamics.plot([])


def test_an_answer_without_a_figure_says_so():
    closed = dynamics.tokens.predict(dynamics.tokens.Composition(vocabulary=6, hops=4))
    with pytest.raises(ValueError, match="must be a result with a figure"):
        dynamics.plot(closed)


def test_a_summary_prints_the_tables():
    answer = dynamics.predict_emergence(pair())
    lines = str(dynamics.summary(answer)).splitlines()
    assert any(line.split()[:2] == ["p", "a_p"] for line in lines)
    first = f"{answer.emergence_time.values[0]:.4g}"
    assert any(first in line for line in lines)


def test_the_loss_of_a_network_whose_directions_have_emerged_is_drawn():
    student = dynamics.Student(activation="relu", width=2, scale="1/m", rates="mean-field")
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher([0.5] * 4), dimension=8, seed=1)
    flow = dynamics.solve_network(
        problem, t_max=20.0, method="explicit", rtol=1e-4, error_estimate=False, progress=False
    )
    emerged = flow.assign(emergence_time=flow.emergence_time.copy(data=np.array([0.5, 1.0, 4.0, 16.0])))
    names = [text.get_text() for text in dynamics.plot_loss(emerged).get_legend().get_texts()]
    assert any(name.startswith("fit: ") for name in names)
    assert not any(name.startswith("asymptotic") for name in names), "the laws are of the homogeneous student"
