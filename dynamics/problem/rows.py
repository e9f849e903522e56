"""`Rows`: inputs that are rows of a matrix, or draws of a law that is not Gaussian, and the map to a problem's axes.

Rows are centred and whitened. Then an orthogonal map puts teacher and start where `placement` says: it turns the
rows so that the first coordinates are those along the teacher's axes and those of the start, as a problem has them.
With inputs that have a covariance the coordinates are those along the eigenvectors, each with variance one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from zipfile import BadZipFile

import numpy as np

from dynamics.problem.checks import JsonObject, check_switch, checked_integer, machine_memory
from dynamics.problem.hints import class_with_hints
from hermite.arrays import Array, Integers
from hermite.text.messages import not_a_choice, refuse, require, shown

if TYPE_CHECKING:
    from dynamics.problem.teacher import Teacher

_HALF_WIDTH = float(np.sqrt(3.0))
#: Law of independent coordinates of mean 0 and variance 1 -> its draws, of a shape, and its fourth cumulant.
LAWS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Array], float]] = {
    "rademacher": (lambda rng, shape: np.asarray(2.0 * rng.integers(0, 2, shape) - 1.0, dtype=np.float64), -2.0),
    "uniform": (lambda rng, shape: rng.uniform(-_HALF_WIDTH, _HALF_WIDTH, shape), -1.2),
    "gaussian": (lambda rng, shape: rng.standard_normal(shape), 0.0),
    "laplace": (lambda rng, shape: rng.laplace(0.0, float(np.sqrt(0.5)), shape), 3.0),
    "exponential": (lambda rng, shape: rng.exponential(1.0, shape) - 1.0, 6.0),
}
#: Names of matrices that need no file: images of digits (extra "data"), random relu features of them, and tanh features
#: of 32 Gaussian latents.
DIGITS, RELU_DIGITS, TANH = "digits", "digits-relu", "tanh"
RELU_FEATURES, TANH_ROWS, TANH_FEATURES, LATENTS = 256, 40_000, 64, 32
RANDOM, ON_ROWS, ON_AXES = "random", "rows", "axes"
PLACEMENTS = (RANDOM, ON_ROWS, ON_AXES)
#: Numbers of a block that is read at a time, 32 MB in double precision.
BLOCK_NUMBERS = 1 << 22
#: Smallest eigenvalue of a covariance, relative to the largest, for which rows can be whitened.
SMALLEST_SHARE = 1e-10
#: Draws by which a callable is tested, and how far its means and second moments may be from 0 and 1.
TESTED_DRAWS, MOMENT_TOLERANCE = 1 << 14, 0.15
#: Coordinates of a callable, the first ones, of which all pairs are tested for correlation.
TESTED_PAIRS = 1024
#: Measures by which a file of runs knows the rows of a matrix again, and how far they may be off by rounding.
MEASURES, SAME_MOMENTS = ("count", "trace", "square"), 1e-9
#: Options of `Rows` that a file of runs holds.
STORED_OPTIONS = ("source", "resample", "components", "placement", "seed")
#: Difference of eigenvalues, relative to the largest, up to which they are those of the rows.
SAME_SPECTRUM = 1e-6


class PlacedProblem(Protocol):
    """The part of a `Problem` by which rows place its teacher and start among their features."""

    @property
    def dimension(self) -> int:
        """Number of coordinates d of a sample."""

    @property
    def inputs(self) -> object:
        """Inputs of theory, None where they are isotropic."""

    @property
    def covariance(self) -> Any:
        """`Inputs` with a covariance, else None."""

    @property
    def teacher(self) -> Teacher:
        """Teacher, whose `span` is the number of its axes."""

    def reduced_weights(self) -> Array:
        """Return the weights of the start in the coordinates in which they and the teacher are not 0."""


class RowMoments(NamedTuple):
    """Mean (columns,) and covariance (kept, kept) of rows, and the columns that vary."""

    mean: Array
    covariance: Array
    kept: Integers


def _is_number(text: str) -> bool:
    """Return whether a field of a table is a number; nan and inf are none, so they are names of columns."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


