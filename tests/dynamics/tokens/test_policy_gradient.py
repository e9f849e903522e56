"""Policy gradient: times of learning, rewards over time, the field against all outcomes, files, commands."""

import itertools
import json
import math

import numpy as np
import pytest

import dynamics
from dynamics import SaveAt, tokens
from dynamics.integrators.descent import EulerStepper
from dynamics.problem import stored_question
from dynamics.tokens.__main__ import main


def policy(**fields):
    """One action of 16 that is better by 1, unless other fields are given."""
    return tokens.PolicyGradient(**({"group_sizes": [1, 15], "rewards": [1.0, 0.0]} | fields))


def solved(problem, save_at=None, learning_rate=None):
    return tokens.solve(problem, save_at, learning_rate, progress=False)


OBJECTIVES = [
    {}, {"objective": "kl", "kl_weight": 0.3}, {"objective": "a-star", "kl_weight": 0.3}, {"objective": "grpo"},
    {"objective": "grpo", "group_samples": 4},
]  # fmt: skip


@pytest.mark.parametrize(("gap", "time"), [(1.0, 19.547569), (0.1, 195.475691)])
def test_the_time_scales_with_the_inverse_reward(gap, time):
    found = solved(policy(rewards=[gap, 0.0]))
    np.testing.assert_allclose(found.learned_time, [time], atol=1e-6)
    # Progress is the distance of the better action from each other one.
    half = solved(policy(rewards=[gap, 0.0]), SaveAt.at([0.0, time]))
    p = half.probability.values[-1] / [1, 15]
    assert p[0] - p[1] == pytest.approx(0.5, abs=1e-7)


@pytest.mark.parametrize(("rare", "time"), [(1e-2, 54.0901), (1e-3, 506.4063), (1e-4, 5008.7102)])
def test_a_rare_action_starts_flat(rare, time):
    problem = policy(group_sizes=[1, 1], initial_logits=[np.log(rare / (1 - rare)), 0.0])
    found = solved(problem, SaveAt.at([0.0, time]))
    # p rises by 1/8 in a unit of time there, and the page's times have four decimals.
    np.testing.assert_allclose(found.probability[-1], 0.5, atol=6.5e-6)
    np.testing.assert_allclose(found.probability.sum("group"), 1.0, atol=1e-14)

    def clock(u):
        return u + np.sinh(u)

    assert clock(0.0) - clock(np.log(rare / (1 - rare))) == pytest.approx(time, abs=6e-5)


@pytest.mark.parametrize("fields", OBJECTIVES, ids=str)
def test_rare_actions_start_without_cancellation(fields):
    # Of the worse action's reward less the mean, all digits but five would be lost.
    problem = policy(group_sizes=[1, 1], initial_logits=[11 * np.log(0.1), 0.0], **fields)
    found = tokens.solve(problem, keep="summary", progress=False)
    np.testing.assert_allclose(found.learned_time, found.predicted_learned_time, rtol=1e-8)
    # Where 1 less the probability is 1 in float64, and time has no digit left for the rise.
    rarer = policy(group_sizes=[1, 1], initial_logits=[100 * np.log(0.1), 0.0], **fields)
    closed = float(tokens.predict(rarer).predicted_learned_time[0])
    expected = {"plain": 0.5e100, "grpo": 0.5e100 / np.sqrt(3) if rarer.group_samples else 1e50}.get(rarer.objective)
    if rarer.kl_weight:
        # 2 ε dt = exp(−x) dx/(1 − β x) to half of what exp(x) gains, on the clock.
        x, weights = np.polynomial.legendre.leggauss(60)
        end = np.log(0.5 + 0.5 * np.exp(1.0 / 0.3))
        x = 0.5 * end * (x + 1.0)
        expected = 0.5e100 * (0.5 * end * weights) @ (np.exp(-x) / (1.0 - 0.3 * x))
        expected /= 0.6 if rarer.objective == "a-star" else 1.0
    assert closed == pytest.approx(expected, rel=1e-8)


TRUE = [1.0, 0.8, 0.3, 0.0]


