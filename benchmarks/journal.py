"""Measurements kept as they are made, so that an interrupted suite continues where it stopped.

They are taken up again only by the same sources on the same machine; `.benchmarks/` is not under version control.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding

from dynamics.cores import find_blas
from dynamics.runs.dataset import environment

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".benchmarks"
PEERS = ("scikit-sundae", "diffrax", "jax", "pytest-benchmark", "threadpoolctl")
#: Changing how results are shown does not make them stale.
_SHOWING = {"report.py", "figures.py", "__main__.py"}


def machine() -> dict[str, Any]:
    """Return processor, cores, memory, the kernels of BLAS and the versions of everything that takes part.

    One name of a processor may stand for several generations, so that of LLVM is added.
    """
    versions: dict[str, Any] = json.loads(environment())
    versions["processor"] = f"{versions['processor']} ({llvmlite.binding.get_host_cpu_name()})"
    libraries = (library for library in find_blas().info() if library["user_api"] == "blas")
    versions["blas"] = sorted({f"{x['internal_api']} {x['version']} {x.get('architecture', '')}" for x in libraries})
    for name in PEERS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count(), "memory_bytes": memory, "machine": platform.machine(), **versions}


def _digest() -> str:
    """Return a digest of the sources that are measured and of those that measure."""
    digest = hashlib.sha256(json.dumps(machine(), sort_keys=True).encode())
    for folder in ("hermite", "dynamics", "sgd_check", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not (folder == "benchmarks" and path.name in _SHOWING):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Journal:
    """A file of lines {"key": …, "value": …}, one per finished measurement."""

    def __init__(self, name: str, *, fresh: bool = False) -> None:
        FOLDER.mkdir(exist_ok=True)
        self._path = FOLDER / f"{name}-{_digest()}.jsonl"
        self._values: dict[str, Any] = {}
        if fresh:
            self._path.unlink(missing_ok=True)
        elif self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._values[entry["key"]] = entry["value"]

    def measure(self, key: str, function: Callable[[], Any]) -> Any:
        """Return the kept value of `key`, or that of `function()`, which is then kept; say which on stdout."""
        known = key in self._values
        began = time.perf_counter()
        if not known:
            self._values[key] = function()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "value": self._values[key]}) + "\n")
        spent = "kept" if known else f"{time.perf_counter() - began:.1f} s"
        print(f"  {key}  [{spent}]  {_short(self._values[key])}", flush=True)
        return self._values[key]


def _short(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    shown = (f"{name} {item:.3g}" for name, item in value.items() if isinstance(item, float))
    return ", ".join([*([value["status"]] if "status" in value else []), *shown])
