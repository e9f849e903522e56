"""What a fault made by hand is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fault", "tests_of"]


@dataclass(frozen=True)
class Fault:
    """One line of the program as it is and as it must not become.

    `before` occurs once in `file`. With `compiled` the tests need the compiler; the others run with it off, in which
    case nothing is compiled for a fault that will not live longer than its test.
    """

    file: str
    before: str
    after: str
    wrong: str
    tests: tuple[str, ...]
    compiled: bool = False

    @property
    def name(self) -> str:
        """Module and kind of the fault, for the name of its test."""
        return f"{self.file.removesuffix('.py')}: {self.wrong}"


def tests_of(file: str, *names: str) -> tuple[str, ...]:
    """Return the tests of a file by their names, or all of them."""
    return tuple(f"tests/{file}.py::{name}" for name in names) or (f"tests/{file}.py",)
