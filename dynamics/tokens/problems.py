"""The problems that are learned from tokens: frozen values, checked, stored and read back alike.

This module is light to import: it needs numpy alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from dynamics.problem.checks import (
    check_choice,
    checked_increasing,
    checked_integer,
    checked_list,
    checked_number,
    field_values,
    float_vector,
    require,
)
from hermite.arrays import Array
from hermite.text.formulas import clean, first_of, table_of_pairs
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    import xarray as xr

#: Numbers of symbols, tokens or items that float64 counts exactly in products of them.
MOST_SYMBOLS = 2**40
#: Tokens of a sequence and groups of items, of which the reduction has about the square as numbers.
MOST_TOKENS, MOST_GROUPS = 256, 128
#: Selected tokens and heads, of which the reduction has the product.
MOST_SELECTED = 64
#: Samples in a group of GRPO, since a step sums over all numbers of good ones; logits whose policy float64 holds.
MOST_SAMPLES, MOST_LOGITS = 4096, 300


def counted(least: int, most: int = MOST_SYMBOLS) -> Callable[[object, str], int]:
    """Return a check that a value is an integer from `least` to `most`, as of symbols, tokens or items."""
    return partial(checked_integer, minimum=least, maximum=most)


POSITIVE = partial(checked_number, positive=True)
NON_NEGATIVE = partial(checked_number, positive=False)


class TokenProblem:
    """Base of all problems of this room; a subclass is a frozen dataclass of plain values and tuples.

    A bad value raises TypeError or ValueError with one sentence: what must hold, what was given.

    Examples
    --------
    >>> from dataclasses import replace
    >>> problem = Composition(vocabulary=6, hops=4)
    >>> problem.kind, replace(problem, hops=8).layers
    ('composition', 4)
    """

    kind: ClassVar[str]
    #: Field -> its check, which returns the value; that of a field that is None by default may be None. Fields whose
    #: type is `Literal` need none.
    _checks: ClassVar[dict[str, Callable[[object, str], object]]] = {}

    def __post_init__(self) -> None:
        """Check all fields, each alone and then together; ValueError with the first fault."""
        types = get_type_hints(type(self))
        defaults = {field.name: field.default for field in fields(self)}  # type: ignore[arg-type]  # a dataclass
        for name, value in field_values(self).items():
            if get_origin(types[name]) is Literal:
                check_choice(name, value, get_args(types[name]))
            if name in self._checks and not (value is defaults[name] is None):
                checked = self._checks[name](value, name)
                self._assign(**{name: tuple(checked) if isinstance(checked, list) else checked})
        self._check()

    def _check(self) -> None:
        """Check fields together."""

    def parameters(self) -> dict[str, object]:
        """Return kind and fields as a JSON-ready dict."""
        values = field_values(self).items()
        return {"kind": self.kind} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in values
        }

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return nothing: all inputs are among the parameters."""
        return {}

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Self:
        """Return the problem that a result answers; of a sweep one point must be left.

        Raises
        ------
        ValueError
            If the dataset holds no problem of this kind.
        """
        kind = cls.__name__
        try:
            stored = dict(json.loads(dataset.attrs["parameters"])["problem"])
            axes = json.loads(dataset.attrs["sweep"])["axes"] if "sweep" in dataset.attrs else ()
            point = {name: dataset[name].item() for name in axes if name in stored}
            if stored.pop("kind") == cls.kind:
                return cls(**stored).changed(**point)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # the last of endless JSON
            refuse(f"Argument `dataset` must hold `parameters` with a {kind}, but does not ({error}).")
        return refuse(f"Argument `dataset` must hold `parameters` with a {kind}, but holds another problem.")

    def changed(self, **fields: object) -> Self:
        """Return the problem with other values of these fields, as a sweep over them asks for."""
        return replace(self, **fields)  # type: ignore[type-var]  # a subclass is a dataclass

    def _repr_html_(self) -> str:
        """Return the task, which is the first line of the class's documentation, and the fields that are given."""
        rows = {"task": clean((type(self).__doc__ or "").partition("\n")[0])}
        for name, value in self.parameters().items():
            if name != "kind" and value not in (None, []):
                rows[name.replace("_", " ")] = clean(first_of(value if isinstance(value, list) else [value]))
        return table_of_pairs(f"<b>{type(self).__name__}</b>, learned from tokens", rows)

    def _assign(self, **values: object) -> None:
        """Set fields of this frozen problem, while it is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def group_sizes(values: object, name: str) -> list[int]:
    """Return `values` as a list of integers of at least 1; ValueError, which names the argument, for others."""
    return [counted(1)(size, name) for size in checked_list(values, name)]


def positive_numbers(values: object, name: str, count: int) -> tuple[float, ...]:
    """Return `values` as a list of `count` positive numbers; ValueError, which names the argument, for others."""
    numbers = tuple(checked_number(value, name, positive=True) for value in checked_list(values, name))
    require(len(numbers) == count, f"Argument `{name}` must hold {count} numbers, but holds {len(numbers)}.")
    return numbers


@dataclass(frozen=True, kw_only=True)
class Composition(TokenProblem):
    r"""Compose k hidden permutations of N symbols, by layers of attention that each double the number of hops.

    .. math:: \mathrm{hop}^1_i = \sigma_i \pi_i, \qquad
       \mathrm{hop}^{2r}_i = \mathrm{hop}^r_{i+r} \circ \mathrm{hop}^r_i

    .. math:: c^0 = \mathrm{onehot}\, \sigma_i(j), \qquad c^1 = \mathrm{softmax}(W_1)\, c^0, \qquad
       c^l = \mathrm{softmax}\Big(\sum_v c^{l-1}_{(i,j)}[v]\, W_l[(i,v), \cdot]\Big)\, c^{l-1}

    The input is k uniform permutations σ_i. Layer l of log₂ k + 1 is read against hop 2^(l−1) at all k N positions; the
    loss is Σ_l ω_l Σ (1/N − c^l[y]), or −ln c^l[y], c^l[y] being the weight on the right symbol.

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

    Examples
    --------
    >>> Composition(vocabulary=6, hops=4).layers
    3
    """

    kind = "composition"
    _checks: ClassVar = {
        "vocabulary": counted(2), "hops": counted(2), "stage_time": POSITIVE, "initial_score": NON_NEGATIVE,
    }  # fmt: skip

    vocabulary: int
    hops: int
    data: Literal["mixture", "curriculum", "hardest"] = "mixture"
    weights: Sequence[float] | None = None
    stage_time: float | None = None
    loss: Literal["correlation", "cross-entropy"] = "correlation"
    initial_score: float = 0.0

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        require(not self.hops & (self.hops - 1), f"Argument `hops` must be a power of 2, but is {self.hops}.")
        require(
            self.weights is None or self.data == "mixture",
            f"Argument `weights` must be None unless `data` is 'mixture', but is {shown(self.weights)}.",
        )
        require(
            self.stage_time is None or self.data == "curriculum",
            f"Argument `stage_time` must be None unless `data` is 'curriculum', but is {self.stage_time}.",
        )
        if self.weights is not None:
            self._assign(weights=positive_numbers(self.weights, "weights", self.layers))

    @property
    def layers(self) -> int:
        """Number of layers, log₂ k + 1."""
        return self.hops.bit_length()

    @property
    def stage_weights(self) -> Array:
        """Weight ω of every layer's loss in every stage, (stages, layers); a curriculum has one stage per layer."""
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
        Index, from 0, of the parent of each of the n ≥ 3 tokens, which comes before it; None at a root. A chain, None,
        0, 1, 2, …, is learned by an induction head.
    vocabulary : int
        Number S ≥ 2 of symbols.
    persistence : float, default 1
        q, above 0 and at most 1.
    second_layer : {"linear", "softmax"}
    beta : float, optional
        β > 0 of a softmax.
    transitions : {"permutation", "dirichlet"}
        Whether Π is a uniform permutation, or has uniform rows on the simplex; then the second layer is a softmax.
    test_length : int, optional
        Number n' ≥ 3 of tokens at which `test_loss(time)` is told too, of the same first layer: the first n' tokens of
        the graph, or a longer chain, on whose new tokens the first layer is as it began.

    Examples
    --------
    >>> CausalGraph(parents=[None, 0, 1, 2], vocabulary=5, persistence=0.9).length
    4
    """

    kind = "causal-graph"
    _checks: ClassVar = {
        "parents": checked_list, "vocabulary": counted(2), "persistence": partial(POSITIVE, maximum=1.0),
        "beta": POSITIVE, "test_length": counted(3, MOST_TOKENS),
    }  # fmt: skip

    parents: Sequence[int | None]
    vocabulary: int
    persistence: float = 1.0
    second_layer: Literal["linear", "softmax"] = "linear"
    beta: float | None = None
    transitions: Literal["permutation", "dirichlet"] = "permutation"
    test_length: int | None = None

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        parents = self.parents
        require(
            3 <= len(parents) <= MOST_TOKENS,
            f"Argument `parents` must hold 3 to {MOST_TOKENS} parents, but holds {len(parents)}.",
        )
        require(
            parents[0] is None,
            f"Argument `parents` must begin with None, since nothing comes before, but with {shown(parents[0])}.",
        )
        indices = [
            None if parent is None else checked_integer(parent, "parents", minimum=0, maximum=t - 1)
            for t, parent in enumerate(parents)
        ]
        self._assign(parents=tuple(indices))
        is_linear = self.second_layer == "linear"
        require(
            (self.beta is None) == is_linear,
            f"Argument `beta` must be given for a softmax second layer alone, but is {self.beta}.",
        )
        require(
            not (is_linear and self.transitions == "dirichlet"),
            f"Argument `second_layer` must be 'softmax' for Dirichlet transitions, but is {self.second_layer!r}.",
        )
        is_chain = indices == [None, *range(self.length - 1)]
        require(
            self.test_length is None or self.test_length <= self.length or is_chain,
            f"Argument `test_length` must be at most {self.length}, because only a chain goes on in a known way, but "
            f"is {self.test_length}.",
        )

    @property
    def length(self) -> int:
        """Number n of tokens."""
        return len(self.parents)

    def tested(self) -> Self:
        """Return the graph of `test_length` tokens."""
        length = self.test_length or self.length
        parents = self.parents[:length] if length <= self.length else [None, *range(length - 1)]
        return replace(self, parents=parents, test_length=None)


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

    Examples
    --------
    >>> FactualRecall(relations=4, subjects=32, answers=4).relation_first
    True
    """

    kind = "recall"
    _checks: ClassVar = {
        "relations": counted(2), "subjects": counted(2), "answers": counted(2), "initial_scale": POSITIVE,
        "noise_tokens": counted(0), "sequence_length": counted(2),
    }  # fmt: skip

    relations: int
    subjects: int
    answers: int
    initial_scale: float = 1e-3
    noise_tokens: int = 0
    sequence_length: int = 2

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        require(
            self.subjects % self.answers == 0,
            f"Argument `subjects` must be a multiple of `answers`, {self.answers}, but is {self.subjects}.",
        )
        length = self.sequence_length
        require(
            (self.noise_tokens > 0) == (length > 2),
            f"Argument `sequence_length` must be more than 2 if there are noise tokens, and else 2, but is {length}.",
        )

    @property
    def relation_first(self) -> bool:
        """Whether the relation has the larger rate at the start, √((R − 1)/(R D))/R against √((D − 1)/(R D))/S."""
        return (self.relations - 1) * self.subjects**2 >= (self.answers - 1) * self.relations**2


