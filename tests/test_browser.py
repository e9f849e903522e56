"""Pages on results as a real browser shows them: figures decoded, light, dark and narrow, nothing loaded, no message.

Curves are explored as a reader does, by pointer, keys and buttons.

Runs with FULL_TESTS=1 in the environment, where Chromium is installed.
"""

import html
import http.server
import json
import re
import shutil
import string
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import dynamics
import sgd_check.tokens
from dynamics import tokens
from dynamics.report.elements import cell_text
from dynamics.report.findings import find_findings

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --hide-scrollbars "
    "--enable-logging=stderr --v=0"
).split()
#: A page that says of another in a frame what only a browser knows, and one that does with its chart what a reader does.
PROBE, READER = (
    string.Template((Path(__file__).parent / "pages" / f"{name}.html").read_text(encoding="utf-8"))
    for name in ("probe", "reader")
)


def mean_field():
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([0.6, 0.4]), width=32, dimension=8, student="spherical"
    )
    return dynamics.solve_mean_field(problem, particles=128, keep="summary", progress=False)


def network():
    student = dynamics.Student(activation="erf", width=4, biases="fixed")
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher.polynomial("x1 + x1*x2"), dimension=20)
    return dynamics.solve_network(problem, save_at=dynamics.SaveAt.geometric(0.01, 100.0, 60), progress=False)


def runs_on_tokens():
    problem = tokens.Composition(vocabulary=4, hops=2)
    runs = sgd_check.tokens.simulate(problem, learning_rate=0.5, steps=260, batch_size=2, seeds=4, progress=False)
    return sgd_check.tokens.compare(tokens.solve(problem, progress=False), runs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pages")
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=16)
    flow = dynamics.solve_overlaps(problem, progress=False)
    flow.attrs["notes"] = "<img src='http://127.0.0.1:1/hostile.png'><script src='//127.0.0.1:1/hostile.js'></script>"
    dynamics.save(flow, made / "run.nc")
    dynamics.write_report(flow, made / "page.html")
    return made


@pytest.fixture
def served(folder):
    """The folder behind HTTP, since a browser lets no page look into another on the disk; and what was asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given):
            super().__init__(*given, directory=str(folder))

        def log_message(self, *_):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def browse(tmp_path, *arguments):
    """Run the browser once, with a profile of its own."""
    command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0
    assert "CONSOLE" not in found.stderr
    return found.stdout


def found_in(dom):
    """What the script of a page that looks into another has found."""
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]))


@pytest.mark.parametrize(("width", "narrow"), [(1280, False), (390, True)])
def test_a_reader_explores_the_curves(folder, served, tmp_path, width, narrow):
    address, _ = served
    flow = dynamics.load(folder / "run.nc")
    # Where the second direction passes one half, in parts of the plot.
    later = np.log(flow["time"].values[flow["time"].values > 0])
    x = (np.log(flow["emergence_time"].values[1]) - later[0]) / (later[-1] - later[0])
    place = f"{x:.6f}, {(1.04 - 0.5) / 1.08:.6f}"
    (folder / "reader.html").write_text(READER.substitute(page="page", width=width, place=place), encoding="utf-8")
    found = found_in(browse(tmp_path, "--virtual-time-budget=5000", "--dump-dom", f"{address}/reader.html"))
    assert not found["hidden"]
    assert found["overflow"] <= 0
    assert (found["scrolls"], found["hint"]) == (narrow, "block" if narrow else "none")
    second = f"direction 2; a_p = 0.6; predicted T_p = {flow.predicted_emergence_time.values[1]:.5g}; emerged at t ="
    for how in ("hover", "keys", "touch"):
        assert found[how]["said"].startswith(second)
        assert found[how]["chosen"] == 1
    assert (found["away"]["said"], found["away"]["chosen"]) == ("No curve is chosen.", 0)
    assert {"0", "0.2", "0.4", "0.6", "0.8", "1"} <= set(found["first"]["labels"])
    assert found["button"]["view"] == "250 250 500 500"
    x, y, w, h = map(float, found["drag"]["view"].split())
    np.testing.assert_allclose([x, y, w, h], [250.0, 200.0, 500.0, 500.0], atol=5.0)
    assert found["drag"]["labels"] != found["first"]["labels"]
    assert found["all"]["view"] == "0 0 1000 1000"
    assert found["all"]["labels"] == found["first"]["labels"]


@pytest.mark.parametrize("answer", [mean_field, network, runs_on_tokens])
def test_curves_of_every_family_are_explored(answer, folder, served, tmp_path):
    result = answer()
    dynamics.write_report(result, folder / f"{answer.__name__}.html", overwrite=True)
    chart = find_findings(result).chart()
    second, (low, high) = chart.curves[1], chart.limits
    at = int(np.nanargmin(np.abs(second.values - np.nanmax(second.values) / 2)))
    later = np.log(chart.time)
    x, y = (later[at] - later[0]) / (later[-1] - later[0]), (high - second.values[at]) / (high - low)
    for width in (1280, 390):
        text = READER.substitute(page=answer.__name__, width=width, place=f"{x:.6f}, {y:.6f}")
        # The browser takes a page of the same second and name for unchanged.
        (folder / f"reader-{width}.html").write_text(text, encoding="utf-8")
        place = f"{served[0]}/reader-{width}.html"
        found = found_in(browse(tmp_path, "--virtual-time-budget=5000", "--dump-dom", place))
        assert not found["hidden"]
        assert found["overflow"] <= 0
        assert found["scrolls"] == (width == 390)
        said = "; ".join(f"{name} {cell_text(value)}" for name, value in second.facts.items())
        assert [found[how]["said"] for how in ("hover", "keys", "touch")] == [said] * 3
        assert {"0", "1"} <= set(found["first"]["labels"])
        assert found["drag"]["labels"] != found["first"]["labels"] == found["all"]["labels"]


@pytest.mark.parametrize("width", [1200, 380])
def test_figures_are_decoded_and_nothing_else_is_asked_for(folder, served, tmp_path, width):
    address, asked = served
    (folder / "probe.html").write_text(PROBE.substitute(width=width), encoding="utf-8")
    dom = browse(tmp_path, "--virtual-time-budget=5000", "--dump-dom", f"{address}/probe.html")
    found = found_in(dom)
    assert len(found["figures"]) == 3
    assert all(complete and natural > 300 and shown > 300 for complete, natural, shown in found["figures"])
    assert found["unstyled"] != "none"
    assert found["unnamed"] == 0
    assert "Reached its end." in found["text"]
    assert "hostile.png" in found["text"]
    # The page itself never scrolls sideways: wide tables and figures do within their frames.
    assert found["overflow"] <= 0
    assert [name for name in found["loaded"] if not name.startswith("data:")] == []
    assert set(asked) <= {"/probe.html", "/page.html", "/favicon.ico"}
