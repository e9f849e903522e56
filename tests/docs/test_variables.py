"""The page on datasets names every variable that an answer can hold: `python tests/docs/test_variables.py` renews it."""

import re
from pathlib import Path

import pytest
from old_files import make

import dynamics
from dynamics.runs.storage import parts_of
from dynamics.runs.variables import VARIABLES
from dynamics.tokens.system import TOKEN_VARIABLES

PAGE = Path(__file__).parents[2] / "docs/datasets.md"
BLOCK = re.compile(r"(?<=<!-- all names -->\n).*?(?=<!-- end of all names -->)", flags=re.DOTALL)
HEAD = ("variable", "dims", "what it is", "unit")


def rows(variables):
    """Name, dims, meaning and unit of each variable, by name."""
    return [
        (f"`{name}`", ", ".join(f"`{dim}`" for dim in found.dims), found.long_name.replace("|", r"\|"), found.units)
        for name, found in sorted(variables.items())
    ]


def block():
    """The tables as they are to stand on the page: of all answers, and what is another of models on tokens."""
    of_tokens = {name: found for name, found in TOKEN_VARIABLES.items() if VARIABLES.get(name) != found}
    tables = [
        "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in [HEAD, ("---",) * len(HEAD), *rows(found)])
        for found in (VARIABLES, of_tokens)
    ]
    return f"\n{tables[0]}\n\nOf models of attention and memory:\n\n{tables[1]}\n\n"


def test_the_page_names_every_variable_as_files_do():
    (found,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert found == block(), "Renew the page: python tests/docs/test_variables.py"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Every dataset of every kind of file that was kept."""
    files = make.unpack_files(tmp_path_factory.mktemp("finished"), "finished")
    return {f"{path.stem}{group}": part for path in files for group, part in parts_of(dynamics.load(path)).items()}


def test_no_file_has_a_variable_that_the_page_lacks(parts):
    (found,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    named = set(re.findall(r"^\| `(\w+)`", found, flags=re.MULTILINE))
    missing = {
        (part, name)
        for part, dataset in parts.items()
        for name in dataset.variables
        if name not in named and not (part.startswith("sweep") and is_a_count(name, parts))
    }
    assert not missing


def is_a_count(name, parts):
    """Whether a variable of a sweep is an attribute of its points, or of any answer."""
    return any(name in dataset.attrs for dataset in parts.values()) or name in parts["sweep/"].attrs


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: block(), text), encoding="utf-8")
