"""The gallery: every script runs, and prints the text and draws the picture that are committed."""

import importlib.util
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from dynamics.problem.named_teachers import SPHERICAL_TEACHERS
from dynamics.report import animation

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
TEACHERS, ANIMATION = "spherical_teachers", "neurons_moving"
SCRIPTS = sorted(path.stem for path in GALLERY.glob("*.py") if path.stem not in (TEACHERS, ANIMATION))
#: Scripts of a second and more with what they compile, which most of the time run what other tests test.
LONG = {
    "both_layers", "chain_of_thought", "class_by_cross_entropy", "composition", "compute_frontier", "covariant_inputs", "digits", "emergence_staircase",
    "induction_head", "lazy_and_rich",
    "leap_three", "leaps", "muon", "one_direction", "optimizers", "own_activation", "phase_retrieval", "quadratic", "recall",
    "recovery_law", "relu_committee", "reused_data", "saad_solla", "selection", "smoothing", "staircase", "step_size_phases", "theory_against_sgd",
    "two_steps", "whose_exponent",
}  # fmt: skip
#: Pixels that are averaged, and the least correlation of what is left with the committed picture.
BLOCK, LIKENESS = 8, 0.9


def grey(path):
    """A picture in shades of grey from 0 to 1, averaged over blocks, in which the drawing of letters is lost."""
    return averaged(imread(path)[:, :, :3].mean(axis=2))


def averaged(shades):
    rows, columns = (size // BLOCK for size in shades.shape)
    return shades[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK).mean(axis=(1, 3))


def printed(name):
    """The committed text that a script prints."""
    return (GALLERY / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in SCRIPTS]
)
def test_script_prints_and_draws_what_is_committed(name, here, capsys):
    runpy.run_path(str(GALLERY / f"{name}.py"), run_name="__main__")
    plt.close("all")
    assert capsys.readouterr().out == printed(name)
    drawn, shown = grey(here / f"{name}.png"), grey(GALLERY / f"{name}.png")
    assert drawn.std() > 0.03, "the picture is blank"
    assert drawn.shape == shown.shape
    assert np.corrcoef(drawn.ravel(), shown.ravel())[0, 1] > LIKENESS, "the committed picture is another one"


def first_and_last(folder):
    """The first and the last frame of the animation in a folder, in shades of grey."""
    frames = []
    with Image.open(folder / f"{ANIMATION}.gif") as film:
        for at in (0, film.n_frames - 1):
            film.seek(at)
            frames.append(averaged(np.asarray(film.convert("RGB")).mean(axis=2) / 255.0))
    return frames


def test_the_animation_begins_and_ends_as_the_committed_one(here, monkeypatch, capsys):
    monkeypatch.setattr(animation, "FRAMES", 4)
    runpy.run_path(str(GALLERY / f"{ANIMATION}.py"), run_name="__main__")
    assert capsys.readouterr().out == printed(ANIMATION)
    for drawn, shown in zip(first_and_last(here), first_and_last(GALLERY), strict=True):
        assert drawn.shape == shown.shape
        assert np.corrcoef(drawn.ravel(), shown.ravel())[0, 1] > LIKENESS
    assert (GALLERY / f"{ANIMATION}.gif").stat().st_size <= 300_000


@pytest.mark.long
@pytest.mark.parametrize("name", ["misspecified", "he3", "skew"])
def test_the_script_of_the_teachers_draws_one(name, tmp_path):
    spec = importlib.util.spec_from_file_location(TEACHERS, GALLERY / f"{TEACHERS}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    answers = script.solve(name, dimension=6, width=8, particles=60)
    drawn = script.draw(name, tmp_path, answers)
    assert drawn == tmp_path / f"{name}.png"
    assert drawn.stat().st_size > 20_000
    script.draw_side_by_side({"one": answers, "the same": answers}, tmp_path / "teachers.png")
    assert (tmp_path / "teachers.png").stat().st_size > 10_000


def test_every_picture_has_its_script():
    assert set(SCRIPTS) >= LONG
    assert {path.stem for path in GALLERY.glob("*.png")} == {*SPHERICAL_TEACHERS, *SCRIPTS}
