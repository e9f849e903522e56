"""Animations: neurons that move onto the directions of the teacher, and the loss."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import check_switch
from dynamics.report import figures
from dynamics.report.figures import MEASURED, PREDICTED, REFERENCE, check_drawable, shades, small
from dynamics.runs.storage import check_target, write_file
from hermite.text.messages import require, shown

if TYPE_CHECKING:
    import os

    import xarray as xr
    from matplotlib.animation import AbstractMovieWriter
    from matplotlib.figure import Figure

    from hermite.arrays import Array

FRAMES = 72
#: Endings of files -> pixels along a frame: an image for a page, a film for a projector.
PIXELS = {".gif": 480, ".mp4": 1200}
#: Directions that the circle has room for; later ones are left out.
MOST_DIRECTIONS = 24
#: Diameter of the ring of a direction in points.
RING = 11.0
#: Losses below this part of the first are not shown.
LOWEST = 1e-5
#: Part of the largest change of a squared overlap below which neurons count as still, before and after.
STILL = 0.01


def animate(
    dataset: xr.Dataset, path: str | os.PathLike[str], *, style: str | None = None, overwrite: bool = False
) -> Path:
    r"""Write an animation of neurons moving onto the teacher's directions, and of the loss.

    The directions are points :math:`u_p` on a circle, and neuron i is at :math:`\sum_p C_{ip}^2 u_p`: in the middle
    while it has no overlap with any of them, on the circle when it is one of them. For odd information exponents
    negative overlaps count as none. Frames are evenly spaced in the logarithm of time.

    `dataset` is an answer with `teacher_overlap(time, neuron, direction)`, or `overlap(time, direction)` of matched
    pairs, at two positive times. The file `path`, which is returned, ends in .gif, or in .mp4 where ffmpeg is
    installed. TypeError or ValueError is raised for anything else. An existing file is replaced with `overwrite` alone;
    StorageError is raised if it cannot be written. For `style` see `figure_style`.

    Examples
    --------
    >>> import tempfile
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> answer = dynamics.solve_decoupled(problem, save_at=dynamics.SaveAt.geometric(1.0, 20.0, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     animate(answer, f"{folder}/neurons.gif").name
    'neurons.gif'
    """
    from matplotlib.animation import FFMpegWriter

    check_switch("overwrite", overwrite)
    target = check_target(path, overwrite=overwrite)
    suffix, text = target.suffix.lower(), shown(str(target))
    require(suffix in PIXELS, f"Argument `path` must end in {' or '.join(PIXELS)}, but is {text}.")
    can_write = suffix == ".gif" or FFMpegWriter.isAvailable()
    require(can_write, f"Argument `path` must end in .gif where ffmpeg is not installed, but is {text}.")
    time, squares = _moving_frames(dataset)
    with figures.figure_style(style):
        figure, draw = _draw_frames(dataset, time, squares)
        write_file(target, partial(_write, figure, draw, suffix), replaces=overwrite)
    return target


def _moving_frames(dataset: xr.Dataset) -> tuple[Array, Array]:
    """Return the times of the frames, while neurons move, and squared overlaps at these (frame, neuron, direction)."""
    from scipy.interpolate import make_interp_spline

    pairs = "teacher_overlap" not in dataset
    needs = {"overlap": ("time", "direction")} if pairs else {"teacher_overlap": ("time", "neuron", "direction")}
    check_drawable(dataset, **needs, loss=("time",))
    overlap = dataset[next(iter(needs))].values[..., :MOST_DIRECTIONS].astype(np.float64)
    if pairs:  # each direction has its own neuron
        overlap = overlap[:, :, None] * np.eye(overlap.shape[1])
    odd = dataset.attrs.get("information_exponent", 2) % 2
    squares = (np.maximum(overlap, 0.0) if odd else overlap) ** 2
    later = (dataset["time"].values > 0) & np.isfinite(squares).all(axis=(1, 2))
    count = int(later.sum())
    require(count > 1, f"Argument `dataset` must have overlaps at two positive times at least, but has {count}.")
    logs, squares = np.log(dataset["time"].values[later]), squares[later]
    begun, left = (np.abs(squares - squares[end]).max(axis=(1, 2)) for end in (0, -1))
    begin = max(int(np.argmax(begun > STILL * begun.max())) - 1, 0)
    end = min(int(np.flatnonzero(left >= STILL * left.max())[-1]) + 1, logs.size - 1)
    # The last part of the frames stands still.
    moving = np.linspace(logs[begin], logs[end], round(0.85 * FRAMES))
    places = np.append(moving, np.full(FRAMES - moving.size, logs[end]))
    return np.exp(places), make_interp_spline(logs, squares, k=1)(places)


def _draw_frames(dataset: xr.Dataset, time: Array, squares: Array) -> tuple[Figure, Any]:
    """Return the figure, and the function that draws frame number n."""
    figure, (left, right) = figures.new_panels((7.5, 3.75), 1, 2, width_ratios=[1.0, 1.05])
    count = squares.shape[2]
    angle = 0.5 * np.pi - 2.0 * np.pi * np.arange(count) / max(count, 3)
    corners, colours = np.stack([np.cos(angle), np.sin(angle)], axis=1), shades(count, 0.85)
    turn = np.linspace(0.0, 2.0 * np.pi, 200)
    left.plot(np.cos(turn), np.sin(turn), color=REFERENCE, lw=0.6, ls=":")
    for p, (corner, colour) in enumerate(zip(corners, colours, strict=True), start=1):
        left.plot(*corner, "o", mfc="none", color=colour, ms=RING, mew=1.4)
        letters: dict[str, object] = {"fontsize": small(left), "ha": "center", "va": "center"}
        beyond = (0.5 * RING + 0.8 * small(left)) * corner
        left.annotate(f"{p}", corner, beyond, textcoords="offset points", **letters)
    left.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    left.set_axis_off()
    nearest = squares[-1].argmax(axis=1)
    neurons = left.scatter(*(squares[0] @ corners).T, s=26, c=colours[nearest], alpha=0.85, lw=0, zorder=3)
    trails = [left.plot([], [], color=colours[p], lw=0.8, alpha=0.5, zorder=2)[0] for p in nearest]
    # After an early stop nothing is known.
    is_saved = (dataset["time"].values > 0) & np.isfinite(dataset["loss"].values)
    all_times, loss = dataset["time"].values[is_saved], np.maximum(dataset["loss"].values[is_saved], 1e-300)
    right.loglog(all_times, loss, color=MEASURED, lw=1.6)
    (now,) = right.plot([], [], "o", color=PREDICTED, ms=7, clip_on=False)
    right.set(xlim=(time[0], time[-1]), ylim=(max(0.5 * loss.min(), LOWEST * loss.max()), 2.0 * loss.max()))
    figures.finish_panel(right, "time", "loss")
    title = left.set_title(" ", fontsize=small(left, 1.0))
    paths, losses = squares @ corners, np.interp(np.log(time), np.log(all_times), loss)

    def draw(frame: int) -> None:
        neurons.set_offsets(paths[frame])
        for i, trail in enumerate(trails):
            trail.set_data(*paths[: frame + 1, i].T)
        now.set_data([time[frame]], [max(losses[frame], right.get_ylim()[0])])
        title.set_text(f"$t$ = {time[frame]:.3g}")

    draw(len(time) - 1)  # which takes most room
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # else panels move from frame to frame
    return figure, draw


def _write(figure: Figure, draw: Any, suffix: str, path: Path) -> None:
    """Write all frames to a file of any name; writers choose a format by the suffix."""
    from matplotlib.animation import FFMpegWriter, PillowWriter

    writer: AbstractMovieWriter = (PillowWriter if suffix == ".gif" else FFMpegWriter)(fps=12)
    with tempfile.TemporaryDirectory() as folder:
        movie = Path(folder) / f"movie{suffix}"
        try:
            with writer.saving(figure, str(movie), dpi=PIXELS[suffix] / figure.get_figwidth()):
                for frame in range(FRAMES):
                    draw(frame)
                    writer.grab_frame()
        except (subprocess.CalledProcessError, BrokenPipeError):
            msg = "ffmpeg failed; a film that ends in .gif needs none"
            raise OSError(msg) from None
        shutil.copyfile(movie, path)
