"""A reader of HTML pages for tests: refuses what is not well formed, and gives tables, texts and figures back."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise

from dynamics.report.elements import resource

VOID = {"meta", "img", "br", "hr", "link", "input", "col"}


class Page(HTMLParser):
    """What a page holds; reading it asserts that tags are balanced, and properly nested."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.declared = [], [], [], None
        self.tables, self._cells = {}, None
        self.feed(text)
        self.close()
        assert not self.open

    def handle_decl(self, decl):
        self.declared = decl

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), "an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.append([tag, ""])
        if tag == "table":
            self._cells = []
        if tag == "tr":
            self._cells.append([])
        if tag in ("th", "td"):
            self._cells[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "table":
            caption = next(text for name, text in reversed(self.texts) if name == "caption")
            head, *body = self._cells
            assert caption not in self.tables
            self.tables[caption] = [dict(zip(head, row, strict=True)) for row in body]

    def handle_data(self, data):
        if not self.open:
            assert not data.strip()
            return
        if self.open[-1] in ("th", "td"):
            self._cells[-1][-1] += data
        for at, entry in enumerate(reversed(self.texts)):
            if entry[0] == self.open[-1]:
                self.texts[-1 - at][1] += data
                break

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def text(self, tag):
        return [text for name, text in self.texts if name == tag]

    @property
    def images(self):
        """Return (alternative text, kind, bytes) of every figure."""
        found = []
        for image in self.all("img"):
            head, _, data = image["src"].partition(";base64,")
            found.append((image["alt"], head.removeprefix("data:image/"), base64.b64decode(data, validate=True)))
        return found


def read_page(path):
    """Return the page in a file, which must be accessible and must need nothing beside it."""
    page = Page(path.read_text(encoding="utf-8"))
    assert page.declared == "DOCTYPE html"
    assert page.all("html") == [{"lang": "en"}]
    # Nothing is loaded, run or led to outside the page; its one script is ours, and the policy names it by its hash.
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base", "form"}
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert page.text("script") in ([], [resource("chart.js")])
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.text("script")]
    assert re.findall(r"script-src ([^;]*)", policy) == [f"'sha256-{digest}'" for digest in hashes]
    assert len(page.all("script")) == len(hashes) == len([each for each in page.all("div") if "data-limits" in each])
    for _, attrs in page.tags:
        assert not [
            name for name in attrs if name.startswith("on") or name in ("srcset", "action", "background", "xlink:href")
        ]
        assert attrs.get("src", "data:image/").startswith("data:image/")
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {link["href"].removeprefix("#") for link in page.all("a")} <= set(ids)
    assert {attrs["aria-labelledby"] for _, attrs in page.tags if "aria-labelledby" in attrs} <= set(ids)
    # Headings go down one level at a time, headers of tables say what they head, figures have words.
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(header["scope"] in ("col", "row") for header in page.all("th"))
    assert all(len(alt) > 20 for alt, _, _ in page.images)
    assert len(page.all("img")) == len(page.all("figure")) == len(page.all("figcaption"))
    return page
