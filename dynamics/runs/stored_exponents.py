"""The asymptotic exponents of the problem that a stored result answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dynamics.problem.teacher import geometric_ratio
from dynamics.theory.asymptotics import AsymptoticExponents, asymptotic_exponents

if TYPE_CHECKING:
    import xarray as xr


def stored_exponents(dataset: xr.Dataset) -> AsymptoticExponents:
    """Return the asymptotic exponents of the problem that a dataset answers."""
    problem = json.loads(dataset.attrs["parameters"])["problem"]
    inputs = problem.get("inputs")
    return asymptotic_exponents(
        dataset.attrs["information_exponent"],
        problem["beta"],
        ratio=geometric_ratio(dataset["teacher_coefficient"].values),
        alpha=0.0 if inputs is None else None if "teacher_direction" in dataset else inputs["alpha"],
    )
