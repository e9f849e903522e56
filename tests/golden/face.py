"""What users hold on to: layouts of files, commands, refusals."""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import netCDF4
import numpy as np

import dynamics
import dynamics.tokens
import sgd_check
import sgd_check.tokens
from dynamics import Inputs, SaveAt, Teacher, tokens

from .experiments import SGD
from .flows import CLASSES, ERF, FLOWS, SPHERE
from .laws import LAWS, TOKENS
from .questions import HE3, Case, problem

#: What files are written of.
ASKED = {**FLOWS, **LAWS, **TOKENS, **SGD}


def file_format(name):
    """Return the dims, type and attributes of every variable and group of a file, read by netCDF4 alone."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer.nc"
        dynamics.save(ASKED[name].ask(), path)
        with netCDF4.Dataset(path) as file:
            found["format"] = file.data_model
            _lay_out(file, found)
        again = dynamics.load(path)
        found["loads as"] = type(again).__name__
    return found


def _lay_out(group, found):
    found[f"attributes in {group.path}"] = {key: type(group.getncattr(key)).__name__ for key in sorted(group.ncattrs())}
    found[f"dimensions in {group.path}"] = {key: len(each) for key, each in group.dimensions.items()}
    for name, variable in group.variables.items():
        filters = variable.filters() or {}
        found[f"{name} in {group.path}"] = {
            "type": str(variable.dtype if variable.dtype is str else np.dtype(variable.dtype).str),
            "dimensions": list(variable.dimensions),
            "attributes": {key: str(variable.getncattr(key)) for key in sorted(variable.ncattrs())},
            "compressed": bool(filters.get("zlib")),
            "shuffled": bool(filters.get("shuffle")),
        }
    for child in group.groups.values():
        _lay_out(child, found)


IN_FILES = (
    "overlaps-explicit overlaps-loose-stiff classes-explicit committee-erf spherical correlation "
    "network-relu-biases mean-field-two quadratic prediction tokens-composition laws-finite-size sweep "
    "sgd-projected sgd-compare"
).split()
FILES = {f"file-{name}": Case(partial(file_format, name)) for name in IN_FILES}


SMALL = "--k 4 --coefficients 0.8,0.6 --width 4 --dimension 12 --t-min 0.5 --t-max 60 --save geometric:6 --no-plot"
#: Command -> the commands before it in the same folder.
COMMANDS = {
    "dynamics.solve {small} --json": (),
    "dynamics.solve --model decoupled {small} --json": (),
    "dynamics.solve --teacher x1+x1*x2 --activation relu --width 4 --dimension 12 --biases trained --scale 1/m "
    "--rates mean-field --t-max 5 --rtol 1e-6 --no-plot --json": (),
    "dynamics.solve --model mean-field --dimension 12 --particles 32 --t-min 0.1 --t-max 10 --no-plot --json": (),
    "sgd_check.run run.nc --seeds 4 --learning-rate 2e-3 --steps 4000 --theory flow --no-plot --json": (
        "dynamics.solve --k 3 --directions 1 --width 2 --dimension 12 --output run.nc --no-plot --quiet",
    ),
    "dynamics.laws finite-size --betas 1 --sizes 64,128 --dimension 256 --starts 2 --no-plot --json": (),
    "dynamics.tokens composition --vocabulary 4 --hops 2 --no-plot --json": (),
    "sgd_check.study step-size --k 3 --dimension 12 --seeds 2 --learning-rates 1e-3,1e-2 --no-plot --json": (),
    "hermite.exponents relu --json": (),
    "dynamics.solve --k 0": (),
    "dynamics.solve --method euler": (),
    "sgd_check.run missing.nc": (),
}


def command(words, before):
    """Return the exit code of a command, the JSON that it prints, and its sentence of refusal."""
    with tempfile.TemporaryDirectory() as folder:
        for line in before:
            _run(line, folder)
        done = _run(words, folder)
    found = {"exit code": done.returncode}
    if done.returncode:
        return found | {"refusal": done.stderr.strip().splitlines()[-1]}
    printed = json.loads(done.stdout)
    return found | {"printed": printed}


def _run(words, folder):
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "1000", "MPLBACKEND": "Agg"}
    line = [sys.executable, "-m", *words.format(small=SMALL).split()]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _name(words):
    """Return a name for a file: the command, and a number."""
    return f"command-{list(COMMANDS).index(words):02}-{words.split(maxsplit=1)[0]}"


OF_COMMANDS = {_name(words): Case(partial(command, words, before), 1e-6) for words, before in COMMANDS.items()}


REFUSED = {
    "unknown method": lambda: dynamics.solve_overlaps(problem(), method="euler"),
    "method of another type": lambda: dynamics.solve_overlaps(problem(), method=3),
    "descent without a step": lambda: dynamics.solve_overlaps(problem(), method="gradient-descent"),
    "negative tolerance": lambda: dynamics.solve_overlaps(problem(), rtol=-1.0),
    "device without stiff": lambda: dynamics.solve_overlaps(problem(), method="explicit", device="cpu"),
    "device for classes": lambda: dynamics.solve_overlaps(CLASSES, method="stiff", device="cpu"),
    "committee as overlaps": lambda: dynamics.solve_overlaps(ERF),
    "overlaps as committee": lambda: dynamics.solve_committee(problem()),
    "no problem": lambda: dynamics.solve_overlaps(3),
    "unknown link": lambda: problem(activation="frobnicate"),
    "no neurons": lambda: problem(width=0),
    "too few dimensions": lambda: problem(dimension=1),
    "overlaps that are no vectors": lambda: problem(width=1, initial_overlaps=([[1.0, 1.0]], [[1.0]], [1.0])),
    "times that fall": lambda: SaveAt.at([2.0, 1.0]),
    "step of a link that is no polynomial": lambda: dynamics.solve_overlaps(
        problem(activation="relu"), learning_rate=1e-3
    ),
    "stiff spherical": lambda: dynamics.solve_spherical(SPHERE, method="stiff"),
    "negative eigenvalue": lambda: Inputs([-1.0], [3]),
    "polynomial of no variable": lambda: Teacher.polynomial("y1 + x2"),
    "unknown engine": lambda: sgd_check.simulate(HE3, learning_rate=1e-3, steps=10, seeds=1, engine="jax"),
    "scalar engine": lambda: sgd_check.simulate(HE3, learning_rate=1e-3, steps=10, seeds=1, engine="scalar"),
    "negative learning rate": lambda: sgd_check.simulate(HE3, learning_rate=-1.0, steps=10, seeds=1),
    "batch that does not divide": lambda: sgd_check.simulate(
        SPHERE, learning_rate=1e-3, steps=10, seeds=1, training_samples=10, batch_size=3
    ),
    "tokens of another problem": lambda: tokens.solve(problem()),
    "hops that are no power of two": lambda: tokens.Composition(vocabulary=6, hops=3),
    "parent after its child": lambda: tokens.CausalGraph(parents=[1, None], vocabulary=3),
    "unknown study": lambda: dynamics.sweep(problem(), {"beta": [1.0]}, study="nothing"),
    "unknown axis": lambda: dynamics.sweep(problem(), {"colour": [1.0]}),
}


def refusals():
    """Return type and sentence of every refusal."""
    return {name: _refusal(ask) for name, ask in REFUSED.items()}


def _refusal(ask):
    try:
        ask()
    except (ValueError, TypeError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


FACE = {**FILES, **OF_COMMANDS, "refusals": Case(refusals)}
