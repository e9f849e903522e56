"""Animations: where neurons stand in each frame, what is written, and what is refused."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

import dynamics
from dynamics.report import animation
from dynamics.report.__main__ import main


@pytest.fixture(autouse=True)
def few_frames(monkeypatch):
    monkeypatch.setattr(animation, "FRAMES", 5)


@pytest.fixture(scope="module")
def pairs():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=4, dimension=32)
    return dynamics.solve_decoupled(problem)


def test_a_film_of_matched_pairs_is_written_and_not_replaced(pairs, tmp_path):
    path = dynamics.animate(pairs, tmp_path / "film.gif")
    with Image.open(path) as film:
        assert (film.format, film.size, film.info["loop"]) == ("GIF", (480, 240), 0)
        first = np.asarray(film.convert("L"), dtype=float)
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("L"), dtype=float)
    assert np.abs(first - last).max() > 100.0
    with pytest.raises(dynamics.StorageError, match="must not name an existing file"):
        dynamics.animate(pairs, path)


def test_the_command_writes_page_and_film(pairs, tmp_path, capsys):
    file, film = str(dynamics.save(pairs, tmp_path / "run.nc")), str(tmp_path / "run.gif")
    assert main([file, "--animate", film]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "run.html"), film]
    assert main([file, "--overwrite", "--animate", str(tmp_path / "run.png")]) == 2
    assert "Option --animate must end in .gif or .mp4, but is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda flow: flow.drop_vars("overlap"), "must have the variable `overlap` for this figure, but has not"),
        (lambda flow: flow.isel(time=[-1]), "must have overlaps at two positive times at least, but has 1"),
    ],
)
def test_answers_without_a_course_are_refused(pairs, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        dynamics.animate(change(pairs), tmp_path / "film.gif")
    assert list(tmp_path.iterdir()) == []


def test_films_need_ffmpeg(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.animation.FFMpegWriter.isAvailable", lambda: False)
    with pytest.raises(ValueError, match=r"must end in \.gif where ffmpeg is not installed"):
        dynamics.animate(pairs, tmp_path / "film.mp4")


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
@pytest.mark.parametrize("style", ["screen", "talk"])
def test_a_film_plays_everywhere_and_shows_the_motion(pairs, tmp_path, style):
    path = dynamics.animate(pairs, tmp_path / "film.mp4", style=style)
    asked = "stream=codec_name,pix_fmt,width,height,nb_read_frames"
    words = ["ffprobe", "-v", "error", "-count_frames", "-show_entries", asked, "-of", "json", str(path)]
    (stream,) = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["streams"]
    width, height = stream["width"], stream["height"]
    # What players of every kind know: H.264 with halved colours, whose frames have even sides.
    assert (stream["codec_name"], stream["pix_fmt"], stream["nb_read_frames"]) == ("h264", "yuv420p", "5")
    assert (abs(width - 1200) <= 2, width % 2, height % 2) == (True, 0, 0)
    words = ["ffmpeg", "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    pixels = subprocess.run(words, check=True, capture_output=True).stdout
    frames = np.frombuffer(pixels, dtype=np.uint8).reshape(5, height, width).astype(float)
    (first, last), left = frames[[0, -1]], slice(0, int(0.4 * width))
    assert np.abs(first - last)[:, left].max() > 100.0
    # Names and ticks of the axis of losses stay.
    names = np.s_[:, int(0.43 * width) : int(0.5 * width)]
    assert np.abs(first - last)[names].mean() < 1.0
    assert first[names].min() < 100.0
