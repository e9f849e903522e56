"""A type checker knows every argument of the public face: it sees calls that are wrong, and none that is right."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from dynamics.solve.arguments import DEFAULTS, ProblemArguments, Shared
from dynamics.solve.registry import ANSWERS, registered
from sgd_check.engines.registry import ENGINES, EngineName

ROOT = Path(__file__).resolve().parent.parent
#: The types of these libraries take most of the time, and no public argument has one of them.
SETTINGS = """\
[mypy]
ignore_missing_imports = True
follow_imports = silent
[mypy-scipy.*,matplotlib.*,pandas.*,sympy.*,torch.*,numba.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
BEGIN = """\
import dynamics
import hermite
import sgd_check
import xarray as xr
from dynamics import Inputs, Problem, SaveAt, SGD, Student, Teacher, tokens

teacher = Teacher([0.8, 0.6])
save_at = SaveAt.at([0.0, 1.0])
problem = Problem(activation="he4", teacher=teacher, width=8, dimension=64)
network = Problem(student=Student(activation="erf", width=2), teacher=teacher, dimension=64)
memory = tokens.Composition(vocabulary=6, hops=4)
flow: xr.Dataset = dynamics.solve_overlaps(problem, save_at=save_at)
"""
WRONG = """\
dynamics.solve_overlaps(problem, learning_rat=0.1)
dynamics.solve_overlaps(problem, batch_size="many")
dynamics.solve_overlaps("not a problem")
dynamics.solve_overlaps(problem, save_at=[0.0, 1.0])
dynamics.solve_overlaps(problem, save_at)
dynamics.solve_committee(problem, keep="all")
dynamics.solve_spherical(problem, optimizer=SGD(momentum=0.9))
dynamics.solve_correlation(problem, on_failure="ignore")
dynamics.solve_network(network, step_theory="finite")
dynamics.solve_quadratic(problem, rtol=1e-6)
dynamics.solve_mean_field(problem, quadrature="gauss")
dynamics.solve_mean_field(problem, error_estimate=True)
dynamics.solve_reused_data(network, samples="1.5d", learning_rate=1.0)
dynamics.solve_coupling(problem, largest_step="small")
dynamics.solve_decoupled(memory)
dynamics.solve_system(problem, save_at=save_at)
dynamics.solve_problem(problem, learning_rat=0.1)
dynamics.solve_problem(problem, t_max="long")
dynamics.predict_emergence(memory)
dynamics.predict_recovery("he2", dimension=400, samples="many")
dynamics.resume("flow.nc", max_runtime="long")
dynamics.learning_steps(flow, direction=1, evnt="learned")
tokens.solve(problem)
tokens.solve(memory, step_size=0.1)
sgd_check.simulate(problem, learning_rate=0.1, steps="many", seeds=4)
sgd_check.simulate(problem, learning_rate=0.1, n_steps=100, seeds=4)
sgd_check.simulate(problem, learning_rate=0.1, steps=100, seeds=4, engine="fast")
sgd_check.simulate(memory, learning_rate=0.1, steps=100, seeds=4)
sgd_check.check(flow)
sgd_check.check(problem, seeds="many")
sgd_check.check(problem, theory="flows")
sgd_check.compare(flow, problem)
sgd_check.calibration(sedes=3)
Problem(activation="he4", teacher=teacher, widht=8, dimension=64)
Problem(activation="he4", teacher=[0.8, 0.6], width=8, dimension=64)
Problem(activation="he4", teacher=teacher, width=8, dimension=64, student="convex")
Teacher.power_law(8, exponent=1.0)
Student(activation="erf", width="two")
Student(activation="erf", width=2, second_layer="frozen")
SaveAt.geometric(1.0, 100.0, "fifty")
dynamics.save("flow.nc", flow)
dynamics.load(3)
dynamics.plot("flow.nc")
dynamics.plot(flow, styl="dark")
dynamics.sweep(problem, ["seed"])
dynamics.sweep(problem, {"seed": [0, 1]}, workers="two")
dynamics.propagation_of_chaos(problem, widths=3)
hermite.expand("he4", order="high")
hermite.expand("he4", ordr=8)
hermite.expand("he4").coefficient
"""
RIGHT = """\
dynamics.solve_overlaps(problem)
dynamics.solve_overlaps(problem, learning_rate=0.1, batch_size=2, optimizer="SGD(momentum=0.9)")
dynamics.solve_overlaps(problem, learning_rate="0.1x", step_theory="finite-d", rtol=1e-6, progress=False)
dynamics.solve_overlaps(problem, learning_rate=dynamics.cosine(0.01, 1000), save_at=save_at, error_estimate=False)
dynamics.solve_overlaps(problem, method="stiff", device="cuda", checkpoint="flow.nc", max_runtime=60.0)
dynamics.solve_committee(problem, keep="summary", trackers=[dynamics.SteadyState()])
dynamics.solve_spherical(problem, learning_rate=0.1, step_theory="infinite-d")
dynamics.solve_correlation(problem, on_failure="return", t_max=3.0)
dynamics.solve_network(network, step_theory="infinite-d", optimizer=dynamics.SignSGD(), learning_rate=0.1)
dynamics.solve_quadratic(problem, t_max=3.0, checkpoint=dynamics.RunFile("flow.nc"))
dynamics.solve_mean_field(problem, quadrature="graded", particles=64, tracers=[[0.1], [0.2]])
dynamics.solve_reused_data(network, samples="1.5d", learning_rate=1.0, steps=3)
dynamics.solve_coupling(problem, largest_step=0.05, particles=64)
dynamics.solve_decoupled(problem, t_max=3.0)
dynamics.solve_problem(memory, save_at=save_at)
dynamics.solve_problem(network, samples=128, learning_rate=1.0, steps=3)
dynamics.predict_emergence(problem).predicted_emergence_time.values.tolist()
dynamics.predict_recovery("he2", dimension=400, samples=[200, 400])
dynamics.resume("flow.nc", max_runtime=60.0)
dynamics.learning_steps(flow, direction=1, event="learned").steps
tokens.solve(memory, save_at, 0.1, keep="summary")
sgd_check.simulate(problem, learning_rate="0.1x", steps=100, seeds=4, engine="projected")
sgd_check.simulate(problem, learning_rate=lambda step: 0.1 / (1 + step), steps=100, seeds=range(4))
sgd_check.check(problem, seeds=[0, 1, 2, 3], theory="finite-step")["comparison"].attrs["verdict"]
sgd_check.compare(flow, [flow, flow])
sgd_check.calibration(seeds=3)
Problem(activation="he4", teacher=Teacher([1.0]), width=8, dimension=64, student="committee")
Problem(activation=hermite.expand("he4"), teacher=teacher, width=8, dimension=64, inputs=Inputs.power_law(0.5))
Teacher.power_law(8, 1.0)
Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0], rates="mean-field")
SaveAt.geometric(1.0, 100.0, 50)
dynamics.save(flow, "flow.nc", overwrite=True)
dynamics.load("flow.nc").loss
dynamics.plot(flow, style="paper")
dynamics.sweep(problem, {"seed": range(2), "beta": [0.8, 1.2]}, workers=0, options={"rtol": 1e-6})
hermite.expand("he4", order=8).coefficients
hermite.expand(lambda z: z**3)
"""


def test_a_type_checker_refuses_wrong_calls_alone(tmp_path):
    pytest.importorskip("mypy")
    file = tmp_path / "calls.py"
    file.write_text(BEGIN + WRONG + RIGHT, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(tmp_path / "mypy.ini")]
    command += ["--cache-dir", str(tmp_path / "cache"), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    refused = {int(line) for line in re.findall(r"calls\.py:(\d+): error: ", done.stdout)}
    lines = file.read_text(encoding="utf-8").splitlines()
    assert sorted(lines[number - 1] for number in refused) == sorted(WRONG.splitlines()), done.stdout


def test_the_arguments_of_all_answers_are_those_that_one_question_takes():
    asked = [registered("reused-data"), *(answer for answer in ANSWERS if answer.resumes)]
    taken = {name for answer in asked for name in answer.defaults()} - {"particles", "quadrature", "tracers"}
    assert taken == set(inspect.get_annotations(ProblemArguments))


def test_shared_arguments_have_defaults_of_their_types():
    assert set(DEFAULTS) == set(inspect.get_annotations(Shared))
    for answer in ANSWERS:
        function = answer.solve()
        written = inspect.signature(inspect.unwrap(function)).parameters
        if "shared" in written:
            shown = inspect.signature(function).parameters
            assert set(written) - {"shared"} < set(shown)
            assert "shared" not in shown


def test_engines_are_those_that_a_type_checker_knows():
    assert set(get_args(EngineName)) == {"auto", *ENGINES}
