"""Styles and labels of figures, numbers rounded by their errors, and films."""

import inspect
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib import pyplot, rcParams
from PIL import Image

import dynamics
import sgd_check
from dynamics.report import animation
from dynamics.report.__main__ import main
from dynamics.report.figures import finish_panel, new_panels, share_bars
from dynamics.report.findings import Table
from hermite.text.messages import with_error


@pytest.fixture(scope="module")
def answer():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.1]), width=2, dimension=64)
    return dynamics.solve_decoupled(problem)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.0262, 0.039245, "1.03 ± 0.04"),
        (-1.42, 0.22, "-1.42 ± 0.22"),
        (1234.0, 56.0, "1230 ± 60"),
        (1.0, 0.0999, "1.00 ± 0.10"),
        (1.5e-7, 2e-9, "(1.500 ± 0.020)e-07"),
        (0.25, math.nan, "0.25"),
        (math.nan, 0.1, "-"),
        (2.0, 0.0, "2"),
    ],
)
def test_numbers_are_rounded_by_their_errors(value, error, text):
    assert with_error(value, error) == text


def test_tables_round_numbers_by_the_errors_beside_them():
    rows = [{"law": "L", "x": 1.0262, "s.e.": 0.039245}, {"law": "T", "x": 0.123456, "s.e.": math.nan}]
    shown, _ = Table(caption="Exponents", rows=rows, errors={"x": "s.e."}).spread(10)
    assert [getattr(shown[0][name], "text", None) for name in ("x", "s.e.")] == ["1.03", "0.04"]
    assert shown[0]["x"] == 1.0262
    assert shown[1] == rows[1]


@pytest.mark.thorough
@pytest.mark.parametrize("style", ["screen", "paper", "talk"])
def test_figures_have_the_size_of_their_style_and_embedded_fonts(answer, tmp_path, style):
    ax = dynamics.plot_loss(answer, style=style)
    figure = ax.figure
    widths = {"screen": 6.8, "paper": 3.4, "talk": 5.2}
    letters = {"screen": rcParams["font.size"], "paper": 7.5, "talk": 11.0}
    assert figure.get_size_inches()[0] == widths[style]
    assert ax.xaxis.label.get_fontsize() == letters[style]
    # After the block of the style: the figure keeps its own.
    figure.savefig(tmp_path / "loss.pdf")
    figure.savefig(tmp_path / "loss.svg")
    pyplot.close(figure)
    written = (tmp_path / "loss.pdf").read_bytes()
    assert b"/FontFile2" in written
    assert b"/Type3" not in written
    width = float(re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ", written)[1])
    assert width == pytest.approx(72.0 * widths[style], abs=0.01)
    assert "<text" not in (tmp_path / "loss.svg").read_text()


def test_every_public_plot_takes_axes_and_a_style():
    plots = [
        getattr(package, name) for package in (dynamics, sgd_check) for name in dir(package) if name.startswith("plot_")
    ]
    assert len(plots) == 16
    for plot in plots:
        parameters = inspect.signature(plot).parameters
        assert parameters["style"].default is None
        assert {"ax", "axes"} & set(parameters)


def test_an_unknown_style_is_refused(answer):
    message = r"Argument `style` must be one of 'screen', 'paper', 'talk', but is 'poster'\."
    with pytest.raises(ValueError, match=message):
        dynamics.plot_loss(answer, style="poster")
    with pytest.raises(ValueError, match=message), dynamics.figure_style("poster"):
        pass


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((0.9, 250.0), ["1", "10", "100"]),
        ((3.0, 60.0), ["5", "10", "20", "50"]),
        ((1.05, 4.9), ["1.5", "2", "3"]),
        ((0.101, 0.49), ["0.15", "0.2", "0.3"]),
        ((1e-6, 1.0), ["10⁻⁶", "10⁻⁴", "10⁻²", "10⁰"]),
        ((2e4, 2e5), ["2·10⁴", "5·10⁴", "10⁵", "2·10⁵"]),
        ((0.9999, 1.0002), ["0.9999", "1", "1.0001", "1.0002"]),
    ],
)
def test_log_axes_have_one_kind_of_labels(limits, labels):
    figure, ax = new_panels((6.8, 4.4))
    ax.set(xscale="log", xlim=limits)
    finish_panel(ax, "x", "y")
    figure.draw_without_rendering()
    seen = [
        tick.get_text()
        for tick, at in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
        if limits[0] <= at * (1 + 1e-12) and at <= limits[1] * (1 + 1e-12)
    ]
    assert [label for label in seen if label in labels] == labels
    assert len(set(seen)) == len(seen)


def test_intervals_of_shares_are_wilsons():
    # z = 2: of 0 in 10 up to 4/14, of 5 in 10 1/2 ± sqrt(1/40 + 1/100)/1.4.
    down, up = share_bars(np.array([0.0, 0.5]), 10)
    np.testing.assert_allclose(up, [4 / 14, 2 * math.sqrt(0.25 / 10 + 4 / 400) / 1.4])
    np.testing.assert_allclose(down, [0.0, up[1]])


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
    assert np.abs(first - last)[:, :192].max() > 100.0
    # Names and ticks of the axis of losses stay.
    assert np.abs(first - last)[:, 207:240].mean() < 1.0
    assert first[:, 207:240].min() < 100.0
    with pytest.raises(dynamics.StorageError, match="must not name an existing file"):
        dynamics.animate(pairs, path)


@pytest.mark.thorough
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
    # All players can show H.264 with halved colours; its frames have even sides.
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
