"""Policy gradient on the logits of a softmax policy, reduced to one logit for each group (`docs/token_equations.md`).

State y = [θ (M)]; parameters are `PolicyNumbers`; sizes = [M | whether the objective is GRPO | G, 0 for G → ∞ |
stage]. The scratch holds P = n p and A. The sum of a level is the probability of it and all above or, if that is more
than a half at the start, minus the probability of those below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.tokens.problems import PolicyGradient
from dynamics.tokens.system import TokenSystem, put_softmax
from hermite.arrays import Array, Integers, Matrix, Vector


class PolicyNumbers(NamedTuple):
    """The numbers of a policy of M groups whose rewards have L levels."""

    clock: float
    #: β.
    kl_weight: float
    #: n, r and θ_0 (M,).
    counts: Vector
    rewards: Vector
    start: Vector
    #: The half-learned sum of each level (L,), and the weights of P in it (L, M).
    halves: Vector
    weights: Matrix
    #: ln of the factor of each k = 1 … G − 1 of the sum of GRPO.
    draws: Vector


@kernel
def counts_of(sizes: Integers) -> tuple[int, bool, int]:
    """Return the number of groups M, whether the objective is GRPO, and the samples G of a group, 0 for G → ∞."""
    return sizes[0], sizes[1] == 1, sizes[2]


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> PolicyNumbers:
    """Return the entries of `parameters` by name."""
    M, _, G = counts_of(sizes)
    draws, levels = max(G - 1, 0), 2 + 3 * M
    L = (parameters.size - levels - draws) // (1 + M)
    return PolicyNumbers(
        parameters[0], parameters[1], vector(parameters, 2, M), vector(parameters, 2 + M, M),
        vector(parameters, 2 + 2 * M, M), vector(parameters, levels, L), matrix(parameters, levels + L, L, M),
        vector(parameters, parameters.size - draws, draws),
    )  # fmt: skip


@kernel
def write_policy(y: Vector, n: Vector, work: Vector) -> Vector:
    """Write and return the probability of each group of actions, (M,): the softmax of y + ln n.

    y (M,) is the logit of one action of a group, and n (M,) the number of its actions.
    """
    shares = vector(work, 0, n.size)
    for g in range(n.size):
        shares[g] = y[g] + np.log(n[g])
    put_softmax(shares, 0, n.size)
    return shares


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rate of the logit of each group of actions to `out` (M,): θ' = p ∘ (A − E_p A) times the clock.

    `y` (M,) holds θ, the logit of one action of each group; p (M,) is the probability of one action, A (M,) its reward
    minus the KL term β (θ − θ_0), and E_p the mean over the policy. The clock is a constant, but for GRPO it is one
    over the standard deviation of A, with a mean over finite groups of samples if G > 0. `parameters` hold
    `PolicyNumbers`, and `work` takes the probabilities n p of groups and A, (M,) each.
    """
    (M, is_grpo, G), numbers = counts_of(sizes), numbers_of(parameters, sizes)
    P, A, clock = write_policy(y, numbers.counts, work), vector(work, M, M), numbers.clock
    square, better, worse = 0.0, 0.0, 0.0
    for g in range(M):
        # A, but for a number that all groups share: its differences are those of A.
        A[g] = numbers.rewards[g] + numbers.kl_weight * (numbers.start[g] - y[g])
    for g in range(M):
        # A − E A as a sum of differences: of the best and the worst group nothing cancels, however sure the policy is.
        out[g] = 0.0
        for h in range(M):
            out[g] += P[h] * (A[g] - A[h])
        square += P[g] * out[g] ** 2
        better += P[g] if out[g] > 0.0 else 0.0
        worse += P[g] if out[g] < 0.0 else 0.0
    if is_grpo:
        # A policy that has one reward left learns no more.
        clock = 1.0 / np.sqrt(square) if square > 0.0 else 0.0
        if G > 0 and clock > 0.0:
            total, good, bad = 0.0, np.log(better), np.log(worse)
            for k in range(1, G):
                total += np.exp(numbers.draws[k - 1] + k * good + (G - k) * bad)
            clock *= total / np.sqrt(better * worse)
    for g in range(M):
        out[g] *= clock * P[g] / numbers.counts[g]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write, for each level of rewards, its sum of probabilities minus the value at which it is half learned.

    The sum is over groups with that reward or more, or minus that over those with less.
    """
    numbers = numbers_of(parameters, sizes)
    P = write_policy(y, numbers.counts, work)
    for level in range(out.size):
        out[level] = -numbers.halves[level]
        for g in range(P.size):
            out[level] += numbers.weights[level, g] * P[g]


class PolicyGradientSystem(TokenSystem):
    """State, kernels, observables and closed forms of policy gradient."""

    name = "policy gradient"
    functions = Functions(rhs, event_values)
    references = "arXiv:2503.15477"
    notes = (
        "Exact for the mean gradient of a table of logits, not for features that actions share; samples delay by a "
        "term ~ 1/batch",
        "plateaus take levels of rewards as reached one after the other",
    )

    def __init__(self, problem: PolicyGradient) -> None:
        """Prepare the equations of a policy gradient, from the logits of the problem."""
        self.task = problem
        self._n, self._r, self._start = problem.groups
        self._beta, self._grpo = problem.kl_weight or 0.0, problem.objective == "grpo"
        G, M = problem.group_samples or 0, self._n.size
        self._levels = np.unique(self._r)
        reached = self._r >= self._levels[1:, None]
        self._p0 = self._policy(self._start)
        end = self._policy(self._start + self._r / self._beta) if self._beta else reached[-1]
        is_most = reached @ self._p0 > 0.5
        #: Weights of groups in the sum of every level, and these sums at the start and the end.
        self._side = np.where(is_most[:, None], reached - 1.0, reached)
        self._first, self._last = self._side @ self._p0, self._side @ end
        self._clock = 2.0 * self._beta if problem.objective == "a-star" else 1.0
        k = np.arange(1.0, G)
        self._draws = 0.5 * np.log(k * (G - k)) - np.log((G + 1.0) * max(G, 1)) - special.betaln(k + 1.0, G - k + 1.0)
        self.components = [f"reward {reward:.12g}" for reward in self._levels[1:]]
        self.numbers = [f"logit of group {g}" for g in range(1, M + 1)]
        half = 0.5 * (self._first + self._last)
        numbers = PolicyNumbers(self._clock, self._beta, self._n, self._r, self._start, half, self._side, self._draws)
        self.hold(self._start, [np.ravel(part) for part in numbers], [M, self._grpo, G], work_size=2 * M)
        self.coords = {"group": range(1, M + 1)}
        figures = {"reward_variance": problem.reward_variance, "accuracy": problem.accuracy}
        self.attributes = {name: value for name, value in figures.items() if np.isfinite(value)}
        self.time_scale = 1.0 if self._grpo else 1.0 / (self._clock * float(np.ptp(self._r)))
        self.geometric = self.num_events > 1

    def _policy(self, logits: Array) -> Array:
        """Return the probability of each group of actions, (M,), from the logit of one of its actions, (M,)."""
        return np.asarray(special.softmax(logits + np.log(self._n)))

    def progress(self, probability: Array) -> Array:
        """Return progress (…, L) at each of L levels of rewards, from 0 at the start to 1 at the end.

        `probability` (…, M) is that of each group of actions.
        """
        come = (probability @ self._side.T - self._first) / (self._last - self._first)
        return np.asarray(come.clip(0.0, 1.0))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss −V + β KL(p, p_0), and the progress at each level of rewards, from 0 to 1.

        V is the mean reward of the policy p, and p_0 the policy at the start.
        """
        share = self._policy(state)
        return float(self._beta * special.rel_entr(share, self._p0).sum() - share @ self._r), self.progress(share)

    def summarise(self, state: Array) -> dict[str, object]:
        """Return a dict: loss, progress, probability of each group (M,), mean reward, and mean true reward if set."""
        share = self._policy(state)
        values = {"probability": share, "reward": share @ self._r}
        if self.task.true_rewards is not None:
            values["true_reward"] = share @ np.array(self.task.true_rewards)
        return super().summarise(state) | values

    def closed_times(self) -> Array:
        r"""Return the time at which the better of two groups is half learned, (1,); NaN for more groups."""
        if self._n.size > 2:
            return np.full(self.num_events, np.nan)
        from scipy.integrate import quad

        logits, (worse, better) = self._start + np.log(self._n), np.argsort(self._r)
        first, gap = logits[better] - logits[worse], np.ptp(self._r)
        last = first + gap / self._beta if self._beta else np.inf
        middle = np.log(special.expit([first, last]).sum() / special.expit([-first, -last]).sum())
        k = np.arange(1, self._draws.size + 1)

        def slowness(z: float) -> float:
            """Return the time per unit of the logit z of the better group."""
            good, bad = special.log_expit(z), special.log_expit(-z)
            if self._draws.size:
                speed = np.exp(self._draws + k * good + k[::-1] * bad).sum()
            elif self._grpo:
                speed = np.exp(0.5 * (good + bad))
            else:
                speed = np.exp(good + bad) * (gap - self._beta * (z - first)) * self._clock
            return float(1.0 / (speed * np.sum(1.0 / self._n)))

        return np.array([quad(slowness, first, middle, epsabs=0, epsrel=1e-11, limit=500)[0]])

    def plateaus(self) -> Array:
        """Return the loss, minus the mean reward, before each level of rewards is learned, in their order.

        Levels are the distinct rewards above the lowest, one entry each. The first entry is the loss at the start, and
        the next is that of a policy that always has the reward of the level before, NaN with a KL term, which holds the
        policy off such levels.
        """
        later = np.full(self.num_events - 1, np.nan) if self._beta else -self._levels[1:-1]
        return np.array([self.learning(self._start)[0], *later])
