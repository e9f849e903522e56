"""Files for the host of the repository: they parse, and they name what there is."""

import json
import re
import tomllib

import pytest
import yaml
from processes import ROOT
from test_packaging import PROJECT, script

WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
#: Systems, and versions of Python, on which the program has run.
TESTED = {("ubuntu-latest", "3.12"), ("ubuntu-latest", "3.13")}


def steps():
    return [step for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for step in job["steps"]]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_matrix_has_every_system_and_python_and_marks_what_is_untested():
    matrix = WORKFLOWS["ci"]["jobs"]["tests"]["strategy"]["matrix"]
    plain = {(system, python) for system in matrix["os"] for python in matrix["python"]}
    assert (plain, matrix["untested"]) == (TESTED, [False])
    marked = {(entry["os"], entry["python"]): entry["untested"] for entry in matrix["include"]}
    every = {
        (f"{system}-latest", f"3.{minor}") for system in ("ubuntu", "macos", "windows") for minor in (11, 12, 13, 14)
    }
    gate = {("ubuntu-latest", "3.11")}
    assert plain | marked.keys() | gate == every
    assert all(marked.values())
    classifiers = [word for word in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", word)]
    assert {word.rpartition(" ")[2] for word in classifiers} == {python for _, python in plain | gate}


def test_actions_are_those_of_the_host_and_scripts_are_there():
    assert {step["uses"].partition("/")[0] for step in steps() if "uses" in step} == {"actions"}
    scripts = {name for step in steps() for name in re.findall(r"\.ci/[\w.]+", step.get("run", ""))}
    assert scripts == {".ci/run", ".ci/constraints.txt", ".ci/owner.py", ".ci/slower.py", ".ci/lower_bounds.py"}
    assert all((ROOT / name).is_file() for name in scripts)


def test_no_password_publishes():
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert all("secrets" not in json.dumps(workflow) for workflow in WORKFLOWS.values())
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())


def test_hooks_have_the_versions_with_which_the_gate_checks():
    repositories = {
        entry["repo"].rpartition("/")[2]: entry for entry in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    }
    pins = dict(
        line.split("==") for line in read(".ci/constraints.txt").splitlines() if "==" in line and line[0] != "#"
    )
    assert repositories["ruff-pre-commit"]["rev"] == f"v{pins['ruff']}"


def test_documents_and_containers_install_extras_that_exist():
    settings = yaml.safe_load(read(".readthedocs.yaml"))
    assert (ROOT / settings["sphinx"]["configuration"]).is_file()
    extras = set(PROJECT["optional-dependencies"])
    assert set(settings["python"]["install"][0]["extra_requirements"]) <= extras
    container = json.loads(read(".devcontainer/devcontainer.json"))
    asked = re.search(r"\.\[([\w,]+)\]", container["postCreateCommand"])[1]
    groups = tomllib.loads(read("pyproject.toml"))["dependency-groups"]
    inner = [
        name for group in groups.values() for line in group for name in re.search(r"\[([\w,]+)\]", line)[1].split(",")
    ]
    assert {*asked.split(","), *inner} <= extras


def test_every_form_asks_something():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form.get("contact_links") or (form["name"] and form["description"] and form["body"])


def test_links_of_binder_and_colab_lead_to_the_notebooks():
    text = read("README.md")
    linked = {
        name.replace("%2F", "/") for name in re.findall(r"(?:labpath=|/blob/main/)(docs(?:%2F|/)\w+\.ipynb)", text)
    }
    assert linked == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.ipynb")}


@pytest.mark.parametrize(("rounds", "code"), [([1.3, 1.2, 1.15], 1), ([1.3, 1.2, 1.05], 0), ([0.9, 0.8, 1.0], 0)])
def test_a_case_is_slower_if_every_round_says_so(rounds, code, tmp_path, capsys):
    report = {
        "commits": ["a", "b"],
        "parts": {"flows": {"stiff": {"processor_ratio": rounds}, "bdf": {"processor_ratio": [1.0] * 3}}},
    }
    path, history = tmp_path / "ratios.json", tmp_path / "history.jsonl"
    path.write_text(json.dumps(report), encoding="utf-8")
    for times in (1, 2):
        assert script("slower").main([str(path), "--history", str(history)]) == code
        assert len(history.read_text(encoding="utf-8").splitlines()) == times
    assert json.loads(history.read_text(encoding="utf-8").splitlines()[0])["processor_ratio"] == {
        "flows: stiff": sorted(rounds)[1],
        "flows: bdf": 1.0,
    }
    assert f"{code} of 2 cases take more than 1.1 times as long in every round" in capsys.readouterr().out
