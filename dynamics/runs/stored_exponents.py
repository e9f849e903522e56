"""The asymptotic exponents of the problem that a stored result answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dynamics.problem.teacher import geometric_ratio
from dynamics.theory.asymptotics import AsymptoticExponents, asymptotic_exponents

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["stored_beta", "stored_exponents"]


def stored_beta(dataset: xr.Dataset) -> float | None:
    """Return the declared decay β of the teacher's coefficients, or None."""
    beta: float | None = json.loads(dataset.attrs["parameters"])["problem"]["beta"]
    return beta


def stored_exponents(dataset: xr.Dataset) -> AsymptoticExponents:
    """Return the asymptotic exponents of the problem that a dataset answers."""
    return asymptotic_exponents(
        dataset.attrs["information_exponent"],
        stored_beta(dataset),
        ratio=geometric_ratio(dataset["teacher_coefficient"].values),
    )
