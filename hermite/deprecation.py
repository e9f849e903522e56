"""How a public name goes: it works for the rest of a major version, and tells of what is used instead."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from hermite.text.messages import require, warn

_VERSION = re.compile(r"(\d+)\.(\d+)")


def deprecate(subject: str, instead: str, *, since: str, until: str) -> None:
    """Warn, at the line of the user, that a name, argument or option is deprecated.

    Parameters
    ----------
    subject, instead
        What is deprecated, and what to use, as the sentence has them.
    since
        Version, such as "1.2", that deprecates it.
    until
        Version that removes it: a later major one, such as "2.0".

    Warns
    -----
    FutureWarning
        Which Python shows by default, also where a library calls the name.

    Raises
    ------
    ValueError
        Unless `until` is the first version of a later major one than `since`.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     deprecate("Argument `lr`", "`learning_rate`", since="1.2", until="2.0")
    >>> print(caught[0].message)
    Argument `lr` is deprecated since version 1.2 and goes in 2.0: use `learning_rate`.
    """
    begin, end = _VERSION.fullmatch(since), _VERSION.fullmatch(until)
    require(
        begin is not None and end is not None and int(end[1]) > int(begin[1]) and end[2] == "0",
        f"Argument `until` must be the first version of a later major one than `since`, which is {since!r}, but is "
        f"{until!r}.",
    )
    warn(f"{subject} is deprecated since version {since} and goes in {until}: use {instead}.", category=FutureWarning)


def former_place(module: str, places: Mapping[str, str], *, since: str, until: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module from which names have moved: it gives them, and warns of their new place.

    Parameters
    ----------
    module
        The former module.
    places
        Name -> module in which it is now.
    since, until
        As in `deprecate`.

    Raises
    ------
    AttributeError
        By the returned function, for any other name.
    """

    def moved(name: str) -> Any:
        """Return the object of a name that has moved."""
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)  # noqa: EM102
        deprecate(f"`{module}.{name}`", f"`{places[name]}.{name}`", since=since, until=until)
        return getattr(importlib.import_module(places[name]), name)

    return moved
