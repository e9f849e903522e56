"""What a notebook shows of links, problems, their parts and times of learning: well-formed, escaped, made lightly."""

from xml.etree import ElementTree

import numpy as np

import dynamics
import hermite


def read(value):
    """Caption, and {name of a row: text of its value}, of the HTML of a value, which must be well-formed."""
    table = ElementTree.fromstring(value._repr_html_())
    assert table.tag == "table"
    rows = {"".join(row[0].itertext()): "".join(row[1].itertext()) for row in table.iter("tr")}
    return "".join(table.find("caption").itertext()), rows


def problem(**changes):
    given = {"activation": "he3", "teacher": dynamics.Teacher([1.0, 0.5]), "width": 4, "dimension": 16}
    return dynamics.Problem(**given | changes)


def test_a_link_shows_its_series_and_what_follows_from_it():
    caption, rows = read(hermite.expand("0.8*h4(z) - 0.6*h6(z)"))
    assert caption == "Link 4/5 h4 - 3/5 h6"
    assert rows == {
        "σ(z)": "0.8 h4 − 0.6 h6",
        "information exponent k": "4",
        "parity": "even",
        "E σ(z)²": "1",
        "distance from the series": "0, order 6",
    }
    _, rows = read(hermite.expand("relu"))
    assert rows["σ(z)"].startswith("relu = 0.3989 + 0.5 h1 + 0.2821 h2 − 0.08143 h4")
    assert (rows["E σ(z)²"], rows["distance from the series"]) == ("0.5", "0.0095, order 60")
    assert read(hermite.expand({0: 2.0}))[1]["information exponent k"] == "none: σ is constant"
    assert "2·10<sup>−7</sup> h<sub>10</sub>" in hermite.expand({3: 1.0, 10: 2e-7})._repr_html_()


def test_a_problem_shows_student_teacher_and_start():
    caption, rows = read(problem(label_noise=0.2, seed=7))
    assert caption == "Problem: 4 neurons learn 2 directions of Rd, d = 16"
    assert rows == {
        "student": "f(x) = Σi |wi|² σ(wi·x / |wi|)",
        "link σ": "h3",
        "teacher": "f*(x) = Σp ap σ(θp·x)ap = 1, 0.5directions θp: orthonormal",
        "start": "random, |wi| = 0.01, seed 7",
        "label noise": "τ = 0.2",
    }
    given = problem(initial_overlaps=(0.1 * np.eye(4)[:, :2], np.eye(4), np.ones(4)))
    assert read(given)[1]["start"] == "given overlaps"
    assert read(problem(initial_weights=np.ones((4, 16))))[1]["start"] == "given weights"
    assert read(problem(inputs=dynamics.Inputs.power_law(0.5)))[1]["inputs"] == "Inputs.power_law(alpha=0.5)"
    many = read(problem(teacher=dynamics.Teacher.power_law(14, 1.0)))[1]["teacher"]
    assert many.count(",") == 12
    assert ", …" in many


def test_a_teacher_shows_its_function_and_what_it_is_known_by():
    caption, rows = read(dynamics.Teacher.power_law(14, 0.5))
    assert caption == "Teacher: 14 directions"
    assert (rows["f*(x)"], rows["directions"]) == ("Σp ap σ(θp·x)", "θp: orthonormal")
    assert rows["decay"] == "ap ∝ p−β, β = 0.5"
    assert (rows["coefficients"].count(","), rows["coefficients"][-3:]) == (12, ", …")
    directions = [[1.0, 0.0], [0.6, 0.8]]
    units = dynamics.Teacher([1.0, -0.5], links=["he2", "erf"], biases=[0.1, -0.2], directions=directions)
    assert read(units)[1] == {
        "f*(x)": "Σp ap σp(θp·x + βp)",
        "coefficients": "ap = 1, −0.5",
        "directions": "θp: given in R2",
        "links": "σp: he2, erf",
        "biases": "βp = 0.1, −0.2",
    }
    caption, rows = read(dynamics.Teacher.polynomial("x1*x2*x3 + x1"))
    assert caption == "Teacher: 3 directions"
    assert rows == {"f*(x)": "x1*x2*x3 + x1", "learned in the order": "x1, x1*x2*x3", "leap": "2"}


