"""Flipped bits and cut ends: a sentence, or the numbers that were written; 340 files with FULL_TESTS=1."""

import warnings

import numpy as np
import pytest
from changed_files import FINISHED, SAMPLE, UNFINISHED, cases, cases_of_sweep, rewritten, written
from fuzz_guard import report
from fuzz_tiers import FULL


@pytest.mark.longer
@pytest.mark.timeout(1800)
def test_changed_files_are_refused_or_right(tmp_path, record_property):
    kinds = {("unfinished", name) for name in UNFINISHED} | {("finished", name) for name in FINISHED}
    rng, number = np.random.default_rng(11), {} if FULL else {"flips": 5, "cuts": 2}
    with warnings.catch_warnings(action="ignore"):
        paths = rewritten(tmp_path, kinds if FULL else SAMPLE) | (written(tmp_path) if FULL else {})
        judged = {label: judge() for label, judge in cases(paths, tmp_path, rng, **number)}
        judged |= {label: judge() for label, judge in cases_of_sweep(tmp_path, rng, **number)}
    complaints = {label: text for label, text in judged.items() if text is not None}
    record_property("bad inputs: changed files", len(judged))
    assert len(judged) == (340 if FULL else 28)
    assert not complaints, report(complaints)
