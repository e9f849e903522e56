"""Policies of all actions in torch: exact gradients against the map, every sampled outcome, and runs."""

import itertools

import numpy as np
import pytest
import torch

import sgd_check.tokens
from dynamics import tokens
from dynamics.integrators.descent import EulerStepper
from sgd_check.tokens.simulation import model_of

FIELDS = {"group_sizes": [1, 3, 6], "rewards": [1.0, 0.4, -0.2], "initial_logits": [0.2, 0.5, -0.1]}
WHICH = np.repeat([0, 1, 2], [1, 3, 6])


def exact_loss(problem, logits, start):
    """The objective of a policy over all its actions; its gradient is that of the method."""
    logs, p0 = torch.log_softmax(logits, 0), torch.log_softmax(start, 0)
    rewards, p = torch.tensor(problem.rewards, dtype=torch.float64)[WHICH], logs.exp()
    ratio = (problem.kl_weight or 0.0) * (logs - p0)
    if problem.objective == "a-star":
        return p.detach() @ (ratio - rewards + 0.123) ** 2  # V̂ is anything
    spread = (p @ (rewards - p @ rewards) ** 2).sqrt().detach() if problem.objective == "grpo" else 1.0
    return -(p @ (rewards - ratio)) / spread


@pytest.mark.parametrize(
    "fields",
    [{}, {"objective": "kl", "kl_weight": 0.3}, {"objective": "a-star", "kl_weight": 0.3}, {"objective": "grpo"}],
    ids=str,
)
def test_gradient_descent_on_all_logits_is_the_map(fields):
    problem, rate = tokens.PolicyGradient(**FIELDS, **fields), 0.2
    start = torch.tensor(FIELDS["initial_logits"], dtype=torch.float64)[WHICH]
    logits = start.clone().requires_grad_(True)
    stepper = EulerStepper(tokens.system_of(problem), rate)
    for step in range(300):
        (gradient,) = torch.autograd.grad(exact_loss(problem, logits, start), logits)
        with torch.no_grad():
            logits -= rate * gradient
        stepper.advance((step + 0.5) * rate, 10)
    np.testing.assert_allclose(logits.detach(), stepper.interpolate(stepper.time)[WHICH], atol=1e-12)
    assert float((logits.detach() - start).abs().max()) > 0.3


@pytest.mark.parametrize(
    ("fields", "samples"),
    [
        ({}, 2),
        ({}, 3),
        ({"objective": "kl", "kl_weight": 0.3}, 2),
        ({"objective": "a-star", "kl_weight": 0.3}, 1),
        ({"objective": "a-star", "kl_weight": 0.3}, 2),
        ({"objective": "grpo", "group_samples": 3}, 3),
    ],
    ids=str,
)
def test_steps_of_sampled_actions_have_the_field_as_their_mean(fields, samples):
    # One run per outcome: its uniform numbers choose the actions, and its gradient has the probability of these.
    problem = tokens.PolicyGradient(group_sizes=[1, 2], rewards=[0.7, -0.1], initial_logits=[0.3, -0.4], **fields)
    which, rate = [0, 1, 1], 0.5
    stepper = EulerStepper(system := tokens.system_of(problem), rate)
    stepper.advance(rate * 0.5, 10)
    now = stepper.interpolate(stepper.time)  # away from the start, where ln(p/p_0) is 0
    p = np.exp(now[which]) / np.exp(now[which]).sum()
    outcomes = np.array(list(itertools.product(range(3), repeat=samples)))
    uniform = torch.as_tensor((np.cumsum(p) - 0.5 * p)[outcomes])
    model = model_of(problem, range(len(outcomes)), torch.device("cpu"))
    with torch.no_grad():
        model.logits.copy_(torch.as_tensor(now[which]).expand_as(model.logits))
    group = samples if "group_samples" in fields else 1
    model.step([uniform.reshape(len(outcomes), -1, group)], 0.0, 1.0)
    mean = p[outcomes].prod(axis=1) @ (model.logits.detach().numpy() - now[which])
    system.initial_state = now
    np.testing.assert_allclose(mean, EulerStepper(system, 1.0).derivative(0.0)[which], atol=1e-15)
    shares = np.array([[p[0], p[1] + p[2]]])
    with torch.no_grad():
        model.logits.copy_(torch.as_tensor(now[which]).expand_as(model.logits))
    loss, progress = model.measured()
    assert float(loss[0]) == pytest.approx(system.learning(now)[0], abs=1e-14)
    np.testing.assert_allclose(progress[:1], system.progress(shares), atol=1e-14)


BETTER = {"group_sizes": [1, 15], "rewards": [1.0, 0.0]}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fields", "rate", "batch", "measured"),
    [
        ({}, 0.1, 16, (19.73, 0.17)),
        ({}, 0.1, 64, (19.67, 0.10)),
        ({"objective": "grpo", "group_samples": 4}, 0.05, 1, (11.74, 0.16)),
        ({"objective": "grpo", "group_samples": 16}, 0.05, 1, (7.90, 0.06)),
        ({"objective": "grpo", "group_samples": 64}, 0.05, 1, (7.17, 0.02)),
    ],
    ids=["leave one out, 16", "leave one out, 64", "GRPO, 4", "GRPO, 16", "GRPO, 64"],
)
def test_runs_take_as_long_as_measured(fields, rate, batch, measured):
    # 24 seeds, and the page's numbers with their errors: within 3.5 of both together, a false alarm in 2000 each.
    problem = tokens.PolicyGradient(**BETTER, **fields)
    mean, error = measured
    runs = sgd_check.tokens.simulate(
        problem, learning_rate=rate, steps=int(1.35 * mean / rate), batch_size=batch, seeds=24, device="cpu",
        progress=False,
    )  # fmt: skip
    times = runs.learned_time.values[:, 0]
    assert abs(times.mean() - mean) < 3.5 * np.hypot(times.std(ddof=1) / np.sqrt(24), error)


def test_what_cannot_be_sampled_is_refused():
    asked = {"learning_rate": 0.1, "steps": 5, "progress": False}
    with pytest.raises(
        ValueError, match=r"^Argument `batch_size` must be at least 2, as a baseline needs other samples, but is 1\.$"
    ):
        sgd_check.tokens.simulate(tokens.PolicyGradient(**BETTER), batch_size=1, **asked)
    with pytest.raises(ValueError, match=r"^Argument `problem` must have `group_samples` for runs of GRPO"):
        sgd_check.tokens.simulate(tokens.PolicyGradient(**BETTER, objective="grpo"), **asked)
