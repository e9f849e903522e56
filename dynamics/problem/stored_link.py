"""A link as it stands in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermite import HermiteExpansion


def stored_link(link: HermiteExpansion) -> dict[str, Any]:
    """Return a link as JSON-ready values: text where it has one, else its series."""
    stored: dict[str, Any] = {"name": link.name, "order": link.order}
    if link.text is not None:
        stored["text"] = link.text
    else:
        stored["coefficients"] = [float(c) for c in link.coefficients]
    return stored


def read_link(stored: dict[str, Any]) -> object:
    """Return what `hermite.expand` makes the stored link of."""
    if "text" in stored:
        return stored["text"]
    return {j: c for j, c in enumerate(stored["coefficients"]) if c != 0.0}
