"""The page with sliders: its numbers against those of Python, in node and in a browser, and its command.

Tests in node are skipped where node is not installed; those in a browser run with FULL_TESTS=1, where Chromium is.
"""

import functools
import html
import http.server
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from processes import ROOT, python

import dynamics
from dynamics.fits import default_window, fit_power_law
from dynamics.problem import Teacher
from dynamics.solve import __main__ as solve_command
from dynamics.theory.asymptotics import asymptotic_exponents

NODE = shutil.which("node")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_node = pytest.mark.skipif(NODE is None, reason="node is not installed: the script of the explorer is not run")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
SCRIPT = ROOT / "docs" / "static" / "pair_equation.js"
RTOL = 1e-9
USUAL = {"k": 4, "beta": 1, "P": 16, "m": 48, "d": 256, "eta": 0, "seed": 0}
#: Every law of a start: d far above, just at and below m + P; every k; fewer neurons than directions; long streams.
STATES = [
    USUAL | changed
    for changed in (
        {},
        {"k": 3, "beta": 0.7, "seed": 1, "eta": 2e-6},
        {"k": 5, "beta": 1.5, "P": 8, "m": 24, "d": 32, "seed": 7},
        {"k": 8, "P": 4, "m": 12, "d": 1024, "seed": 2},
        {"k": 6, "beta": 0, "m": 8, "d": 24, "seed": 2**32 - 1},
        {"k": 7, "beta": 0.5, "P": 8, "m": 8, "d": 16, "eta": 1e-5},
        {"P": 8, "m": 9, "d": 18, "seed": 4},
        {"beta": 3, "P": 1, "m": 1, "d": 16},
        {"k": 3, "beta": 3, "P": 128, "m": 512, "d": 2**20, "seed": 5},
        {"beta": 2, "P": 64, "m": 256, "d": 320, "seed": 3},
    )
]


def problem_of(state):
    return dynamics.Problem(
        activation=f"he{state['k']}", teacher=Teacher.power_law(state["P"], state["beta"]), width=state["m"],
        dimension=state["d"], seed=state["seed"],
    )  # fmt: skip


