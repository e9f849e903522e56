"""Problems that attention learns: composition, and latent causal graphs. Light to import: numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from dynamics.problem.checks import check_choice, checked_integer, checked_list, checked_number
from dynamics.tokens.token_problem import MOST_SYMBOLS, TokenProblem, positive_numbers
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermite.arrays import Array

#: Tokens of a sequence; the reduction has half of their square as numbers.
MOST_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class Composition(TokenProblem):
    r"""Compose k hidden permutations of N symbols, by layers of attention that each double the number of hops.

    .. math:: \mathrm{hop}^1_i = \sigma_i \pi_i, \qquad
       \mathrm{hop}^{2r}_i = \mathrm{hop}^r_{i+r} \circ \mathrm{hop}^r_i

    The input is k uniform permutations σ_i. Layer l of log₂ k + 1 is read against hop 2^(l−1) at all k N positions;
    the loss is Σ_l ω_l Σ (1/N − c^l[y]), or −ln c^l[y], c^l[y] being the weight on the right symbol.

    Parameters
    ----------
    vocabulary : int
        Number N ≥ 2 of symbols.
    hops : int
        Number k of permutations, a power of 2 of at least 2.
    data : {"mixture", "curriculum", "hardest"}
        All hops at once; one after the other, each for `stage_time`; or hop k alone.
    weights : sequence of float, optional
        Of a mixture: ω_l > 0 of hops 1, 2, 4, …, k; by default 1 over their number. Else the weight is 1.
    stage_time : float, optional
        Of a curriculum: time of each stage, by default 12 times that in which hop 1 is learned.
    loss : {"correlation", "cross-entropy"}
    initial_score : float, default 0
        Score ε of the right key in every layer at the start. At 0 hop k alone is never learned.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> Composition(vocabulary=6, hops=4).layers
    3
    """

    kind: ClassVar[str] = "composition"

    vocabulary: int
    hops: int
    data: Literal["mixture", "curriculum", "hardest"] = "mixture"
    weights: Sequence[float] | None = None
    stage_time: float | None = None
    loss: Literal["correlation", "cross-entropy"] = "correlation"
    initial_score: float = 0.0

    def __post_init__(self) -> None:
        self._assign(
            vocabulary=checked_integer(self.vocabulary, "vocabulary", minimum=2, maximum=MOST_SYMBOLS),
            hops=checked_integer(self.hops, "hops", minimum=2, maximum=MOST_SYMBOLS),
            initial_score=checked_number(self.initial_score, "initial_score", positive=False),
        )
        if self.hops & (self.hops - 1):
            msg = f"Argument `hops` must be a power of 2, but is {self.hops}."
            raise ValueError(msg)
        check_choice("data", self.data, ("mixture", "curriculum", "hardest"))
        check_choice("loss", self.loss, ("correlation", "cross-entropy"))
        for name, data in (("weights", "mixture"), ("stage_time", "curriculum")):
            if getattr(self, name) is not None and self.data != data:
                msg = f"Argument `{name}` must be None unless `data` is {data!r}, but is {shown(getattr(self, name))}."
                raise ValueError(msg)
        if self.weights is not None:
            self._assign(weights=positive_numbers(self.weights, "weights", self.layers))
        if self.stage_time is not None:
            self._assign(stage_time=checked_number(self.stage_time, "stage_time", positive=True))

    @property
    def layers(self) -> int:
        """Number of layers, log₂ k + 1."""
        return self.hops.bit_length()

    @property
    def stage_weights(self) -> Array:
        """Weights ω of all layers in every stage, shape (stages, layers); a curriculum has one stage per layer."""
        if self.data == "curriculum":
            return np.eye(self.layers)
        if self.data == "hardest":
            return np.eye(self.layers)[-1:]
        return np.array([self.weights or [1.0 / self.layers] * self.layers])


@dataclass(frozen=True, kw_only=True)
class CausalGraph(TokenProblem):
    r"""Predict the successor of a query in a sequence whose tokens are drawn from their parents in a latent graph.

    .. math:: x_t \sim P(x_{\mathrm{parent}(t)}, \cdot), \qquad P = q \Pi + (1-q)/S, \qquad
       f = \sum_t \rho_t\, \mathrm{onehot}(x_t),

    .. math:: \rho = \frac{s}{n} \text{ or } \mathrm{softmax}(\beta s), \qquad
       s_t = \sum_{s < t} A_{ts} 1\{x_s = \mathrm{query}\}

    A = softmax(W) of the first layer is causal and alone is trained, from W = 0; every sequence has a Π of its own. The
    loss is −E f[y], or −E ln(f[y] + 0.05) with Dirichlet transitions.

    Parameters
    ----------
    parents : sequence of int or None
        Index, from 0, of the parent of each of the n ≥ 3 tokens, which comes before it; None at a root. A chain,
        None, 0, 1, 2, …, is learned by an induction head.
    vocabulary : int
        Number S ≥ 2 of symbols.
    persistence : float, default 1
        q, above 0 and at most 1.
    second_layer : {"linear", "softmax"}
    beta : float, optional
        β > 0 of a softmax.
    transitions : {"permutation", "dirichlet"}
        Whether Π is a uniform permutation, or has uniform rows on the simplex, as in the paper; then the second layer
        is a softmax.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> CausalGraph(parents=[None, 0, 1, 2], vocabulary=5, persistence=0.9).length
    4
    """

    kind: ClassVar[str] = "causal-graph"

    parents: Sequence[int | None]
    vocabulary: int
    persistence: float = 1.0
    second_layer: Literal["linear", "softmax"] = "linear"
    beta: float | None = None
    transitions: Literal["permutation", "dirichlet"] = "permutation"

    def __post_init__(self) -> None:
        parents = checked_list(self.parents, "parents")
        if not 3 <= len(parents) <= MOST_TOKENS:
            msg = f"Argument `parents` must hold 3 to {MOST_TOKENS} parents, but holds {len(parents)}."
            raise ValueError(msg)
        if parents[0] is not None:
            msg = f"Argument `parents` must begin with None, since nothing comes before, but with {shown(parents[0])}."
            raise ValueError(msg)
        self._assign(
            parents=tuple(
                None if parent is None else checked_integer(parent, "parents", minimum=0, maximum=t - 1)
                for t, parent in enumerate(parents)
            ),
            vocabulary=checked_integer(self.vocabulary, "vocabulary", minimum=2, maximum=MOST_SYMBOLS),
            persistence=checked_number(self.persistence, "persistence", positive=True, maximum=1.0),
        )
        check_choice("second_layer", self.second_layer, ("linear", "softmax"))
        check_choice("transitions", self.transitions, ("permutation", "dirichlet"))
        if (self.beta is None) != (self.second_layer == "linear"):
            msg = f"Argument `beta` must be given for a softmax second layer alone, but is {shown(self.beta)}."
            raise ValueError(msg)
        if self.beta is not None:
            self._assign(beta=checked_number(self.beta, "beta", positive=True))
        if self.transitions == "dirichlet" and self.second_layer == "linear":
            msg = "Argument `second_layer` must be 'softmax' for Dirichlet transitions, but is 'linear'."
            raise ValueError(msg)

    @property
    def length(self) -> int:
        """Number n of tokens."""
        return len(self.parents)
