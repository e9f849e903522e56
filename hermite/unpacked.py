"""Public names of a package, found on first use in files that lie in a folder."""

from pathlib import Path

import lazy_loader  # type: ignore[import-untyped]  # as its authors leave it


def exported(package: str, file: str) -> object:
    """Return `__getattr__`, `__dir__` and `__all__` of the package in `file`, by its stub.

    ImportError is raised where there is none, as in an archive, from which other files could not be read either.
    """
    folder = Path(file).parent
    if not (folder / "__init__.pyi").is_file():
        msg = f"Package {package!r} must lie in a folder with all of its files, not an archive, but is in '{folder}'."
        raise ImportError(msg)
    return lazy_loader.attach_stub(package, file)