@dataclass(frozen=True, kw_only=True)
class Selection(TokenProblem):
    r"""Copy the q tokens that a prompt of positions asks for, by H heads of attention.

    .. math:: s_{hj} = \sum_r K_h[r][t_r, j], \qquad \mathrm{out}_r = \sum_h U_{rh} \sum_j
       \mathrm{softmax}(s_h)_j\, x_j, \qquad L = \frac1{2d} \sum_r E|\mathrm{out}_r - x_{t_r}|^2

    The prompt holds q distinct positions t_r of N tokens x_j in d dimensions, E x_j x_kᵀ = δ_jk 1. Scores K of a head
    begin with two values, whose difference on and off the wanted position is δ_hr. One head starts from U = 0, δ = 0;
    several from normal U and δ, because heads that start alike stay alike.

    A component is a head, learned when half of its attention is on wanted tokens. The answer also holds
    `attention(time, head, token)` on each of these; `length_at_half(time)`, the number of tokens at which every head
    still has half of its attention there, min_h Σ_r e^{δ_hr} + q; and at a test length `test_loss(time)` and
    `test_attention(time, head, token)`.

    Parameters
    ----------
    tokens : int
        Number N ≥ 2 of tokens.
    selected : int
        Number q of tokens that are asked for, less than N and at most 64.
    heads : int
        Number H of heads, at most 64. With fewer heads than selected tokens the loss ends at (q − H)/2.
    initial_scale : float, default 0
        Standard deviation of U and δ at the start, above 0 for several heads.
    seed : int, default 0
        Draws the start.
    test_length : int, optional
        Number N' of tokens on which the trained model is tested too, more than q.

    Examples
    --------
    >>> Selection(tokens=16, selected=1, heads=1).start()
    (array([[0.]]), array([[0.]]))
    """

    kind = "selection"
    _checks: ClassVar = {
        "tokens": counted(2), "selected": counted(1, MOST_SELECTED), "heads": counted(1, MOST_SELECTED),
        "initial_scale": NON_NEGATIVE, "seed": partial(checked_integer, minimum=0), "test_length": counted(2),
    }  # fmt: skip

    tokens: int
    selected: int
    heads: int
    initial_scale: float = 0.0
    seed: int = 0
    test_length: int | None = None

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        for name, length in (("tokens", self.tokens), ("test_length", self.test_length)):
            require(
                length is None or length > self.selected,
                f"Argument `{name}` must be more than `selected`, {self.selected}, but is {length}.",
            )
        require(
            self.heads == 1 or self.initial_scale > 0.0,
            "Argument `initial_scale` must be positive for several heads, because heads that start alike stay alike, "
            f"but is {self.initial_scale}.",
        )

    def start(self) -> tuple[Array, Array]:
        """Return the read-out U (selected, heads) and score differences δ (heads, selected) at the start."""
        weights = np.random.default_rng(self.seed).normal(0.0, self.initial_scale, (2, self.selected, self.heads))
        return weights[0], weights[1].T


