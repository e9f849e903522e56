"""Renames that wait for other programs: Windows refuses to rename a file that is open, or to one that is."""

from __future__ import annotations

import time as clock
from pathlib import Path

#: Errors of Windows for a file that another program has open: access denied, or a sharing violation.
IN_USE = (5, 32)
#: Seconds for which a rename is tried again, which outlasts scanners of viruses, and between two tries.
PATIENCE, PAUSE = 1.0, 0.02


def is_in_use(error: OSError) -> bool:
    """Return whether Windows refused a call because another program has the file open."""
    return getattr(error, "winerror", None) in IN_USE


def rename(source: Path, target: Path) -> None:
    """Rename a file, over another one if there is one; raise OSError if it fails.

    While another program has one of the two open on Windows, that is tried again for up to `PATIENCE` seconds.
    """
    end = clock.monotonic() + PATIENCE
    while True:
        try:
            source.replace(target)
        except OSError as error:
            if not is_in_use(error) or clock.monotonic() > end:
                raise
            clock.sleep(PAUSE)
        else:
            return
