"""The documentation as a site: it builds without a warning, and every link inside it leads somewhere.

Needs the extra `docs`; built only where FULL_TESTS=1 is set, because it takes longer than all other tests of the documentation.
"""

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from dynamics.runs.variables import VARIABLES
from dynamics.tokens.system import TOKEN_VARIABLES

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
DOCS = Path(__file__).parents[2] / "docs"


class Page(HTMLParser):
    """The links of a page, what it fetches to be shown, its anchors, and the number of its formulas."""

    def __init__(self, path):
        super().__init__()
        self.links = []
        self.fetched = []
        self.anchors = set()
        self.formulas = 0
        self.relations = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.formulas += tag == "math"
        if found.get("id"):
            self.anchors.add(found["id"])
        self.links += [found[key] for key in ("href", "src") if found.get(key)]
        if tag == "link" and found.get("rel"):
            self.relations.add(found["rel"])
        if tag in ("img", "link", "script"):
            self.fetched += [found[key] for key in ("href", "src") if found.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as the extra `docs` alone builds it: without torch."""
    out = tmp_path_factory.mktemp("site").resolve()
    (out / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(out), str(DOCS.parent)])}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out / "html")]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=environment)
    assert built.returncode == 0, built.stderr
    return out / "html"


def test_every_link_inside_the_site_leads_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            missing = anchor and target in pages and anchor not in pages[target].anchors
            if not target.exists() or missing:
                broken.append(f"{path.name}: {link}")
    assert not broken
    assert len(pages) > 15


def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        assert not [link for link in Page(path).fetched if urlsplit(link).netloc]


def test_code_can_be_copied_and_the_reference_leads_to_the_source(site):
    assert any("copybutton" in link for link in Page(site / "model.html").fetched)
    sources = Page(site / "api" / "dynamics.html").links
    assert "../_modules/dynamics/solve/overlaps.html#solve_overlaps" in sources
    code = (site / "_modules" / "dynamics" / "solve" / "overlaps.html").read_text(encoding="utf-8")
    assert 'id="solve_overlaps"' in code


def test_every_page_has_a_way_on(site):
    for page in ("model", "gpu", "studies", "api/commands"):
        assert {"prev", "next"} <= Page(site / f"{page}.html").relations


def test_formulas_and_docstrings_are_there(site):
    assert Page(site / "model.html").formulas > 30
    reference = (site / "api" / "dynamics.html").read_text(encoding="utf-8")
    assert 'id="dynamics.solve_overlaps"' in reference
    assert "<math" in reference
    assert "usage: python -m dynamics.solve" in (site / "api" / "commands.html").read_text(encoding="utf-8")


def test_every_variable_is_in_the_tables_with_its_meaning(site):
    text = html.unescape(re.sub(r"<[^>]*>", " ", (site / "api" / "variables.html").read_text(encoding="utf-8")))
    words = " ".join(text.replace("’", "'").split())
    for name, found in [*VARIABLES.items(), *TOKEN_VARIABLES.items()]:
        assert f" {name} {found.long_name} " in words, name


def test_no_fraction_has_a_bracket_or_a_joined_number_as_a_part(site):
    """The translator reads \\tfrac12( as twelve over a bracket."""
    for path in site.rglob("*.html"):
        assert not re.findall(r"<mfrac[^>]*>\s*<mn>\d+</mn>\s*<mo", path.read_text(encoding="utf-8")), path.name


def test_brackets_around_fractions_are_as_large_as_their_source_says(site):
    assert 'minsize="1.623em"' in (site / "step_equations.html").read_text(encoding="utf-8")
