"""All that users of this program can hold on to, as a sorted list of lines: names, commands, keys and file formats.

`python tests/public_face.py > tests/public_face.txt` renews the list of the program as it is. The lines are found by
public means alone: imports of the three packages, `python -m COMMAND`, messages, pyproject.toml, and written files.
"""

import contextlib
import enum
import inspect
import io
import json
import os
import re
import runpy
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path
from types import FunctionType

import netCDF4
from old_files import make

import dynamics
import dynamics.tokens
import hermite
import sgd_check
import sgd_check.tokens
from dynamics.__main__ import NAMES

ROOT = Path(__file__).resolve().parent.parent
#: Command -> whether its first argument names one of several studies.
COMMANDS = {
    "dynamics.solve": False,
    "dynamics.study": False,
    "dynamics.report": False,
    "dynamics.lazy_kernel": False,
    "dynamics.laws": True,
    "dynamics.mean_field_study": True,
    "hermite.exponents": False,
    "sgd_check.run": False,
    "sgd_check.study": True,
    "dynamics.tokens": True,
    "sgd_check.tokens": False,
}
#: Commands that print what they computed as JSON, of which the keys are listed; the third reads the file of the first.
PRINTING = (
    "dynamics.solve --k 4 --directions 4 --width 12 --dimension 32 --output run.nc",
    "dynamics.solve --model mean-field --dimension 12 --particles 32 --t-min 0.1 --t-max 10 --output mean-field.nc",
    "sgd_check.run run.nc --seeds 4 --learning-rate 2e-3 --steps 4000 --theory flow --output check.nc",
    "dynamics.laws finite-size --betas 1 --sizes 64,128 --dimension 256 --starts 2 --output sizes.nc",
    "dynamics.mean_field_study propagation-of-chaos --dimension 8 --widths 4,8,16 --seeds 2 --t-max 2 --output chaos.nc",
    "sgd_check.study step-size --k 3 --dimension 12 --seeds 2 --learning-rates 1e-3,1e-2 --output steps.nc",
)
#: More words than this in the brackets of a help text are a sentence, not a default.
MOST_WORDS_OF_A_DEFAULT = 4


def public_face():
    """Return the lines, sorted."""
    return sorted({*names(), *commands(), *printed(), *keys(), *entry_points(), *file_formats()})


def names():
    for package in (hermite, dynamics, sgd_check, dynamics.tokens, sgd_check.tokens):
        for name in (*package.__all__, *(["__version__"] if hasattr(package, "__version__") else [])):
            yield from described(f"{package.__name__}.{name}", getattr(package, name))


def described(path, thing):
    if not isinstance(thing, type):
        yield f"{path}{signature(thing)}" if callable(thing) else path
        return
    builtin = [base for base in thing.__mro__[1:] if base.__module__ == "builtins"]
    # How an enumeration is called depends on the version of Python.
    called = "" if issubclass(thing, enum.Enum) else signature(thing)
    yield f"{path}{called} is of type {builtin[0].__name__}"
    inherited = {name for base in builtin for name in dir(base)}
    own = {name for name in (*dir(thing), *fields(thing)) if not name.startswith("_")} - inherited
    for name in own:
        static = inspect.getattr_static(thing, name, None)
        kind = type(static).__name__
        called = isinstance(static, (FunctionType, classmethod, staticmethod))
        yield f"{path}.{name}{signature(getattr(thing, name)) if called else ''}: {kind if called else 'value'}"


def fields(thing):
    return [name for base in thing.__mro__ for name in vars(base).get("__annotations__", ())]


def signature(thing):
    """Return names, kinds and defaults of parameters, without annotations, which name modules."""
    try:
        found = inspect.signature(thing)
    except ValueError:  # a class of the interpreter's own kind, such as an exception
        return "(…)"
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    return str(inspect.Signature(bare))


