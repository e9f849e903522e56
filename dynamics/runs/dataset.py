"""Arrays to labelled datasets, each with the provenance of its result: program, commit, environment, arguments."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import Problem, is_homogeneous, is_network
from dynamics.problem.checks import field_values
from dynamics.problem.emergence import ALL_DEGREES, UNDEFINED
from dynamics.problem.teacher import geometric_ratio
from dynamics.runs.variables import VARIABLES
from dynamics.theory.asymptotics import AsymptoticExponents, asymptotic_exponents, spectral_decay
from dynamics.theory.prediction import PAIRS
from hermite.version import PROGRAM, __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.problem.question import Question
    from dynamics.runs.variables import Variable
    from dynamics.theory.prediction import EmergencePrediction

__all__ = ["__version__", "environment", "git_commit"]

RECORDED = ("numpy", "scipy", "numba", "sympy", "xarray", "netCDF4", "torch")


@cache
def git_commit() -> str:
    """Return the commit of the source checkout, with "-dirty" for local changes; "" outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    # Variables such as GIT_DIR would name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=variables)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


@cache
def environment() -> str:
    """Return versions of Python, the libraries and the processor as one JSON string."""
    versions = {"python": platform.python_version(), "platform": platform.platform(), "processor": _processor()}
    for name in RECORDED:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return json.dumps(versions, sort_keys=True)


def _processor() -> str:
    """Return the name of the processor, as the operating system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


#: How the names of the learned masses of directions, and of their times, begin.
OF_LEARNED = ("learned_mass", "learned_time", "predicted_learned_time")
#: Name -> (dims in front of those of the table of variables, array).
Values = dict[str, tuple[tuple[str, ...], object]]

SCHEMA_VERSION = 1
REFERENCES = (
    "Ren, Nichani, Wu, Lee, arXiv:2504.19983; Ben Arous, Gheissari, Jagannath, arXiv:2003.10409; "
    "Saad and Solla, Phys. Rev. E 52, 4225 (1995)"
)


def make_dataset(
    values: Mapping[str, object],
    *,
    problem: Question,
    title: str,
    coords: Mapping[str, object],
    solver: Mapping[str, object],
    attributes: Mapping[str, object],
    leading: Sequence[str] = (),
    with_leading: Sequence[str] = (),
    variables: Mapping[str, Variable] = VARIABLES,
) -> xr.Dataset:
    """Return a dataset, labelled as in `variables`, with attributes that say where it comes from.

    The attribute `parameters` holds the whole problem, which `stored_question` gives back, and `solver`, the arguments
    of the call, ready for JSON. Of the further attributes bool becomes 0/1, None is left out, and mappings become JSON.
    A problem with Gaussian inputs has the coordinate `direction` too, numbered from 1 as p is. The dims `leading`, such
    as ("seed",), are put in front of the variables named in `with_leading`.
    """
    import xarray as xr

    inputs = {name: array for name, (_, array) in problem.arrays().items()}
    definition, labels = _of_learned(problem, values, attributes)
    labels |= _of_emergence(problem, variables)
    directions = {"direction": np.arange(1, problem.num_directions + 1)} if isinstance(problem, Problem) else {}
    return xr.Dataset(
        {
            name: _labelled(variables[name], array, leading if name in with_leading else (), labels.get(name, {}))
            for name, array in {**inputs, **values}.items()
        },
        {name: _labelled(variables[name], array) for name, array in {**coords, **directions}.items()},
        stamp_of(problem, title, solver) | own_attributes(problem, definition | dict(attributes)),
    )


def study_dataset(
    problem: Question,
    values: Values,
    *,
    title: str,
    coords: Mapping[str, object],
    settings: Mapping[str, object],
    attributes: Mapping[str, object],
) -> xr.Dataset:
    """Return the dataset of a study over a family of problems; `problem` is the last of them."""
    dataset = make_dataset({}, problem=problem, title=title, coords=coords, solver=settings, attributes=attributes)
    return dataset.assign(
        {name: _labelled(VARIABLES[name], array, leading) for name, (leading, array) in values.items()}
    )


#: The per-direction variables that every answer carries.
PREDICTED = ("matched_neuron", "leading_order_time", "predicted_emergence_time", "predicted_learned_time")


def prediction_values(prediction: EmergencePrediction) -> dict[str, NDArray[np.generic]]:
    """Return the variables of `PREDICTED`, and the shares of search, descent and learning where they are known."""
    shares = {} if prediction.shares is None else prediction.shares._asdict()
    values = field_values(prediction)
    return {name: values[name] for name in PREDICTED} | {f"{name}_share": share for name, share in shares.items()}


def prediction_attributes(prediction: EmergencePrediction) -> dict[str, object]:
    """Return the attributes of an answer that describe its prediction, None for those without a value.

    They are the theory of the predicted times, None for matched pairs, and the share of a direction that a neuron on
    its opposite side reproduces.
    """
    theory = None if prediction.theory == PAIRS else prediction.theory
    return {"prediction_theory": theory, "far_side_share": prediction.far_side_share}


def no_prediction_values(num_directions: int) -> dict[str, NDArray[np.generic]]:
    """Return the variables of `PREDICTED` without a prediction: matched neuron −1, times NaN."""
    return dict.fromkeys(PREDICTED, np.full(num_directions, np.nan)) | {"matched_neuron": np.full(num_directions, -1)}


def _labelled(
    variable: Variable, array: object, leading: Sequence[str] = (), further: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[str, ...], NDArray[np.generic], dict[str, str]]:
    """Return dims, numbers and attributes of a variable, as xarray takes them."""
    return (*leading, *variable.dims), np.asarray(array), {**variable.labels, **further}


def _of_learned(
    problem: Question, values: Mapping[str, object], attributes: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return how learned masses and times are defined: an attribute of the dataset, and attributes of its variables.

    Both are empty unless the dataset has such variables and a problem with directions of one link. Variables that the
    link leaves without a definition get the attribute `undefined`.
    """
    names = [name for name in values if name.startswith(OF_LEARNED)]
    if not names or not isinstance(problem, Problem) or is_network(problem):
        return {}, {}
    part = problem.learned_part
    definition = attributes.get("learned_definition", part.definition)
    labels: dict[str, dict[str, str]] = {}
    if definition == ALL_DEGREES:
        labels = {"learned_mass": {"symbol": r"\sum_i n_i g(C_{ip})/g(1)"}}
    elif not part.is_defined:
        labels = {name: {"undefined": UNDEFINED} for name in names}
    return {"learned_definition": definition}, labels


