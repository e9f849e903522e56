"""The page on a sweep says of the problem what all points share, and shows no loss below zero."""

import re

import pytest
import xarray as xr

import dynamics
from dynamics import write_report
from dynamics.report.findings import any_findings
from dynamics.report.page import VARIED

BASE = dynamics.Problem(activation="he4", teacher=dynamics.Teacher.power_law(3, 1.0), width=4, dimension=16)
WHOLE = "σ = he4, P = 3, m = 4, d = 16, β = 1"
#: Axis -> its values, the part of the line that all points share, and the names that the table of the problem lists.
AXES = {
    "seed": ([0, 1], WHOLE, ["seed of the start"]),
    "width": ([4, 5], "σ = he4, P = 3, d = 16, β = 1", ["width m"]),
    "dimension": ([16, 17], "σ = he4, P = 3, m = 4, β = 1", ["input dimension d"]),
    "beta": ([1.0, 1.5], "σ = he4, P = 3, m = 4, d = 16", ["decay β of the teacher's coefficients"]),
    "k": ([4, 3], "P = 3, m = 4, d = 16, β = 1", ["link σ"]),
    "activation": (["he4", "he3"], "P = 3, m = 4, d = 16, β = 1", ["link σ"]),
    "num_directions": ([3, 4], "σ = he4, m = 4, d = 16, β = 1", ["teacher directions P"]),
    "teacher": ([BASE.teacher, dynamics.Teacher([1.0])], "σ = he4, m = 4, d = 16", ["teacher directions P", "decay β of the teacher's coefficients"]),
    "alpha": ([0.0, 0.5], WHOLE, ["covariance of the inputs"]),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("axis", AXES)
def test_the_page_tells_of_the_first_point_what_all_share(axis, tmp_path):
    values, line, names = AXES[axis]
    given = {"beta": [1.0]} if axis == "num_directions" else {}
    found = dynamics.sweep(BASE, {axis: values, **given}, study="prediction", workers=0)
    text = write_report(found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r'class="about">(.*?)<', text)[1] == (line.replace(", β = 1", "") if given else line)
    for name in names:
        assert re.search(f">{name}</t[hd]><td[^>]*>{VARIED}<", text), name


def test_a_loss_that_rounding_takes_below_zero_is_shown_as_zero():
    def study(problem):
        return xr.Dataset({"loss": ("time", [1.0, -2e-16])}, {"time": [0.0, 1.0]})

    found = any_findings(dynamics.sweep(BASE, {"seed": [0, 1]}, study=study, workers=0))
    assert [row["last loss"] for row in found.tables[0].rows] == [0.0, 0.0]


@pytest.mark.parametrize("stored", ["no JSON", "[]", '{"axes": 3}'])
def test_a_page_is_written_of_a_file_whose_sweep_cannot_be_read(stored, tmp_path):
    answer = dynamics.predict_emergence(BASE).assign_attrs(sweep=stored)
    assert "he4" in write_report(answer, tmp_path / "page.html").read_text(encoding="utf-8")