@pytest.mark.parametrize(
    ("rewards", "time", "variance", "accuracy"),
    [
        ([0.05, 0.04, 0.015, 0.0], 898.79, 0.00014, 1.0),
        ([0.8, 1.0, 0.3, 0.0], 51.62, 0.0555, 204 / 205),
        (TRUE, 44.94, 0.0555, 1.0),
    ],
    ids=["ranks well", "varies", "truth"],
)
def test_a_less_accurate_reward_model_with_more_variance_teaches_faster(rewards, time, variance, accuracy):
    problem = policy(group_sizes=[1, 1, 6, 24], rewards=rewards, true_rewards=TRUE)
    found = solved(problem, SaveAt.linear(0.98 * time, 1.02 * time, 101))
    assert float(np.interp(0.7, found.true_reward, found.time)) == pytest.approx(time, abs=6e-3)
    assert (
        found.attrs["reward_variance"]
        == problem.reward_variance
        == pytest.approx(variance, abs=5e-5 if variance > 0.01 else 5e-6)
    )
    assert found.attrs["accuracy"] == problem.accuracy == pytest.approx(accuracy, rel=1e-12)
    np.testing.assert_allclose(found.reward, found.probability.values @ rewards, rtol=1e-12)
    np.testing.assert_allclose(found.loss, -found.reward, rtol=1e-14)


def test_accuracy_leaves_out_ties_of_true_rewards_alone():
    problem = policy(group_sizes=[2, 1, 3], rewards=[0.0, 0.0, 1.0], true_rewards=[0.0, 1.0, 1.0])
    assert problem.accuracy == 6 / 8  # of 2 × 1 tied and 2 × 3 right pairs
    assert math.isnan(policy().accuracy)
    assert "accuracy" not in tokens.predict(policy()).attrs


@pytest.mark.parametrize(("samples", "time"), [(4, 11.716), (16, 7.808), (64, 7.138), (4096, 7.014)])
def test_small_groups_slow_grpo(samples, time):
    found = solved(policy(objective="grpo", group_samples=samples))
    assert float(found.learned_time[0]) == pytest.approx(time, abs=6e-4)


def test_infinite_groups_have_the_time_of_a_hyperbolic_sine():
    first, last = (np.sinh(0.5 * np.log(odds)) for odds in (1 / 15, 17 / 15))
    found = solved(policy(objective="grpo"))
    np.testing.assert_allclose(found.learned_time, [4 * (last - first) * 15 / 16], rtol=1e-8)
    np.testing.assert_allclose(found.learned_time, [7.0126], atol=6e-5)


@pytest.mark.parametrize("fields", OBJECTIVES, ids=str)
@pytest.mark.kernels
def test_two_groups_have_closed_times(fields):
    # The first group may be the worse one, and progress is half of the way to the fixed point.
    problem = policy(group_sizes=[20, 3], rewards=[-0.4, 0.3], initial_logits=[1.0, -0.5], **fields)
    found = solved(problem)
    np.testing.assert_allclose(found.predicted_learned_time, found.learned_time, rtol=1e-8)
    half = solved(problem, SaveAt.at([0.0, float(found.learned_time[0])])).probability.values[:, 1]
    odds = 3 / 20 * np.exp(-1.5 + 0.7 / fields["kl_weight"] if "kl_weight" in fields else np.inf)
    assert half[1] == pytest.approx(0.5 * (half[0] + 1.0 / (1.0 + 1.0 / odds)), rel=1e-8)


def test_a_star_has_the_path_of_kl_on_another_clock_to_the_tilted_start():
    fields = {"group_sizes": [1, 3, 6], "rewards": [1.0, 0.4, -0.2], "initial_logits": [0.2, 0.5, -0.1]}
    times = np.array([0.0, 3.0, 20.0, 5000.0])
    kl = solved(policy(**fields, objective="kl", kl_weight=0.3), SaveAt.at(times))
    star = solved(policy(**fields, objective="a-star", kl_weight=0.3), SaveAt.at(times / 0.6))
    np.testing.assert_allclose(star.state, kl.state, atol=1e-9)
    tilted = np.array([1, 3, 6]) * np.exp(np.array([0.2, 0.5, -0.1]) + np.array([1.0, 0.4, -0.2]) / 0.3)
    np.testing.assert_allclose(kl.probability[-1], tilted / tilted.sum(), atol=1e-9)
    start = np.array([1, 3, 6]) * np.exp([0.2, 0.5, -0.1])
    p, p0 = kl.probability.values[2], start / start.sum()
    assert float(kl.loss[2]) == pytest.approx(0.3 * p @ np.log(p / p0) - p @ np.array([1.0, 0.4, -0.2]), rel=1e-12)


