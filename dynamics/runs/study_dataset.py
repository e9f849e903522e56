"""Datasets of studies: variables over families of runs, with the names, labels and provenance of every other answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.runs.dataset import make_dataset
from dynamics.runs.variables import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    from dynamics.problem import Problem

Values = dict[str, tuple[tuple[str, ...], Any]]


def study_dataset(
    problem: Problem,
    values: Values,
    *,
    title: str,
    coords: Mapping[str, Any],
    settings: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> xr.Dataset:
    """Return the labelled dataset of a study.

    Parameters
    ----------
    problem : Problem
        What was asked; of a family of problems the last.
    values : dict
        Variable name -> (dims in front of those that the table of variables gives it, array).
    title : str
    coords : mapping
        Coordinate name -> values.
    settings : mapping
        Arguments of the study, JSON-ready.
    attributes : mapping
        Further attributes.

    Returns
    -------
    Dataset
    """
    dataset = make_dataset({}, problem=problem, title=title, coords=coords, solver=settings, attributes=attributes)
    added = {}
    for name, (leading, array) in values.items():
        variable = VARIABLES[name]
        labels = {"long_name": variable.long_name, "units": "1", "symbol": variable.symbol}
        added[name] = ((*leading, *variable.dims), np.asarray(array), labels)
    return dataset.assign(added)
