"""Pages on results as a real browser shows them: figures decoded, light, dark and narrow, nothing loaded, no message.

Runs with FULL_TESTS=1 in the environment, where Chromium is installed.
"""

import http.server
import json
import re
import shutil
import subprocess
import threading

import numpy as np
import pytest
from matplotlib.image import imread

import dynamics

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]
#: Says of a page in a frame what only a browser knows.
PROBE = """
<iframe id="page" src="page.html" style="width:{width}px;height:900px;border:0"></iframe><pre id="found">none</pre><script>
document.getElementById("page").onload = event => {{
  const page = event.target.contentDocument;
  document.getElementById("found").textContent = JSON.stringify({{
    figures: [...page.images].map(image => [image.complete, image.naturalWidth, image.getBoundingClientRect().width]),
    loaded: event.target.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    unstyled: getComputedStyle(page.body).maxWidth,
    unnamed: [...page.querySelectorAll("[role=region]:not([aria-label])")].length,
    text: page.body.innerText,
  }});
}};
</script>
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pages")
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=16)
    flow = dynamics.solve_overlaps(problem, progress=False)
    flow.attrs["notes"] = "<img src='http://127.0.0.1:1/hostile.png'><script src='//127.0.0.1:1/hostile.js'></script>"
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


@pytest.mark.parametrize("width", [1200, 380])
def test_figures_are_decoded_and_nothing_else_is_asked_for(folder, served, tmp_path, width):
    address, asked = served
    (folder / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    dom = browse(tmp_path, "--virtual-time-budget=5000", "--dump-dom", f"{address}/probe.html")
    text = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]
    found = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
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


@pytest.mark.parametrize(("scheme", "paper"), [("light", 1.0), ("dark", 0.1)])
def test_a_page_from_the_disk_is_painted_in_the_colours_of_the_reader(folder, tmp_path, scheme, paper):
    picture = tmp_path / "page.png"
    dark = [] if scheme == "light" else ["--blink-settings=preferredColorScheme=0"]
    size = ["--window-size=1000,2400", f"--screenshot={picture}"]
    browse(tmp_path, *dark, *size, (folder / "page.html").as_uri())
    pixels = imread(picture)[..., :3]
    assert pixels.shape[:2] == (2400, 1000)
    np.testing.assert_allclose(pixels[-1, 0], paper, atol=0.05)
    # Curves of a figure have colours that neither text nor paper has.
    colourful = np.ptp(pixels, axis=2) > 0.4
    assert colourful.sum() > 1000


def test_a_page_is_printed(folder, tmp_path):
    target = tmp_path / "page.pdf"
    browse(tmp_path, f"--print-to-pdf={target}", "--no-pdf-header-footer", (folder / "page.html").as_uri())
    content = target.read_bytes()
    assert content.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 2 <= pages <= 12