class RowMap(NamedTuple):
    """The affine map from rows (b, columns) to coordinates (b, d): subtract `mean`, multiply by `matrix`."""

    mean: Array
    matrix: Array

    def __call__(self, rows: Array, axes: int | None = None) -> Array:
        """Return the coordinates of rows, all of them or the first `axes`."""
        return np.asarray((rows - self.mean) @ self.matrix[:, :axes])


def _digits() -> Array:
    """Return the images of digits of scikit-learn, (1797, 64)."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sklearn"):
            raise
        refuse(
            'Argument `source` = "digits" needs an extra package: pip install "feature-emergence[data]".',
            error=ImportError,
        )
    return np.asarray(load_digits().data, dtype=np.float64)


def _relu_digits() -> Array:
    """Return random relu features of digits, (1797, 256)."""
    images = _digits()
    images = (images - images.mean(axis=0)) / images.std()
    weights = np.random.default_rng(0).standard_normal((images.shape[1], RELU_FEATURES)) / np.sqrt(images.shape[1])
    return np.asarray(np.maximum(images @ weights, 0.0), dtype=np.float64)


def _tanh_features() -> Array:
    """Return tanh features of Gaussian latents, (40000, 64)."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((LATENTS, TANH_FEATURES)) / np.sqrt(LATENTS)
    return np.asarray(np.tanh(1.5 * rng.standard_normal((TANH_ROWS, LATENTS)) @ weights))


EXAMPLES: dict[str, Callable[[], Array]] = {DIGITS: _digits, RELU_DIGITS: _relu_digits, TANH: _tanh_features}


