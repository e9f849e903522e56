"""Steps, times and looks of a run; crossings located between looks."""

import pickle

import numpy as np
import pytest

from dynamics import SaveAt, piecewise, power_law_decay
from sgd_check.simulations.plan import make_plan


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (power_law_decay(0.2, 0.5, onset=4), [0.2 / (1 + s / 4) ** 0.5 for s in range(9)]),
        (power_law_decay(0.2, 0), [0.2] * 9),
        (piecewise([0.3, 0.2, 0.1], [2, 5]), [0.3] * 2 + [0.2] * 3 + [0.1] * 4),
        (piecewise([0.3], []), [0.3] * 9),
    ],
    ids=str,
)
def test_schedules_with_a_name_are_tabulated_as_their_values(schedule, expected):
    plan = make_plan(schedule, 9, None)
    np.testing.assert_allclose(plan.rates(0, 9), expected, rtol=1e-15)
    np.testing.assert_allclose([schedule(step) for step in range(9)], expected, rtol=1e-15)
    np.testing.assert_allclose(plan.times(np.arange(10)), np.concatenate([[0], np.cumsum(expected)]), rtol=1e-14)
    again = pickle.loads(pickle.dumps(schedule))
    assert plan.schedule == repr(schedule) == repr(again)
    np.testing.assert_array_equal(again.table(9), schedule.table(9))
    assert eval(repr(schedule), {"power_law_decay": power_law_decay, "piecewise": piecewise})(7) == schedule(7)


@pytest.mark.parametrize(
    ("make", "kind", "sentence"),
    [
        (lambda: power_law_decay(0.0, 1.0), ValueError, "Argument `initial` must be finite and positive, but is 0.0."),
        (lambda: power_law_decay(0.1, -1.0), ValueError, "Argument `exponent` must be finite and at least 0, but is -1.0."),
        (lambda: power_law_decay(0.1, 1.0, onset=np.inf), ValueError, "Argument `onset` must be finite and positive, but is inf."),
        (lambda: power_law_decay("x", 1.0), TypeError, "Argument `initial` must be a real number, but is 'x'."),
        (lambda: piecewise([0.1, -0.2], [3]), ValueError, "Argument `rates` must be finite and positive, but is -0.2."),
        (lambda: piecewise([0.1, 0.2], []), ValueError, "Argument `boundaries` must have one entry fewer than the 2 rates, but has 0."),
        (lambda: piecewise([0.1, 0.2, 0.3], [5, 5]), ValueError, "Argument `boundaries` must increase, but is [5, 5]."),
        (lambda: piecewise([0.1, 0.2], [0]), ValueError, "Argument `boundaries` must be at least 1, but is 0."),
    ],
)  # fmt: skip
def test_schedules_refuse_what_is_none(make, kind, sentence):
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("rate", "steps", "save_at", "kind", "sentence"),
    [
        (0.0, 10, None, ValueError, "Argument `learning_rate` must be finite and positive, but is 0.0."),
        ("fast", 10, None, TypeError, "Argument `learning_rate` must be a number or a function of the step, but is 'fast'."),
        (lambda step: 1.0 - step, 10, None, ValueError, "Argument `learning_rate` must be finite and positive at every step, but is 0.0 at step 1."),
        (lambda step: None, 10, None, TypeError, "Argument `learning_rate` must return a number for every step, but does not."),
        (0.1, 0, None, ValueError, "Argument `steps` must be at least 1, but is 0."),
        (0.1, 10, SaveAt.at([2.0]), ValueError, "Argument `save_at` must end by time 1, where the last step ends, but ends at 2."),
        (0.1, 10, SaveAt.at([0.5, 0.51]), ValueError, "Argument `save_at` must have times at least one step apart, but two of them fall on one step."),
        (0.1, 10, [0.5], TypeError, "Argument `save_at` must be a SaveAt, such as SaveAt.at([...]), but is [0.5]."),
    ],
)  # fmt: skip
def test_refusals_say_what_must_hold_and_what_was_given(rate, steps, save_at, kind, sentence):
    with pytest.raises(kind) as caught:
        make_plan(rate, steps, save_at)
    assert str(caught.value) == sentence
