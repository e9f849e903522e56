"""The one function that takes arrays of users: what means numbers is taken, what would lose something is refused."""

import array
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dynamics
import hermite
from hermite.arrays import real_array, real_column

torch = pytest.importorskip("torch")


class Quantity:
    """An array with a unit, as of pint; `unit` is the name that astropy uses."""

    def __init__(self, values, unit, name="units"):
        self._values = np.asarray(values)
        setattr(self, name, unit)

    def __array__(self, dtype=None, copy=None):
        return self._values


def read_only(values):
    made = np.array(values)
    made.setflags(write=False)
    return made


GOOD = {
    "list": [1.0, 0.5],
    "tuple": (1, Fraction(1, 2)),
    "decimals": [Decimal(1), Decimal("0.5")],
    "range": np.array(range(1, 3)) / [1, 4],
    "single": np.array([1.0, 0.5], dtype=np.float32),
    "half": np.array([1.0, 0.5], dtype=np.float16),
    "long": np.array([1.0, 0.5], dtype=np.longdouble),
    "big-endian": np.array([1.0, 0.5], dtype=">f8"),
    "objects": np.array([1, 0.5], dtype=object),
    "strided": np.array([1.0, 9.0, 0.5])[::2],
    "backwards": np.array([0.5, 1.0])[::-1],
    "read-only": read_only([1.0, 0.5]),
    "no mask": np.ma.masked_array([1.0, 0.5]),
    "column": pd.Series([1.0, 0.5], index=[7, 3]),
    "table of one column": pd.DataFrame({"w": [1.0, 0.5]}),
    "nullable column": pd.Series([1.0, 0.5], dtype="Float64"),
    "index": pd.Index([1.0, 0.5]),
    "sparse column": pd.Series(pd.arrays.SparseArray([1.0, 0.5])),
    "categories of numbers": pd.Series([1.0, 0.5]).astype("category"),
    "labelled": xr.DataArray([1.0, 0.5], dims="p", attrs={"units": "1"}),
    "variable": xr.Variable("p", [1.0, 0.5]),
    "buffer": array.array("d", [1.0, 0.5]),
    "view of a buffer": memoryview(array.array("d", [1.0, 0.5])),
    "numbers of numpy": [np.float64(1.0), np.array(0.5)],
    "tensor": torch.tensor([1.0, 0.5]),
    "parameter": torch.nn.Parameter(torch.tensor([1.0, 0.5])),
    "lazily negative tensor": torch.tensor([1.0 - 1j, 1.0 - 0.5j]).conj().imag,
    "dimensionless": Quantity([1.0, 0.5], "dimensionless"),
    "of astropy": Quantity([1.0, 0.5], "", "unit"),
}
BAD = {
    "text": (["1.0", "0.5"], "real numbers"),
    "a text": ("1.0 0.5", "real numbers"),
    "bytes": (b"12", "real numbers"),
    "text as objects": (np.array(["1.0", 0.5], dtype=object), "real numbers"),
    "truth": ([True, False], "real numbers"),
    "truth among numbers": ([1.0, True], "real numbers"),
    "truth as objects": (np.array([True, 0.5], dtype=object), "real numbers"),
    "complex": ([1.0, 0.5 + 0j], "real numbers"),
    "intervals": (pd.interval_range(0, 2), "real numbers"),
    "text of pandas": (pd.Series(["1", "2"], dtype="string"), "real numbers"),
    "truth of pandas": (pd.Series([True, False], dtype="boolean"), "real numbers"),
    "complex tensor": (torch.tensor([1j, 1.0]).conj(), "real numbers"),
    "missing": ([1.0, None], "real numbers"),
    "dates": (np.array(["2020-01-01"], dtype="M8[D]"), "real numbers"),
    "times of a clock": (pd.Series(pd.to_timedelta([1, 2], unit="s")), "real numbers"),
    "durations": (np.arange(2).astype("m8[s]"), "real numbers"),
    "categories of text": (pd.Series(["1.0", "0.5"], dtype="category"), "real numbers"),
    "raw bytes": (np.array([1.0, 0.5]).view("V8"), "real numbers"),
    "enormous integers": ([10**400, 1], "real numbers"),
    "ragged": ([[1.0], [1.0, 2.0]], "real numbers"),
    "records": (np.array([(1.0, 2.0)], dtype=[("a", float), ("b", float)]), "real numbers"),
    "a dictionary": ({0: 1.0}, "real numbers"),
    "a set": ({1.0}, "real numbers"),
    "a generator": ((x for x in (1.0,)), "real numbers"),
    "a sparse tensor": (torch.tensor([1.0, 0.0]).to_sparse(), "real numbers"),
    "a tensor elsewhere": (torch.ones(2, device="meta"), "real numbers"),
    "a function": (len, "real numbers"),
    "masked": (np.ma.masked_array([1.0, 0.5], [True, False]), "no masked entries, but 1 are masked"),
    "metres": (Quantity([1.0], "metre"), "dimensionless, as all quantities here are, but has the unit metre"),
    "metres of astropy": (Quantity([1.0], "m", "unit"), "has the unit m"),
    "labelled seconds": (xr.DataArray([1.0], attrs={"units": "s"}), "has the unit s"),
    "large integers": (np.array([2**53 + 1]), "numbers that float64 holds, but has 9007199254740993"),
}  # fmt: skip
#: Numbers that make no vector.
UNFIT = (
    [1.0, np.nan], [1.0, -np.inf], pd.Series([1.0, None], dtype="Float64"), np.ones((1, 2, 1)),
    pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}),
)  # fmt: skip
#: A problem with one output, whose student has a second layer of one number for each neuron.
ONE_UNIT = {"teacher": dynamics.Teacher([1.0]), "dimension": 4}
#: Where users' vectors enter.
VECTORS = {
    "coefficients": lambda made: dynamics.Teacher(made).coefficients.tolist(),
    "biases": lambda made: dynamics.Teacher([1.0, 0.5], biases=made).biases.tolist(),
    "eigenvalues": lambda made: dynamics.Inputs(made, [3, 5]),
    "times": lambda made: dynamics.SaveAt.at(made if isinstance(made, str) else _ascending(made)),
    "second layer": lambda made: dynamics.Problem(student=_with_second_layer(made), **ONE_UNIT),
    "decay": lambda made: dynamics.Student(activation="erf", width=2, decay=made).decay,
}


