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
