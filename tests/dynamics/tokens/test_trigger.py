"""The trigger task: numbers of its reduction, the conserved one, attention out of distribution."""

import itertools

import numpy as np
import pytest

import dynamics
from dynamics import SaveAt, tokens
from dynamics.tokens.answers import system_of
from dynamics.tokens.system import TOKEN_VARIABLES


def solved(times, learning_rate, **fields):
    return tokens.solve(tokens.TriggerTask(**fields), SaveAt.at(times), learning_rate, progress=False)


@pytest.mark.kernels
def test_the_shortcut_wins_above_kappa_r_of_1():
    def moved(gaps, triggers):
        found = solved([0.0, 20000.0], 5.0, symbols=50, gaps=gaps, triggers=triggers, shift=2)
        return found.moved_attention.sel(gap=8)[-1].values.tolist(), float(found.kappa_R[-1])

    # The page gives attention to three digits and κR to two.
    for gaps, triggers, attention in (
        ([8], 1, (0.434, 0.556)),
        ([8], 2, (0.008, 0.991)),
        ([8, 9], 1, (0.983, 0.014)),
        ([8, 9], 2, (0.451, 0.539)),
        ([8, 9], 4, (0.008, 0.990)),
    ):
        assert moved(gaps, triggers)[0] == pytest.approx(attention, abs=6e-4)
    for triggers, attention, kappa_R in (
        (4, (0.985, 0.013), 0.54),
        (8, (0.475, 0.516), 1.06),
        (16, (0.009, 0.990), 2.09),
    ):
        found = moved(range(6, 14), triggers)
        assert found[0] == pytest.approx(attention, abs=6e-4)
        assert found[1] == pytest.approx(kappa_R, abs=6e-3)


@pytest.mark.kernels
def test_r_falls_since_frequent_gaps_saturate():
    found = solved(
        [0.0, 1500.0, 13500.0], 5.0, symbols=50, gaps=[4, 8, 12, 16], gap_weights=[0.7, 0.1, 0.1, 0.1]
    )  # fmt: skip
    np.testing.assert_allclose(found.kappa_R, [0.837, 0.376, 0.339], atol=6e-4)
    # At the start R is that of the first step, from which it goes on.
    soon = solved([0.0, 1e-4], None, symbols=50, gaps=[4, 8, 12, 16], gap_weights=[0.7, 0.1, 0.1, 0.1])
    assert float(soon.kappa_R[1]) == pytest.approx(float(soon.kappa_R[0]), rel=1e-4)


@pytest.mark.parametrize(("triggers", "expected"), [(1, 3.552877), (3, 2.633573)])
@pytest.mark.kernels
def test_the_head_gets_the_mean_of_the_shortcuts(triggers, expected):
    fields = {"symbols": 2, "gaps": [1, 2, 3], "gap_weights": [0.5, 0.3, 0.2], "triggers": triggers}
    found = solved([0.0, 75.0, 150.0], 0.5, **fields)
    head = found.state.sel(number="after trigger")
    assert float(head[-1]) == pytest.approx(expected, abs=6e-7)
    shortcuts = found.state.sel(number=[f"gap {gap}, key {gap + 2}" for gap in (1, 2, 3)])
    np.testing.assert_allclose(shortcuts.sum("number") / triggers, head, atol=1e-13)
    np.testing.assert_allclose(triggers * shortcuts.max("number")[1:] / shortcuts.sum("number")[1:], found.kappa_R[1:])


