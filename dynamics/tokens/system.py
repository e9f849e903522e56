"""The base of the reductions of this room, and how their variables are labelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dynamics.equations import EquationSystem
from dynamics.equations.interface import Observables
from dynamics.kernels.jit import kernel
from dynamics.runs.variables import VARIABLES, Variable
from hermite.arrays import Array, Vector

COMPONENT = ("component",)

#: Variables of the answers of this room, and of runs and comparisons of full models.
TOKEN_VARIABLES = VARIABLES | {
    "component": Variable(COMPONENT, "what is learned as one stage", "c"),
    "number": Variable(("number",), "number of the reduced state", "i"),
    "state": Variable(("time", "number"), "numbers to which the model reduces", "y_i"),
    "loss": Variable(("time",), "loss of the model", "L"),
    "progress": Variable(("time", *COMPONENT), "share of the component that is learned", "q_c"),
    "learned_time": Variable(COMPONENT, "first time at which half of the component is learned", "T_c"),
    "predicted_learned_time": Variable(
        COMPONENT, "the same in closed form (inf: never; NaN: there is none)", r"T_c^{\mathrm{closed}}"
    ),
    "plateau": Variable(COMPONENT, "loss on the plateau that ends as the component is learned", "L_c"),
    "gap": Variable(("gap",), "number of symbols before the first trigger in training", "l"),
    "key": Variable(("key",), "position of the key in the sequence, from 1", "s"),
    "moved_key": Variable(("moved_key",), "the right key, or the place where it was in training", "s"),
    "attention": Variable(("time", "gap", "key"), "attention to the key (0 beyond the last one)", "A_{ls}"),
    "moved_attention": Variable(
        ("time", "gap", "moved_key"), "attention in sequences of the same length with the trigger shifted", "A_{ls}"
    ),
    "kappa_R": Variable(("time",), "strength of the shortcut over that of the head: it wins above 1", r"\kappa R"),
    "head": Variable(("head",), "head of attention", "h"),
    "token": Variable(("token",), "slot of the prompt for which a token is wanted", "r"),
    "length_at_half": Variable(
        ("time",), "tokens at which every head has half of its attention on wanted ones", r"N'_{1/2}"
    ),
    "test_loss": Variable(("time",), "loss of the model at the test length", "L'"),
    "group": Variable(("group",), "group of equal actions", "g"),
    "probability": Variable(("time", "group"), "probability of all actions of the group", "P_g"),
    "reward": Variable(("time",), "mean reward of the policy by the reward model", "V"),
    "true_reward": Variable(("time",), "mean true reward of the policy", "V^*"),
    "weight_name": Variable(("weight_name",), "weight of the attention", "i"),
    "steps": Variable(("steps",), "steps that the model takes by itself", "k"),
    "weights": Variable(("time", "weight_name"), "weights of the attention", "a, b, c"),
    "chain_error": Variable(("time", "steps"), "error E|w_k - w*|^2/d of the model's own chain", "e_k"),
    "sharpness": Variable(("time",), "largest curvature of the loss of the full model", r"\lambda"),
    "test_attention": Variable(("time",), "attention to the right key at the test length", "A'"),
    "rank": Variable(("rank",), "rank of the item by frequency, or the middle of several", "i"),
    "rank_count": Variable(("rank",), "number of items that the rank stands for", "n_i"),
    "recovery": Variable(("rank",), "share of items of the rank that are recovered", "P(i)"),
    "recovered_count": Variable((), "number of items that are recovered", r"\sum_i P(i)"),
    "run_batch_size": Variable(("seed",), "samples per step of the run (0: the whole population)", "B"),
    "expected_time": Variable(COMPONENT, "predicted time at the learning rate of the runs", r"T_c^{(\eta)}"),
    "mean_log_ratio": Variable(
        COMPONENT, "mean logarithm of measured over predicted time, without the effect of the batch", r"\bar{m}_c"
    ),
    "standard_error": Variable(COMPONENT, "standard error of the same", "s_c"),
    "component_p_value": Variable(COMPONENT, "probability of such a distance if theory holds", "p_c"),
    "visible_error": Variable(COMPONENT, "relative error of a time that is seen with probability 0.8", r"\epsilon_c"),
}


class TokenSystem(EquationSystem):
    """The reduction of a problem, with one event per component, which is passed when the component is half learned."""

    #: Components, learned one after the other, and the numbers of the state.
    components: list[str]
    numbers: list[str]
    references: str
    #: The errors of the reduction, one sentence each.
    notes: Sequence[str]
    #: Time before which nothing is learned, a first guess.
    time_scale: float
    #: Times at which the equations jump; `sizes[-1]` is the stage, −1 if the time tells it. Where they end.
    stage_ends: tuple[float, ...] = ()
    last_time: float = np.inf
    #: Whether times are saved geometrically by default, and up to which multiple of that of the last component.
    geometric: bool = False
    beyond: float = 1.3
    #: Whether every component without a closed time is learned, so that a run without saved times waits for it.
    all_are_learned: bool = True
    variables: Mapping[str, Variable] = TOKEN_VARIABLES
    #: Coordinates of what this system observes beyond loss, progress and state, and attributes of its answers.
    coords: Mapping[str, Sequence[object]] = {}
    attributes: Mapping[str, float] = {}

    def hold(self, start: ArrayLike, parameters: Sequence[Any], sizes: Sequence[Any], work_size: int = 0) -> None:
        """Store the start, the arrays of the kernels and the size of their scratch, with one event per component.

        Parts of `parameters` and `sizes` are joined one after the other; the stage, −1, is put behind `sizes`.
        """
        self.initial_state = np.array(start, dtype=np.float64)
        self.parameters = np.hstack(parameters).astype(np.float64)
        self.sizes = np.hstack([*sizes, -1]).astype(np.int64)
        self.work_size, self.num_events = work_size, len(self.components)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component of the state."""
        return np.full(self.initial_state.size, atol)

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and the share of every component that is learned, from 0 to 1, (components,)."""
        raise NotImplementedError

    def closed_forms(self) -> dict[str, Array]:
        """Return a dict of closed learning times and plateaus, (components,) each."""
        return {"predicted_learned_time": self.closed_times(), "plateau": self.plateaus()}

    def summarise(self, state: Array) -> dict[str, object]:
        """Return a dict of the loss and of the progress (components,) of a state."""
        return dict(zip(("loss", "progress"), self.learning(state), strict=True))

    def observe(self, state: Array) -> Observables:
        """Return a dict of what `summarise` does, and the state itself."""
        return self.summarise(state) | {"state": state}

    def rate_limit(self, _values: Mapping[str, object]) -> float | None:
        """Return the learning rate above which the full model is not stable along a run, if that is known."""
        return None

    def closed_times(self) -> Array:
        """Return the learning times (components,) in closed form: inf for never, NaN without a closed form."""
        return np.full(self.num_events, np.nan)

    def plateaus(self) -> Array:
        """Return the loss on the plateau that ends as each component is learned, NaN if there is none."""
        return np.full(self.num_events, np.nan)


@kernel
def put_softmax(numbers: Vector, first: int, end: int) -> None:
    """Replace numbers[first:end] by their softmax, which has sum 1."""
    top, total = numbers[first], 0.0
    for s in range(first, end):
        top = max(top, numbers[s])
    for s in range(first, end):
        numbers[s] = np.exp(numbers[s] - top)
        total += numbers[s]
    for s in range(first, end):
        numbers[s] /= total


def share_time(keys: float) -> float:
    r"""Return τ(n), the time at which one of n = `keys` keys is half learned, times its advantage Δ > 0.

    Under gradient flow the best key has a fitness v above the others, which are equal, by Δ; p is the softmax of w.

    .. math:: w' = p \circ (v - p\cdot v), \quad w(0) = 0: \qquad p_1 - p_2 = \tfrac12 \text{ at } \tau(n)/\Delta,
       \qquad \tau(n) = 1 + 2 (1 - 1/n) \ln(n + 1) + (n - 1)^2/(n + 1)
    """
    return float(1.0 + 2.0 * (1.0 - 1.0 / keys) * np.log(keys + 1.0) + (keys - 1.0) ** 2 / (keys + 1.0))
