"""What a stranger gets: the files of sdist and wheel, and the wheel in an empty environment, without this tree.

`.ci/run` builds both, installs the wheel, and names the folder of both in DISTRIBUTION; without that these tests are left out.
"""

import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import jinja2
import numpy as np
import pytest
import yaml
from processes import ROOT

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("hermite", "dynamics", "sgd_check")
VERSION = PROJECT["tool"]["hatch"]["version"]["fallback-version"]
STEM = f"feature_emergence-{VERSION}"
PLACE = Path(os.environ.get("DISTRIBUTION", "."))
#: Folders that only the host of the repository reads.
OF_THE_HOST = (".github/", ".devcontainer/")
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
PAGES = {
    path.stem: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
#: Pages whose first block takes minutes: of its first line it is tested that it would begin.
LONG = {"experiments", "scaling_laws", "studies", "mean_field_sgd"}
#: What these pages read, and the commands that write it; the second one is the first block of "verdict".
READERS = ("report", "files")
WRITERS = (
    "-m dynamics.solve --k 4 --coefficients 0.8,0.6 --width 8 --dimension 16 --output run.nc --no-plot",
    "-m sgd_check.run run.nc --output check.nc --no-plot",
)
#: Page -> what stands before its first block in Python, as earlier words on the page say.
NAMES = {
    "files": "import dynamics, xarray\n",
    "solvers": "import dynamics\nproblem = dynamics.Problem(activation='he4', teacher=dynamics.Teacher([1.0, 0.8]), width=8, dimension=16)\n",
}
#: Word of a command -> extra that it needs, which this environment has not: the command says so.
EXTRAS = {"sgd_check.tokens": "torch", "digits": "data"}


def tracked(*names):
    listed = subprocess.run(["git", "ls-files", *names], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if not name.startswith(OF_THE_HOST)}


def installed(*arguments, cwd, program="python"):
    """Run a program of the empty environment in a folder; it knows nothing of this tree."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    program = PLACE / "empty" / ".venv" / "bin" / program
    return subprocess.run(
        [program, *arguments], cwd=cwd, env=environment | {"NUMBA_CACHE_DIR": str(PLACE / "cache-of-wheel")},
        capture_output=True, text=True, check=False, timeout=580,
    )  # fmt: skip


def done(*arguments, cwd, program="python"):
    """The output of a program that must end well."""
    ended = installed(*arguments, cwd=cwd, program=program)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_tagged_commit_builds_one_sdist_and_one_wheel_of_its_version():
    assert {path.name for path in (PLACE / "dist").iterdir()} == {f"{STEM}.tar.gz", f"{STEM}-py3-none-any.whl"}


def test_the_wheel_holds_the_packages_and_nothing_else():
    with zipfile.ZipFile(PLACE / "dist" / f"{STEM}-py3-none-any.whl") as wheel:
        names, about = set(wheel.namelist()), wheel.read(f"{STEM}.dist-info/METADATA").decode()
    information = {
        f"{STEM}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }
    assert names == tracked(*PACKAGES) | information
    headers = HeaderParser().parsestr(about)
    assert (headers["Name"], headers["Version"]) == ("feature-emergence", VERSION)
    assert (headers["License-Expression"], headers["Requires-Python"]) == ("MIT", PROJECT["project"]["requires-python"])


def test_the_sdist_holds_what_is_under_version_control():
    with tarfile.open(PLACE / "dist" / f"{STEM}.tar.gz") as archive:
        names = {member.name.removeprefix(f"{STEM}/") for member in archive if member.isfile()}
    assert names == tracked() | {"PKG-INFO"}


def test_the_recipe_for_conda_builds_from_the_sdist(tmp_path):
    """As its script does, with its host packages, in a folder without git; then its own test commands."""
    template = jinja2.Template((ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8"))
    recipe = yaml.safe_load(template.render(environ={"VERSION": VERSION}, PYTHON="python"))
    assert (ROOT / "packaging" / "conda" / recipe["source"]["url"]).resolve() == ROOT / "dist" / f"{STEM}.tar.gz"
    with tarfile.open(PLACE / "dist" / f"{STEM}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    program, *script = recipe["build"]["script"].split()
    script[script.index("install")] = "wheel"  # the same build, into a file
    builder = PLACE / "builder" / "bin" / program
    subprocess.run([builder, *script], cwd=tmp_path / STEM, check=True, capture_output=True)
    assert [path.name for path in (tmp_path / STEM).glob("*.whl")] == [f"{STEM}-py3-none-any.whl"]
    for command in recipe["test"]["commands"]:
        program, *arguments = shlex.split(command)
        done(*arguments, cwd=tmp_path, program=program)
    done("-c", f"import {', '.join(recipe['test']['imports'])}", cwd=tmp_path)


def test_the_command_is_there_and_tells_its_version(tmp_path):
    assert done("--version", cwd=tmp_path, program="feature-emergence") == f"feature-emergence {VERSION}\n"
    assert "feature-emergence solve " in done("--help", cwd=tmp_path, program="feature-emergence")
    place = done("-c", "import dynamics; print(dynamics.__file__)", cwd=tmp_path)
    assert place.startswith(str(PLACE / "empty"))


def test_the_main_command_of_the_readme_runs_in_an_empty_folder(tmp_path):
    line = FENCE.search(PAGES["README"])[2]
    command = line.rpartition(".venv/bin/python ")[2]
    text = done(*shlex.split(command), cwd=tmp_path)
    assert "learned: 16 of 16 directions" in text
    assert {path.suffix for path in tmp_path.iterdir()} == {".nc", ".png"}


#: Page -> kind and text of its first block of code.
FIRST = {
    page: blocks[0]
    for page, text in PAGES.items()
    if page != "README"
    and (blocks := [found for found in FENCE.findall(text) if found[0] in ("bash", "python", "toml")])
}


def run_first_block(page, folder):
    kind, block = FIRST[page]
    if kind == "python":
        name = "block.md" if block.startswith(">>>") else "block.py"
        (folder / name).write_text(NAMES.get(page, "") + block, encoding="utf-8")
        done(*(["-m", "doctest", name] if name == "block.md" else [name]), cwd=folder)
    elif kind == "toml":
        (folder / "study.toml").write_text(block, encoding="utf-8")
        done("-m", "dynamics.study", "study.toml", cwd=folder)
    else:
        for line in block.splitlines()[: 1 if page in LONG else None]:
            words = shlex.split(line, comments=True)
            assert words.pop(0) == ".venv/bin/python"
            words = [word for word in words if word != "--open"]
            extra = next((EXTRAS[word] for word in words if word in EXTRAS), None)
            if extra is not None:
                ended = installed(*words, cwd=folder)
                assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
                assert ended.stderr.endswith(f' an extra package: pip install "feature-emergence[{extra}]".\n')
            else:
                done(*words, *(["--dry-run"] if page in LONG else []), cwd=folder)


def test_the_first_blocks_of_pages_that_read_files_run(tmp_path):
    assert FIRST["verdict"] == ("bash", ".venv/bin/python -m sgd_check.run FILE\n")
    for command in WRITERS:
        done(*shlex.split(command), cwd=tmp_path)
    for page in READERS:
        run_first_block(page, tmp_path)


@pytest.mark.parametrize("page", sorted(FIRST.keys() - {"verdict", *READERS}))
def test_the_first_block_of_a_page_runs(page, tmp_path):
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    (tmp_path / "weights.csv").write_text("".join(f"{0.9**p}\n" for p in range(12)), encoding="utf-8")
    # Sixteen steps of a_p² at times 1/a_p, as "inverse" reads them.
    steps = [(t, sum(p**-2.0 for p in range(1, 17) if t < p)) for t in np.geomspace(0.05, 20.0, 120)]
    (tmp_path / "runs.csv").write_text(
        "time,loss\n" + "".join(f"{t},{loss}\n" for t, loss in steps if loss > 0.0), encoding="utf-8"
    )
    run_first_block(page, tmp_path)
