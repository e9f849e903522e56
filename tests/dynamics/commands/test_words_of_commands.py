"""Messages, footnotes and short help of commands: options and columns have the names that a user sees."""

import io
import re

import numpy as np
import pytest

import dynamics
from dynamics.__main__ import console
from dynamics.commands.options import numbers
from dynamics.commands.program import folded
from dynamics.report.findings import find_findings
from dynamics.solve.__main__ import _options, build_parser, build_problem, main
from sgd_check.run.__main__ import main as check
from sgd_check.run.options import build_parser as build_check_parser


def refusal(line, capsys):
    assert main([*line.split(), "--dry-run"]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--t-max 3 --t-min 5", "Options --t-min and --t-max must satisfy"),
        ("--method gradient-descent", "must be given for --method gradient-descent, but is absent"),
        ("--momentum 0.9", "Option --momentum must be absent unless --learning-rate is given"),
        ("--average 0.5", "Option --average must be absent unless --learning-rate is given"),
        ("--optimizer adam --learning-rate 0.01", "The problem must have links that are no polynomials"),
        ("--student committee --second-layer fixed", "--second-layer must be absent for --student committee"),
        ("--student committee --model quadratic", "must be one of another model for --model quadratic"),
        ("--student stiefel", "must be one of another model for --model overlaps"),
    ],
)
def test_messages_name_options_and_never_none(line, words, capsys):
    told = refusal(line, capsys)
    assert words in told
    assert not re.search(r"`|\bNone\b|\w='", told)


def test_a_committee_is_a_network_whose_second_layer_is_one():
    line = "--student committee --activation erf --directions 2 --width 3 --dimension 16".split()
    options = _options(build_parser().values(line))
    assert options["model"] == "network"
    student = build_problem(options).student
    assert (student.second_layer, list(student.initial_second_layer)) == ("fixed", [1.0, 1.0, 1.0])


def test_coefficients_may_be_numbered_below_names(tmp_path):
    file = tmp_path / "teacher.csv"
    file.write_text("direction,weight\n1,1.0\n2,0.6\n3,0.4\n")
    assert numbers(f"@{file}") == (1.0, 0.6, 0.4)
    for text in ("1,1.0\n2,0.6\n", "a,b\n2,1.0\n1,0.6\n", "a,b,c\n1,1.0,2\n2,0.6,2\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match="one row or one column"):
            numbers(f"@{file}")


def test_short_help_fits_a_screen_and_the_long_one_has_every_option(capsys):
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([flag])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        if flag == "-h":
            assert len(text.splitlines()) <= 24
            assert text.count("python -m dynamics.solve -") >= 5
            for option in re.findall(r"--[a-z-]+", text):
                assert option in LONG or option == "--help"
        else:
            assert "--quadrature" in text


LONG = build_parser().format_help()


def test_short_help_of_checks_fits_a_screen(capsys):
    with pytest.raises(SystemExit) as ended:
        check(["-h"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert text.count("python -m sgd_check.run ") >= 5
    known = build_check_parser().format_help() + LONG
    assert set(re.findall(r"--[a-z-]+", text)) - {"--help"} <= set(re.findall(r"--[a-z-]+", known))


def test_commands_and_their_short_help_fit_in_100_columns(capsys):
    for main_of in (console, main):
        with pytest.raises(SystemExit):
            main_of(["-h"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_long_lines_are_broken_between_words_on_a_terminal_alone(monkeypatch):
    """But for rows of a table."""
    terminal, row = io.StringIO(), "  ".join(["column"] * 20)
    sentence = "predicted: of one neuron and one direction alone; ratio: the ratio of both times."
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stdout", terminal)
    assert folded(f"{sentence}\n{row}") == f"{sentence}\n{row}"
    terminal.isatty = lambda: True
    assert folded(f"{sentence}\n{row}").split("\n") == [sentence[:49], sentence[50:], row]


def test_no_later_end_is_named_for_what_no_neuron_can_carry():
    student = dynamics.Student(activation="erf", width=3, biases="none")
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher.polynomial("x1 + x1*x2"), dimension=16)
    with pytest.warns(UserWarning, match=r"No neuron ever carries x1\*x2"):
        flow = dynamics.solve_network(problem, rtol=1e-4, progress=False)
    assert find_findings(flow).cautions == []


@pytest.mark.parametrize(("link", "own"), [("he4", "T_p, exact pair"), ("tanh", "T_p, linearised")])
def test_footnotes_have_the_words_of_their_columns(link, own):
    problem = dynamics.Problem(activation=link, teacher=dynamics.Teacher([0.8, 0.6]), width=6, dimension=32)
    table = find_findings(dynamics.predict_emergence(problem)).tables[0]
    assert own in table.rows[0]
    assert ("T_p, leading order" in table.rows[0]) == (link == "he4"), "none is known of a linearised flow"
    for name in re.findall(r"(?:^|[.;\n] ?)([A-Za-z_][\w/ ]*(?:, [a-z ]+)?):", table.note):
        assert name in table.rows[0], name
    lines = table.lines()
    heading, notes = lines[1], "\n".join(line for line in lines[-3:] if ":" in line)
    for name in re.findall(r"(?:^|[.;\n] ?)([A-Za-z_][\w/ ]*(?:, [a-z ]+)?):", notes):
        assert name in heading, name


def test_times_that_are_unknown_name_the_option_of_a_later_end():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=6, dimension=32)
    answer = dynamics.solve_decoupled(problem)
    assert not any("`t_max`" in caution for caution in find_findings(answer).cautions)
    answer = answer.assign(emergence_time=answer.emergence_time.where(answer.direction < 2))
    assert np.isnan(answer.emergence_time).any()
    assert any("`t_max`" in caution for caution in find_findings(answer).cautions)
