"""Nothing is evaluated, nothing is unpickled, nothing goes to the network, and names of files are names alone."""

import ast
import shlex
import sys

import pytest
from processes import ROOT, SMALL_STUDY, python

import dynamics
from dynamics import Problem, SaveAt, Teacher, study
from dynamics.report import __main__ as report
from dynamics.solve import __main__ as solve

PACKAGES = ("hermite", "dynamics", "sgd_check")
#: Calls that run what they are given, or hand it to a shell.
RUNNING = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load",
    "marshal.loads", "os.system", "os.popen", "sympify", "sympy.sympify", "parse_expr", "np.load", "numpy.load", "torch.load",
    "yaml.load",
}  # fmt: skip
#: Modules that none of ours may import.
FORBIDDEN = {
    "marshal", "shelve", "dill", "joblib", "cloudpickle", "socket", "ssl", "http", "urllib", "urllib3", "requests", "ftplib",
    "smtplib", "telnetlib", "xmlrpc", "socketserver", "code", "pty",
}  # fmt: skip


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def trees():
    """Yield every module of the three packages with its syntax tree."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def dotted(node):
    """Return `a.b` of a name or an attribute of one, else nothing."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.thorough
def test_sources_run_nothing_that_they_are_given():
    """Sympify is for numbers alone; pickles are never read but by Numba, as Python reads its bytecode."""
    called, imported, allowed = set(), set(), set()
    for path, tree in trees():
        for node in ast.walk(tree):
            # A function may also be handed on to be called elsewhere.
            if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)) in RUNNING:
                called.add((path.name, name))
            elif isinstance(node, ast.Import):
                imported |= {(path.name, name.name.partition(".")[0]) for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((path.name, str(node.module).partition(".")[0]))
            elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
                is_false = isinstance(node.value, ast.Constant) and node.value.value is False
                allowed |= set() if is_false else {(path.name, node.arg)}
    assert called == {
        ("closed_forms.py", "sympy.sympify"),
        ("rows.py", "np.load"),  # of arrays alone: `allow_pickle` is never True, see below
        ("expansion.py", "sympy.sympify"),  # of exact numbers, which are no text
        ("sampled_links.py", "sympy.sympify"),  # of formulas of known links, constants of the module
    }
    assert {(file, name) for file, name in imported if name in FORBIDDEN} == set()
    assert allowed == set()


OFFLINE = """\
import socket, sys

def refuse(event, arguments):
    if event == "socket.connect" and arguments[0].family in (socket.AF_INET, socket.AF_INET6):
        raise PermissionError(f"goes to the network: {arguments[1]}")
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request", "http.client.connect",
                 "ftplib.connect", "smtplib.connect"):
        raise PermissionError(f"goes to the network: {event} {arguments}")

sys.addaudithook(refuse)
try:
    socket.create_connection(("127.0.0.1", 9))
except PermissionError:
    pass
else:
    sys.exit("the hook does not work")

if __name__ == "__main__":
    from dynamics import report, solve, study
    from sgd_check import run

    codes = [
        solve.main(["--directions", "2", "--width", "3", "--dimension", "16", "--quiet", "--output", "run.nc"]),
        solve.main(["--model", "decoupled", "--directions", "3", "--quiet", "--output", "pairs.nc"]),
        solve.main(["--model", "mean-field", "--dimension", "16", "--particles", "32", "--t-max", "1", "--quiet",
                    "--output", "law.nc"]),
        run.main(["run.nc", "--steps", "50", "--seeds", "2", "--learning-rate", "1e-4", "--quiet"]),
        study.main(["study.toml", "--quiet"]),
        report.main(["run.nc"]),
    ]
    sys.exit(str(codes) if any(codes) else 0)
"""


@pytest.mark.long
def test_main_jobs_do_without_a_network(tmp_path):
    """In a process, and the processes that it starts, in which every way to the network raises."""
    (tmp_path / "offline.py").write_text(OFFLINE)
    (tmp_path / "study.toml").write_text(SMALL_STUDY)
    done = python("offline.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"run.nc", "pairs.nc", "law.nc", "run-sgd.nc", "study.nc", "run.html"} <= names_in(tmp_path)


HOSTILE_NAMES = (
    "with space.nc", "; touch executed.nc", "$(touch executed).nc", "`touch executed`.nc", "'quoted'.nc", '"quoted".nc',
    "two\nlines.nc", "a&b|c>d.nc", "-rf.nc", "--output.nc", "*.nc", "[a].nc", "%s{0}.nc", "\u202egnp.nc", "<b>a.nc",
    "~.nc", "\x1b[31mred.nc", "ä ö.nc",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_files_with_hostile_names(name, here):
    """They are written, loaded, refused and resumed as any other, and no other file appears."""
    problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16)
    answer = dynamics.predict_emergence(problem, save_at=SaveAt.at([1.0, 2.0]))
    dynamics.save(answer, name)
    assert dynamics.load(name).identical(answer)
    with pytest.raises(dynamics.StorageError, match="must not name an existing file"):
        dynamics.save(answer, name)
    with pytest.raises(dynamics.StorageError, match="must hold a run that can be resumed"):
        dynamics.resume(name)
    assert names_in(here) == {name}


@pytest.mark.parametrize(
    "name", ["; touch executed.nc", "$(touch executed) `touch executed`.nc", 'it\'s "two" words.nc']
)
def test_the_command_that_goes_on_can_be_pasted(name, here, capsys):
    arguments = ["--k", "4", "--directions", "4", "--width", "12", "--dimension", "32", "--t-max", "1e7", "--no-plot"]
    assert solve.main([*arguments, "--method", "explicit", "--max-runtime", "0.05", "--output", name]) == 0
    command = capsys.readouterr().err.partition("Go on with: ")[2].splitlines()[0]
    assert shlex.split(command)[:5] == ["python", "-m", "dynamics.solve", "--resume", name]
    assert names_in(here) == {name}


STUDY = """
[problem]
k = 4
num_directions = 2
dimension = 16
width = 3
[grid]
seed = [0, 1]
[study]
name = "{name}"
"""
#: A module that leaves a mark when it is imported.
MARKING = """
import pathlib
import dynamics

pathlib.Path("imported").touch()

def asked(problem):
    return dynamics.predict_emergence(problem)
"""


@pytest.fixture
def marking(tmp_path, monkeypatch):
    """Return the name of a study in a module that can be imported, which nothing has imported yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "marking.py").write_text(MARKING)
    yield "marking:asked"
    sys.modules.pop("marking", None)


@pytest.mark.parametrize("flags", [[], ["--dry-run"], ["--study", "dynamics.solve.decoupled:predict_emergence"]])
def test_a_study_file_imports_nothing_that_it_names(marking, tmp_path, capsys, flags):
    (tmp_path / "asked.toml").write_text(STUDY.format(name=marking))
    assert study.main(["asked.toml", *flags]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert flags[:1] == ["--study"] or told.err.endswith("where it is named by --study 'marking:asked' too.\n")
    assert "marking" not in sys.modules
    assert names_in(tmp_path) == {"asked.toml", "marking.py"}


def test_a_study_file_runs_no_command(here):
    (here / "asked.toml").write_text(STUDY.format(name="pydoc:pipepager") + 'cmd = "id > owned"\n')
    assert study.main(["asked.toml", "--quiet"]) == 2
    assert names_in(here) == {"asked.toml"}


@pytest.mark.parametrize("named_in_file", [True, False])
def test_the_user_may_name_the_function_that_a_file_asks_for(marking, tmp_path, monkeypatch, named_in_file):
    monkeypatch.setattr("dynamics.sweeps.workers.available_cores", lambda: 0)
    text = STUDY.format(name=marking)
    (tmp_path / "asked.toml").write_text(text if named_in_file else text.replace('name = "marking:asked"\n', ""))
    assert study.main(["asked.toml", "--quiet", "--study", marking]) == 0
    assert (tmp_path / "imported").exists()
    assert '"study": "marking:asked"' in dynamics.load("asked.nc").attrs["sweep"]


@pytest.mark.thorough
def test_a_result_file_imports_nothing_that_it_names(marking, tmp_path):
    """A sweep names its study; so do the points of one that has not ended, and a file may name what it likes."""
    problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=3, dimension=16)
    answer = dynamics.sweep(problem, {"seed": [0, 1]}, study="prediction", workers=0)
    names = {"study": marking, "answer": marking, "engine": marking, "method": marking}
    for place in ("sweep", "parameters"):
        answer.attrs[place] = answer.attrs[place].replace('"study": "prediction"', f'"study": "{marking}"')
    assert marking in answer.attrs["sweep"]
    assert marking in answer.attrs["parameters"]
    for name, attributes in (("sweep", {}), ("named", names)):
        dynamics.save(answer.assign_attrs(attributes), f"{name}.nc")
        Problem.from_dataset(dynamics.load(f"{name}.nc").isel(seed=0))
        assert report.main([f"{name}.nc"]) == 0
        with pytest.raises(dynamics.StorageError, match="must hold a run that can be resumed"):
            dynamics.resume(f"{name}.nc")
    assert "marking" not in sys.modules
    assert not (tmp_path / "imported").exists()


#: Modules that a process of Python imports before it begins, and some that libraries import.
STANDARD = ("random", "signal", "socket", "tempfile", "pickle", "struct", "queue", "selectors")
#: A script of another folder, whose workers answer with what they were started with.
STARTING = """
import json, os, sys
from multiprocessing import get_context

import dynamics
from dynamics.compile import compile_in_processes
from dynamics.sweeps import workers

def asked(problem):
    variables = [os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONPATH")]
    return dynamics.predict_emergence(problem).assign_attrs(seen=json.dumps([sys.path, variables]))

if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "compile":
        sys.exit(0 if compile_in_processes(["none"], 1, progress=False) == {"none": "KeyError: 'none'"} else 1)
    if kind == "spawn":
        workers.begin_workers = lambda: get_context("spawn")
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=2, dimension=16)
    variables = [os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONPATH")]
    found = dynamics.sweep(problem, {"seed": [0, 1]}, study=asked, workers=2, progress=False)
    assert [os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONPATH")] == variables
    seen = {found.attrs.get("seen")} if "seen" in found.attrs else set(found.seen.values.tolist())
    assert seen == {json.dumps([sys.path, variables])}, seen
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["compile", "spawn", "forkserver"])
def test_processes_import_nothing_from_the_current_directory(kind, tmp_path):
    """They look for modules where the process that starts them does, as it was started with; so do those of a study."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for name in STANDARD:
        (here / f"{name}.py").write_text(f"open('{name} has run', 'w').close()\nraise SystemExit(3)\n")
    (there / "starting.py").write_text(STARTING)
    done = python(str(there / "starting.py"), kind, cwd=here)
    assert done.returncode == 0, done.stderr
    assert names_in(here) == {f"{name}.py" for name in STANDARD}
