"""Print the lower bounds of the dependencies, and of the extras named, as pins: `numpy>=2.0` becomes `numpy==2.0`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [project["optional-dependencies"][name] for name in sys.argv[1:]]
for requirement in (*project["dependencies"], *(each for extra in extras for each in extra)):
    print(requirement.replace(">=", "=="))
