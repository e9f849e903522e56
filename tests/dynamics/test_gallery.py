"""The gallery: the script of the docs draws every kind of teacher."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dynamics.teachers import SPHERICAL_TEACHERS

FOLDER = Path(__file__).parents[2] / "docs" / "gallery"


@pytest.mark.parametrize("name", ["he3", "misspecified", "skew"])
def test_the_script_of_the_gallery_draws_a_teacher(name, tmp_path):
    spec = importlib.util.spec_from_file_location("spherical_teachers", FOLDER / "spherical_teachers.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = script.draw(name, tmp_path, dimension=6, width=8, particles=60)
    assert drawn == tmp_path / f"{name}.png"
    assert drawn.stat().st_size > 20_000


def test_every_teacher_has_its_picture():
    assert {path.stem for path in FOLDER.glob("*.png")} == set(SPHERICAL_TEACHERS)
