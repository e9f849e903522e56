"""The program gives the answers that are stored in `golden/answers/`, within the errors that they state."""

import copy

import numpy as np
import pytest
import xarray as xr
from golden import make, stored
from golden.cases import CASES


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_stored_one(name):
    if not make.can_answer(name):
        pytest.skip(f"needs {CASES[name].needs}")
    assert make.differences(name) == []


def test_every_stored_answer_is_compared():
    assert {path.stem for path in make.ANSWERS.glob("*.json")} == set(CASES)


def toy():
    """Return an answer with everything that is compared: a time with its error, a count, a sentence, a NaN."""
    return xr.Dataset(
        {
            "loss": ("time", [1.0, 0.5, 1e-9]),
            "emergence_time": ("direction", [3.0, np.nan]),
            "emergence_time_error": ("direction", [1e-5, np.nan]),
            "matched_neuron": ("direction", [1, 0]),
        },
        coords={"time": [0.0, 1.0, 2.0]},
        attrs={"rtol": 1e-6, "rhs_evaluations": 100, "notes": "Direction 1 at t = 3.0000.", "solve_seconds": 0.5},
    )


DESCRIBED = stored.answer(toy)


@pytest.mark.parametrize(
    ("variable", "index", "by", "same"),
    [
        ("loss", 0, 3e-6, True),
        ("loss", 0, 5e-6, False),
        ("loss", 2, 5e-6, False),
        ("emergence_time", 0, 3e-5, True),
        ("emergence_time", 0, 1e-4, False),
        ("emergence_time", 1, np.inf, False),
        ("emergence_time_error", 0, 8e-6, True),
        ("emergence_time_error", 0, 3e-5, False),
        ("matched_neuron", 0, 1, False),
        ("time", 1, 1e-4, False),
    ],
)
def test_numbers_may_differ_by_their_errors_alone(variable, index, by, same):
    changed = toy()
    values = changed[variable].to_numpy().copy()
    values[index] = by if np.isnan(values[index]) else values[index] + by
    changed = changed.assign({variable: (changed[variable].dims, values)})
    assert (stored.differences(stored.answer(lambda: changed), DESCRIBED, 1e-9) == []) is same


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda d: d.assign_attrs(rhs_evaluations=101, solve_seconds=9.0), True),
        (lambda d: d.assign_attrs(rtol=1e-7), False),
        (lambda d: d.assign_attrs(notes="Direction 1 at t = 3.0001."), True),
        (lambda d: d.assign_attrs(notes="Direction 1 at t = 3.0100."), False),
        (lambda d: d.assign_attrs(notes="Direction 2 at t = 3.0000."), False),
        (lambda d: d.assign_attrs(notes="Axis 1 at t = 3.0000."), False),
        (lambda d: d.assign_attrs(more=1), False),
        (lambda d: d.drop_vars("matched_neuron"), False),
        (lambda d: d.rename(direction="axis"), False),
        (lambda d: d.assign(loss=d.loss.astype(np.float32)), False),
        (lambda d: d.assign(loss=d.loss.assign_attrs(units="1")), False),
        (lambda d: d.drop_indexes("time").reset_coords("time"), False),
    ],
)
def test_names_types_and_sentences_may_not_differ(change, same):
    assert (stored.differences(stored.answer(lambda: change(toy())), DESCRIBED, 1e-9) == []) is same


def test_what_is_written_is_read_back(tmp_path):
    stored.write(tmp_path / "answer.json", DESCRIBED)
    assert stored.differences(stored.read(tmp_path / "answer.json"), copy.deepcopy(DESCRIBED), 0.0) == []
