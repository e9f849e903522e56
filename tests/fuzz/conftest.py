"""A machine of two gigabytes, whatever the tests run on, so that enormous requests are refused by all alike."""

import pytest
from fuzz_guard import MOST_BYTES

from dynamics.problem import checks


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    monkeypatch.setattr(checks, "machine_memory", lambda: MOST_BYTES)
