"""The full model of the chain of thought: descent of all weights against three numbers, runs, and the verdict."""

import itertools

import numpy as np
import pytest
import torch
from test_token_runs import descended, mapped

import sgd_check.tokens
from dynamics import tokens
from sgd_check.tokens.simulation import model_of

CPU = torch.device("cpu")


def test_descent_of_all_weights_is_the_map_of_three():
    # One X under all signed permutations, with w* = ±√3 e_i: the mean keeps the symmetry of Gaussian inputs.
    problem = tokens.ChainOfThought(dimension=3, examples=5, steps=3, rate=0.3)
    X = np.random.default_rng(2).normal(size=(5, 3))
    signed = [
        np.eye(3)[list(order)] * signs
        for order, signs in itertools.product(itertools.permutations(range(3)), itertools.product([1, -1], repeat=3))
    ]
    x = torch.tensor(np.array([X @ turn for turn in signed for _ in range(6)]))
    w = torch.tensor(np.tile(np.sqrt(3.0) * np.concatenate([np.eye(3), -np.eye(3)]), (len(signed), 1)))
    V, W = descended(model_of(problem, [0], CPU), [x, w], 400, 0.1)
    system, S = tokens.system_of(problem), X.T @ X / 5
    P = [np.eye(3) - np.linalg.matrix_power(np.eye(3) - 0.3 * S, k) for k in range(3)]
    system.parameters[:3] = [
        sum(np.trace(S @ S @ p @ p) for p in P) / 3, sum(np.trace(S @ S @ p) for p in P) / 3, np.trace(S @ S),
    ]  # fmt: skip
    a, b, c = mapped(system, 400, 0.1)
    assert a > 0.2
    assert b < -0.1
    values, keys = np.zeros((8, 8)), np.zeros((8, 8))
    values[4:7, :3], keys[:3, 4:7], keys[3, 7] = a * np.eye(3), b * np.eye(3), c
    np.testing.assert_allclose(V, values, atol=1e-13)
    np.testing.assert_allclose(W, keys, atol=1e-13)


@pytest.fixture(scope="module")
def held():
    problem = tokens.ChainOfThought(dimension=3, examples=6, steps=3, rate=0.4, initial_scale=0.2)
    prediction = tokens.solve(problem, progress=False)
    return prediction, sgd_check.tokens.simulate(problem, learning_rate=0.05, steps=500, seeds=8, progress=False)


def test_runs_agree_with_the_prediction_and_refute_others(held):
    prediction, runs = held
    tree = sgd_check.tokens.compare(prediction, runs)
    print(prediction.learned_time.values, tree["comparison"].mean_log_ratio.values, tree["comparison"].standard_error.values,tree["comparison"].attrs["reasons"])
    assert tree["comparison"].attrs["verdict"] == "agree", tree["comparison"].attrs["reasons"]