@dataclass(frozen=True, kw_only=True)
class AssociativeMemory(TokenProblem):
    r"""Store N pairs in a matrix, by gradient descent or by steps on singular values such as Muon's.

    .. math:: L = \sum_i p_i\, \mathrm{CE}(u_j\cdot W e_i), \qquad W' = h(-\nabla L), \qquad
       h(z) = z \text{ or } \frac{z}{\sqrt{z^2 + \lambda^2}} \text{ of every singular value,}

    from W = 0. Inputs e_i and outputs u_i are orthonormal, and items come in groups of one frequency each; or they are
    Gaussian in d dimensions, item i has frequency p_i ∝ i^(−a), and one step is taken.

    Parameters
    ----------
    group_sizes : sequence of int, optional
        Numbers n_m of items in the groups; orthonormal embeddings need them.
    frequencies : sequence of float, optional
        Frequency π_m > 0 of an item of each group, Σ n_m π_m = 1.
    frequency_exponent : float, optional
        a ≥ 0 instead: π_m ∝ (first · last rank of the group)^(−a/2). Gaussian embeddings need it.
    optimizer : {"gradient", "spectral"}
    smoothing : float, optional
        λ > 0 of the spectral optimizer; Muon is λ → 0.
    embeddings : {"orthonormal", "gaussian"}
    items : int, optional
        Number N ≥ 2 of items with Gaussian embeddings.
    dimension : int, optional
        Of Gaussian embeddings. Of orthonormal ones that of the full model, at least the number of items, which it is by
        default; theory does not depend on it.

    Examples
    --------
    >>> problem = AssociativeMemory(group_sizes=[2, 4], frequency_exponent=1.5)
    >>> problem.count, problem.group_frequencies.round(3).tolist()
    (6, [0.361, 0.069])
    """

    kind = "memory"
    _checks: ClassVar = {"smoothing": POSITIVE, "frequency_exponent": NON_NEGATIVE, "group_sizes": group_sizes}

    group_sizes: Sequence[int] = ()
    frequencies: Sequence[float] | None = None
    frequency_exponent: float | None = None
    optimizer: Literal["gradient", "spectral"] = "gradient"
    smoothing: float | None = None
    embeddings: Literal["orthonormal", "gaussian"] = "orthonormal"
    items: int | None = None
    dimension: int | None = None

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        require(
            (self.smoothing is not None) == (self.optimizer == "spectral"),
            f"Argument `smoothing` must be given for the spectral optimizer alone, but is {self.smoothing}.",
        )
        sizes = self.group_sizes
        if self.embeddings == "gaussian":
            for name, value in (("group_sizes", sizes), ("frequencies", self.frequencies)):
                require(not value, f"Argument `{name}` must be absent for Gaussian embeddings, but is {shown(value)}.")
            require(
                self.frequency_exponent is not None,
                "Argument `frequency_exponent` must be given for Gaussian embeddings, but is None.",
            )
            self._assign(items=counted(2)(self.items, "items"), dimension=counted(2)(self.dimension, "dimension"))
            return
        require(
            self.items is None,
            f"Argument `items` must be None for orthonormal embeddings, which have groups, but is {shown(self.items)}.",
        )
        require(
            1 <= len(sizes) <= MOST_GROUPS and sum(sizes) >= 2,
            f"Argument `group_sizes` must hold 1 to {MOST_GROUPS} sizes of 2 items or more in all, but is "
            f"{shown(sizes)}.",
        )
        require(
            (self.frequencies is None) != (self.frequency_exponent is None),
            "Arguments `frequencies` and `frequency_exponent` must be one given and one None, but are not.",
        )
        if self.frequencies is not None:
            self._assign(frequencies=positive_numbers(self.frequencies, "frequencies", len(sizes)))
            total = float(self.group_frequencies @ np.array(sizes))
            require(
                abs(total - 1.0) <= 1e-9,
                f"Argument `frequencies` must be such that those of all items have sum 1, but they have {total}.",
            )
        if self.dimension is not None:
            self._assign(dimension=checked_integer(self.dimension, "dimension", minimum=self.count))

    def changed(self, **fields: object) -> Self:
        """Return the problem with other values of these fields.

        A smoothing alone makes the optimizer spectral, its absence gradient descent, which drops a smoothing.
        """
        if fields.get("optimizer") == "gradient":
            fields["smoothing"] = None
        elif "smoothing" in fields:
            fields.setdefault("optimizer", "gradient" if fields["smoothing"] is None else "spectral")
        return super().changed(**fields)

    @property
    def count(self) -> int:
        """Number N of items."""
        return self.items or sum(self.group_sizes)

    @property
    def group_frequencies(self) -> Array:
        """Frequency π_m of one item of each group, shape (groups,); over all items they have sum 1."""
        if self.frequencies is not None:
            return np.array(self.frequencies, dtype=np.float64)
        sizes = np.array(self.group_sizes, dtype=np.float64)
        last = np.cumsum(sizes)
        weights = ((last - sizes + 1.0) * last) ** (-0.5 * (self.frequency_exponent or 0.0))
        return np.asarray(weights / (weights @ sizes))


