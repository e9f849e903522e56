"""What `save` writes `load` reads back equal; the rest is refused in one sentence, and leaves no file."""

import datetime
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dynamics


@pytest.fixture(scope="module")
def answer():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=3, dimension=16)
    return dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 2.0]))


def check_round_trip(result, path, is_kept):
    """Check that a result is written and read back equal, or refused by one sentence without a file."""
    if is_kept:
        dynamics.save(result, path)
        assert dynamics.load(path).identical(result)
        path.unlink()
        return
    with pytest.raises((TypeError, dynamics.StorageError), match=r"^.* must [^\n]*\.$"):
        dynamics.save(result, path)
    assert list(path.parent.iterdir()) == []


ATTRIBUTES = [
    *(("units", units) for units in ("steps since start", "days since 2000-01-01", "months since 2000-01-01", "sincere")),
    *((name, value) for name in ("_FillValue", "missing_value", "scale_factor", "add_offset", "dtype", "coordinates",
                                 "_Unsigned", "_Encoding", "CLASS", "DIMENSION_LIST", "_NCProperties", "_nc3_strict")
      for value in (1.0, "x", "bool")),
    *((name, 1) for name in ("", "a/b", " a", "a ", "a\0", "a\n", ".", "x" * 300, 3, None)),
    *(("extra", value) for value in (
        True, None, 1j, b"a", 2**70, {"a": 1}, {1}, range(3), [True], [None], [b"a"], ["a", 1], [[1, 2], [3, 4]], np.eye(2),
        np.float16(1), np.longdouble(1), np.datetime64("2000-01-01"), datetime.date(2000, 1, 1), Fraction(1, 2),
        "\0", "a\0b", "\ud800", np.ma.masked, object())),
]  # fmt: skip
KEPT = [
    ("units", "days"), ("calendar", "noleap"), ("a b", 1), ("ä", "ü"), ("0", 1), ("extra", ""), ("extra", []),
    ("extra", ["a", "", "c"]), ("extra", [1, 2.5]), ("extra", (1, 2)), ("extra", 2**63), ("extra", -(2**63)), ("extra", np.nan),
    ("extra", [np.nan, np.inf]), ("extra", np.uint8(3)), ("extra", np.float32(0.1)), ("extra", "é" * 70_000), ("extra", np.array(3)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("attribute", "is_kept"),
    [(each, False) for each in ATTRIBUTES] + [(each, True) for each in KEPT],
    ids=lambda each: ascii(each)[:40].partition(" at 0x")[0],
)
@pytest.mark.parametrize("owner", ["answer", "loss"])
def test_attributes(answer, owner, attribute, is_kept, tmp_path):
    changed = answer.copy()
    name, value = attribute
    if owner == "answer":
        is_kept |= name in ("units", "dtype")  # simulations have the latter
        changed.attrs[name] = value
    else:
        changed[owner].attrs[name] = value
    check_round_trip(changed, tmp_path / "answer.nc", is_kept)


VALUES = {
    "complex": [1j, 2], "half": np.array([1, 2], "f2"), "long": np.array([1, 2], "g"), "fractions": np.array([Fraction(1, 2)] * 2, object),
    "mixed": np.array(["a", 1], object), "texts and nan": np.array(["a", np.nan], object), "records": np.zeros(2, [("a", int)]),
    "NUL": np.array(["a\0b", "c"]), "NUL at the end": np.array(["a\0", "c"], object), "no UTF-8": np.array(["\ud800", "a"], object),
    "days": np.array([datetime.date(2000, 1, 1)] * 2, object), "pandas": pd.array([1, None], dtype="Int64"),
}  # fmt: skip
KEPT_VALUES = {
    "bool": [True, False], "int8": np.array([1, 2], "i1"), "uint64": np.array([1, 2**64 - 1], "u8"), "single": np.array([0.1, np.nan], "f4"),
    "texts": ["a", ""], "objects": np.array(["a", "é"], object), "bytes": np.array([b"a", b"bc"]), "none": np.array([None, 1.5], object),
    "dates": np.array(["2000-01-01", "NaT"], "M8[ns]"), "spans": np.array([1, 2], "m8[ns]"), "big-endian": np.array([1, 2], ">f8"),
    "extremes": [-0.0, 5e-324],
}  # fmt: skip


@pytest.mark.parametrize("kind", [*VALUES, *KEPT_VALUES])
def test_values(answer, kind, tmp_path):
    changed = answer.assign(extra=("time", {**VALUES, **KEPT_VALUES}[kind]))
    check_round_trip(changed, tmp_path / "answer.nc", kind in KEPT_VALUES)


@pytest.mark.parametrize("name", ["", "a/b", " a", "a ", ".", "a\0", "a\n", "x" * 300, 3])
@pytest.mark.parametrize("what", ["variable", "dim"])
def test_names(answer, name, what, tmp_path):
    changed = (
        answer.assign({name: ("time", [1.0, 2.0])}) if what == "variable" else answer.assign(extra=((name,), [1.0]))
    )
    check_round_trip(changed, tmp_path / "answer.nc", False)


def test_coordinates_are_listed_by_names_without_blanks(answer, tmp_path):
    check_round_trip(answer.assign({"a b": ("time", [1.0, 2.0])}), tmp_path / "answer.nc", True)
    check_round_trip(answer.assign_coords({"a b": ("time", [1.0, 2.0])}), tmp_path / "answer.nc", False)
    check_round_trip(answer.assign_coords({"b": ("time", [1.0, 2.0])}), tmp_path / "answer.nc", True)


def test_what_load_would_refuse_is_not_saved(answer, tmp_path):
    path = tmp_path / "answer.nc"
    for version in (None, 0, "1", 999):
        changed = answer.drop_attrs() if version is None else answer.assign_attrs(schema_version=version)
        check_round_trip(changed, path, False)
    check_round_trip(answer.expand_dims(u=2).stack(both=("u", "time")), path, False)
    check_round_trip(xr.DataTree.from_dict({"/": answer, "/a b": answer, "/x/y": answer}), path, True)
