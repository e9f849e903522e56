"""Problems of memory: factual recall, and associative memory. Light to import: numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from dynamics.problem.checks import check_choice, checked_integer, checked_list, checked_number
from dynamics.tokens.token_problem import MOST_SYMBOLS, TokenProblem, positive_numbers
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermite.arrays import Array


#: Groups of items; the reduction has their square as numbers.
MOST_GROUPS = 128


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

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> problem = AssociativeMemory(group_sizes=[2, 4], frequency_exponent=1.5)
    >>> problem.count, problem.group_frequencies.round(3).tolist()
    (6, [0.361, 0.069])
    """

    kind: ClassVar[str] = "memory"

    group_sizes: Sequence[int] = ()
    frequencies: Sequence[float] | None = None
    frequency_exponent: float | None = None
    optimizer: Literal["gradient", "spectral"] = "gradient"
    smoothing: float | None = None
    embeddings: Literal["orthonormal", "gaussian"] = "orthonormal"
    items: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, ("gradient", "spectral"))
        check_choice("embeddings", self.embeddings, ("orthonormal", "gaussian"))
        if (self.smoothing is None) != (self.optimizer == "gradient"):
            given = shown(self.smoothing)
            msg = f"Argument `smoothing` must be given for the spectral optimizer alone, but is {given}."
            raise ValueError(msg)
        if self.smoothing is not None:
            self._assign(smoothing=checked_number(self.smoothing, "smoothing", positive=True))
        if self.frequency_exponent is not None:
            exponent = checked_number(self.frequency_exponent, "frequency_exponent", positive=False)
            self._assign(frequency_exponent=exponent)
        sizes = tuple(
            checked_integer(size, "group_sizes", minimum=1, maximum=MOST_SYMBOLS)
            for size in checked_list(self.group_sizes, "group_sizes")
        )
        self._assign(group_sizes=sizes)
        if self.embeddings == "gaussian":
            self._check_gaussian()
        else:
            self._check_groups(sizes)

    def _check_gaussian(self) -> None:
        """Check what Gaussian embeddings need, and refuse groups."""
        for name in ("group_sizes", "frequencies"):
            if getattr(self, name):
                msg = f"Argument `{name}` must be absent for Gaussian embeddings, but is {shown(getattr(self, name))}."
                raise ValueError(msg)
        if self.frequency_exponent is None:
            msg = "Argument `frequency_exponent` must be given for Gaussian embeddings, but is None."
            raise ValueError(msg)
        self._assign(
            items=checked_integer(self.items, "items", minimum=2, maximum=MOST_SYMBOLS),
            dimension=checked_integer(self.dimension, "dimension", minimum=2, maximum=MOST_SYMBOLS),
        )

    def _check_groups(self, sizes: tuple[int, ...]) -> None:
        """Check what orthonormal embeddings need, and refuse a number of items."""
        if self.items is not None:
            msg = f"Argument `items` must be None for orthonormal embeddings, which have groups, but is {self.items}."
            raise ValueError(msg)
        if not 1 <= len(sizes) <= MOST_GROUPS or sum(sizes) < 2:
            need = f"1 to {MOST_GROUPS} sizes of 2 items or more in all"
            msg = f"Argument `group_sizes` must hold {need}, but is {shown(sizes)}."
            raise ValueError(msg)
        if (self.frequencies is None) == (self.frequency_exponent is None):
            msg = "Arguments `frequencies` and `frequency_exponent` must be one given and one None, but are not."
            raise ValueError(msg)
        if self.frequencies is not None:
            self._assign(frequencies=positive_numbers(self.frequencies, "frequencies", len(sizes)))
            total = float(self.group_frequencies @ np.array(sizes))
            if abs(total - 1.0) > 1e-9:
                msg = f"Argument `frequencies` must be such that those of all items have sum 1, but they have {total}."
                raise ValueError(msg)
        if self.dimension is not None:
            self._assign(dimension=checked_integer(self.dimension, "dimension", minimum=self.count))

    def changed(self, **fields: Any) -> Self:
        """Return the problem with other values of these fields; gradient descent drops a smoothing, which it has not.

        A smoothing alone makes the optimizer spectral, its absence gradient descent.
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
        """Frequency π_m of an item of each group."""
        if self.frequencies is not None:
            return np.array(self.frequencies, dtype=np.float64)
        sizes = np.array(self.group_sizes, dtype=np.float64)
        last = np.cumsum(sizes)
        weights = ((last - sizes + 1.0) * last) ** (-0.5 * (self.frequency_exponent or 0.0))
        return np.asarray(weights / (weights @ sizes))
