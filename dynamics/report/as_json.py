"""Values as JSON takes them: what is not finite is null."""

from __future__ import annotations

import math
from typing import Any


def jsonable(value: Any) -> Any:
    """Return plain values as JSON takes them: what is not finite becomes None."""
    if isinstance(value, dict):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [jsonable(entry) for entry in value]
    if isinstance(value, float):  # numpy's double precision is one
        return float(value) if math.isfinite(value) else None
    return value
