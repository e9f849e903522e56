"""The documentation as it stands in the repository: links lead somewhere, nothing public or drawn is left out."""

import re
from pathlib import Path

import pytest

import dynamics
import hermite
import sgd_check

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:literalinclude|include)\} (\S+)")


def prose(page):
    """The text of a page without blocks of code; of a directive the first line is left."""
    fenced = re.compile(r"^```(\{.*?$)?.*?^```$", flags=re.DOTALL | re.MULTILINE)
    return fenced.sub(lambda block: block[1] or "", page.read_text(encoding="utf-8"))


def anchors(page):
    """The anchors of the headings, as repositories make them: lower case, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    for link, included in LINK.findall(prose(page)):
        target, _, anchor = (link or included).partition("#")
        if target.startswith("https://"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_contents():
    listed = re.findall(r"^([\w/]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    files = [path for kind in ("*.md", "*.ipynb", "api/*.md") for path in DOCS.glob(kind)]
    pages = [path.relative_to(DOCS).with_suffix("").as_posix() for path in files]
    assert sorted([*listed, "index"]) == sorted(pages)


def test_every_figure_is_shown():
    text = "".join(prose(page) for page in PAGES)
    for picture in [*DOCS.glob("figures/*.png"), *DOCS.glob("gallery/*.png")]:
        assert f"{picture.parent.name}/{picture.name})" in text, f"no page shows {picture.name}"


@pytest.mark.parametrize("package", [hermite, dynamics, sgd_check], ids=lambda package: package.__name__)
def test_the_reference_has_every_public_name_once(package):
    text = (DOCS / "api" / f"{package.__name__}.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{{names}} {package.__name__}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"^(\w+)", "".join(blocks), flags=re.MULTILINE)
    assert sorted(named) == sorted(package.__all__)


def test_the_reference_has_every_command():
    text = (DOCS / "api" / "commands.md").read_text(encoding="utf-8")
    modules = [path for package in ("hermite", "dynamics", "sgd_check") for path in (ROOT / package).rglob("*.py")]
    for path in modules:
        if path.name == "__main__.py" or '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
            assert f"{{command-help}} {name}\n" in text, f"commands.md lacks {name}"
