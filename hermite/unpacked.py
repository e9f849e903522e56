"""Public names of a package, found on first use in files that lie in a folder, and other packages under its name.

The index of Python packages has a `dynamics` of other authors.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import lazy_loader  # type: ignore[import-untyped]  # as its authors leave it

#: A line that every package of this program has in its `__init__.py`.
MARK = "exported(__name__, __file__)"


def exported(package: str, file: str) -> object:
    """Return `__getattr__`, `__dir__` and `__all__` of the package in `file`, by its stub.

    ImportError is raised where there is none, as in an archive, from which other files could not be read either.
    """
    folder = Path(file).parent
    if not (folder / "__init__.pyi").is_file():
        msg = f"Package {package!r} must lie in a folder with all of its files, not an archive, but is in '{folder}'."
        raise ImportError(msg)
    return lazy_loader.attach_stub(package, file)


def namesake_of(package: str) -> str:
    """Return one sentence if Python finds another package under the name of one of ours, and "" otherwise.

    The other one may stand earlier on the module path, or may have replaced files of ours in the same folder.
    Nothing of it is imported.

    >>> namesake_of("dynamics")
    ''
    """
    try:
        loaded = sys.modules.get(package)
        spec = importlib.util.find_spec(package) if loaded is None else loaded.__spec__
        if spec is None:
            return ""
        place = spec.origin or ", ".join(spec.submodule_search_locations or ())
        if spec.origin is not None and MARK in Path(spec.origin).read_text(encoding="utf-8", errors="replace"):
            return ""
    except (OSError, ValueError):  # in an archive, or a module that was made without a file
        return ""
    return (
        f"Package `{package}` must be that of feature-emergence, but Python finds another one in {place!r}; rename "
        f"that one, or run `pip uninstall {package}` and `pip install --force-reinstall --no-deps feature-emergence`."
    )
