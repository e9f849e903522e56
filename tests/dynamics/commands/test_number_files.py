"""Files of numbers: every way to write a table gives the same numbers, and an ambiguous file is refused."""

import io

import numpy as np
import pandas as pd
import pytest

from dynamics.commands.options import numbers, word_or_numbers

WANTED = (0.5, -0.25, 12.0)


def saved(**options):
    stream = io.StringIO()
    pd.DataFrame({"weight of a direction": WANTED}).to_csv(stream, index=False, **options)
    return stream.getvalue()


GOOD = {
    "a column": "0.5\n-0.25\n12\n",
    "a row": "0.5,-0.25,12",
    "a row of spaces": "  0.5  -0.25\t12 ".replace("\t", " "),
    "a row of tabs": "0.5\t-0.25\t12\n",
    "a row of semicolons": "0.5;-0.25;12",
    "commas and a space after each": "0.5, -0.25, 12",
    "a list over lines": "0.5, -0.25,\n12\n",
    "exponents": "5e-1\n-2.5E-1\n1.2e+1",
    "a name above": "weight\n0.5\n-0.25\n12\n",
    "pandas": saved(),
    "decimal commas in a row of tabs": "0,5\t-0,25\t12",
    "decimal commas in a row of semicolons": "0,5;-0,25;12,0",
    "quotes": '"weight"\n"0.5"\n"-0.25"\n"12"\n',
    "comments": "# by hand\n0.5  # the first\n\n% and\n// more\n-0.25\n12\n",
    "lines of Windows": "0.5\r\n-0.25\r\n12\r\n",
    "lines of old Macs": "0.5\r-0.25\r12\r",
    "a semicolon at the end of each line": "0.5;\n-0.25;\n12;\n",
}
BAD = {
    "nothing": ("", "holds none"),
    "a name alone": ("weight\n", "line 1 of '@w.csv' has 'weight'"),
    "text": ("0.5\nabc\n12", "line 2 of '@w.csv' has 'abc'"),
    "a missing number": ("0.5,,12", "line 1 of '@w.csv' lacks one"),
    "a missing number between tabs": ("0.5\t\t12", "line 1 of '@w.csv' lacks one"),
    "NA": ("w\n0.5\nNA\n12", "line 3 of '@w.csv' has 'NA'"),
    "nan": ("0.5\nnan\n12", "line 2 of '@w.csv' has 'nan'"),
    "infinity": ("0.5\ninf\n", "line 2 of '@w.csv' has 'inf'"),
    "several columns": ("a,b\n0.5,1.0\n0.25,2.0\n", "has 2 rows of 2 numbers"),
    "an index": (",weight\n0,0.5\n1,-0.25\n2,12\n", "has 3 rows of 2 numbers"),
    "decimal commas in a column": ("0,5\n0,25\n12,0\n", "has 3 rows of 2 numbers, or decimals with a comma"),
    "pandas, European": (saved(sep=";", decimal=","), "has 3 rows of 2 numbers, or decimals with a comma"),
    "decimal commas and spaces": ("0,5 0,25 12,0", "has both"),
    "rows of unlike length": ("1,2\n3\n4,5", "has 3 rows of unlike length"),
    "thousands": ("1.000,5;2.000,5", "has '1.000,5'"),
    "thousands in quotes": ('"1,234","2,345"', "line 1 of '@w.csv' has '\"1'"),
    "thousands with spaces": ("1 234\n2 345", "has 2 rows of 2 numbers"),
    "per cent": ("50% 20%", "line 1 of '@w.csv' has '50%'"),
    "a list of JSON": ("[1, 2]", "line 1 of '@w.csv' has '[1'"),
    "exponents of Fortran": ("1D0 2D0", "line 1 of '@w.csv' has '1D0'"),
    "bars": ("1|2", "line 1 of '@w.csv' has '1|2'"),
    "units": ("0.5 m\n1 m", "line 1 of '@w.csv' has 'm'"),
    "a workbook": ("PK\3\4\0\0", "is no text"),
}  # fmt: skip


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_is_one_row_or_column_is_read(here, text):
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (here / "W.CSV").write_bytes(text.encode(encoding))
        assert numbers("@W.CSV") == word_or_numbers("signs")("@W.CSV") == WANTED, encoding


@pytest.mark.parametrize(("text", "end"), BAD.values(), ids=BAD)
def test_what_has_two_meanings_or_lacks_a_number_is_refused(here, text, end):
    (here / "w.csv").write_bytes(text.encode())
    with pytest.raises(ValueError, match=r"^must ") as caught:
        numbers("@w.csv")
    assert end in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["w.npy", "W.NPY", "w.txt"])
def test_arrays_of_numpy_are_read_whatever_their_name(here, name):
    for shape, kind in (((3,), "f8"), ((3, 1), "f4"), ((1, 3), ">f8")):
        with (here / name).open("wb") as file:
            np.save(file, np.array(WANTED, dtype=kind).reshape(shape))
        assert numbers(f"@{name}") == WANTED


@pytest.mark.parametrize(
    "values", [np.ones((2, 2)), np.array([1j]), np.array([1.0, np.nan]), np.array(["a"]), np.array([None]), np.empty(0)]
)
def test_other_arrays_of_numpy_are_refused(here, values):
    np.save(here / "w.npy", values, allow_pickle=True)
    with pytest.raises(ValueError, match=r"^must name an? (array|file) "):
        numbers("@w.npy")


def test_damaged_and_packed_arrays_are_refused(here):
    np.save(here / "w.npy", np.ones(100))
    (here / "w.npy").write_bytes((here / "w.npy").read_bytes()[:300])
    np.savez(here / "w.npz", np.ones(3))
    for name in ("w.npy", "w.npz"):
        with pytest.raises(ValueError, match=rf"^must name .* '@{name}' is "):
            numbers(f"@{name}")


def test_a_tilde_is_the_home(here, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    (here / "w.txt").write_text("1 2")
    assert numbers("@~/w.txt") == (1.0, 2.0)


def test_numbers_of_a_pdf_are_read(tmp_path):
    """In lists of options, in files, and in schedules and optimizers, whose text is a call."""
    from dynamics.commands.options import numbers, real
    from dynamics.problem.rates import schedule_of

    assert numbers("−0.5,1×10⁻³,2·10²,–3") == (-0.5, 1e-3, 200.0, -3.0)
    assert real("−1.5×10⁻³") == -1.5e-3
    (tmp_path / "list.txt").write_text("−0.5\n1×10⁻³\n", encoding="utf-8")
    assert numbers(f"@{tmp_path / 'list.txt'}") == (-0.5, 1e-3)
    assert schedule_of("power_law_decay(0.1, 0.5,\u00a0onset=100)").name == "power_law_decay(0.1, 0.5, onset=100.0)"
    with pytest.raises(ValueError, match=r"must be a number, but is .−0.5∞"):
        real("−0.5∞")