def test_levels_of_rewards_are_reached_one_after_the_other():
    problem = policy(group_sizes=[1, 1, 1], rewards=[1.0, 0.5, 0.0], initial_logits=[-4.0, 0.0, 0.0])
    found = solved(problem)
    assert found.component.values.tolist() == ["reward 0.5", "reward 1"]
    assert found.learned_time[1] > 50 * found.learned_time[0]
    assert np.isnan(found.predicted_learned_time).all()
    np.testing.assert_allclose(found.plateau, [-(np.exp(-4.0) + 0.5) / (np.exp(-4.0) + 2.0), -0.5], rtol=1e-12)
    middle = float(np.sqrt(found.learned_time.prod()))
    assert float(np.interp(middle, found.time, found.loss)) == pytest.approx(-0.5, abs=0.02)


def field(problem):
    system = tokens.system_of(problem)
    return EulerStepper(system, 1.0).derivative(0.0), system.initial_state


@pytest.mark.parametrize("samples", [2, 3, 5])
def test_the_field_of_grpo_is_the_mean_over_all_groups_that_are_sampled(samples):
    # Four actions one by one: the advantages of every group of samples, weighted by its probability.
    problem = policy(
        group_sizes=[1, 1, 2], rewards=[0.7, -0.1, -0.1], initial_logits=[0.3, 1.0, -0.2], objective="grpo",
        group_samples=samples,
    )  # fmt: skip
    found, start = field(problem)
    logits, rewards = start[[0, 1, 2, 2]], np.array([0.7, -0.1, -0.1, -0.1])
    p = np.exp(logits) / np.exp(logits).sum()
    mean = np.zeros(4)
    for actions in itertools.product(range(4), repeat=samples):
        drawn = rewards[list(actions)]
        if len(set(drawn)) > 1:
            advantages = (drawn - drawn.mean()) / drawn.std()
            step = sum(a * (np.eye(4)[y] - p) for a, y in zip(advantages, actions, strict=True)) / samples
            mean += p[list(actions)].prod() * step
    np.testing.assert_allclose(found[[0, 1, 2, 2]], mean, atol=1e-15)


def test_the_field_of_grpo_with_infinite_groups_is_the_gradient_over_the_deviation():
    found, start = field(policy(group_sizes=[1, 3, 6], rewards=[1.0, 0.4, -0.2], objective="grpo"))
    rewards = np.repeat([1.0, 0.4, -0.2], [1, 3, 6])
    np.testing.assert_array_equal(start, 0.0)
    expected = (rewards - rewards.mean()) / rewards.std() / 10
    np.testing.assert_allclose(np.repeat(found, [1, 3, 6]), expected, atol=1e-15)


def test_a_policy_that_is_sure_stays_so():
    for fields in ({"objective": "grpo"}, {"objective": "grpo", "group_samples": 4}, {}):
        found = solved(policy(initial_logits=[300.0, 0.0], **fields), SaveAt.at([0.0, 1.0, 1e3]))
        np.testing.assert_array_equal(found.probability[:, 0], 1.0)
        np.testing.assert_array_equal(found.loss, -1.0)


@pytest.mark.thorough
def test_files_sweeps_and_commands_know_the_problem(tmp_path, monkeypatch, capsys):
    found = dynamics.solve_problem(policy(true_rewards=[2.0, 1.0]), learning_rate=0.5, progress=False)
    again = dynamics.load(dynamics.save(found, tmp_path / "found.nc"))
    assert again.identical(found)
    assert stored_question(again) == policy(true_rewards=[2.0, 1.0])
    swept = dynamics.sweep(
        policy(objective="grpo", group_samples=4), {"group_samples": [4, 64]}, study="tokens", workers=0,
        options={"save_at": SaveAt.linear(0.0, 20.0, 5)}, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(swept.learned_time[:, 0], [11.716, 7.138], atol=6e-4)
    monkeypatch.chdir(tmp_path)
    words = "policy-gradient --group-sizes 1,1,6,24 --rewards 0.8,1,0.3,0 --true-rewards 1,0.8,0.3,0 --output p.nc"
    assert main([*words.split(), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["components"]) == 3
    assert (tmp_path / "p.png").stat().st_size > 10_000
    page = dynamics.write_report(dynamics.load("p.nc"), tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Reward variance at the start 0.0555, accuracy 0.995." in page