def _of_emergence(problem: Question, variables: Mapping[str, Variable]) -> dict[str, dict[str, str]]:
    """Return labels of times of emergence by name, if the problem has another level of emergence than its teacher."""
    if not isinstance(problem, Problem) or problem.emergence_level == problem.teacher.emergence_level:
        return {}
    level, names = f"{problem.emergence_level:g}", ("predicted_emergence_time", "emergence_time")
    squared = {name: variables[name].long_name.replace("1/2", level) for name in names if name in variables}
    names = ("predicted_aligned_time", "aligned_time")
    aligned = {
        name: variables[name].long_name.replace("half in", f"by {level} in") for name in names if name in variables
    }
    return {name: {"long_name": text} for name, text in (squared | aligned).items()}


def _command() -> str:
    """Return the command line without paths of this machine."""
    if sys.orig_argv[1:2] == ["-m"]:
        return " ".join(["python", *sys.orig_argv[1:]])
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv and sys.argv[0] else "interactive session"


def stamp_of(problem: Question, title: str, solver: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes of a dataset that say how it was made: program, version, command, date and parameters.

    The arguments are those of `make_dataset`.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "Conventions": "CF-1.11",
        "title": title,
        "source": PROGRAM,
        "history": f"{now} {_command()}",
        "references": REFERENCES,
        "date_created": now,
        "schema_version": SCHEMA_VERSION,
        "git_commit": git_commit(),
        "parameters": json.dumps({"problem": problem.parameters(), "solver": dict(solver)}, sort_keys=True),
        "environment": environment(),
    }


def own_attributes(problem: Question, attributes: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes of a result, without None, and those of the link of its problem, as netCDF takes them.

    Truth values become 0 or 1, and dicts become JSON. The arguments are those of `make_dataset`.
    """
    stored: dict[str, object] = {}
    if isinstance(problem, Problem):
        stored["hermite_truncation_error"] = float(problem.activation.truncation_error)
        stored["information_exponent"] = problem.information_exponent
        if is_homogeneous(problem):
            teacher, k = problem.teacher, problem.information_exponent
            laws = asymptotic_exponents(k, teacher.beta, ratio=teacher.ratio, alpha=spectral_decay(problem))
            stored |= {"scaling_notes": "; ".join(laws.notes)} if laws.notes else {}
    stored |= {key: value for key, value in attributes.items() if value is not None}
    stored |= {key: int(value) for key, value in stored.items() if isinstance(value, bool)}
    return stored | {key: json.dumps(value, sort_keys=True) for key, value in stored.items() if isinstance(value, dict)}


def stored_exponents(dataset: xr.Dataset) -> AsymptoticExponents:
    """Return the asymptotic exponents of the problem that a dataset answers, from its attributes.

    They are known for teachers whose directions have one link; for others all are NaN, with a note that says so.
    """
    problem = json.loads(dataset.attrs["parameters"])["problem"]
    if "teacher_coefficient" not in dataset or "information_exponent" not in dataset.attrs or "beta" not in problem:
        notes = ("no exponents: the laws are of a teacher of one link",)
        names = [field.name for field in fields(AsymptoticExponents) if field.name != "notes"]
        return AsymptoticExponents(**dict.fromkeys(names, np.nan), notes=notes)
    inputs = problem.get("inputs")
    return asymptotic_exponents(
        dataset.attrs["information_exponent"],
        problem["beta"],
        ratio=geometric_ratio(dataset["teacher_coefficient"].values),
        alpha=0.0 if inputs is None else None if "teacher_direction" in dataset else inputs["alpha"],
    )
