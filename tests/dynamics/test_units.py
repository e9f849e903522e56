"""Tests of units: what they call and return, when they are made, and that Python calls no kernel."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Decorators of functions that only compiled code may call, and of other compiled functions.
BARE = {"kernel", "inlined_kernel", "exact_kernel", "unit", "choice"}
COMPILED = BARE | {"pasted_kernel", "entry", "njit", "jit", "cfunc", "register_jitable", "overload", "intrinsic"}


def decorators(function):
    """Return the last names of what decorates a function."""
    names = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in names}


def module_name(path):
    """Return the name by which a source is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions_in(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


class Calls(ast.NodeVisitor):
    """Calls of kernels outside of compiled functions: of names, or of attributes of modules."""

    def __init__(self, names, modules, kernels):
        self.names, self.modules, self.kernels, self.found = names, modules, kernels, []

    def visit_FunctionDef(self, node):
        if not decorators(node) & COMPILED:
            self.generic_visit(node)

    def visit_Call(self, node):
        function = node.func
        if isinstance(function, ast.Name) and function.id in self.names:
            self.found.append((node.lineno, function.id))
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            module = self.modules.get(function.value.id)
            if function.attr in self.kernels.get(module, ()):
                self.found.append((node.lineno, f"{function.value.id}.{function.attr}"))
        self.generic_visit(node)


def calls_of_kernels(trees):
    """Return (module, line, name) of calls of kernels by Python, given the syntax trees of modules by name."""
    kernels = {
        name: {each.name for each in functions_in(tree) if decorators(each) & BARE} for name, tree in trees.items()
    }
    found = []
    for name, tree in trees.items():
        names, modules = set(kernels[name]), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if alias.name in kernels.get(node.module, ()):
                        names.add(alias.asname or alias.name)
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                modules.update({alias.asname or alias.name: alias.name for alias in node.names})
        calls = Calls(names, modules, kernels)
        calls.visit(tree)
        found += [(name, *call) for call in calls.found]
    return found


def test_calls_of_kernels_by_python_are_noticed():
    rates = ast.parse("@kernel\ndef rate(x): return x\n\n@entry\ndef whole(x): return rate(x)")
    wrong = (
        "from a import rate\nimport a as b\n\ndef f(): return rate(1.0) + b.rate(2.0)\n\n@kernel\ndef g(): rate(3.0)"
    )
    assert calls_of_kernels({"a": rates, "c": ast.parse(wrong)}) == [("c", 4, "rate"), ("c", 4, "b.rate")]


def test_python_calls_no_kernel():
    """Kernels have no wrapper for Python: a call ends the process."""
    folders = ("dynamics", "sgd_check", "tests", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert calls_of_kernels({module_name(path): ast.parse(path.read_bytes()) for path in paths}) == []
