"""The answer to one point as the bytes of a file: of netCDF, or of a block that takes a thirtieth of its time.

Blocks are for many points. They hold plain numbers and text; what is neither, such as numbers of another kind or
attributes that are lists, is left to netCDF. Either is read by the part of netCDF4's interface that merging needs.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dynamics.runs.storage import save

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr
    from numpy.typing import NDArray

#: The first bytes of a block; after them come the length of the description, this, and all numbers in its order.
MAGIC = b"feature-emergence point 1\n"
_LENGTH = 8
_NUMBERS = ("<f8", "<i8")


def packed_point(dataset: xr.Dataset, *, quick: bool) -> bytes:
    """Return a dataset as bytes that `opened_point` reads; a block, if that is possible, where it is to be `quick`."""
    described = _described(dataset) if quick else None
    if described is None:
        with tempfile.TemporaryDirectory(prefix="sweep-point-") as folder:
            return save(dataset, Path(folder) / "point.nc").read_bytes()
    header = json.dumps(described).encode()
    numbers = [v.to_numpy().tobytes() for v in dataset.variables.values() if v.dtype.str in _NUMBERS]
    return b"".join([MAGIC, len(header).to_bytes(_LENGTH, "little"), header, *numbers])


def is_block(content: bytes) -> bool:
    """Return whether the content of a file is a block."""
    return content.startswith(MAGIC)


def _described(dataset: xr.Dataset) -> dict[str, Any] | None:
    """Return all of a dataset but its numbers, ready for JSON; None if that is not possible."""
    attributes = [dataset.attrs, *(variable.attrs for variable in dataset.variables.values())]
    if not all(_is_plain(value) for held in attributes for value in held.values()):
        return None
    variables: dict[str, Any] = {}
    for name, variable in dataset.variables.items():
        said = {"dims": variable.dims, "shape": variable.shape, "attributes": _plain(variable.attrs)}
        if variable.dtype.str in _NUMBERS:
            said["kind"] = variable.dtype.str
        else:
            said["text"] = variable.to_numpy().ravel().tolist()
            if not all(isinstance(value, str) for value in said["text"]):
                return None
        variables[str(name)] = said
    auxiliary = [str(name) for name in dataset.coords if name not in dataset.dims]
    held = _plain(dataset.attrs) | ({"coordinates": " ".join(auxiliary)} if auxiliary else {})
    sizes = {str(name): size for name, size in dataset.sizes.items()}
    return {"sizes": sizes, "attributes": held, "variables": variables}


def _is_plain(value: object) -> bool:
    """Return whether an attribute is text or a number that JSON keeps."""
    return isinstance(value, (str, int, float, np.int64)) and not isinstance(value, bool)


def _plain(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(k): v.item() if isinstance(v, np.generic) else v for k, v in attributes.items()}


@dataclass(frozen=True, slots=True)
class _Held:
    """What has attributes as netCDF4 gives them."""

    attributes: dict[str, Any]

    def ncattrs(self) -> list[str]:
        """Return their names."""
        return list(self.attributes)

    def getncattr(self, name: str) -> Any:
        """Return one of them."""
        return self.attributes[name]


@dataclass(frozen=True, slots=True)
class PointVariable(_Held):
    """A variable of a block."""

    dimensions: tuple[str, ...]
    values: NDArray[Any]

    @property
    def dtype(self) -> Any:
        """Kind of the numbers, `str` for text."""
        return str if self.values.dtype.kind == "O" else self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.values.shape

    @property
    def size(self) -> int:
        """Number of values."""
        return self.values.size

    def __getitem__(self, at: Any) -> Any:
        return self.values[()] if self.values.ndim == 0 else self.values[at]


@dataclass(frozen=True, slots=True)
class PointBlock(_Held):
    """A block, open for reading."""

    dimensions: dict[str, range]
    variables: dict[str, PointVariable] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left open."""


def opened_point(path: Path) -> Any:
    """Return a file of a point, which gives numbers as they are stored."""
    with path.open("rb") as file:
        content = file.read() if file.read(len(MAGIC)) == MAGIC else None
    if content is None:
        import netCDF4

        point = netCDF4.Dataset(path)
        point.set_auto_mask(False)
        return point
    first = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    described = json.loads(content[_LENGTH:first])
    variables = {}
    for name, said in described["variables"].items():
        if "text" in said:
            values = np.array(said["text"], dtype=object)
        else:
            count = int(np.prod(said["shape"], dtype=np.int64))
            values = np.frombuffer(content, said["kind"], count, first)
            first += values.nbytes
        variables[name] = PointVariable(said["attributes"], tuple(said["dims"]), values.reshape(said["shape"]))
    sizes = {name: range(size) for name, size in described["sizes"].items()}
    return PointBlock(described["attributes"], sizes, variables)
