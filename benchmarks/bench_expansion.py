"""Hermite expansion of links given in every form that is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hermite

LINKS: dict[str, object] = {
    "name of a polynomial, 'he4'": "he4",
    "dict of coefficients": {4: 0.8, 6: 0.6},
    "name with a closed form, 'relu'": "relu",
    "text, 'tanh(z)'": "tanh(z)",
    "callable, numpy.tanh": np.tanh,
}


@pytest.mark.benchmark(group="expansion")
@pytest.mark.parametrize("name", LINKS)
def test_expand(benchmark: Any, name: str) -> None:
    """The first call, which fills the tables of quadrature nodes, is not counted."""
    benchmark.extra_info["name"] = name
    benchmark.pedantic(lambda: hermite.expand(LINKS[name]), rounds=5, warmup_rounds=1)
