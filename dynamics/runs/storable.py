"""Refuses parts of a dataset that netCDF loses or that `dynamics.load` reads as something else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hermite.arrays import masked_entries
from hermite.text.messages import refuse, require, shown

if TYPE_CHECKING:
    import xarray as xr

#: Attributes that netCDF, or xarray as it reads, takes for its own.
RESERVED = {
    "_FillValue", "missing_value", "scale_factor", "add_offset", "dtype", "coordinates", "_Unsigned", "_Encoding",
    "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates",
    "_nc3_strict",
}  # fmt: skip
#: One that is reserved of variables alone; of an answer it is the floating-point type of a simulation.
OF_VARIABLES = "dtype"
#: Names in netCDF, and their bytes at most.
_NAME, _MOST_BYTES = re.compile(r"\w([^\x00-\x1f\x7f/]*[^\x00-\x20\x7f/])?"), 255
#: Part of units that are read as those of dates.
_DATES = "since"


def check_tree(tree: xr.Dataset | xr.DataTree) -> None:
    """Raise TypeError unless a file can hold a dataset or tree, so that it is read back unchanged."""
    import xarray as xr

    if isinstance(tree, xr.Dataset):
        check_storable(tree)
        return
    for node in tree.subtree:
        if node is not tree:
            check_name("groups", node.name)
        check_storable(node.to_dataset(inherit=False))


def check_storable(dataset: xr.Dataset) -> None:
    """Raise TypeError unless a netCDF file can hold the dataset and give it back unchanged.

    It checks the names of dimensions and variables, the attributes, and the types of values.
    """
    for dim in dataset.sizes:
        check_name("dimensions", dim)
    _check_attributes(dataset.attrs, "")
    for name, variable in dataset.variables.items():
        check_name("variables", name)
        is_listed = name in dataset.coords and name not in dataset.dims
        require(
            not is_listed or not re.search(r"\s", str(name)),
            f"Coordinate {name!r} must have a name without blanks, since netCDF lists coordinates by their names.",
            error=TypeError,
        )
        _check_attributes(variable.attrs, f" of {name!r}")
        units = variable.attrs.get("units", "")
        require(
            not isinstance(units, str) or _DATES not in units,
            f"Attribute 'units' of {name!r} must not contain {_DATES!r}, as those of dates do, but is {shown(units)}.",
            error=TypeError,
        )
        if (wrong := _wrong_values(variable)) is not None:
            refuse(
                f"Variable {name!r} must hold real numbers of at most 64 bits, truth values, dates, or texts without "
                f"the character NUL, as netCDF stores, but has {wrong}.",
                error=TypeError,
            )


def check_name(kinds: str, name: object) -> None:
    """Raise TypeError unless netCDF takes a name; `kinds` is the plural of the named kind, such as "variables"."""
    fits = isinstance(name, str) and _NAME.fullmatch(name) and len(name.encode(errors="replace")) <= _MOST_BYTES
    require(
        fits,
        f"Names of {kinds} must begin with a letter, digit or underscore, hold no control character or slash, and end "
        f"without a blank, as in netCDF, but one is {shown(name)}.",
        error=TypeError,
    )


def _check_attributes(attributes: dict[object, Any], owner: str) -> None:
    """Raise TypeError unless netCDF stores all attributes: text, real numbers, or lists of one of these.

    `owner` is the text that messages put behind the name of an attribute, such as " of 'loss'", empty for the dataset.
    """
    for key, value in attributes.items():
        check_name("attributes", key)
        require(
            key not in RESERVED or (key == OF_VARIABLES and not owner),
            f"Attribute {key!r}{owner} must have another name, since netCDF uses this one itself.",
            error=TypeError,
        )
        is_list = isinstance(value, (list, tuple, np.ndarray))
        values = list(value) if is_list and np.ndim(value) else [value]
        entries = [np.asarray(entry) for entry in values]
        kinds = {entry.dtype.kind for entry in entries}
        is_real = kinds <= set("iuf") and all(entry.dtype.itemsize in (1, 2, 4, 8) for entry in entries)
        is_real = is_real and not any(entry.dtype == np.float16 for entry in entries)
        is_text = kinds <= {"U"} and all(map(_is_text, values))
        is_plain = (is_real or is_text) and not any(entry.ndim for entry in entries) and not masked_entries(value)
        require(
            is_plain and not isinstance(value, (set, dict)),
            f"Attribute {key!r}{owner} must be text or numbers, as netCDF stores, but is {shown(value)}.",
            error=TypeError,
        )


def _is_text(value: object) -> bool:
    """Return whether netCDF stores a text: without the character that ends it there, and with a code in UTF-8."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _wrong_values(variable: xr.Variable) -> str | None:
    """Return the type or the first value of a variable that netCDF does not store, as text; None if it stores all."""
    dtype = variable.dtype
    if not isinstance(dtype, np.dtype):
        return f"the type {dtype}"
    if dtype.kind in "biuSMm" or (dtype.kind == "f" and dtype.itemsize in (4, 8)):
        return None
    if dtype.kind not in "UO":
        return f"the type {dtype}"
    entries = variable.to_numpy().ravel().tolist()
    if all(isinstance(entry, str) for entry in entries):
        return next((shown(entry) for entry in entries if not _is_text(entry)), None)
    numbers = (int, float, np.integer, np.floating)
    wrong = (entry for entry in entries if isinstance(entry, bool) or not isinstance(entry, numbers))
    return next((shown(entry) for entry in wrong if entry is not None), None)
