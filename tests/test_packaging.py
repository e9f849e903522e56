"""What a release is made of: wheels that are built twice alike, the recipe for conda, the citation, the changelog, the paper."""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib

import jinja2
import pytest
import yaml
from processes import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
#: The newest version that the changelog tells of.
VERSION = SETTINGS["tool"]["hatch"]["version"]["fallback-version"]
AUTHORS = "The feature-emergence developers"
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
    assert found["package"] == {"name": PROJECT["name"], "version": VERSION}
    assert found["source"]["url"].endswith(f"feature_emergence-{VERSION}.tar.gz")
    assert found["about"]["dev_url"] == PROJECT["urls"]["Source"]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_names_program_version_license_and_paper():
    found = yaml.safe_load(text_of("CITATION.cff"))
    assert found["cff-version"] == "1.2.0"
    assert found["title"].startswith(PROJECT["name"])
    assert (str(found["version"]), found["license"]) == (VERSION, PROJECT["license"])
    assert found["authors"] == [{"name": AUTHORS}]
    assert (found["repository-code"], found["url"]) == (PROJECT["urls"]["Source"], PROJECT["urls"]["Documentation"])
    assert {"message", "authors"} <= set(found)
    assert found["references"][0]["url"] == PROJECT["urls"]["Paper"]
    assert [author["family-names"] for author in found["references"][0]["authors"]] == ["Ren", "Nichani", "Wu", "Lee"]


def test_the_descriptions_for_zenodo_and_codemeta_say_the_same():
    citation, zenodo, codemeta = (
        yaml.safe_load(text_of("CITATION.cff")),
        json.loads(text_of(".zenodo.json")),
        json.loads(text_of("codemeta.json")),
    )
    assert zenodo["version"] == codemeta["version"] == VERSION
    assert zenodo["title"] == citation["title"]
    assert zenodo["description"] == codemeta["description"] == citation["abstract"].strip()
    assert zenodo["keywords"] == codemeta["keywords"] == citation["keywords"]
    assert [author["name"] for author in (*zenodo["creators"], *codemeta["author"])] == [AUTHORS] * 2
    names = [re.match(r"[\w-]+", dependency)[0] for dependency in PROJECT["dependencies"]]
    assert codemeta["softwareRequirements"] == names
    assert (codemeta["codeRepository"], codemeta["issueTracker"]) == (
        PROJECT["urls"]["Source"],
        PROJECT["urls"]["Issues"],
    )


def test_the_paper_is_short_and_cites_what_its_list_has():
    paper, listed = text_of("paper/paper.md"), text_of("paper/paper.bib")
    _, head, body = paper.split("---\n", 2)
    assert [author["name"] for author in yaml.safe_load(head)["authors"]] == [AUTHORS]
    assert len(body.split()) <= 1000
    cited = set(re.findall(r"@(\w+)", body))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", listed, flags=re.MULTILINE))
    assert len(cited) == len(set(re.findall(r"doi = \{(10\.\d{4,}/[^}\s]+)\}", listed)))


def test_the_changelog_begins_with_what_is_not_released():
    text = text_of("CHANGELOG.md")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+( – \d{4}-\d\d-\d\d)?", heading) for heading in headings[1:])
    assert headings[1].split(" ")[0] == VERSION
    assert len(text.partition(f"## {headings[1]}")[2].partition("\n## ")[0].split()) <= 600


def test_pages_install_the_program_under_its_own_name():
    """The index has a `dynamics` of other authors."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/*.ipynb"), *ROOT.glob("paper/*.md")]
    installs = [
        line for page in pages for line in re.findall(r"pip install[^`\n&|)]*", page.read_text(encoding="utf-8"))
    ]
    assert any("feature-emergence" in line for line in installs)
    wrong = re.compile(r"(?<![\w/.-])(dynamics|hermite|sgd[_-]check)(?![\w/.-])")
    assert [line for line in installs if wrong.search(line)] == []
    assert wrong.search("pip install --upgrade dynamics")


def script(name):
    """Return a script of `.ci` as a module."""
    specification = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_one_command_writes_the_owner_into_every_address(tmp_path, capsys):
    owner = script("owner")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    address = "https://github.com/{}/feature-emergence/issues\n"
    for name in ("a.toml", "b.md"):
        (tmp_path / name).write_text(address.format("OWNER"), encoding="utf-8")
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    assert owner.main(["--check"], tmp_path) == 1
    assert (
        "a.toml has the placeholder OWNER/feature-emergence: run `python .ci/owner.py NAME`." in capsys.readouterr().out
    )
    assert owner.main(["-no-"], tmp_path) == 2
    assert owner.main(["some-lab"], tmp_path) == owner.main(["--check"], tmp_path) == 0
    assert {path.read_text(encoding="utf-8") for path in tmp_path.glob("[ab].*")} == {address.format("some-lab")}