@pytest.mark.kernels
def test_the_flow_is_that_of_another_integrator():
    # All in numpy, from the scores of every key: G = P A (u − F).
    from scipy.integrate import solve_ivp

    S, gaps, P, kappa = 7, [2, 4], [0.4, 0.6], 2.5

    def rows(y):
        first = 5
        for gap, weight in zip(gaps, P, strict=True):
            T = 2 * gap + 3
            a = np.where(np.isin(np.arange(T), [gap, T - 1]), 0, 1)
            b = np.select([np.arange(T) == 0, np.arange(T) == gap + 1], [4, 2], 3)
            u = np.where(np.arange(T) == gap + 1, 1.0, np.where(a == 0, 0.0, 1.0 / S))
            A = np.exp(y[a] + y[b] + y[first : first + T])
            A /= A.sum()
            yield slice(first, first + T), a, b, weight * A * (u - A @ u), A, weight * A @ u
            first += T

    def field(_, y):
        found, shares = np.zeros_like(y), np.array([1.0, 1.0 / S, 1.0, 1.0 / S, 1.0])
        for own, a, b, G, _, _ in rows(y):
            found[own] = kappa * G
            np.add.at(found, a, shares[a] * G)
            np.add.at(found, b, shares[b] * G)
        return found

    problem = tokens.TriggerTask(symbols=S, gaps=gaps, gap_weights=P, triggers=kappa)
    found = tokens.solve(problem, SaveAt.at([0.0, 30.0]), progress=False)
    end = solve_ivp(field, (0.0, 30.0), np.zeros(5 + 7 + 11), rtol=1e-11, atol=1e-13).y[:, -1]
    np.testing.assert_allclose(found.state[-1], end, atol=1e-8)
    for at, (_, _, _, _, A, _) in enumerate(rows(end)):
        np.testing.assert_allclose(found.attention[-1, at, : A.size], A, atol=1e-8)
        assert (found.attention[-1, at, A.size :] == 0.0).all()
    assert float(found.loss[-1]) == pytest.approx(-sum(F for *_, F in rows(end)), abs=1e-8)
    right = np.array([A[gap + 1] for gap, (_, _, _, _, A, _) in zip(gaps, rows(end), strict=True)])
    np.testing.assert_allclose(found.progress[-1], (right * [7, 11] - 1) / [6, 10], atol=1e-8)


@pytest.mark.kernels
def test_every_gap_is_learned_at_half_progress():
    problem = tokens.TriggerTask(symbols=20, gaps=[2, 5])
    found = tokens.solve(problem, progress=False)
    np.testing.assert_allclose(found.attention.sum("key"), 1.0)
    for at, time in enumerate(found.learned_time.values):
        half = tokens.solve(problem, SaveAt.at([0.0, time]), progress=False)
        assert float(half.progress[-1, at]) == pytest.approx(0.5, abs=1e-8)
    assert np.isnan(tokens.predict(problem).predicted_learned_time).all()


def test_the_shifted_trigger_is_read_at_its_place():
    system = system_of(tokens.TriggerTask(symbols=5, gaps=[3], shift=3))
    state = np.zeros(system.initial_state.size)
    state[2] = 50.0  # after the trigger
    assert system.summarise(state)["moved_attention"][0].tolist() == pytest.approx([1.0, 0.0])
    state[5 + 4] = 100.0  # where the answer was in training
    assert system.summarise(state)["moved_attention"][0].tolist() == pytest.approx([0.0, 1.0])
    state[4] = 200.0  # the first key, which is the trigger itself
    assert system.summarise(state)["moved_attention"][0].tolist() == pytest.approx([0.0, 0.0])


def test_files_and_reports_have_what_it_saves(tmp_path):
    found = tokens.solve(tokens.TriggerTask(symbols=20, gaps=[2, 5]), SaveAt.linear(0.0, 8.0, 9), progress=False)
    assert all(TOKEN_VARIABLES[name].dims == found[name].dims for name in found.variables)
    again = dynamics.load(dynamics.save(found, tmp_path / "found.nc"))
    assert again.identical(found)
    page = dynamics.write_report(again, tmp_path / "found.html").read_text(encoding="utf-8")
    right, shortcut = found.moved_attention[-1].mean("gap").values
    assert f"right key is {right:.3g} and to the place of training {shortcut:.3g}." in page
    assert f"At the end κR is {float(found.kappa_R[-1]):.3g}, " in page


def test_content_finds_the_key_at_other_lengths():
    fields = {"symbols": 3, "gaps": [1, 3], "triggers": 2}
    found = solved([0.0, 40.0], 0.5, **fields, test_length=6)
    a_t, a_o, b_t, b_o, b_start = found.state.values[-1, :5]
    # Every sequence x, t, o, y, z, t of six tokens by itself: f[o] of a model whose positions have no scores.
    losses = []
    for x, o, y, z in itertools.product(range(3), repeat=4):
        sequence = [x, "t", o, y, z, "t"]
        scores = [
            (a_t if token == "t" else a_o) + (b_start if s == 0 else b_t if sequence[s - 1] == "t" else b_o)
            for s, token in enumerate(sequence)
        ]
        weights = np.exp(scores) / np.exp(scores).sum()
        losses.append(-sum(w for w, token in zip(weights, sequence, strict=True) if token == o))
    assert float(found.test_loss[-1]) == pytest.approx(np.mean(losses), rel=1e-12)
    assert float(found.test_attention[-1]) == pytest.approx(weights[2], rel=1e-12)
    assert float(found.test_attention[0]) == pytest.approx(1.0 / 6.0)
    with pytest.raises(ValueError, match=r"^Argument `test_length` must be no length of training, at which positions"):
        tokens.TriggerTask(**fields, test_length=9)