def _with_second_layer(made):
    return dynamics.Student(activation="erf", width=2, initial_second_layer=made)


def _ascending(made):
    return real_column(made, "times")[::-1]


@pytest.mark.parametrize("given", GOOD.values(), ids=GOOD)
def test_what_means_numbers_is_taken_as_they_are(given):
    found = real_column(given, "x")
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("call", VECTORS.values(), ids=VECTORS)
def test_every_argument_takes_and_refuses_the_same(call):
    for name, given in GOOD.items():
        # The numbers of a list of decays are checked one by one, as single numbers are.
        if call is not VECTORS["decay"] or hasattr(given, "shape"):
            assert call(given) == call([1.0, 0.5]), name
    for given in (*(given for given, _ in BAD.values()), *UNFIT):
        with pytest.raises((TypeError, ValueError), match=r"^Argument `\w+` must "):
            call(given)


@pytest.mark.parametrize("made", [np.ones((2, 2)), np.ones((1, 2)), pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]})])
def test_a_table_is_a_second_layer_of_several_outputs_alone(made):
    shape = re.escape(str(np.shape(made)))
    student = _with_second_layer(made)
    sentence = rf"^Argument `initial_second_layer` must have shape \(2,\) for 1 output, but has shape {shape}\.$"
    with pytest.raises(ValueError, match=sentence):
        dynamics.Problem(student=student, **ONE_UNIT)
    classes = {"teacher": dynamics.Teacher([1.0, 0.5]), "dimension": 4, "objective": "softmax", "labels": "softmax"}
    if len(made) == 2:
        assert (
            dynamics.Problem(student=student, **classes).network_start().second_layer.tolist()
            == np.asarray(made).tolist()
        )
    else:
        with pytest.raises(ValueError, match=rf"must have shape \(2, 2\) for 2 outputs, but has shape {shape}\.$"):
            dynamics.Problem(student=student, **classes)


@pytest.mark.parametrize(("given", "end"), BAD.values(), ids=BAD)
def test_what_would_lose_something_is_refused(given, end):
    with pytest.raises((TypeError, ValueError), match=r"^Argument `x` must .*\.$") as caught:
        real_array(given, "x")
    assert end in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{2: 1, 4: 1}, {3, 5}, pd.DataFrame({"a": [3, 5], "b": [1, 1]}), np.array(3), "35"])
def test_lists_of_counts_have_an_order_and_one_column(given):
    with pytest.raises((TypeError, ValueError), match=r"^Argument `multiplicities` must be a list of numbers, but "):
        dynamics.Inputs([2.0, 0.5], given)
    assert dynamics.Inputs([2.0, 0.5], pd.DataFrame({"a": [3, 5]})) == dynamics.Inputs([2.0, 0.5], [3, 5])


@pytest.mark.parametrize("call", ["value", "derivative", "kernel", "kernel_derivative"])
def test_points_of_a_link(call):
    link = getattr(hermite.expand("he3"), call)
    for given in GOOD.values():
        assert np.ravel(link(given)).tolist() == link([1.0, 0.5]).tolist()
    assert link(0.5) == link([0.5])[0]
    for given, _ in BAD.values():
        with pytest.raises((TypeError, ValueError), match=r"^Argument `[zs]` must "):
            link(given)
