"""The process that draws a command's figure: the same file as without it, and none of its troubles."""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import time
from pathlib import Path

import pytest
from processes import python

from dynamics import Problem, Teacher, solve_overlaps
from dynamics.commands import drawing
from dynamics.commands.drawing import DrawingProcess, FigureRequest, drawing_process
from dynamics.report.findings import find_findings
from dynamics.runs.run_file import RunFile
from dynamics.runs.storage import load
from dynamics.solve import __main__ as solve
from dynamics.solve import end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux copies a process that has loaded libraries")
SMALL = ["--k", "4", "--coefficients", "0.8,0.6", "--width", "4", "--dimension", "16", "--quiet", "--output", "run.nc"]
OPTIONS = {"format": "png", "dpi": 60}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """A small answer in a file."""
    folder = tmp_path_factory.mktemp("answer")
    assert solve.main([*SMALL[:-1], str(folder / "run.nc"), "--no-plot"]) == 0
    return folder / "run.nc"


def drawn_here(dataset, style="screen", options=OPTIONS):
    stream = io.BytesIO()
    find_findings(dataset).drawn(style).savefig(stream, **options)
    return stream.getvalue()


def drawn_there(answer, find=find_findings):
    process = DrawingProcess()
    try:
        process.ask(FigureRequest(find, answer, "screen", OPTIONS))
        return process.picture()
    finally:
        process.close()


def test_a_copy_draws_what_this_process_would(answer):
    dataset = load(answer)
    assert drawn_there(dataset) == drawn_here(dataset)


def test_an_answer_without_a_figure_has_none(answer):
    assert drawn_there(load(answer), nothing) is None


def nothing(_dataset):
    """Find nothing."""


def fail(_dataset):
    msg = "no findings"
    raise RuntimeError(msg)


def test_a_copy_that_fails_gives_none_and_one_that_is_asked_nothing_ends(answer, capfd):
    assert drawn_there(load(answer), fail) is None
    process = DrawingProcess()
    process.close()
    assert process.picture() is None
    assert capfd.readouterr().err == ""


def test_a_copy_that_nobody_asks_ends_by_itself_and_may_be_asked_after_all(answer, monkeypatch):
    monkeypatch.setattr(drawing, "IDLE", 0.0)
    process = DrawingProcess()
    try:
        os.waitid(os.P_PID, process._child, os.WEXITED | os.WNOWAIT)
        process.ask(FigureRequest(find_findings, load(answer), "screen", OPTIONS))
        assert process.picture() is None
    finally:
        process.close()


def test_a_copy_that_hangs_is_waited_for_in_vain_and_ended(answer, monkeypatch):
    monkeypatch.setattr(drawing, "PATIENCE", 0.2)
    monkeypatch.setattr(drawing, "_draw_one", lambda *_given: time.sleep(1000.0))
    process = DrawingProcess()
    # More than a pipe holds: the thread that asks is still writing when the copy is ended.
    dataset = load(answer)
    process.ask(FigureRequest(find_findings, dataset.assign_attrs(padding="x" * (1 << 20)), "screen", OPTIONS))
    assert process.picture() is None
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process._child, 0)


def test_a_copy_that_stops_in_the_middle_of_its_answer_is_ended(answer, monkeypatch):
    def begin(connection, _prepare):
        os.write(connection.fileno(), b"\0\0")
        time.sleep(1000.0)

    monkeypatch.setattr(drawing, "PATIENCE", 0.2)
    monkeypatch.setattr(drawing, "_draw_one", begin)
    assert drawn_there(load(answer)) is None


def test_what_cannot_be_sent_is_waited_for_no_longer(answer, monkeypatch, capfd):
    monkeypatch.setattr(drawing, "IDLE", 1e6)
    monkeypatch.setattr(drawing, "PATIENCE", 1e6)

    def local(dataset):
        return find_findings(dataset)

    assert drawn_there(load(answer), local) is None
    assert capfd.readouterr().err == ""


def test_a_thread_that_cannot_be_started_loses_nothing(answer, monkeypatch):
    def refuse(_thread):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    process = DrawingProcess()
    with monkeypatch.context() as few:
        few.setattr(drawing.threading.Thread, "start", refuse)
        process.ask(FigureRequest(find_findings, load(answer), "screen", OPTIONS))
    assert process.picture() is None
    process.close()


def test_answers_too_large_to_be_copied_are_drawn_here(answer, monkeypatch):
    monkeypatch.setattr(drawing, "LARGEST_ANSWER", 1)
    assert drawn_there(load(answer)) is None


def test_signals_that_end_the_command_leave_its_copy_to_draw(answer):
    dataset = load(answer)
    process = DrawingProcess()
    try:
        wait_until_deaf(process._child)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process._child, number)
        process.ask(FigureRequest(find_findings, dataset, "screen", OPTIONS))
        assert process.picture() == drawn_here(dataset)
    finally:
        process.close()


def wait_until_deaf(child):
    """Wait until a process ignores SIGTERM."""
    for _ in range(2000):
        lines = Path(f"/proc/{child}/status").read_text(encoding="ascii").splitlines()
        ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
        if ignored >> (signal.SIGTERM - 1) & 1 and ignored >> (signal.SIGHUP - 1) & 1:
            return
        time.sleep(0.005)
    pytest.fail("The copy does not ignore signals.")


def test_there_is_no_copy_where_it_would_gain_nothing(monkeypatch):
    # matplotlib is loaded here.
    with drawing_process(find_findings, wanted=True) as process:
        assert process is None
    monkeypatch.delitem(sys.modules, "matplotlib")
    with drawing_process(find_findings, wanted=False) as process:
        assert process is None
    monkeypatch.setattr(drawing, "available_cores", lambda: 1)
    with drawing_process(find_findings, wanted=True) as process:
        assert process is None


def test_a_run_announces_what_its_dataset_holds(tmp_path):
    problem = Problem(activation="he4", teacher=Teacher([1.0]), width=2, dimension=16)
    file, heard = RunFile(tmp_path / "run.nc"), []
    file.announce = lambda contents: heard.append(pickle.loads(pickle.dumps(contents.stamped())))
    answer = solve_overlaps(problem, checkpoint=file, progress=False)
    (contents,) = heard
    assert contents.dataset().identical(answer)
    assert contents.nbytes == sum(array.nbytes for array in answer.data_vars.values())


@pytest.mark.parametrize("model", ["overlaps", "decoupled"])
def test_a_command_writes_the_figure_that_its_copy_has_drawn(model, tmp_path):
    """A process of its own, in which nothing is loaded yet, and matplotlib never is."""
    code = (
        "import sys\n"
        "from dynamics.commands import drawing\n"
        "from dynamics.solve import __main__ as solve\n"
        "drawing.available_cores = lambda: 2\n"
        "drawing.IDLE = drawing.PATIENCE = 600.0\n"
        f"code = solve.main({[*SMALL, '--model', model]!r})\n"
        "sys.exit(code or 10 * ('matplotlib.figure' in sys.modules))\n"
    )
    done = python("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    options = {"format": "png", "dpi": end.FIGURE_DPI}
    assert (tmp_path / "run.png").read_bytes() == drawn_here(load(tmp_path / "run.nc"), options=options)
