"""The full model of selection: gradient descent against the reduction, and runs against the prediction."""

import itertools

import numpy as np
import pytest
import torch
from test_token_runs import CPU, descended, held, mapped

import sgd_check.tokens
from dynamics import tokens
from sgd_check.tokens.simulation import model_of


@pytest.mark.parametrize(("q", "heads", "steps"), [(2, 2, 600), (1, 1, 300), (2, 3, 100)])
def test_gradient_descent_of_selection_is_the_map(q, heads, steps):
    N, rate = 5, 0.4
    problem = tokens.Selection(tokens=N, selected=q, heads=heads, initial_scale=0.3 * (heads > 1))
    model, system = model_of(problem, [0], CPU), tokens.system_of(problem)
    prompts = torch.tensor(list(itertools.permutations(range(N), q)))
    x = torch.as_tensor(np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0]) * N**0.5
    inputs = [prompts, x.expand(len(prompts), N, N)]
    values, scores = descended(model, inputs, steps, rate)
    state = mapped(system, steps, rate)
    U, delta = system.parts(state)
    np.testing.assert_allclose(values, U, atol=1e-12)
    on, off = scores[..., np.eye(N, dtype=bool)], scores[..., ~np.eye(N, dtype=bool)]
    assert max(np.ptp(on, axis=2).max(), np.ptp(off, axis=2).max()) < 1e-12
    np.testing.assert_allclose(on[..., 0] - off[..., 0], delta, atol=1e-12)
    loss, attention = system.learning(state)
    assert float(model.sample_losses([part[None] for part in inputs]).detach().mean()) == pytest.approx(loss, abs=1e-12)
    measured = model.measured()
    assert float(measured[0][0]) == pytest.approx(loss, abs=1e-12)
    np.testing.assert_allclose(measured[1][0], attention, atol=1e-12)
    assert attention.max() > 0.6


def test_scores_of_a_head_act_on_positions_as_written():
    # Two slots, two heads, by explicit loops; d does not matter.
    problem = tokens.Selection(tokens=4, selected=2, heads=2, initial_scale=1.0)
    model = model_of(problem, [0, 1], CPU)
    rng = np.random.default_rng(2)
    K = rng.standard_normal((2, 2, 2, 4, 4))
    model.scores.data[:] = torch.as_tensor(K)
    x = rng.standard_normal((1, 4, 3))
    prompt = torch.tensor([[2, 0]])
    found = model.sample_losses([prompt[None], torch.as_tensor(x)[None]]).detach().numpy()
    U = problem.start()[0]
    for seed in range(2):
        outputs = np.zeros((2, 3))
        for h in range(2):
            weights = np.exp(K[seed, h, 0, 2] + K[seed, h, 1, 0])
            outputs += np.outer(U[:, h], weights / weights.sum() @ x[0])
        assert found[seed, 0] == pytest.approx(0.5 * ((outputs - x[0, [2, 0]]) ** 2).sum() / 3, rel=1e-12)


def test_runs_of_selection_agree_with_the_prediction_and_not_with_wrong_ones():
    problem = tokens.Selection(tokens=6, selected=1, heads=1)
    prediction = tokens.solve(problem, progress=False)
    runs = sgd_check.tokens.simulate(problem, learning_rate=0.4, steps=160, batch_size=32, seeds=8, progress=False)
    more = tokens.solve(tokens.Selection(tokens=7, selected=1, heads=1), progress=False).learned_time.values
    wrong = (1.1 * prediction.learned_time.values, prediction.predicted_learned_time.values, more)
    held(prediction, runs, *({"learned_time": ("component", times)} for times in wrong))