def run_script(text):
    """Return what a JavaScript expression of `PairEquation` and `states` is; numbers that are not finite come as text."""
    plain = "(key, x) => typeof x === 'number' && !isFinite(x) ? String(x) : x"
    program = (
        f"const PairEquation = require({json.dumps(str(SCRIPT))}), states = {json.dumps(STATES)};"
        f"console.log(JSON.stringify({text}, {plain}))"
    )
    done = subprocess.run([NODE, "-e", program], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def numbers(values):
    """Return numbers that JSON has as text where they are not finite."""
    return np.array([float(value) for value in values])


def assert_times(given, prediction):
    np.testing.assert_array_equal(given["neuron"], prediction.matched_neuron)
    names = {"leading": "leading_order_time", "emergence": "predicted_emergence_time", "learned": "predicted_learned_time"}  # fmt: skip
    for name, variable in names.items():
        np.testing.assert_allclose(numbers(given[name]), prediction[variable], rtol=RTOL)


@pytest.fixture(scope="module")
def answers():
    return run_script("states.map(PairEquation.solve)")


@in_node
@pytest.mark.parametrize("at", range(len(STATES)))
def test_times_and_loss_are_those_of_python(at, answers):
    problem, answer = problem_of(STATES[at]), answers[at]
    assert_times(answer, dynamics.predict_emergence(problem))
    pairs = dynamics.solve_decoupled(problem)
    np.testing.assert_allclose(numbers(answer["times"]), pairs.time, rtol=RTOL)
    # Below 1e-9 the loss is the square of a difference of numbers near 1.
    np.testing.assert_allclose(numbers(answer["loss"]), pairs.loss, rtol=RTOL, atol=1e-15)
    np.testing.assert_allclose(numbers(answer["staircase"]), pairs.predicted_loss, rtol=RTOL, atol=1e-15)
    share = pairs.overlap ** STATES[at]["k"] * pairs.matched_squared_norm / pairs.teacher_coefficient
    kept = np.isfinite(share.values)
    shares = np.transpose([numbers(row) for row in answer["shares"]])
    np.testing.assert_allclose(shares[kept], np.abs(share.values[kept]), rtol=1e-8, atol=1e-14)


@in_node
@pytest.mark.parametrize("at", range(len(STATES)))
def test_exponents_are_those_of_python(at, answers):
    problem, exponents = problem_of(STATES[at]), answers[at]["exponents"]
    pairs, beta = dynamics.solve_decoupled(problem), STATES[at]["beta"]
    window = default_window(pairs)
    for name, variable in (("loss", "loss"), ("staircase", "predicted_loss")):
        y = pairs[variable].values
        kept = (y > 0.0) & (pairs.time.values > 0.0)
        if window is None or np.count_nonzero(kept & (pairs.time >= window[0]) & (pairs.time <= window[1])) < 6:
            assert np.isnan(float(exponents[name]))
            continue
        wanted = fit_power_law(pairs.time.values[kept], y[kept], window=window).exponent
        np.testing.assert_allclose(float(exponents[name]), wanted, rtol=RTOL)
    wanted = asymptotic_exponents(STATES[at]["k"], beta).loss_time
    np.testing.assert_allclose(float(exponents["asymptotic"]), wanted, rtol=RTOL)


@in_node
def test_the_largest_stable_rate_is_that_of_large_dimension(answers):
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    for state, answer in zip(STATES, answers, strict=True):
        k, a = state["k"], np.array(answer["coefficients"][: state["m"]])
        slope = np.polynomial.HermiteE.basis(k).deriv()(z) / np.sqrt(math.factorial(k))
        M = np.full((a.size, a.size), float(k) ** 2) + np.eye(a.size) * (weights @ slope**4 - k**2)
        limit = 2.0 * k / np.linalg.eigvals(M * a).real.max() / state["d"]
        np.testing.assert_allclose(answer["rateLimit"], limit, rtol=RTOL)
    few = USUAL | {"P": 4, "m": 12, "d": 2**20}
    limit = run_script(f"PairEquation.solve({json.dumps(few)}).rateLimit")
    np.testing.assert_allclose(limit, dynamics.learning_rate_limit(problem_of(few)), rtol=1e-4)


@in_node
def test_the_command_is_the_same_problem(answers):
    """Its times are those of the page: with a learning rate too, where the command predicts by the flow."""
    for command, state, answer in zip(run_script("states.map(PairEquation.command)"), STATES, answers, strict=True):
        words = shlex.split(command)
        assert words[:3] == ["python", "-m", "dynamics.solve"]
        typed = solve_command.build_parser().values(words[3:])
        options = solve_command._options(solve_command.parsing.completed(typed, solve_command.ALL_OPTIONS))
        assert options["learning_rate"] == (state["eta"] or None)
        problem = solve_command.build_problem(options)
        assert problem == problem_of(state)
        assert_times(answer, dynamics.predict_emergence(problem))


@in_node
@pytest.mark.long
def test_the_command_runs_and_has_these_times(here, answers):
    command = run_script("PairEquation.command({...states[0], eta: 2e-6})")
    done = python(*shlex.split(command)[1:], "--output", "run.nc", "--no-plot", "--t-max", "20")
    assert done.returncode == 0, done.stderr
    assert_times(answers[0], dynamics.load("run.nc"))


# --- in a browser -----------------------------------------------------------------------------------------------------

QUIET = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-default-apps --hide-scrollbars --enable-logging=stderr --v=0"
).split()
#: Shows the page in a frame, moves its sliders, and writes what is then seen.
READER = """<iframe id="page" src="explorer.html#%(address)s" style="width:%(width)dpx;height:3000px;border:0"></iframe>
<pre id="found">none</pre><script>
document.getElementById("page").onload = event => {
  const view = event.target.contentWindow, page = event.target.contentDocument;
  const panel = page.getElementById("explorer-panel"), seen = {};
  const look = name => seen[name] = {
    address: view.location.hash, command: page.getElementById("explorer-command").value,
    data: [...panel.querySelectorAll("data")].map(cell => cell.value),
    rows: panel.querySelectorAll("tbody tr").length, said: panel.querySelector(".summary").textContent,
    paths: panel.querySelectorAll("svg path").length, circles: panel.querySelectorAll("svg circle").length,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth};
  const move = (key, by) => {
    const input = page.getElementById("explorer-" + key);
    input.value = Number(input.value) + by;
    input.dispatchEvent(new view.Event("input", {bubbles: true}));
    return panel.querySelector("svg").getBoundingClientRect().height;
  };
  look("first");
  move("k", -1); move("eta", 1);
  look("moved");
  view.location.hash = "k=5&P=x&seed=-3";
  view.dispatchEvent(new view.HashChangeEvent("hashchange"));
  look("visited");
  view.location.hash = "where-it-holds";
  view.dispatchEvent(new view.HashChangeEvent("hashchange"));
  look("anchor");
  const inputs = [...panel.querySelectorAll("input, textarea")];
  seen.unnamed = inputs.filter(input => !input.labels.length).length + panel.querySelectorAll("svg:not([aria-label])").length;
  seen.unreached = [...inputs, ...panel.querySelectorAll("button, summary")].filter(item => item.tabIndex < 0).length;
  seen.colours = ["light", "dark"].map(theme => {
    page.body.dataset.theme = theme;
    const of = item => view.getComputedStyle(item), field = of(page.getElementById("explorer-command"));
    return [[of(panel.querySelector("svg text")).fill, of(page.body).backgroundColor], [field.color, field.backgroundColor]];
  });
  seen.loaded = view.performance.getEntriesByType("resource").map(entry => new URL(entry.name).host);
  const reseed = i => {
    const input = page.getElementById("explorer-seed");
    input.value = i;
    input.dispatchEvent(new view.Event("change", {bubbles: true}));
    panel.querySelector("svg").getBoundingClientRect();
  };
  // The least of three medians of 20: other work of the machine slows any of them.
  const median = change => Math.min(...[0, 20, 40].map(first => Array.from({length: 20}, (_, i) => {
    const begin = performance.now();
    change(first + i);
    return performance.now() - begin;
  }).sort((x, y) => x - y)[10]));
  const slide = i => move("beta", i %% 2 ? 1 : -1);
  page.querySelector("[data-does=reset]").click();
  look("reset");
  seen.usual = median(slide);
  move("P", 99); move("m", 99); move("d", 99);
  look("largest");
  seen.most = median(slide);
  seen.seeds = median(reseed);
  document.getElementById("found").textContent = JSON.stringify(seen);
};
</script>
"""


