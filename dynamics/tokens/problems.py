"""The problems that are learned from tokens: frozen values, each checked, stored and read back alike.

Light to import: numpy alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from dynamics.problem.checks import check_choice, checked_integer, checked_list, checked_number
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermite.arrays import Array

#: Numbers of symbols, tokens or items that float64 counts exactly in products of four of them.
MOST_SYMBOLS = 2**40
#: Tokens of a sequence; the reduction has half of their square as numbers.
MOST_TOKENS = 256


class TokenProblem:
    """What all problems of this room have in common: a subclass is a frozen dataclass of plain values and tuples."""

    kind: ClassVar[str]

    def parameters(self) -> dict[str, Any]:
        """Return kind and fields as a JSON-ready dict."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return nothing: all inputs are among the parameters."""
        return {}

    @classmethod
    def from_dataset(cls, dataset: Any) -> Self:
        """Return the problem that a result answers; of a sweep one point must be left.

        Raises
        ------
        ValueError
            If the dataset holds no problem of this kind.
        """
        try:
            stored = dict(json.loads(dataset.attrs["parameters"])["problem"])
            axes = json.loads(dataset.attrs["sweep"])["axes"] if "sweep" in dataset.attrs else ()
            stored |= {name: dataset[name].item() for name in axes if name in stored}
            if stored.pop("kind") == cls.kind:
                return cls(**stored)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # the last of endless JSON
            msg = f"Argument `dataset` must hold `parameters` with a {cls.__name__}, but does not ({error})."
            raise ValueError(msg) from error
        msg = f"Argument `dataset` must hold `parameters` with a {cls.__name__}, but holds another problem."
        raise ValueError(msg)

    def _assign(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _positive_numbers(values: object, name: str, count: int) -> tuple[float, ...]:
    """Return so many positive numbers."""
    found = tuple(checked_number(value, name, positive=True) for value in checked_list(values, name))
    if len(found) != count:
        msg = f"Argument `{name}` must hold {count} numbers, but holds {len(found)}."
        raise ValueError(msg)
    return found


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
            self._assign(weights=_positive_numbers(self.weights, "weights", self.layers))
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
class FactualRecall(TokenProblem):
    r"""Recall the answer to a subject and a relation by linear attention over tokens.

    .. math:: \mathrm{logit}_a = \sum_{z \in \mathrm{tokens}} V_{az} K_z, \qquad L = E[-\ln p(a^*(s, r))]

    Every relation r has D answers of its own, each of S/D subjects; (s, r) is uniform. At the start V = α and
    K = α √(A + 1), with A = R D answers in all.

    Parameters
    ----------
    relations, subjects, answers : int
        Numbers R ≥ 2, S and D ≥ 2 of relations, of subjects, and of answers to one relation; S is a multiple of D.
    initial_scale : float, default 1e-3
        Scale α > 0 of the start.
    noise_tokens : int, default 0
        Number of other tokens, of which every sequence has some that say nothing; the theory does not depend on it.
    sequence_length : int, default 2
        Tokens of a sequence, subject and relation among them.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> FactualRecall(relations=4, subjects=32, answers=4).relation_first
    True
    """

    kind: ClassVar[str] = "recall"

    relations: int
    subjects: int
    answers: int
    initial_scale: float = 1e-3
    noise_tokens: int = 0
    sequence_length: int = 2

    def __post_init__(self) -> None:
        for name, minimum in (("relations", 2), ("answers", 2), ("subjects", 2), ("sequence_length", 2)):
            number = checked_integer(getattr(self, name), name, minimum=minimum, maximum=MOST_SYMBOLS)
            self._assign(**{name: number})
        self._assign(
            initial_scale=checked_number(self.initial_scale, "initial_scale", positive=True),
            noise_tokens=checked_integer(self.noise_tokens, "noise_tokens", minimum=0, maximum=MOST_SYMBOLS),
        )
        if self.subjects % self.answers:
            msg = f"Argument `subjects` must be a multiple of `answers`, {self.answers}, but is {self.subjects}."
            raise ValueError(msg)
        if (self.sequence_length > 2) != (self.noise_tokens > 0):
            msg = (
                "Argument `sequence_length` must be more than 2 if there are noise tokens, and else 2, "
                f"but is {self.sequence_length}."
            )
            raise ValueError(msg)

    @property
    def relation_first(self) -> bool:
        """Whether the relation has the larger rate at the start, √((R − 1)/(R D))/R against √((D − 1)/(R D))/S."""
        return (self.relations - 1) * self.subjects**2 >= (self.answers - 1) * self.relations**2


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
