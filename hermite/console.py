"""The console command `feature-emergence`, which first looks whether the packages that it needs are ours."""

from __future__ import annotations

import importlib

from hermite.program import EXIT_USAGE, say
from hermite.unpacked import namesake_of


def console() -> int:
    """Run `feature-emergence COMMAND …`; return the exit code, which is 2 where another `dynamics` is installed."""
    if sentence := namesake_of("dynamics"):
        say(f"error: {sentence}")
        return EXIT_USAGE
    code: int = importlib.import_module("dynamics.__main__").console()
    return code
