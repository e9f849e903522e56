"""Whether several answers mean the same by a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.problem.emergence import ALL_DEGREES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr


def tell_alike(name: str, datasets: Sequence[xr.Dataset]) -> bool:
    """Return whether all datasets have a variable, and mean the same by it.

    Learned masses and times count degrees of the link by one of two definitions, and are not defined for links of
    degree up to 2.
    """
    if any(name not in dataset or "undefined" in dataset[name].attrs for dataset in datasets):
        return False
    return not name.startswith("learned_") or len({definition_of_learned(dataset) for dataset in datasets}) == 1


def definition_of_learned(dataset: xr.Dataset) -> str:
    """Return which degrees of the link count in the learned masses and times of a dataset."""
    return str(dataset.attrs.get("learned_definition", ALL_DEGREES))