@class_with_hints
@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Inputs that are not Gaussian: rows of a matrix, or draws of a law; frozen.

    Rows are centred and whitened, unless the problem has `inputs`: then they keep their covariance, which must be
    that of `Inputs.from_data`.

    Parameters
    ----------
    source : path, array_like, DataFrame, str or callable
        A file .npy (read block by block, so it may exceed the memory), .npz (of one array) or .csv (names of columns
        and the index that pandas writes are left out), or a matrix, with one sample per row; "digits", the 1797 images
        of scikit-learn (extra "data"), "digits-relu", 256 random relu features of them, or "tanh", 64 tanh features of
        32 Gaussian latents; a law of independent coordinates of mean 0 and variance 1, "rademacher", "uniform",
        "gaussian", "laplace" or "exponential" (centred); or a function of a numpy generator and a count that returns
        so many rows, of mean 0 and covariance I.
    resample : bool, default True
        Whether a run draws rows with replacement. With False it takes each row once, in random order. Laws and
        functions always give new rows.
    components : int, optional
        Keep so many leading principal components. By default all columns that vary are kept.
    placement : {"random", "rows", "axes"} or array_like, default "random"
        Where teacher and start lie among whitened rows: along random directions, along rows drawn at random and made
        orthogonal, along the axes of the features, or along rows of an array of directions, made orthonormal, first
        those of the teacher. Inputs with a covariance have "axes", the eigenvectors.
    seed : int, default 0
        Seed of random directions, and of draws outside of runs.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> Rows("rademacher")
    Rows('rademacher')
    >>> rows = Rows(np.random.default_rng(0).uniform(size=(500, 8)), placement="axes")
    >>> rows.count, rows.dimension
    (500, 8)
    """

    source: Any
    resample: bool = True
    components: int | None = None
    placement: Any = RANDOM
    seed: int = 0

    def __post_init__(self) -> None:
        check_switch("resample", self.resample)
        object.__setattr__(self, "seed", checked_integer(self.seed, "seed", minimum=0))  # 1e6 is an integer too
        if self._place is not None:
            require(self._place in PLACEMENTS, not_a_choice("Argument `placement`", self.placement, PLACEMENTS))
        if self.is_law:
            require(
                self.components is None,
                f"Argument `components` must be None for a law or a function, but is {shown(self.components)}.",
            )
            require(
                self._place != ON_ROWS,
                "Argument `placement` must be 'random', 'axes' or an array for a law or a function, but is 'rows'.",
            )
            return
        shape = self._matrix().shape
        require(
            len(shape) == 2 and shape[0] >= 2 and shape[1] >= 2,
            f"Argument `source` must have shape (rows, columns), at least 2 of each, but has shape {shape}.",
        )
        require(
            self._matrix().dtype.kind in "fiub",
            f"Argument `source` must hold real numbers, but holds {self._matrix().dtype}.",
        )
        if self.components is not None:
            components = checked_integer(self.components, "components", minimum=1, maximum=shape[1])
            object.__setattr__(self, "components", components)

    @classmethod
    def of(cls, value: object) -> Rows:
        """Return rows as they are, made of what a file of runs holds, or with the default options from a source."""
        if isinstance(value, dict):
            require(
                set(STORED_OPTIONS) <= set(value),
                f"Argument `source` must be a matrix, its file, a law or a function, but is {shown(value)}.",
            )
            options = {name: value[name] for name in STORED_OPTIONS}
            rows = cls(**options)
            stored = rows.stored or {}
            ours, theirs = (np.array([options.get(name, 0.0) for name in MEASURES]) for options in (stored, value))
            # Sums may be rounded in another order, so that the mean of centred rows is not the same.
            rounding = SAME_MOMENTS * np.array([0.0, 0.0, stored.get("trace", 0.0)])
            require(
                (np.abs(ours - theirs) <= SAME_MOMENTS * np.abs(theirs) + rounding).all(),
                f"File {str(value['source'])!r} must hold the rows that the runs began with, but has changed.",
            )
            return rows
        return value if isinstance(value, cls) else cls(value)

    # --- the source -------------------------------------------------------------------------------------------

    @property
    def _place(self) -> str | None:
        """Name of the placement, None for an array of directions."""
        return self.placement if isinstance(self.placement, str) else None

    @property
    def is_law(self) -> bool:
        """Whether rows are drawn from a law, by name or by a function."""
        return callable(self.source) or self.law is not None

    @property
    def law(self) -> str | None:
        """Name of the law of independent coordinates, None for other sources."""
        return self.source if isinstance(self.source, str) and self.source in LAWS else None

    @property
    def count(self) -> int | None:
        """Number N of rows; None for a law or a function."""
        return None if self.is_law else int(self._matrix().shape[0])

    @property
    def fourth_cumulant(self) -> float | None:
        """Fourth cumulant of one coordinate of a law by name; None for other sources."""
        return None if self.law is None else LAWS[self.law][1]

    @property
    def dimension(self) -> int | None:
        """Number of whitened coordinates; None for a law or a function, which have those of the problem."""
        if self.is_law:
            return None
        return self.moments.kept.size if self.components is None else self.components

    @property
    def stored(self) -> JsonObject | None:
        """Options that a file of runs holds, of which `of` makes the same rows; None for arrays and functions."""
        named = isinstance(self.source, str) and self.source in EXAMPLES
        is_path = isinstance(self.source, (str, os.PathLike)) and self.law is None and not named
        if self._place is None or not (is_path or named or self.law):
            return None
        stored: JsonObject = {
            "source": str(Path(self.source).resolve()) if is_path else self.source,
            "resample": self.resample,
            "components": self.components,
            "placement": self.placement,
            "seed": self.seed,
        }
        if is_path:
            mean, covariance, _ = self.moments
            stored |= {"count": self.count, "trace": float(np.trace(covariance)), "square": float(mean @ mean)}
        return stored

    def draw(self, rng: np.random.Generator, count: int, dimension: int) -> Array:
        """Return new rows (count, dimension) of a law or a function."""
        if self.law is not None:
            return LAWS[self.law][0](rng, (count, dimension))
        drawn = np.asarray(self.source(rng, count))
        require(drawn.dtype.kind in "fiub", f"Argument `source` must return real numbers, but returns {drawn.dtype}.")
        drawn = np.asarray(drawn, dtype=np.float64)
        require(
            drawn.shape == (count, dimension) and bool(np.isfinite(drawn).all()),
            f"Argument `source` must return finite rows of shape ({count}, {dimension}) for {count} rows, but returns "
            f"shape {drawn.shape}.",
        )
        return drawn

    def take(self, chosen: Integers) -> Array:
        """Return the rows of these numbers, (b, columns) in double precision."""
        return np.asarray(self._matrix()[chosen], dtype=np.float64)

    def blocks(self) -> Iterator[Array]:
        """Yield all rows of a matrix in order, some at a time, in double precision."""
        count, columns = self._matrix().shape
        size = max(BLOCK_NUMBERS // columns, 1)
        for first in range(0, count, size):
            # A file is mapped anew for every block, so that no more than a block of it stays in memory.
            yield np.asarray(self._matrix()[first : first + size], dtype=np.float64)

    def _matrix(self) -> Any:
        """Return the matrix; a .npy file is mapped anew by each call, others are read once."""
        if isinstance(self.source, (str, os.PathLike)) and Path(self.source).suffix == ".npy":
            array = self._opened(self._mapped)
            require(
                self._state == self._state_at_first,
                f"File {str(self.source)!r} must stay as it is while its rows are read, but has changed.",
            )
            return array
        return self._in_memory

    @cached_property
    def _in_memory(self) -> Any:
        """The matrix of an array, a table or a file that is read as a whole."""
        source = self.source
        if not isinstance(source, (str, os.PathLike)):
            require(not np.ma.is_masked(source), "Argument `source` must have no masked entries, but has some.")
            try:
                return np.asarray(source.to_numpy() if hasattr(source, "to_numpy") else source)
            except (TypeError, ValueError, RuntimeError) as error:  # a tensor with gradients is a RuntimeError
                refuse(f"Argument `source` must be a matrix of numbers, but is {shown(source)}.", cause=error)
        if isinstance(source, str) and source in EXAMPLES:
            return EXAMPLES[source]()
        if Path(source).suffix == ".npz":
            return self._opened(self._only_array)
        if Path(source).suffix in (".csv", ".txt"):
            return self._opened(self._table)
        return refuse(
            f"Argument `source` must be a file .npy, .npz or .csv, or one of {', '.join((*LAWS, *EXAMPLES))}, but is "
            f"{str(source)!r}."
        )

    def _opened(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            text = str(error).rstrip(".")
            refuse(f"File {str(self.source)!r} must hold a matrix of numbers, but does not: {text}.", cause=error)

    @property
    def _state(self) -> tuple[int, int]:
        """Size of the file, and the time of its last change in nanoseconds."""
        status = Path(self.source).stat()
        return status.st_size, status.st_mtime_ns

    @cached_property
    def _state_at_first(self) -> tuple[int, int]:
        """The state of the file when it was read first: moments and coordinates belong to it."""
        return self._state

    def _mapped(self) -> Any:
        array = np.load(self.source, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            refuse("it is an archive, whose name must end in .npz")
        return array

    def _only_array(self) -> Any:
        with Path(self.source).open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            require(not isinstance(arrays, np.ndarray), "it is no archive of arrays")
            names = list(arrays)
            require(len(names) == 1, f"it has the arrays {', '.join(names) or 'none'} instead of one")
            array = arrays[names[0]]
            require(isinstance(array, np.ndarray), f"{names[0]} is no array")
            return array

    def _table(self) -> Array:
        """Return the numbers of a table of text, without names in its first line and an index before the columns.

        A first line of which no field is a number has names. An index is a first column whose name is empty, as pandas
        writes it; the other names may then be the numbers 0, 1, ….
        """
        with Path(self.source).open(encoding="utf-8-sig") as lines:
            first = [field.strip().strip('"') for field in next(lines, "").split(",")]
            of_index = len(first) > 1 and not first[0]
            names = first[1:] if of_index else first
            has_names = not any(map(_is_number, names)) or (of_index and names == list(map(str, range(len(names)))))
            used = list(range(1, len(first))) if of_index and has_names else None
            if not has_names:
                lines.seek(0)
            row = next((line for line in lines if line.strip()), "")
            require(row, "it has no rows of numbers")
            return np.loadtxt(chain([row], lines), delimiter=",", ndmin=2, usecols=used)

    # --- moments and coordinates ------------------------------------------------------------------------------

    @cached_property
    def moments(self) -> RowMoments:
        """Mean, covariance and varying columns of the rows of a matrix, in one pass; refuse values not finite."""
        _, columns = self._matrix().shape
        shift, total, square, count = np.zeros(columns), np.zeros(columns), np.zeros((columns, columns)), 0
        for block in self.blocks():
            require(np.isfinite(block).all(), "Argument `source` must hold finite numbers, but has others.")
            if not count:
                shift = block.mean(axis=0)
            centred = block - shift
            with np.errstate(over="ignore", invalid="ignore"):  # refused below
                total += centred.sum(axis=0)
                square += centred.T @ centred
            count += len(block)
        require(
            np.isfinite(square).all(),
            "Argument `source` must hold numbers whose squares are finite in double precision, but has larger ones.",
        )
        covariance = square / count - np.outer(total, total) / count**2
        variance = np.diagonal(covariance)
        kept = np.flatnonzero(variance > SMALLEST_SHARE**2 * max(float(variance.max()), 1e-300))
        require(kept.size >= 2, "Argument `source` must have two columns that vary, but has fewer.")
        return RowMoments(shift + total / count, covariance[np.ix_(kept, kept)], kept)

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues of the covariance (d,), decreasing, and eigenvectors (kept, d), the leading `components`."""
        values, vectors = np.linalg.eigh(self.moments.covariance)
        count = values.size if self.components is None else self.components
        values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
        rank = int(np.count_nonzero(values > SMALLEST_SHARE * values[0]))
        require(
            rank == count,
            f"Argument `source` must have {count} linearly independent columns, but has {rank}; use components={rank} "
            "or fewer.",
        )
        largest = np.argmax(np.abs(vectors), axis=0)
        return values, vectors * np.sign(vectors[largest, np.arange(count)])

    def check(self, problem: PlacedProblem) -> None:
        """Raise ValueError unless a problem has the dimension of the rows and, with a covariance, their spectrum."""
        inputs = problem.inputs
        require(
            inputs is None or problem.covariance is not None,
            f"Argument `problem` must have no Mixture beside rows, but has {inputs!r}.",
        )
        require(
            inputs is None or not self.is_law,
            "Argument `problem` must have isotropic inputs beside a law or a function, but has a covariance.",
        )
        require(
            inputs is None or self._place in (RANDOM, ON_AXES),
            "Argument `placement` must be 'axes' for inputs with a covariance, whose directions lie on eigenvectors, "
            f"but is {shown(self.placement)}.",
        )
        if self.is_law:
            if self.law is None:
                self._check_callable(problem.dimension)
            return
        require(
            self.dimension == problem.dimension,
            f"Argument `dimension` must be {self.dimension}, that of the rows, but is {problem.dimension}.",
        )
        values = self.spectrum[0]
        if problem.covariance is not None:
            wanted = problem.covariance.eigenvalues_of_axes(problem.dimension)
            require(
                float(np.abs(wanted - values).max()) <= SAME_SPECTRUM * float(values[0]),
                "Argument `inputs` must have the covariance of the rows, as Inputs.from_data has it, or be isotropic, "
                f"for whitened rows, but is {problem.covariance!r}.",
            )

    def _check_callable(self, dimension: int) -> None:
        drawn = self.draw(np.random.default_rng([self.seed, 1]), max(TESTED_DRAWS, 16 * dimension), dimension)
        off = max(float(np.abs(drawn.mean(axis=0)).max()), float(np.abs((drawn**2).mean(axis=0) - 1.0).max()))
        require(
            off <= MOMENT_TOLERANCE,
            f"Argument `source` must return coordinates of mean 0 and variance 1, but one of them is off by {off:.2g}.",
        )
        near = drawn[:, :TESTED_PAIRS]
        products = near.T @ near / len(near)
        np.fill_diagonal(products, 0.0)
        off = float(np.abs(products).max())
        require(
            off <= MOMENT_TOLERANCE,
            f"Argument `source` must return coordinates that are not correlated, but two of them have {off:.2g}.",
        )

    def coordinates(self, problem: PlacedProblem) -> RowMap:
        """Return the map from rows to the coordinates of a problem, those of its reduced weights first."""
        self.check(problem)
        d, inputs = problem.dimension, problem.covariance
        if self.is_law:
            mean, white = np.zeros(d), np.eye(d)
        else:
            mean, (values, vectors) = self.moments.mean, self.spectrum
            white = vectors / np.sqrt(values)
            if inputs is None and self.components is None:
                white = white @ vectors.T  # along the features themselves
            columns = np.zeros((mean.size, d))
            columns[self.moments.kept] = white
            white = columns
        return RowMap(mean, white if inputs is not None else white @ self._turn(problem, white, mean))

    def _turn(self, problem: PlacedProblem, white: Array, mean: Array) -> Array:
        """Return an orthogonal matrix (d, d) whose first columns are the directions of a problem's reduced axes."""
        d, rng = problem.dimension, np.random.default_rng([self.seed, 0])
        if self._place == ON_AXES:
            return np.eye(d)
        needed = problem.reduced_weights().shape[1]
        rest = rng.standard_normal((d, d))
        if self._place == ON_ROWS:
            count = cast("int", self.count)
            span = min(needed, count)
            first = ((self.take(rng.choice(count, span, replace=False)) - mean) @ white).T
            rest[:, :span] = first
        elif self._place is None:
            try:
                directions = np.asarray(self.placement, dtype=np.float64)
            except (TypeError, ValueError):
                refuse(f"Argument `placement` must be a matrix of directions, but is {shown(self.placement)}.")
            fits = (
                np.isfinite(directions).all()
                and directions.ndim == 2
                and directions.shape[1] == d
                and len(directions) <= d
            )
            require(
                fits and np.linalg.matrix_rank(directions) == len(directions),
                f"Argument `placement` must have finite, independent directions in rows of {d}, but has shape "
                f"{directions.shape}.",
            )
            require(
                len(directions) >= problem.teacher.span,
                f"Argument `placement` must have a direction for each of the teacher's {problem.teacher.span} axes, "
                f"but has {len(directions)}.",
            )
            rest[:, : len(directions)] = directions.T
        factor, triangle = np.linalg.qr(rest)
        # Rows may depend on each other, which leaves zeros on the diagonal.
        return np.asarray(factor * np.where(np.diagonal(triangle) < 0.0, -1.0, 1.0))

    def samples(self, problem: PlacedProblem, drawn: int, axes: int | None = None) -> Iterator[Array]:
        """Yield the coordinates of all rows of a matrix, or of `drawn` new rows of a law, some at a time."""
        to_axes = self.coordinates(problem)
        if not self.is_law:
            for block in self.blocks():
                yield to_axes(block, axes)
            return
        rng, d = np.random.default_rng([self.seed, 2]), problem.dimension
        size = max(BLOCK_NUMBERS // d, 1)
        for first in range(0, drawn, size):
            yield to_axes(self.draw(rng, min(size, drawn - first), d), axes)

    @property
    def fits_memory(self) -> bool:
        """Whether all rows of a matrix may be held at once, in a tenth of the memory of the machine."""
        count, columns = self._matrix().shape
        return bool(80 * count * columns <= machine_memory())

    @property
    def name(self) -> str:
        """Name of the source in sentences."""
        if self.law is not None:
            return f"{self.law} inputs"
        if callable(self.source):
            return "the inputs of a function"
        if isinstance(self.source, (str, os.PathLike)):
            return Path(self.source).name
        return f"a matrix of {self.count} rows"

    def __repr__(self) -> str:
        usual = {"resample": True, "components": None, "placement": RANDOM, "seed": 0}
        words = [repr(self.source) if isinstance(self.source, (str, os.PathLike)) else f"<{self.name}>"]
        for option, value in usual.items():
            current = getattr(self, option)
            if not isinstance(current, type(value)) or current != value:
                words.append(f"{option}={current!r}" if isinstance(current, (str, int)) else f"{option}=<array>")
        return f"Rows({', '.join(words)})"
