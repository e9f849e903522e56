"""The calibration of verdicts on networks, two ensembles of 40: the right flow agrees, flows wrong by 30 % do not."""

import pytest

from benchmarks.network_verdicts import verdicts


@pytest.mark.thorough
def test_two_ensembles_of_a_relu_network():
    """Seeds are fixed. All 40 ensembles of the whole calibration had these verdicts: docs/verdict.md."""
    found = verdicts("relu", range(2))
    assert found.pop("right") == {"agree": 2}
    assert all(count == {"disagree": 2} for count in found.values())
