"""Answers to points as the bytes of a file: of a block, or of netCDF, which takes thirty times as long.

A block is one small point or several that were answered together. It holds plain numbers and text; what is neither,
such as numbers of another kind or attributes that are lists, is left to netCDF, and so is a large point, which it
compresses. Both are read as `Points`.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynamics.runs.dataset import Contents
from dynamics.runs.storage import save

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import xarray as xr

    from dynamics.runs.dataset import Labelled

#: The first bytes of a block; after them come the length of the description, this, and all numbers in its order.
MAGIC = b"feature-emergence points 2\n"
_LENGTH = 8
#: Numbers and texts of a point that is kept as netCDF.
LARGE_POINT = 1 << 20
_NUMBERS = ("<f8", "<i8")


@dataclass(frozen=True, slots=True)
class PointsVariable:
    """A variable of some points, without the points in `dims` and `shape`."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    #: Whether it holds text rather than numbers.
    text: bool
    attributes: dict[str, Any]
    #: Values, the points in front, or a variable of a netCDF file.
    held: Any

    def values(self) -> NDArray[Any]:
        """Return the values, the points in front."""
        return self.held if isinstance(self.held, np.ndarray) else np.asarray(self.held[...])[None]


@dataclass(frozen=True, slots=True)
class Points:
    """What a file holds of some points, open for reading."""

    sizes: dict[str, int]
    variables: dict[str, PointsVariable]
    #: Coordinates that are not those of a dim.
    auxiliary: frozenset[str]
    #: Name -> one value per point, None where it has none.
    attributes: dict[str, list[Any]]


def packed_point(point: Contents | xr.Dataset) -> bytes:
    """Return one point as bytes that `opened_points` reads."""
    contents = point if isinstance(point, Contents) else _contents_of(point)
    size = sum(array.size for _, array, _ in (*contents.variables.values(), *contents.coords.values()))
    content = packed_together([contents]) if size < LARGE_POINT else None
    if content is None:
        dataset = point.dataset() if isinstance(point, Contents) else point
        with tempfile.TemporaryDirectory(prefix="sweep-point-") as folder:
            return save(dataset, Path(folder) / "point.nc").read_bytes()
    return content


def _contents_of(dataset: xr.Dataset) -> Contents:
    """Return what a dataset holds."""
    held: dict[str, Labelled] = {
        str(name): (tuple(map(str, v.dims)), v.to_numpy(), v.attrs) for name, v in dataset.variables.items()
    }
    coords = {name: held.pop(name) for name in map(str, dataset.coords)}
    return Contents(held, coords, {str(name): value for name, value in dataset.attrs.items()})


def packed_together(points: Sequence[Contents]) -> bytes | None:
    """Return points as the bytes of one block, None unless they have the same variables, and all is plain."""
    arrays = [{**point.variables, **point.coords} for point in points]
    described = _described(arrays[0])
    if described is None or any(_layout(other) != _layout(arrays[0]) for other in arrays[1:]):
        return None
    if not all(_is_plain(value) for point in points for value in point.attributes.values()):
        return None
    sizes = {dim: n for dims, array, _ in arrays[0].values() for dim, n in zip(dims, array.shape, strict=True)}
    names = dict.fromkeys(name for point in points for name in point.attributes)
    said = {
        "points": len(points),
        "sizes": sizes,
        "auxiliary": [name for name in points[0].coords if name not in sizes],
        "attributes": {name: [_plain(point.attributes.get(name)) for point in points] for name in names},
        "variables": described,
    }
    header = json.dumps(said).encode()
    numbers = [
        np.stack([other[name][1] for other in arrays]).tobytes()
        for name, (_, array, _) in arrays[0].items()
        if array.dtype.str in _NUMBERS
    ]
    return b"".join([MAGIC, len(header).to_bytes(_LENGTH, "little"), header, *numbers])


def is_block(content: bytes) -> bool:
    """Return whether the content of a file is a block."""
    return content.startswith(MAGIC)


def _described(arrays: Mapping[str, Labelled]) -> dict[str, Any] | None:
    """Return all of some variables but their numbers, ready for JSON; None if that is not possible."""
    variables: dict[str, Any] = {}
    for name, (dims, array, labels) in arrays.items():
        said: dict[str, Any] = {"dims": dims, "shape": array.shape}
        if array.dtype.str in _NUMBERS:
            said["kind"] = array.dtype.str
        else:
            said["text"] = array.ravel().tolist()
        texts = said.get("text", ())
        if not all(isinstance(text, str) for text in texts) or not all(_is_plain(value) for value in labels.values()):
            return None
        variables[name] = said | {"attributes": {str(key): _plain(value) for key, value in labels.items()}}
    return variables


def _layout(arrays: Mapping[str, Labelled]) -> dict[str, Any]:
    """Return what must be the same for points in one block: all but numbers."""
    return {
        name: (dims, array.shape, array.dtype.str if array.dtype.str in _NUMBERS else array.tolist(), labels)
        for name, (dims, array, labels) in arrays.items()
    }


def _is_plain(value: object) -> bool:
    """Return whether an attribute is text or a number that JSON keeps."""
    return isinstance(value, (str, int, float, np.int64)) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def opened_points(path: Path) -> Iterator[Points]:
    """Yield what a file holds of its points, numbers as they are stored."""
    with path.open("rb") as file:
        content = file.read() if file.read(len(MAGIC)) == MAGIC else None
    if content is not None:
        yield _of_block(content)
        return
    import netCDF4

    with netCDF4.Dataset(path) as stored:
        stored.set_auto_mask(False)
        yield _of_netcdf(stored)


def _of_block(content: bytes) -> Points:
    """Return the points of a block, without its first bytes."""
    first = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    said = json.loads(content[_LENGTH:first])
    count, variables = said["points"], {}
    for name, described in said["variables"].items():
        shape = (count, *described["shape"])
        if "text" in described:
            values = np.array(described["text"] * count, dtype=object).reshape(shape)
        else:
            values = np.frombuffer(content, described["kind"], int(np.prod(shape, dtype=np.int64)), first).reshape(
                shape
            )
            first += values.nbytes
        dims, text = tuple(described["dims"]), "text" in described
        variables[name] = PointsVariable(dims, shape[1:], text, described["attributes"], values)
    return Points(said["sizes"], variables, frozenset(said["auxiliary"]), said["attributes"])


def _of_netcdf(stored: Any) -> Points:
    """Return the point of a netCDF file; what is not needed is not read."""

    def attributes_of(held: Any) -> dict[str, Any]:
        return {name: held.getncattr(name) for name in held.ncattrs()}

    variables, auxiliary = {}, set()
    own = attributes_of(stored)
    for name, variable in stored.variables.items():
        labels = attributes_of(variable)
        auxiliary |= set(labels.get("coordinates", "").split())  # xarray names them here, or on the file
        text = variable.dtype is str
        variables[name] = PointsVariable(variable.dimensions, variable.shape, text, labels, variable)
    auxiliary |= set(own.get("coordinates", "").split())
    sizes = {name: len(dimension) for name, dimension in stored.dimensions.items()}
    return Points(sizes, variables, frozenset(auxiliary), {name: [value] for name, value in own.items()})