def run_command(*words):
    """Run `python -m WORDS` in this process; return exit code, stdout and stderr."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = [words[0], *words[1:]]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            # A module that was imported before is run again, as meant here.
            warnings.filterwarnings("ignore", message=".* found in sys.modules .*", category=RuntimeWarning)
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def commands():
    for command, has_studies in COMMANDS.items():
        yield from command_lines(command)
        text = help_of(command)
        codes = re.findall(r"\b\d+\b", text[text.index("exit codes:") :])
        yield f"python -m {command} exits with {', '.join(sorted(set(codes), key=int))}"
        for study in studies_of(text) if has_studies else ():
            yield from command_lines(f"{command} {study}")


def command_lines(command):
    words = command.split()
    yield f"python -m {command}"
    yield f"python -m {command} --help: exit code {run_command(*words, '--help')[0]}"
    yield f"python -m {command} --no-such-flag: exit code {run_command(*words, '--no-such-flag')[0]}"
    for flag, text in flags_of(help_of(command)).items():
        yield " ".join([f"python -m {command} takes {flag}", *(values_in(text) if flag.startswith("--") else ())])


def help_of(command):
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "1000"  # one line per flag
    try:
        return run_command(*command.split(), "--help")[1]
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def flags_of(text):
    """Return flag with metavar -> help of the lines below "positional arguments:" and "options:"."""
    listed = re.search(r"^(?:positional arguments|options):\n.*?(?=^examples|^a study file|\Z)", text, re.M | re.S)
    found = re.findall(r"^  (\S(?: ?\S)*)(?:\n? {2,}(.*))?$", listed.group(), re.M)
    return {re.sub(r"^-h, ", "", flag): sentence for flag, sentence in found}


def studies_of(text):
    return re.findall(r"^    ([a-z-]+)(?=  |$)", text, re.M)


def values_in(text):
    """Return default and choices that a help text tells."""
    default = re.findall(r"\[([^]]*)\](?=;|$)", text)
    choices = re.findall(r"; one of ([^;\[\]]+)$", text)
    brief = [value for value in default if len(value.split()) <= MOST_WORDS_OF_A_DEFAULT]
    return [*(f"[{value}]" for value in brief), *(f"of {value}" for value in choices)]


def printed():
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for line in PRINTING:
            code, out, _ = run_command(*line.split(), "--no-plot", "--json")
            command = " ".join(word for word in line.split()[:2] if not word.endswith(".nc") and word[0] != "-")
            model = " of a mean field" if "--model" in line else ""
            yield f"python -m {command}{model}: exit code {code}, JSON with {', '.join(sorted(paths_in(json.loads(out))))}"


def keys():
    """Yield what sweeps and TOML files may hold, which the messages on mistakes tell."""
    yield from (f"a sweep takes the study {name}" for name in quoted(refusal_of_sweep()))
    yield from (f"a study file takes the table {name}" for name in re.findall(r"\[\w+\]", refusal("[x]")))
    menu = refusal("[problem]\nx = 1\n[grid]\nseed = [1]").partition("one of ")[2].partition(", but")[0]
    yield from (f"a study file takes the key {name} of [problem]" for name in menu.split(", "))
    yield f"a study file takes grids that are {menu_of(refusal('[grid]' + chr(10) + 'seed = {x = 1}'))}"
    yield f"a study file takes save_at that is {menu_of(refusal(BAD_SCHEDULE))}"
    yield f"a study file takes the key path of [output]: {'`path`' in refusal(BAD_OUTPUT)}"
    for flag in flags_of(help_of("dynamics.solve")):
        key = flag.split()[0].removeprefix("--")
        if "'no-such-key'" in refusal(f"{key} = 1\nno-such-key = 1", "dynamics.solve", "--config"):
            yield f"a file of --config takes {key}"


BAD_SCHEDULE = "[grid]\nseed = [1]\n[study]\nsave_at = 3"
BAD_OUTPUT = "[grid]\nseed = [1]\n[output]\nx = 3"


def refusal(text, *command):
    """Return what a command says of a TOML file that it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.toml"
        path.write_text(text, encoding="utf-8")
        return run_command(*(command or ("dynamics.study",)), str(path))[2]


def refusal_of_sweep():
    try:
        dynamics.sweep(make.problem(), {"seed": [0]}, study="no such study")
    except ValueError as error:
        return str(error)
    return ""


def menu_of(message):
    return message.partition("must be ")[2].partition(", but")[0]


def quoted(message):
    return re.findall(r"'([^' ]+)'", message.partition("one of ")[2].partition(", a path")[0])


def entry_points():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for group, entries in project["entry-points"].items():
        yield from (f"the entry points {group} have {name}" for name in entries)
    yield from (f"the console command {name} calls {path}" for name, path in project["scripts"].items())
    yield from (f"feature-emergence {name} is python -m {module}" for name, module in NAMES.items())
    yield from (f"the extra {name}" for name in project["optional-dependencies"])


def file_formats():
    """Yield what one file of each kind holds, written now; of the unfinished ones how they go on."""
    with tempfile.TemporaryDirectory() as folder:
        make.write_files(Path(folder))
        for path in sorted(Path(folder).glob("*/*.nc")):
            with netCDF4.Dataset(path) as stored:
                begun = path.parent.name == "unfinished"
                yield from group_lines(path.stem, stored["checkpoint"] if begun else stored)


def group_lines(file, group):
    place = f"file {file}: {group.path}"
    yield f"{place} has the attributes {', '.join(sorted(group.ncattrs()))}"
    for attribute in {"parameters", "sweep"}.intersection(group.ncattrs()):
        stored = json.loads(group.getncattr(attribute))
        yield f"{place} has in {attribute}: {', '.join(sorted(paths_in(stored)))}"
    for name, variable in group.variables.items():
        if name.startswith("record_"):  # what the looser run of a checkpoint has recorded, nothing if it is too slow
            continue
        kind = getattr(variable.dtype, "name", "str")
        attributes = "".join(f", {name}" for name in sorted(variable.ncattrs()))
        yield f"{place} has {name}: {kind} ({', '.join(variable.dimensions)}){attributes}"
    for child in group.groups.values():
        yield from group_lines(file, child)


def paths_in(stored, above=""):
    """Yield the keys of nested JSON, joined by dots; of a list those of its first element."""
    for key, value in stored.items():
        yield f"{above}{key}"
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            yield from paths_in(inner, f"{above}{key}.")


if __name__ == "__main__":
    print("\n".join(public_face()))