@dataclass(frozen=True, kw_only=True)
class TriggerTask(TokenProblem):
    r"""Repeat the symbol that came after the first trigger, by its content or by its position.

    .. math:: (x_1, \ldots, x_{l_1}, t, o, x_{l_1 + 3}, \ldots, t) \to o, \qquad f = \sum_s A_s\, \mathrm{onehot}(z_s),

    .. math:: A = \mathrm{softmax}_s\big(a[z_s] + b[z_{s-1}] + \sqrt\kappa\, B[T, s]\big)

    o and the l_1 + l_2 other symbols are uniform. In training l_1 = l_2 = l with probability P_l, and sequences have
    T = 2l + 3 tokens. The loss is −E f[o]; a, b and B start at 0. An induction head learns b of the trigger, and finds
    o wherever it is; a shortcut learns B, and looks where o was in training: at l_1 ≠ l_2 it wins if κ R > 1.

    An answer has `attention(time, gap, key)` in training, 0 beyond the last key; `moved_attention(time, gap,
    moved_key)`, to the right key and to the place of training at l_1 ≠ l_2; and `kappa_R(time)`, κ max_l β_l/Σ_l β_l of
    the scores β of the right places. All are dimensionless.

    Parameters
    ----------
    symbols : int
        Number S ≥ 2 of symbols other than triggers.
    gaps : sequence of int
        The increasing l ≥ 1 of training, of at most 256 tokens.
    gap_weights : sequence of float, optional
        Their probabilities P_l > 0, of sum 1. Default: all alike.
    triggers : float, default 1
        κ ≥ 1: the number of triggers, of which every sequence has one; time is then in units of one over that number.
    shift : int, default 1
        From 1 to the least gap: attention out of distribution is that at l_1 = l − shift and l_2 = l + shift.
    test_length : int, optional
        Number of tokens, at least 5 and no length of training, at which `test_loss(time)` and `test_attention(time)`,
        the attention to the right key, are told too.

    Examples
    --------
    >>> TriggerTask(symbols=50, gaps=[4, 8]).weights.tolist()
    [0.5, 0.5]
    """

    kind = "trigger"
    _checks: ClassVar = {
        "symbols": counted(2), "gaps": partial(checked_increasing, minimum=1, fewest=1), "triggers": POSITIVE,
        "shift": counted(1), "test_length": counted(5),
    }  # fmt: skip

    symbols: int
    gaps: Sequence[int]
    gap_weights: Sequence[float] | None = None
    triggers: float = 1.0
    shift: int = 1
    test_length: int | None = None

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        most = (MOST_TOKENS - 3) // 2
        gaps = self.gaps
        require(gaps[-1] <= most, f"Argument `gaps` must hold gaps of at most {most}, but is {shown(gaps)}.")
        require(self.triggers >= 1.0, f"Argument `triggers` must be at least 1, but is {self.triggers}.")
        require(
            self.shift <= gaps[0], f"Argument `shift` must be at most the least gap, {gaps[0]}, but is {self.shift}."
        )
        require(
            self.test_length not in [2 * gap + 3 for gap in gaps],
            "Argument `test_length` must be no length of training, at which positions have scores too, but is "
            f"{self.test_length}.",
        )
        if self.gap_weights is not None:
            self._assign(gap_weights=positive_numbers(self.gap_weights, "gap_weights", len(gaps)))
            total = sum(self.gap_weights)
            require(abs(total - 1.0) <= 1e-9, f"Argument `gap_weights` must have sum 1, but has {total}.")

    @property
    def weights(self) -> Array:
        """Probability P_l of each gap l in training, shape (gaps,)."""
        return np.array(self.gap_weights or [1.0 / len(self.gaps)] * len(self.gaps))


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(TokenProblem):
    r"""Improve a softmax policy over actions, the answers to one prompt, by the rewards that a reward model gives.

    .. math:: p = \mathrm{softmax}(\theta), \quad V = E_p r, \qquad \theta' = \nabla V, \quad
       \nabla\big(V - \beta\, \mathrm{KL}(p \| p_0)\big) \text{ or } \nabla V/\mathrm{sd}_p(r)

    for the objectives "plain", "kl" and "grpo"; "a-star" descends E_p (β ln(p/p_0) − r + V̂)² with the policy that
    samples held fixed. Actions come in groups of one reward and one initial logit each. A component
    "reward x" is learned when the probability of rewards of at least x is halfway from the start to its limit. An
    answer has `probability(time, group)` of all actions of a group, `reward(time)`, and `true_reward(time)` if true
    rewards are given. Its loss is −V, and β KL more for "kl" and "a-star".

    Parameters
    ----------
    group_sizes : sequence of int
        Number n_g of actions in each group.
    rewards : sequence of float
        Reward r_g of an action in each group; they must not be all the same.
    initial_logits : sequence of float, optional
        Of an action in each group; 0 by default.
    objective : {"plain", "kl", "a-star", "grpo"}
    kl_weight : float, optional
        β > 0 of "kl" and "a-star".
    group_samples : int, optional
        Samples G of a group of "grpo", which takes two different rewards then; by default G → ∞.
    true_rewards : sequence of float, optional
        Of an action in each group, where `rewards` are those of a reward model. The flow does not depend on them.

    Examples
    --------
    >>> PolicyGradient(group_sizes=[1, 15], rewards=[1.0, 0.0]).reward_variance
    0.05859375
    """

    kind = "policy-gradient"
    _checks: ClassVar = {"group_sizes": group_sizes, "kl_weight": POSITIVE, "group_samples": counted(2, MOST_SAMPLES)}

    group_sizes: Sequence[int]
    rewards: Sequence[float]
    initial_logits: Sequence[float] | None = None
    objective: Literal["plain", "kl", "a-star", "grpo"] = "plain"
    kl_weight: float | None = None
    group_samples: int | None = None
    true_rewards: Sequence[float] | None = None

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        count = len(self.group_sizes)
        require(
            2 <= count <= MOST_GROUPS,
            f"Argument `group_sizes` must hold 2 to {MOST_GROUPS} sizes, but is {shown(self.group_sizes)}.",
        )
        lists = {"rewards": self.rewards, "initial_logits": self.initial_logits, "true_rewards": self.true_rewards}
        for name, values in lists.items():
            if values is not None:
                numbers = tuple(float_vector(values, name, count, "groups").tolist())
                require(
                    name == "initial_logits" or len(set(numbers)) > 1,
                    f"Argument `{name}` must hold two different numbers or more, but is {shown(numbers)}.",
                )
                self._assign(**{name: numbers})
        require(
            max(map(abs, self.rewards)) <= 1e100 and np.ptp(self.rewards) >= 1e-100,
            "Argument `rewards` must be at most 1e100 in size, and differ by at least 1e-100, but is "
            f"{shown(self.rewards)}.",
        )
        require(
            (self.kl_weight is not None) == (self.objective in ("kl", "a-star")),
            f"Argument `kl_weight` must be given for 'kl' and 'a-star' alone, but is {self.kl_weight}.",
        )
        require(
            (self.kl_weight or 0.0) <= 1e6 * np.ptp(self.rewards),
            f"Argument `kl_weight` must be at most 1e6 times the range of rewards, but is {self.kl_weight}.",
        )
        require(
            np.ptp(self.groups[2]) <= MOST_LOGITS,
            f"Argument `initial_logits` must lie within {MOST_LOGITS} of each other, but is "
            f"{shown(self.initial_logits)}.",
        )
        is_binary = self.objective == "grpo" and len(set(self.rewards)) == 2
        require(
            self.group_samples is None or is_binary,
            "Argument `group_samples` must be None unless `objective` is 'grpo' and two different rewards are given, "
            f"but is {self.group_samples}.",
        )

    @property
    def groups(self) -> Array:
        """Size, reward and initial logit of all groups, shape (3, groups)."""
        return np.array([self.group_sizes, self.rewards, self.initial_logits or np.zeros(len(self.group_sizes))])

    @property
    def reward_variance(self) -> float:
        """Variance of the reward under the policy at the start, which sets its speed there."""
        sizes, rewards, logits = self.groups
        return float(np.cov(rewards, aweights=sizes * np.exp(logits - logits.max()), ddof=0))

    @property
    def accuracy(self) -> float:
        """Share of the pairs of actions of different true rewards that `rewards` put in order; NaN without such."""
        if self.true_rewards is None:
            return math.nan
        model, true = (np.sign(np.subtract.outer(rewards, rewards)) for rewards in (self.rewards, self.true_rewards))
        pairs = np.outer(self.groups[0], self.groups[0]) * (true != 0)
        return float((pairs * (model == true)).sum() / pairs.sum())


