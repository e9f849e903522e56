"""Random arrays, held against the list of the same numbers: each gets its answer, or one sentence; both are counted.

Runs with FULL_TESTS=1.
"""

import array
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fuzz_guard import complaint_of_sentence, report

import dynamics
import hermite

ARRAYS = 300


@pytest.fixture
def count(record_property):
    """Return what counts an outcome of a kind."""

    def counted(kind, outcome):
        record_property(f"{kind}: {outcome}", 1)

    return counted


def strided(values):
    wide = np.zeros((len(values), 3))
    wide[:, 1] = values
    return wide[:, 1]


def tensor(values, **kind):
    return pytest.importorskip("torch").tensor(values, **kind)


#: What holds numbers without a loss.
CONTAINERS = {
    "tuple": tuple,
    "array": np.array,
    "strided": strided,
    "backwards": lambda values: np.array(values[::-1])[::-1],
    "big-endian": lambda values: np.array(values, ">f8"),
    "long": lambda values: np.array(values, np.longdouble),
    "objects": lambda values: np.array([*values, None], object)[:-1],
    "column": lambda values: pd.Series(values, index=range(len(values), 0, -1), dtype=float),
    "table": lambda values: pd.DataFrame({"w": np.array(values, float)}),
    "index": lambda values: pd.Index(values, dtype=float),
    "labelled": lambda values: xr.DataArray(np.array(values, float), dims="p"),
    "variable": lambda values: xr.Variable("p", np.array(values, float)),
    "unmasked": lambda values: np.ma.masked_array(values, False, float),
    "buffer": lambda values: array.array("d", values),
    "view": lambda values: memoryview(array.array("d", values)),
    "tensor": lambda values: tensor(values, dtype=pytest.importorskip("torch").float64),
    "on a graph": lambda values: tensor(values, dtype=pytest.importorskip("torch").float64, requires_grad=True),
    "decimals": lambda values: [Decimal(value) for value in values],
    "fractions": lambda values: [Fraction(value) for value in values],
    "scalars": lambda values: [np.float64(value) for value in values],
    "scalar arrays": lambda values: [np.array(value) for value in values],
}
#: What no list of numbers may be or hold, made of a good one.
DEFECTS = {
    "masked": lambda values: np.ma.masked_array(values, [True] + [False] * (len(values) - 1)),
    "not a number": lambda values: np.array([*values, np.nan]),
    "infinite": lambda values: np.array([*values, -np.inf]),
    "missing": lambda values: [*values, None],
    "missing in a column": lambda values: pd.Series([*values, None], dtype="Float64"),
    "text": lambda values: [*map(str, values)],
    "mixed": lambda values: [*values, "1"],
    "truth": lambda values: [*values, True],
    "complex": lambda values: np.array(values) + 0j,
    "dates": lambda values: np.arange(len(values)).astype("M8[D]"),
    "durations": lambda values: np.arange(len(values)).astype("m8[s]"),
    "ragged": lambda values: [values, [*values, 1.0]],
    "deep": lambda values: np.array(values)[None, :, None],
    "records": lambda values: np.zeros(len(values), [("a", float), ("b", int)]),
    "bytes": lambda values: bytes(len(values)),
    "generator": lambda values: (value for value in values),
    "set": set,
    "dictionary": lambda values: dict(enumerate(values)),
    "two columns": lambda values: pd.DataFrame({"a": values, "b": values}),
    "categories": lambda values: pd.Series(map(str, values), dtype="category"),
    "unit": lambda values: xr.DataArray(np.array(values), dims="p", attrs={"units": "s"}),
    "elsewhere": lambda values: tensor(values, device="meta"),
    "sparse": lambda values: tensor(values).to_sparse(),
    "huge integers": lambda values: [10**400] * len(values),
    "quantised": lambda values: np.array([*values, 0.0]).view("V8"),
}
#: Where users' vectors enter, whatever is right or wrong of their numbers.
VECTORS = {
    "coefficients": lambda made: dynamics.Teacher(made).coefficients,
    "biases": lambda made: dynamics.Teacher([1.0, 0.5], biases=made).biases,
    "eigenvalues": lambda made: dynamics.Inputs(made, [3, 5]).eigenvalues,
    "times": lambda made: dynamics.SaveAt.at(made).times,
    "second layer": lambda made: dynamics.Student(activation="erf", width=2, initial_second_layer=made).initial_second_layer,
    "points": lambda made: hermite.expand("he3").value(made),
    "slopes": lambda made: hermite.expand("0.8*h4(z) + 0.6*h6(z)").kernel(made),
}  # fmt: skip

#: Those that take every shape and every float, and the defects that are none to them.
POINTS, SHAPES = ("points", "slopes"), ("deep", "two columns", "not a number", "infinite")


def found(call, given):
    """Return numbers, or the error, of a call."""
    try:
        return np.asarray(call(given), dtype=float).tolist()
    except Exception as error:
        return error


def numbers(rng):
    """Return one to four numbers in one order of magnitude or many, in descending order half of the time."""
    values = rng.normal(size=rng.choice([1, 2, 2, 2, 2, 3, 4])) * 10.0 ** rng.choice([0, 0, 0, -300, 12, 1])
    values = np.round(values) if rng.random() < 0.2 else values
    return sorted(np.abs(values).tolist(), reverse=rng.random() < 0.5) if rng.random() < 0.7 else values.tolist()


@pytest.mark.long
def test_random_arrays(count):
    rng, complaints = np.random.default_rng(11), {}
    for _ in range(ARRAYS):
        values, call = numbers(rng), str(rng.choice(list(VECTORS)))
        is_bad = rng.random() < 0.4
        defects = [name for name in DEFECTS if call not in POINTS or name not in SHAPES]
        kind = str(rng.choice(defects if is_bad else list(CONTAINERS)))
        made = (DEFECTS if is_bad else CONTAINERS)[kind](values)
        answer, plain = found(VECTORS[call], made), found(VECTORS[call], values)
        label = f"{call} of {values} as {kind}"
        refused = isinstance(answer, ValueError | TypeError)
        outcome = "refused" if refused else "tracebacks" if isinstance(answer, Exception) else "answers"
        count("arrays", outcome)
        if refused and (complaint := complaint_of_sentence(str(answer))):
            complaints[label] = complaint
        elif (
            outcome == "tracebacks"
            or (is_bad and not refused)
            or (not is_bad and refused != isinstance(plain, Exception))
        ):
            complaints[label] = f"{answer!r}, the list {plain!r}"
        elif not is_bad and not refused and answer != plain and np.ravel(answer).tolist() != plain:
            complaints[label] = f"{answer}, the list {plain}"
    assert not complaints, report(complaints)