def test_inputs_and_a_student_show_what_they_are_made_of():
    assert read(dynamics.Inputs.power_law(0.25)) == (
        "Inputs x ~ N(0, Σ)",
        {"eigenvalues of Σ": "sl = l−0.25, l = 1 … d"},
    )
    given = read(dynamics.Inputs([2.0, 0.5], [1, 9]))[1]
    assert given == {"eigenvalues of Σ": "2 (1 axis), 0.5 (9 axes)", "dimension": "d = 10"}
    caption, rows = read(dynamics.Student(activation="he3", width=1, decay=(0.5, 0.0)))
    assert caption == "Student: 1 neuron"
    assert rows == {
        "f(x)": "s Σi vi σ(wi·x + bi)",
        "link σ": "h3",
        "layers": "wi free, vi trained, biases: none",
        "scale and rates": "s = 1, εw = 1, εv = 1, εb = 0",
        "decay": "κw = 0.5, κv = 0",
    }


def test_names_that_a_user_gives_are_escaped():
    def square(z):
        return z**2

    square.__name__ = "<script>alert('&')</script>\x00"
    link = hermite.expand(square)
    _, rows = read(problem(activation=link))
    assert rows["link σ"].startswith("<script>alert('&')</script>\ufffd = 1 + 1.414 h2")
    student = dynamics.Student(activation=link, width=2)
    for shown in (link, problem(activation=link), student, dynamics.Teacher([1.0], links=[link])):
        assert "<script>" not in shown._repr_html_()


def test_times_of_learning_show_the_interval_or_why_there_is_none():
    values = {"direction": 2, "learning_rate": 1e-3, "batch_size": 32, "time": 1.0, "time_error": 0.0, "delay": 0.1}
    known = dynamics.LearningSteps(
        **values, event="emergence", steps=1100.0, steps_deviation=100.0, steps_low=911.0, steps_high=1302.0
    )
    caption, rows = read(known)
    assert caption == "Direction 2, emergence"
    assert rows == {
        "steps": "1100 ± 100",
        "samples": "35200 ± 3200",
        "95 % of runs": "910 to 1300 steps",
        "step": "η = 0.001, batch 32",
    }
    gone = dict.fromkeys(("steps_deviation", "steps_low", "steps_high"), float("nan"))
    late = dynamics.LearningSteps(**values, event="learned", steps=5000.0, **gone, notes=("no <interval>",))
    assert str(late) == "direction 2, learned: unknown (about 5000 by the flow alone); no <interval>"
    assert read(late)[1] == {
        "steps": "unknown (about 5000 by the flow alone)",
        "step": "η = 0.001, batch 32",
        "not modelled": "no <interval>",
    }
    never = dynamics.LearningSteps(**values, event="learned", steps=float("inf"), **gone)
    assert read(never)[1]["steps"] == "never"
    assert "samples" not in read(never)[1]


def test_a_summary_begins_with_what_must_be_read_first():
    """A stopped run says so before any number, in lines and in tables; text of an answer is escaped."""
    stop = dynamics.Callback(lambda time, state: time > 1.0)
    times = dynamics.SaveAt.linear(0.0, 50.0, 51)
    flow = dynamics.solve_overlaps(problem(), save_at=times, trackers=[stop], progress=False)
    flow.attrs["stop_message"] = "<script>"
    shown = dynamics.summary(flow)
    lines = str(shown).splitlines()
    assert lines[0].startswith("Unfinished: stopped early at t = ")
    page = ElementTree.fromstring(shown._repr_html_())
    assert "".join(page[0].itertext()) == lines[0]
    assert [entry.text for entry in page.iter("li")] == lines[1 : 1 + len(list(page.iter("li")))]
    heads = ["".join(cell.itertext()) for cell in page.iter("th")]
    assert heads[:3] == ["p", "a_p", "T_p, leading order"]
    assert "<script>" not in shown._repr_html_()
