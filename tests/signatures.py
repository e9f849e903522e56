"""Types and defaults of the functions behind commands, as the data from which `--help` tells them.

`python tests/signatures.py` renews `dynamics/signatures.json` and `sgd_check/signatures.json`.
"""

import inspect
import json
from importlib import import_module
from pkgutil import resolve_name

from processes import ROOT

from dynamics.__main__ import COMMANDS
from dynamics.commands.options import MODELS
from dynamics.solve.registry import registered


def functions(package):
    """Return the functions of a package by the names under which commands ask for them: answers and studies."""
    answers = {model: registered(model).function for model in MODELS} if package == "dynamics" else {}
    modules = [import_module(main_of(module)) for module in COMMANDS]
    studies = [study.prepares for module in modules if hasattr(module, "STUDIES") for study in module.STUDIES.values()]
    return answers | {path: path for path in studies if path.startswith(f"{package}.")}


def main_of(module):
    """Return the module in which the command of a package or module is."""
    return f"{module}.__main__" if hasattr(import_module(module), "__path__") else module


def signature(path):
    """Return type, as it is written, and plain default of each argument of a function except a problem's."""
    found = {}
    for name, parameter in inspect.signature(resolve_name(path)).parameters.items():
        kind, default = parameter.annotation, parameter.default
        kind = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", "")
        found[name] = [kind, None if default is parameter.empty else json.loads(json.dumps(default, default=float))]
    return found


def table(package):
    """Return the signatures of a package as JSON, a line for each argument."""
    blocks = []
    for name, path in functions(package).items():
        rows = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in signature(path).items()]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    for package in ("dynamics", "sgd_check"):
        (ROOT / package / "signatures.json").write_text(table(package), encoding="utf-8")
