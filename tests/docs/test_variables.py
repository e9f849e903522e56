"""The tables of variables, of which the site makes its page, name every variable that a stored answer holds."""

import pytest
from old_files import make

import dynamics
from dynamics.runs.storage import parts_of
from dynamics.runs.variables import VARIABLES
from dynamics.tokens.system import TOKEN_VARIABLES


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Every dataset of every kind of file that was kept."""
    files = make.unpack_files(tmp_path_factory.mktemp("finished"), "finished")
    return {f"{path.stem}{group}": part for path in files for group, part in parts_of(dynamics.load(path)).items()}


def test_no_file_has_a_variable_that_the_tables_lack(parts):
    missing = {
        (part, name)
        for part, dataset in parts.items()
        for name in dataset.variables
        if name not in VARIABLES | TOKEN_VARIABLES and not (part.startswith("sweep") and is_a_count(name, parts))
    }
    assert not missing


def is_a_count(name, parts):
    """Whether a variable of a sweep is an attribute of its points, or of any answer."""
    return any(name in dataset.attrs for dataset in parts.values()) or name in parts["sweep/"].attrs
