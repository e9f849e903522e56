"""Settings shared by all tests: strict floating point, no figure windows, one hypothesis profile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

hypothesis.settings.register_profile("project", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("project")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240416)


@pytest.fixture(autouse=True)
def _strict_floating_point() -> Iterator[None]:
    with np.errstate(all="raise", under="ignore"):
        yield
