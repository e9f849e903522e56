"""Where a result comes from: program version, commit, and the environment it ran in."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from hermite.version import __version__

__all__ = ["__version__", "environment", "git_commit"]

RECORDED = ("numpy", "scipy", "numba", "sympy", "xarray", "netCDF4", "torch")


@functools.cache
def git_commit() -> str:
    """Return the commit of the source checkout, with "-dirty" for local changes; "" outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


@functools.cache
def environment() -> str:
    """Return versions of Python, the libraries and the processor as one JSON string."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "processor": _processor()}
    for name in RECORDED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return json.dumps(found, sort_keys=True)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
