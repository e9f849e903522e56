"""What a release is made of: wheels that are built twice alike, the recipe for conda, the citation, the changelog."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib

import jinja2
import pytest
import yaml
from processes import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Names that conda has for packages of PyPI.
OF_CONDA = {"netCDF4": "netcdf4", "matplotlib": "matplotlib-base"}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_builds_of_a_commit_are_the_same(tmp_path):
    """Built in two clones at two times, whose files have other dates."""
    commit_time = subprocess.check_output(["git", "-C", ROOT, "log", "-1", "--format=%ct"], text=True).strip()
    sums = []
    for name in ("first", "second"):
        clone, out = tmp_path / name / "clone", tmp_path / name / "wheel"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        for path in clone.rglob("*.py"):
            os.utime(path, (1.5e9 + len(sums), 1.5e9 + len(sums)))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, clone]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": commit_time})
        (wheel,) = out.iterdir()
        sums.append((wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    assert sums[0] == sums[1]


def recipe():
    text = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(jinja2.Template(text).render(environ={}, PYTHON="python"))


def test_the_recipe_for_conda_has_the_dependencies_and_the_command():
    wanted = {f"python {PROJECT['requires-python']}"}
    for dependency in PROJECT["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(>=.*)", dependency).groups()
        wanted.add(f"{OF_CONDA.get(name, name)} {bound}")
    found = recipe()
    assert set(found["requirements"]["run"]) == wanted
    assert found["build"]["entry_points"] == [f"{name} = {path}" for name, path in PROJECT["scripts"].items()]
    assert found["package"] == {"name": PROJECT["name"], "version": "0.1.0"}


def test_the_citation_names_program_license_and_paper():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["cff-version"] == "1.2.0"
    assert found["title"].startswith(PROJECT["name"])
    assert found["license"] == PROJECT["license"]
    assert {"message", "authors"} <= set(found)
    assert found["references"][0]["url"] == PROJECT["urls"]["Paper"]
    assert [author["family-names"] for author in found["references"][0]["authors"]] == ["Ren", "Nichani", "Wu", "Lee"]


def test_the_changelog_begins_with_what_is_not_released():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+( – \d{4}-\d\d-\d\d)?", heading) for heading in headings[1:])
