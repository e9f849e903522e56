"""Plain English, by rule: words and sentences that a stranger reads twice stay out of pages, docstrings and comments."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

import dynamics
import dynamics.tokens
import hermite
import sgd_check
import sgd_check.tokens

ROOT = Path(__file__).parents[2]
#: What is found -> what to write instead (CONTRIBUTING.md).
RULES = {
    r"\b[Ii]n place of\b": "instead of, or name what is replaced",
    r"\bin vain\b|\bfor ever\b|\bof late\b": "say what happens",
    r"\b(?:[Ww]ho|[Ww]hat)ever (?:is|looks|asks|wants)\b|\b[Nn]obody\b|\bif anybody\b|\b[Nn]one (?:sees|knows)\b": "name the subject",
    r"\b[Bb]esides\b": "also, other",
    r"\bnor (?:is|are|do|does|can|has)\b": "a sentence with `not`",
    r"\[[a-z_]+\.md\]\(": "the title of the page as a link",
    r"(?:^|[.:;] )What (?!is the|does|are the|do )[^.?]*\.": "a noun: What is no noun",
}  # fmt: skip


def tracked(*patterns):
    return subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def prose(path):
    """Return the paragraphs of a page, or the docstrings and comments of a module."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        return re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$", "x", text, flags=re.DOTALL).split("\n\n")
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    strings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [*strings, *(token.string.strip("#: ") for token in tokens if token.type == tokenize.COMMENT)]


@pytest.mark.parametrize("patterns", [["README.md", "CONTRIBUTING.md", "docs/*.md"], ["hermite/*.py"], ["dynamics/*.py"], ["sgd_check/*.py"]], ids=str)  # fmt: skip
def test_sentences_follow_the_rules(patterns):
    found = [
        f"{path}: {match.group().strip()!r}: write {instead}"
        for path in tracked(*patterns)
        for part in prose(path)
        for rule, instead in RULES.items()
        for match in re.finditer(rule, " ".join(part.split()))
    ]
    assert found == []


def test_the_rules_find_what_they_name():
    planted = [
        "in place of C", "in vain", "nobody looks", "needs besides", "nor is it", "Lists. What it holds is data.",
        "[some_page.md](some_page.md)",
    ]  # fmt: skip
    assert [any(re.search(rule, text) for rule in RULES) for text in planted] == [True] * len(planted)
    assert not any(re.search(rule, "What is the loss? It is E f².") for rule in RULES)


@pytest.mark.parametrize("package", [hermite, dynamics, dynamics.tokens, sgd_check, sgd_check.tokens], ids=lambda package: package.__name__)  # fmt: skip
def test_every_function_and_class_has_an_example(package):
    """Constants and modules have no docstring of their own, and how `except` is written shows nothing of an error."""
    public = {name: getattr(package, name) for name in package.__all__}
    described = {name: thing for name, thing in public.items() if callable(thing) and not is_error(thing)}
    assert [name for name, thing in described.items() if ">>>" not in (thing.__doc__ or "")] == []


def is_error(thing):
    return isinstance(thing, type) and issubclass(thing, BaseException)
