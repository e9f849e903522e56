"""Weak-to-strong generalisation: accepted numbers, the curve against drawn students, and refusals."""

import numpy as np
import pytest

import dynamics
import sgd_check

FIELDS = {"weak_features": 30, "strong_features": 20, "samples": 60, "pseudo_labels": 200}
TIMES = [0.5, 1.0, 2.0, 4.0, 8.0]


def pair(shared=5, more=(), **fields):
    return dynamics.WeakToStrong(correlations=[1.0] * shared + list(more), **(FIELDS | fields))


def test_means_have_the_accepted_numbers():
    found = dynamics.predict_weak_to_strong(pair())
    assert found[:3] == pytest.approx((1.0345, 0.2687, 0.5128), abs=6e-5)
    assert dynamics.predict_weak_to_strong(pair(15)).weak_to_strong == pytest.approx(0.5750, abs=6e-5)
    partly = pair(5, [0.6] * 10, pseudo_labels=100)
    assert partly.overlap == pytest.approx(5.0 + 3.6)
    assert dynamics.predict_weak_to_strong(partly).weak_to_strong == pytest.approx(0.4834, abs=6e-5)
    # Noise scales all of them; a student with the teacher's features is no better than it.
    same = pair(20, weak_features=20, pseudo_labels=1000, label_noise=2.0)
    found = dynamics.predict_weak_to_strong(same)
    assert found.weak_to_strong == pytest.approx(found.weak)
    assert found.strong == pytest.approx(4.0 * 0.5128, abs=3e-4)


def test_early_stopping_beats_the_end():
    found = dynamics.predict_weak_to_strong(pair(), TIMES)
    np.testing.assert_allclose(found.risk, [0.4261, 0.2627, 0.2205, 0.2505, 0.2667], atol=6e-5)
    late = dynamics.predict_weak_to_strong(pair(), [1e6])
    # Marchenko and Pastur at 20 features: 0.002 off the exact mean.
    assert float(late.risk[0]) == pytest.approx(late.weak_to_strong, abs=2e-3)
    assert found.risk.min() < late.weak_to_strong
    assert dynamics.predict_weak_to_strong(pair(), [0.0]).risk[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("problem", "accepted", "draws"),
    [
        (pair(), (0.2695, 0.0025), 300),
        pytest.param(pair(), (0.2695, 0.0025), 4000, marks=pytest.mark.long),
        pytest.param(pair(15), (0.5764, 0.004), 4000, marks=pytest.mark.long),
        pytest.param(pair(5, [0.6] * 10, pseudo_labels=100), (0.4836, 0.004), 4000, marks=pytest.mark.long),
    ],
    ids=["5 shared, few", "5 shared", "15 shared", "10 partly"],
)
def test_drawn_students_have_the_predicted_risks(problem, accepted, draws):
    drawn = sgd_check.draw_weak_to_strong(problem, draws=draws, times=TIMES, seed=1)
    law = dynamics.predict_weak_to_strong(problem, TIMES)
    for name in ("weak", "weak_to_strong", "strong", "risk"):
        measured = np.array([getattr(each, name) for each in drawn])
        error = measured.std(axis=0, ddof=1) / np.sqrt(len(drawn))
        # 4.5 standard errors: a false alarm in 18,000 for all eight; 3e-3 for the curve, of which 2e-3 is its law's.
        tolerance = 4.5 * error + (3e-3 if name == "risk" else 0.0)
        np.testing.assert_array_less(np.abs(measured.mean(axis=0) - getattr(law, name)), tolerance)
        if name == "weak_to_strong":
            # The page has the mean of two seeds of 4000 draws, and the error of one.
            assert abs(measured.mean() - accepted[0]) < 4.5 * np.hypot(error, accepted[1] / np.sqrt(2.0))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"samples": 31}, "Argument `samples` must be at least 32, two more than the features, because the mean is infinite below, but is 31."),
        ({"pseudo_labels": 21}, "Argument `pseudo_labels` must be at least 22, two more than the features, because the mean is infinite below, but is 21."),
        ({"correlations": [1.5]}, "Argument `correlations` must be at most 1, but is 1.5."),
        ({"correlations": [1.0] * 21}, "Argument `strong_features` must be at least 21, the number of correlations, but is 20."),
        ({"correlations": [0.5]}, "Argument `target_norm` must be 0 without a shared feature of correlation 1, in which the target lies, but is 1.0."),
        ({"label_noise": -1.0}, "Argument `label_noise` must be finite and at least 0, but is -1.0."),
    ],
)  # fmt: skip
def test_bad_pairs_get_one_sentence(fields, sentence):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        dynamics.WeakToStrong(**({"correlations": [1.0]} | FIELDS | fields))
    assert str(caught.value) == sentence


def test_bad_times_and_problems_get_one_sentence():
    with pytest.raises(ValueError, match=r"^Argument `times` must be a list of finite numbers of at least 0, but is"):
        dynamics.predict_weak_to_strong(pair(), [-1.0])
    with pytest.raises(TypeError, match=r"^Argument `problem` must be a WeakToStrong, but is 3"):
        dynamics.predict_weak_to_strong(3)
