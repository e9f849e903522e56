"""Answers as tables of rows and columns, for programs that know no netCDF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    import pandas as pd
    import xarray as xr

    from dynamics.runs.storage import Write

#: Group of a tree that judges the others.
JUDGE = "comparison"
#: Measured times, of which an answer's table tells unless it is asked for another.
_TIMES = ("emergence_time", "aligned_time", "learned_time")


def parts_of(result: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """Return the datasets of a result by the path of their group, "/" for one that is all."""
    import xarray as xr

    if isinstance(result, xr.Dataset):
        return {"/": result}
    datasets = {node.path: node.to_dataset(inherit=False) for node in result.subtree}
    return {path: one for path, one in datasets.items() if one.variables or one.attrs}


def main_part(result: xr.Dataset | xr.DataTree) -> xr.Dataset:
    """Return the dataset that speaks for a result: the comparison of a tree, else its first."""
    import xarray as xr

    parts = parts_of(result)
    return parts.get(f"/{JUDGE}", next(iter(parts.values()), xr.Dataset()))


def to_table(answer: xr.Dataset | xr.DataTree, *, per: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Return an answer of any kind as a tidy table: one row per direction, time or whatever `per` names.

    Parameters
    ----------
    answer : Dataset or DataTree
        What a solve, prediction, simulation, comparison, study or sweep returned, or `dynamics.load` read. Of a tree it
        is the group `comparison`, or else the first; ``tree["simulation"]`` is another.
    per : str or sequence of str, optional
        Dimensions of the answer; a row belongs to one value of each. By default those of the measured times
        (`emergence_time`, or else `aligned_time` or `learned_time`): one row per direction, in simulations per run and
        direction, in sweeps per point and direction. An answer without measured times has the dimensions that most of
        its variables have. An empty sequence asks for one row, of the values without dimensions.

    Returns
    -------
    DataFrame
        First a column for each dimension: its coordinate, or else the index from 0. Then every variable that depends on
        `per` alone; one that depends on a part of it is repeated. Numbers are not rounded, and dimensionless but for
        seconds of a clock; a time that was not reached is NaN, one that is predicted never is infinite.
        ``attrs["long_name"]`` says what each column is.

    Raises
    ------
    TypeError, ValueError
        If the answer is of another type, or lacks a dimension.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> answer = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 10.0]))
    >>> dynamics.to_table(answer)[["direction", "teacher_coefficient"]]
       direction  teacher_coefficient
    0          1                  0.8
    1          2                  0.6
    >>> list(dynamics.to_table(answer, per="time").columns)
    ['time', 'loss']
    """
    import pandas as pd

    dataset = _checked_dataset(answer)
    rows = _natural_rows(dataset) if per is None else _checked_rows(per, dataset)
    dataset = dataset.drop_vars(
        name
        for name, variable in dataset.variables.items()
        if not set(variable.dims) <= set(rows) or (rows and not variable.dims and name not in dataset.coords)
    )
    if rows:
        table = dataset.drop_dims(set(dataset.sizes) - set(rows)).to_dataframe(dim_order=list(rows)).reset_index()
    else:
        table = pd.DataFrame([{name: variable.values[()] for name, variable in dataset.variables.items()}])
    said = {name: dataset[name].attrs.get("long_name", "") for name in table.columns if name in dataset.variables}
    table.attrs["long_name"] = said
    return table


def csv_writer(result: xr.Dataset | xr.DataTree) -> Write:
    """Return what fills a file with the table of a result, one line per row under the names of the columns."""

    def write(path: Path) -> None:
        to_table(result).to_csv(path, index=False)

    return write


def _checked_dataset(answer: object) -> xr.Dataset:
    import xarray as xr

    if not isinstance(answer, (xr.Dataset, xr.DataTree)):
        msg = f"Argument `answer` must be a Dataset or DataTree, but is {type(answer).__name__}."
        raise TypeError(msg)
    return main_part(answer)


def _natural_rows(dataset: xr.Dataset) -> tuple[Hashable, ...]:
    measured = next((name for name in _TIMES if name in dataset), None)
    if measured is not None:
        return dataset[measured].dims
    counts = Counter(variable.dims for variable in dataset.data_vars.values() if variable.dims)
    return max(counts, key=counts.__getitem__, default=())


def _checked_rows(per: object, dataset: xr.Dataset) -> tuple[str, ...]:
    if not isinstance(per, Sequence) or not all(isinstance(name, str) for name in per):
        msg = f"Argument `per` must be a dimension or a sequence of them, but is {shown(per)}."
        raise TypeError(msg)
    names = (per,) if isinstance(per, str) else tuple(per)
    for name in names:
        if name not in dataset.sizes:
            known = ", ".join(map(str, dataset.sizes)) or "of which there are none"
            msg = f"Argument `per` must name dimensions of the answer, {known}, but has {shown(name)}."
            raise ValueError(msg)
    if len(set(names)) < len(names):
        msg = f"Argument `per` must name each dimension once, but is {shown(per)}."
        raise ValueError(msg)
    return names
