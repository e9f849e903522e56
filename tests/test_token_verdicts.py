"""The calibration of verdicts on models of tokens, two ensembles of 100: theory agrees, wrong theories do not."""

import json

import pytest

from benchmarks.token_verdicts import CASES, ENSEMBLES, TARGET, verdicts


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_two_ensembles_of_each_case(name):
    """Seeds are fixed. The whole calibration is in the file beside its script."""
    found = verdicts(CASES[name], 2)
    assert found.pop("right") == {"agree": 2}
    assert len(found) == 3
    assert all(count == {"disagree": 2} for count in found.values())


def test_the_whole_calibration_accepts_theory_and_refutes_what_is_wrong():
    stored = json.loads(TARGET.read_text(encoding="utf-8"))
    assert set(stored) == set(CASES)
    for name, found in stored.items():
        assert set(found) == {"right", *CASES[name].wrong}
        right = found.pop("right")
        assert right["agree"] > 0.5 * ENSEMBLES  # the rest is undecided
        assert right.get("disagree", 0) == 0
        assert all(count == {"disagree": ENSEMBLES} for count in found.values()), name