#: Presses a button, and writes what the page says of it and which part of the command is then selected.
PRESSER = """<iframe id="page" src="explorer.html" style="width:1280px;height:3000px"></iframe><pre id="found">none</pre><script>
document.getElementById("page").onload = event => {
  const view = event.target.contentWindow, page = view.document, command = page.getElementById("explorer-command");
  page.querySelector("[data-does=%s]").click();
  setTimeout(() => {
    const seen = {told: page.querySelector(".told").textContent, command: command.value,
      address: view.location.hash};
    seen.selected = command.value.slice(command.selectionStart, command.selectionEnd);
    document.getElementById("found").textContent = JSON.stringify(seen);
  }, 500);
};
</script>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site behind HTTP: its folder and address."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(ROOT / "docs"), str(out)]
    subprocess.run(command, capture_output=True, check=True, timeout=500)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(out))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield out, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def seen_by(page, text, site, tmp_path, *options):
    """Return what the script of a page of this text has written, shown by a browser with these options."""
    folder, address = site
    (folder / f"{page}.html").write_text(text, encoding="utf-8")
    command = [CHROMIUM, *QUIET, *options, f"--user-data-dir={tmp_path}", "--dump-dom", f"{address}/{page}.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1]))


def contrast(*colours):
    """Return the ratio of contrast of two colours "rgb(r, g, b)", as the guidelines of web accessibility define it."""
    shares = np.array([[int(part) for part in re.findall(r"\d+", colour)[:3]] for colour in colours]) / 255.0
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


@in_browser
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [1280, 390])
def test_a_reader_moves_the_sliders(width, site, tmp_path):
    state = {"k": 4, "beta": 1.5, "P": 12, "m": 32, "d": 1024, "eta": 1e-6, "seed": 3}
    text = "&".join(f"{key}={value}" for key, value in state.items())
    seen = seen_by(f"reader-{width}", READER % {"address": text, "width": width}, site, tmp_path)
    moved = state | {"k": 3, "eta": 2e-6}
    for name, wanted in {"first": state, "moved": moved, "reset": USUAL | {"eta": 2e-6}}.items():
        given = dict(part.split("=") for part in seen[name]["address"].lstrip("#").split("&"))
        assert {key: float(value) for key, value in given.items()} == wanted
        problem = problem_of(wanted)
        prediction = dynamics.predict_emergence(problem)
        assert seen[name]["rows"] == wanted["P"]
        cells = numbers(cell.replace("Infinity", "inf") for cell in seen[name]["data"]).reshape(wanted["P"], 5).T
        start = problem.start().teacher_overlap[prediction.matched_neuron.values, np.arange(wanted["P"])]
        learned = prediction.predicted_learned_time.values
        rows = [problem.teacher.coefficients, start, prediction.predicted_emergence_time.values, learned]
        np.testing.assert_allclose(cells, [*rows, learned / wanted["eta"]], rtol=RTOL)
        assert seen[name]["command"] == (
            f"python -m dynamics.solve --k {wanted['k']} --beta {wanted['beta']} --directions {wanted['P']} "
            f"--width {wanted['m']} --dimension {wanted['d']} --seed {wanted['seed']} "
            f"--learning-rate {wanted['eta']:.0e}".replace("e-0", "e-")
        )
        assert seen[name]["said"].startswith(
            f"{wanted['P']} of {wanted['P']} directions are learned. The first emerges"
        )
        assert seen[name]["paths"] > wanted["P"]
        assert seen[name]["circles"] == 2 * wanted["P"]
        # The page never scrolls sideways.
        assert seen[name]["overflow"] <= 0
    # What is absent or no number in an address has its usual value.
    assert "--k 5 --beta 1 --directions 16 --width 48 --dimension 256 --seed 0 " in seen["visited"]["command"]
    assert seen["anchor"]["command"] == seen["visited"]["command"]
    assert seen["unnamed"] == seen["unreached"] == 0
    light, dark = seen["colours"]
    assert [contrast(*pair) >= 4.5 for pair in (*light, *dark)] == [True] * 4
    assert light != dark
    assert set(seen["loaded"]) == {site[1].removeprefix("http://")}
    assert seen["largest"]["rows"] == 128
    assert max(seen["usual"], seen["most"], seen["seeds"]) < 100.0, seen
    print({name: seen[name] for name in ("usual", "most", "seeds")})


@in_browser
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("button", ["command", "link"])
def test_copying_says_what_it_did(button, site, tmp_path):
    """Browsers may refuse a page the clipboard: then the command is selected, and the address holds the state."""
    seen = seen_by(button, PRESSER % button, site, tmp_path, "--virtual-time-budget=5000")
    assert seen["address"] == ("#k=4&beta=1&P=16&m=48&d=256&eta=2e-6&seed=0" if button == "link" else "")
    if seen["told"] != f"The {button} is copied.":
        refused = {
            "command": "The command is selected: press Ctrl+C.",
            "link": "Copy the address of this page: it holds the state.",
        }
        assert seen["told"] == refused[button]
        assert seen["selected"] == (seen["command"] if button == "command" else "")
