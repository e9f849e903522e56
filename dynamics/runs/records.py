"""What a run observes at its saved times, in arrays as long as the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hermite.arrays import Array


class Records:
    """Records along time, in front of the dims of each observable; NaN where no time was reached.

    Arrays for `capacity` saved times are made at the first record, so that millions of records cost no object each, and
    need not be stacked at the end. `begun` holds the first of them.
    """

    def __init__(self, capacity: int, begun: Records | None = None) -> None:
        self._capacity = capacity
        #: Observables by name, each of shape (capacity, …); empty before the first record.
        self.columns: dict[str, Array] = {}
        self._count = 0
        if begun is not None and len(begun) > 0:
            self._allocate(begun[0])
            for name, column in begun.columns.items():
                self.columns[name][: len(begun)] = column[: len(begun)]
            self._count = len(begun)

    @classmethod
    def of(cls, columns: Mapping[str, Array], count: int) -> Records:
        """Return the first `count` records of arrays that hold them already."""
        records = cls(count)
        records.columns, records._count = dict(columns), count
        return records

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record of the same observables."""
        if not self.columns:
            self._allocate(record)
        for name, value in record.items():
            self.columns[name][self._count] = value
        self._count += 1

    def extend(self, records: Mapping[str, Array]) -> None:
        """Add records of the same observables, each observable an array with its records along the first axis."""
        count = len(next(iter(records.values())))
        if count == 0:
            return
        if not self.columns:
            self._allocate({name: values[0] for name, values in records.items()})
        for name, values in records.items():
            self.columns[name][self._count : self._count + count] = values
        self._count += count

    def drop_after(self, count: int) -> None:
        """Leave the first `count` records alone."""
        for column in self.columns.values():
            column[count : self._count] = np.nan
        self._count = count

    def so_far(self) -> Records:
        """Return those that are there now; the arrays are shared, since what is in them stays as it is."""
        return Records.of(self.columns, self._count)

    def _allocate(self, record: Mapping[str, Any]) -> None:
        self.columns = {name: np.full((self._capacity, *np.shape(value)), np.nan) for name, value in record.items()}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> dict[str, Any]:
        place = range(self._count)[at]
        return {name: column[place] for name, column in self.columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[at] for at in range(self._count))
