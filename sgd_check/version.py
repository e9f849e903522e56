"""The version of the program."""

from hermite.version import __version__

__all__ = ["__version__"]