@dataclass(frozen=True, kw_only=True)
class ChainOfThought(TokenProblem):
    r"""Solve linear regression in context by one layer of linear attention, which is trained on steps of a chain.

    .. math:: w_{k+1} = w_k - \eta S (w_k - w^*), \qquad S = X^T X/n,

    .. math:: L = \frac1{2d} \sum_{k<K} E \Big|w_k + \Big[V \sum_z z\, (z^T W z_k)\Big/n\Big]_w - w_{k+1}\Big|^2

    Tokens are (x_i, y_i, 0, 0) of n examples, y = w*·x, and z_k = (0, 0, w_k, 1), with w_0 = 0; x and w* are standard
    Gaussian. At the start V has a on its block from x to w, W has b on that from w to x and c from 1 to y.

    An answer has `weights(time, weight_name)`, which are a, b and c; `chain_error(time, steps)`, E|w_k − w*|²/d after 1
    to 2 K steps that the model takes by itself; and `sharpness(time)`, the curvature of the loss in the weights of V on
    y. At a learning rate above 2 over its maximum, the attribute `learning_rate_limit`, the full model is not stable,
    and `solve` issues a UserWarning. All are dimensionless.

    Parameters
    ----------
    dimension, examples : int
        Numbers d, 2 to 256, and n of components of x and of examples.
    steps : int
        Number K of steps of the chain, 2 to 64.
    rate : float
        η > 0 of the chain, below 2/(1 + √(d/n))², since it does not converge beyond.
    initial_scale : float, default 0.05
        a = b = c > 0 at the start.

    Examples
    --------
    >>> ChainOfThought(dimension=10, examples=20, steps=10, rate=0.3).loss_without_chain
    0.3548387096774194
    """

    kind = "chain"
    _checks: ClassVar = {
        "dimension": counted(2, 256), "examples": counted(1), "steps": counted(2, 64), "rate": POSITIVE,
        "initial_scale": POSITIVE,
    }  # fmt: skip

    dimension: int
    examples: int
    steps: int
    rate: float
    initial_scale: float = 0.05

    def _check(self) -> None:
        """Check fields together; ValueError with the first fault."""
        limit = 2.0 / (1.0 + (self.dimension / self.examples) ** 0.5) ** 2
        require(
            self.rate < limit,
            f"Argument `rate` must be below {limit:.4g}, so that the chain converges, but is {self.rate}.",
        )

    @property
    def loss_without_chain(self) -> float:
        """E|w − w*|²/d of the best single step c S w*, at c = n/(n + d + 1)."""
        return (self.dimension + 1) / (self.examples + self.dimension + 1)
