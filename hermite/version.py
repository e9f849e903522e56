"""The version of the program, which its three packages share."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "feature-emergence"


try:
    __version__ = metadata.version(DISTRIBUTION)
except metadata.PackageNotFoundError:  # run from a tree that was never installed
    __version__ = "0+unknown"
#: Name and version of the program, as files and `--version` have them.
PROGRAM = f"{DISTRIBUTION} {__version__}"
