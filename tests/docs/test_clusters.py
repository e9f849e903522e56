"""The scripts for clusters on the page on sweeps: all run, SLURM and Kubernetes with stand-ins; and its simulated table."""

import inspect
import json
import re

import numpy as np
import pytest
from processes import ROOT, python

import dynamics
from benchmarks import sweep_scaling

PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
SCRIPTS = {
    re.search(r'output="(\w+)\.nc"', text)[1]: text
    for text in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    if "from distributed import Client" in text
}
#: Clusters of this machine under the names of other libraries, with the options that the scripts give.
STAND_INS = {
    "dask_jobqueue.py": """\
from distributed import LocalCluster

class SLURMCluster(LocalCluster):
    def __init__(self, *, n_workers, queue, cores, processes, memory, walltime):
        super().__init__(n_workers=min(n_workers, 2), threads_per_worker=cores // processes, dashboard_address=None)
""",
    "dask_kubernetes/__init__.py": "",
    "dask_kubernetes/operator.py": """\
from distributed import LocalCluster

class KubeCluster(LocalCluster):
    def __init__(self, *, name, n_workers, image, worker_command):
        threads = int(worker_command[worker_command.index("--nthreads") + 1])
        super().__init__(n_workers=min(n_workers, 2), threads_per_worker=threads, dashboard_address=None)
""",
}


def test_the_page_has_a_script_of_ten_lines_for_each_kind():
    assert list(SCRIPTS) == ["local", "slurm", "pods"]
    assert all(len(text.splitlines()) <= 10 for text in SCRIPTS.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_on_a_cluster(name, tmp_path):
    for path, text in STAND_INS.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPTS[name], encoding="utf-8")
    done = python("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher.power_law(4, 1.0), width=8, dimension=64)
    whole = dynamics.sweep(problem, {"seed": range(8)}, study="prediction", workers=0)
    with dynamics.load(tmp_path / f"{name}.nc") as found:
        assert found.load().equals(whole)
    assert not (tmp_path / f"{name}.nc.points").exists()


def keywords(name, text):
    """The options of a dictionary `name` in a script."""
    return json.loads(re.search(rf"{name} = (\{{.*\}})", text)[1])


def test_jobs_of_slurm_have_these_options():
    jobqueue = pytest.importorskip(
        "dask_jobqueue", reason="dask-jobqueue is not installed: its options are not checked"
    )
    local = {"dashboard_address": None, "host": "127.0.0.1"}
    with jobqueue.SLURMCluster(**keywords("job", SCRIPTS["slurm"]), scheduler_options=local) as cluster:
        script = cluster.job_script()
    assert {"#SBATCH -p normal", "#SBATCH --cpus-per-task=1", "#SBATCH -t 04:00:00"} <= set(script.splitlines())
    assert "--nthreads 1 " in script


def test_pods_of_kubernetes_have_these_options():
    operator = pytest.importorskip(
        "dask_kubernetes.operator", reason="dask-kubernetes is not installed: its options are not checked"
    )
    known = inspect.signature(operator.KubeCluster.__init__).parameters
    assert {"name", "n_workers", *keywords("pods", SCRIPTS["pods"])} <= set(known)


def by_small_steps(seconds, workers, start, per_point, merge):
    """What `simulate` computes, in steps of one second: every event lies on a whole one."""
    waiting, running, idle, flying, handling, now = list(seconds), [], workers, [], 0, 0
    flying, waiting = waiting[: workers + 1], waiting[workers + 1 :]
    done, left = 0, len(seconds)
    while left:
        if now >= start:
            while idle and flying:
                running.append(flying.pop(0))
                idle -= 1
        now += 1
        running = [rest - 1 for rest in running] if now > start else running
        done += sum(rest == 0 for rest in running)
        idle += sum(rest == 0 for rest in running)
        running = [rest for rest in running if rest > 0]
        if handling:
            handling -= 1
            if not handling:
                left -= 1
                flying += waiting[:1]
                waiting = waiting[1:]
        if not handling and done:
            done, handling = done - 1, per_point
    return now + merge


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 16])
def test_the_simulated_scheduler_does_what_it_says(workers):
    rng = np.random.default_rng(workers)
    for _ in range(20):
        seconds = rng.integers(1, 12, size=int(rng.integers(1, 30))).tolist()
        start, per_point, merge = rng.integers(1, 5, size=3).tolist()
        found = sweep_scaling.simulate(seconds, workers, start=start, per_point=per_point, merge=merge)
        assert found == by_small_steps(seconds, workers, start, per_point, merge)
    assert sweep_scaling.simulate([2.0] * 48, workers) == 2.0 * -(-48 // workers)


def test_the_table_is_that_of_the_stored_simulation():
    stored = json.loads(sweep_scaling.TARGET.read_text(encoding="utf-8"))
    table = re.search(r"<!-- simulated table -->\n(.*?)\n<!-- end", PAGE, flags=re.DOTALL)[1]
    assert table == sweep_scaling.table(stored)
    for name, (kind, count) in sweep_scaling.SWEEPS.items():
        costs = sweep_scaling.Costs(**stored["costs"][kind])
        for workers, seconds in stored["simulated"][name].items():
            again = sweep_scaling.scaled(costs, count, int(workers), stored["start"])
            np.testing.assert_allclose(again, seconds, rtol=1e-12)
