"""What flow time is in samples of online SGD."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dynamics.problem import Problem
from dynamics.theory.learning_rates import learning_rate_limit

if TYPE_CHECKING:
    import xarray as xr

#: From this number on a count of samples is written with a power of ten.
LONG_COUNT = 1e7


def samples_of_one(dataset: xr.Dataset) -> tuple[float, str] | None:
    """Return how many samples one unit of flow time is, and at which learning rate; None where no rate is known.

    The rate is that of the answer, and a tenth of `learning_rate_limit` for a flow, which has none.
    """
    attrs = dataset.attrs
    if "step_theory" in attrs:
        rate, size = float(attrs["learning_rate"]), int(attrs["batch_size"])
        return size / rate, f"learning rate {rate:.3g}" + ("" if size == 1 else f" and {size} samples per step")
    try:
        limit = learning_rate_limit(Problem.from_dataset(dataset))
    except ValueError:  # c_1 ≠ 0, oblique directions, or another student
        return None
    return 10.0 / limit, f"learning rate {limit / 10.0:.3g}, a tenth of the largest stable one"


def samples_in_words(dataset: xr.Dataset) -> list[str]:
    """Say what flow time is in samples, with numbers where a learning rate is known; of steps that are exact, nothing.

    The last emergence is the example.
    """
    if "learning_rate" in dataset.attrs and "step_theory" not in dataset.attrs:
        return []  # gradient descent on the mean loss draws no samples
    one = samples_of_one(dataset)
    if one is None:
        return ["Flow time is learning rate times steps of SGD."]
    count, rate = one
    said = [f"Flow time in samples of SGD: t = 1 is {count_text(count)} at {rate}."]
    late = [time for time in dataset["emergence_time"].values.tolist() if 0.0 < time < math.inf]
    if late:
        said.append(f"The last emergence, t = {max(late):.5g}, is after {count_text(count * max(late))} samples.")
    return said


def count_text(count: float) -> str:
    """Return a number of samples with three digits that count.

    Examples
    --------
    >>> count_text(26041.7), count_text(123456789.0)
    ('26,000', '1.23e+08')
    """
    return f"{count:.3g}" if count >= LONG_COUNT else f"{float(f'{count:.3g}'):,.0f}"
