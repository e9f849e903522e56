"""The a-posteriori errors, from two runs whose records are written down here."""

import numpy as np

from dynamics.runs.companion import estimated_errors, event_errors
from dynamics.runs.loop import RunResult
from dynamics.runs.records import Records
from dynamics.runs.trackers import StopReason

NEVER = np.nan


def result(losses, events, reason=StopReason.REACHED_END):
    records = Records(4)
    for loss in losses:
        records.append({"loss": loss})
    return RunResult(records=records, stop_reason=reason, event_times=np.array(events))


def test_errors_are_twice_the_differences():
    own = result([1.0, 0.5, 0.25], [1.0, 10.0, NEVER, NEVER])
    looser = result([1.0, 0.4, 0.3], [1.1, 9.0, 20.0, NEVER])
    loss, events = estimated_errors(own, looser, 4)
    np.testing.assert_allclose(loss, [0.0, 0.2, 0.1, np.nan], rtol=1e-12)
    np.testing.assert_allclose(events[:2], [0.2, 2.0], rtol=1e-12)
    np.testing.assert_array_equal(events[2:], [np.inf, NEVER])


def test_whether_something_happens_is_open_only_if_both_runs_ended():
    own, looser = result([1.0], [NEVER, 1.0], StopReason.CALLBACK), result([1.0], [2.0, 1.0])
    assert np.isnan(estimated_errors(own, looser, 1)[1][0])


def test_no_time_is_taken_for_more_accurate_than_the_median():
    times, looser = np.array([1.0, 10.0, 100.0, 0.0]), np.array([1.0, 10.1, 103.0, 0.0])
    # Relative differences 0, 0.01 and 0.03: the first is raised to the second.
    np.testing.assert_allclose(event_errors(times, looser), [0.02, 0.2, 6.0, 0.0], rtol=1e-12)
