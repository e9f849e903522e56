"""The full model of the trigger task: gradient descent on all sequences against the reduction, and the verdict."""

import itertools

import numpy as np
import pytest
import torch
from test_token_runs import descended, held, mapped, weighted

import sgd_check.tokens
from dynamics import tokens
from sgd_check.tokens.simulation import model_of

CPU, S = torch.device("cpu"), 2
GAPS = {"symbols": S, "gaps": [1, 2, 3], "gap_weights": [0.5, 0.3, 0.2]}


def all_sequences(longest):
    """Every sequence of the three gaps, its gap, answer and probability."""
    found = []
    for at, (gap, weight) in enumerate(zip(GAPS["gaps"], GAPS["gap_weights"], strict=True)):
        for symbols in itertools.product(range(S), repeat=2 * gap + 1):
            sequence = [*symbols[:gap], S, *symbols[gap:], S]
            padded = sequence + [0] * (longest - len(sequence))
            found.append((padded, at, symbols[gap], weight / S ** (2 * gap + 1)))
    tokens_, at, answers, probability = zip(*found, strict=True)
    return [torch.tensor(part) for part in (tokens_, at, answers)], torch.tensor(probability, dtype=torch.float64)


@pytest.mark.parametrize("triggers", [1, 3])
@pytest.mark.parametrize("steps", [100, pytest.param(300, marks=pytest.mark.long)])
def test_gradient_descent_is_the_map(steps, triggers):
    problem = tokens.TriggerTask(**GAPS, triggers=triggers)
    inputs, probability = all_sequences(9)
    assert float(probability.sum()) == pytest.approx(1.0)
    model, system = weighted(model_of(problem, [0], CPU), probability), tokens.system_of(problem)
    a, b, B = descended(model, inputs, steps, 0.5)
    state = mapped(system, steps, 0.5)
    np.testing.assert_allclose([*a, *b], state[[1, 1, 0, 3, 3, 2, 4]], atol=1e-12)
    places = [B.reshape(3, 9)[at, : 2 * gap + 3] for at, gap in enumerate(GAPS["gaps"])]
    np.testing.assert_allclose(np.sqrt(triggers) * np.concatenate(places), state[5:], atol=1e-12)
    loss = float(model.sample_losses([part[None] for part in inputs]).detach().mean())
    assert loss == pytest.approx(system.observe(state)["loss"], abs=1e-12)
    del model.sample_losses
    _, progress = model.measured()
    np.testing.assert_allclose(progress[0], system.learning(state)[1], atol=1e-12)


def test_several_triggers_are_one_with_faster_positions():
    # Rows of scores of their own for each of three triggers, and positions that all share, sqrt(κ) nowhere.
    (sequences, at, answers), probability = all_sequences(9)
    lengths = 2 * torch.tensor(GAPS["gaps"])[at] + 3
    beyond = torch.arange(9) >= lengths[:, None]
    a, b, B = (torch.zeros(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5), (3, 6), (3, 9)))
    for _ in range(100):
        loss = torch.zeros(())
        for which in range(3):
            z = torch.where(sequences == S, S + which, sequences)
            before = torch.cat([torch.full((len(z), 1), S + 3), z[:, :-1]], dim=1)
            A = torch.softmax((a[which][z] + b[which][before] + B[at]).masked_fill(beyond, -torch.inf), dim=1)
            loss = loss - (probability / 3 * (A * (z == answers[:, None])).sum(dim=1)).sum()
        with torch.no_grad():
            for part, gradient in zip((a, b, B), torch.autograd.grad(loss, (a, b, B)), strict=True):
                part.sub_(3 * 0.5 * gradient)
    state = mapped(tokens.system_of(tokens.TriggerTask(**GAPS, triggers=3)), 100, 0.5)
    for which in range(3):
        found = [a[which, S + which], a[which, 0], b[which, S + which], b[which, 1], b[which, S + 3]]
        np.testing.assert_allclose([each.detach() for each in found], state[:5], atol=1e-12)
    places = torch.cat([B[row, : 2 * gap + 3] for row, gap in enumerate(GAPS["gaps"])])
    np.testing.assert_allclose(places.detach(), state[5:], atol=1e-12)


def test_runs_agree_with_the_prediction_and_refute_others():
    problem = tokens.TriggerTask(symbols=20, gaps=[2, 3])
    prediction = tokens.solve(problem, progress=False)
    runs = sgd_check.tokens.simulate(problem, learning_rate=0.1, steps=90, batch_size=32, seeds=8, progress=False)
    fewer = tokens.solve(tokens.TriggerTask(symbols=4, gaps=[2, 3]), progress=False).learned_time
    more = tokens.solve(tokens.TriggerTask(symbols=20, gaps=[2, 3], triggers=1.5), progress=False).learned_time
    held(prediction, runs, *({"learned_time": wrong} for wrong in (prediction.learned_time * 1.1, fewer, more)))
