"""The reference of variables names every variable that an answer can hold: `python tests/docs/test_variables.py` renews it."""

import re
from pathlib import Path

import pytest
from old_files import make

import dynamics
from dynamics.runs.storage import parts_of
from dynamics.runs.variables import VARIABLES
from dynamics.tokens.system import TOKEN_VARIABLES

PAGE = Path(__file__).parents[2] / "docs/api/variables.md"
WIDTH = max(map(len, (*VARIABLES, *TOKEN_VARIABLES)))
#: Beginnings of meanings of errors, whose names are those of the quantities with an ending.
ERRORS = (
    ("estimated numerical error", "_error"),
    ("estimated error by the cut series of the link", "_truncation_error"),
    ("standard error", "_error"),
    ("relative standard error", "_error"),
)
BLOCK = re.compile(r"(?<=<!-- all names -->\n).*?(?=<!-- end of all names -->)", flags=re.DOTALL)


def listed(variables):
    """Name, meaning and unit, unless it is 1, of each variable below its dims, in the order of the table; errors last."""
    by_dims, errors = {}, {}
    for name, found in variables.items():
        kinds = (
            (kind, name.removesuffix(end)) for kind, end in ERRORS if found.long_name.startswith(kind.split(" by ")[0])
        )
        kind, of = next(kinds, ("", ""))
        if of != name and of in variables and variables[of].dims == found.dims:
            errors.setdefault(f"{kind}, with the dims of its quantity", []).append(name)
            continue
        unit = "" if found.units == "1" else f" ({found.units})"
        dims = "its own dim" if found.dims == (name,) else ", ".join(found.dims) or "no dim"
        by_dims.setdefault(dims, []).append(f"{name:<{WIDTH}} {found.long_name}{unit}")
    return "\n".join("\n  ".join([f"{head}:", *rows]) for head, rows in (by_dims | errors).items())


def block():
    """The lists as they are to stand on the page: of all answers, and what is another of models on tokens."""
    of_tokens = {name: found for name, found in TOKEN_VARIABLES.items() if VARIABLES.get(name) != found}
    lists = [f"```text\n{listed(found)}\n```" for found in (VARIABLES, of_tokens)]
    return f"\n{lists[0]}\n\nOf models of attention and memory:\n\n{lists[1]}\n\n"


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
    named = set(re.findall(r"^  (\w+)", found, flags=re.MULTILINE))
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
