"""The version of the program, which its three packages share."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "feature-emergence"


def _installed() -> str:
    """Return the installed version, or "0+unknown" when run from a tree that was never installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0+unknown"


__version__ = _installed()
#: Name and version of the program, as files and `--version` have them.
PROGRAM = f"{DISTRIBUTION} {__version__}"
