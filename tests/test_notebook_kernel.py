"""In a kernel of Jupyter: bars are shown to who waits, and an interruption keeps what was computed.

Needs the extra `docs`.
"""

import os
import re
import time as clock

import pytest
from processes import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(170)]

PROBLEM = """
import sys, time
import dynamics, sgd_check
problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0, 0.5]), width=2, dimension=16)
times = dynamics.SaveAt.linear(0.0, 2.0, 2001)
def slow(time_, state):
    print("begun", flush=True)
    time.sleep(0.5)
"""


class Kernel:
    """A kernel that runs one cell after the other, and is interrupted once a cell has said that it has begun."""

    def __init__(self):
        from jupyter_client.manager import start_new_kernel

        self.manager, self.client = start_new_kernel(env=os.environ | {"PYTHONPATH": str(ROOT)})

    def run(self, code, *, interrupt=False):
        """Status of the reply ("ok" or the name of an exception), and what went to stdout and stderr."""
        told = {"stdout": "", "stderr": ""}
        self.traceback = ""

        def hear(message):
            if message["msg_type"] == "stream":
                told[message["content"]["name"]] += message["content"]["text"]
                if interrupt and "begun" in told["stdout"] and "sent" not in told:
                    told["sent"] = ""
                    clock.sleep(0.2)
                    self.manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                self.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(message["content"]["traceback"]))

        reply = self.client.execute_interactive(code, output_hook=hear, timeout=100)["content"]
        return reply.get("ename", reply["status"]), told["stdout"], told["stderr"]

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel():
    started = Kernel()
    assert started.run(PROBLEM)[0] == "ok"
    yield started
    started.close()


def test_a_bar_is_shown_if_asked_for_or_if_the_run_takes_its_time(kernel):
    asked = kernel.run("flow = dynamics.solve_overlaps(problem, save_at=times, progress=True)")
    assert asked[0] == "ok"
    assert "steps" in asked[2]
    quick = "runs = sgd_check.simulate(problem, learning_rate=1e-3, steps=10, seeds=2)"
    assert kernel.run(quick) == ("ok", "", "")
    assert kernel.run("flow = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([1.0]))") == ("ok", "", "")
    waiting = "dynamics.Callback(lambda time_, state: time.sleep(0.2))"
    status, _, bar = kernel.run(
        f"flow = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.linear(0.0, 2.0, 21), trackers=[{waiting}])"
    )
    assert status == "ok"
    assert "t = " in bar
    assert bar.rstrip(" \r").count("\n") == 0, "one line, which is wiped at the end"


def test_an_interrupted_flow_is_kept(kernel):
    call = "dynamics.solve_overlaps(problem, save_at=times, trackers=[dynamics.Callback(slow)], progress=False"
    assert kernel.run(f"flow = {call})", interrupt=True)[0] == "SolveInterrupted"
    look = "print(kept.attrs['stop_reason'], 0 < int(kept.loss.notnull().sum()) < 2001)"
    assert kernel.run(f"kept = sys.last_value.dataset; {look}") == ("ok", "interrupted True\n", "")
    assert kernel.run(f"kept = {call}, on_failure='return')", interrupt=True)[0] == "ok"
    assert kernel.run(look) == ("ok", "interrupted True\n", "")


def test_a_cell_that_computes_for_long_says_where_its_part_is(kernel):
    large = "dynamics.Problem(activation='he4', teacher=dynamics.Teacher.power_law(16, 1.0), width=48, dimension=256)"
    asked = "save_at=dynamics.SaveAt.linear(0.0, 1e6, 200001), method='explicit', progress=False"
    cell = f"""
def tell(time_, state):
    if time_ > 10 and not told:
        told.append(time_)
        print("begun", flush=True)
told, large = [], {large}
flow = dynamics.solve_overlaps(large, {asked}, trackers=[dynamics.Callback(tell)])
"""
    assert kernel.run(cell, interrupt=True)[0] == "SolveInterrupted"
    last = kernel.traceback.splitlines()[-1]
    assert last.startswith("SolveInterrupted: The overlaps solve stopped at t = ")
    assert last.endswith("at a prompt and in a notebook `sys.last_value.dataset`.")
    look = "import sys; kept = sys.last_value.dataset; print(int(kept.loss.notnull().sum()), float(kept.attrs['end_time']))"
    status, out, _ = kernel.run(look)
    count, end = map(float, out.split())
    assert status == "ok"
    assert 2 <= count < 200001
    assert 10 < end < 1e6


def test_interrupted_runs_of_sgd_are_kept_and_the_kernel_goes_on(kernel):
    # What it needs is loaded before: an interruption meanwhile is none of runs.
    assert kernel.run("sgd_check.simulate(problem, learning_rate=1e-9, steps=10, seeds=2, progress=False);")[0] == "ok"
    long = "runs = sgd_check.simulate(problem, learning_rate=1e-9, steps=10**9, seeds=2, progress=False)"
    assert kernel.run(f"print('begun', flush=True); {long}", interrupt=True)[0] == "SolveInterrupted"
    assert (
        kernel.run("runs = sys.last_value.dataset; print(runs.attrs['stop_reason'], float(runs.loss[0, 0]) > 0)")[1]
        == "interrupted True\n"
    )
    again = "print(dynamics.solve_overlaps(problem, progress=False).attrs['stop_reason'])"
    assert kernel.run(again) == ("ok", "reached_end\n", "")
