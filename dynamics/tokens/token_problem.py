"""What the problems that are learned from tokens have in common: frozen values, checked, stored and read back alike."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dynamics.problem.checks import checked_list, checked_number
from hermite.text.html import clean, first_of, table_of_pairs

if TYPE_CHECKING:
    from hermite.arrays import Array

#: Numbers of symbols, tokens or items that float64 counts exactly in products of them.
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
            chosen = {name: dataset[name].item() for name in axes if name in stored}
            if stored.pop("kind") == cls.kind:
                return cls(**stored).changed(**chosen)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # the last of endless JSON
            msg = f"Argument `dataset` must hold `parameters` with a {cls.__name__}, but does not ({error})."
            raise ValueError(msg) from error
        msg = f"Argument `dataset` must hold `parameters` with a {cls.__name__}, but holds another problem."
        raise ValueError(msg)

    def changed(self, **fields: Any) -> Self:
        """Return the problem with other values of these fields, as a sweep over them asks for."""
        return replace(self, **fields)  # type: ignore[type-var]  # a subclass is a dataclass

    def _repr_html_(self) -> str:
        """Return the task, which is the first line of the class's documentation, and the fields that are given."""
        rows = {"task": clean((type(self).__doc__ or "").partition("\n")[0])}
        for name, value in self.parameters().items():
            if name != "kind" and value not in (None, []):
                rows[name.replace("_", " ")] = clean(first_of(value if isinstance(value, list) else [value]))
        return table_of_pairs(f"<b>{type(self).__name__}</b>, learned from tokens", rows)

    def _assign(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def positive_numbers(values: object, name: str, count: int) -> tuple[float, ...]:
    """Return so many positive numbers."""
    found = tuple(checked_number(value, name, positive=True) for value in checked_list(values, name))
    if len(found) != count:
        msg = f"Argument `{name}` must hold {count} numbers, but holds {len(found)}."
        raise ValueError(msg)
    return found
