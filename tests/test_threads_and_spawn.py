"""Solves beside each other, in threads and in processes that are started anew, give the bits of one after the other."""

from __future__ import annotations

import dataclasses
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import dynamics
import sgd_check
from dynamics.integrators.large_flow.rows import SMALLEST_PASS

SEEDS = (0, 1, 2)
WIDE = 320
AT = dynamics.SaveAt.at([0.5, 1.0, 2.0])


def problem(seed):
    teacher = dynamics.Teacher([1.0, 0.5])
    return dynamics.Problem(activation="he3", teacher=teacher, width=3, dimension=64, seed=seed)


def small_flow(seed):
    return dynamics.solve_overlaps(problem(seed), save_at=AT, progress=False)


def large_flow(seed):
    """A flow of so many neurons that threads of its own share its passes."""
    wide = dataclasses.replace(problem(seed), activation="he4", order=None, width=WIDE, dimension=2 * WIDE)
    assert WIDE * (WIDE + 2) >= SMALLEST_PASS
    return dynamics.solve_overlaps(wide, save_at=AT, method="stiff", error_estimate=False, progress=False)


def runs_of_sgd(seed):
    return sgd_check.simulate(problem(seed), learning_rate=1e-4, steps=200, seeds=2, progress=False)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.drop_attrs().identical(other.drop_attrs())
        assert one.attrs["stop_reason"] == other.attrs["stop_reason"] == "reached_end"


@pytest.mark.parametrize("answer", [small_flow, large_flow, runs_of_sgd])
def test_threads_give_the_bits_of_one_after_the_other(answer):
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        together = list(pool.map(answer, SEEDS))  # first, so that on a new machine threads compile side by side
    assert_same(together, map(answer, SEEDS))


def test_different_answers_at_once_do_not_meet():
    answers = (small_flow, runs_of_sgd, large_flow)
    with ThreadPoolExecutor(len(answers)) as pool:
        begun = [pool.submit(answer, 0) for answer in answers]
    assert_same([each.result() for each in begun], [answer(0) for answer in answers])


def test_processes_that_are_spawned_give_the_same_bits():
    """Problems and answers travel, and a process that starts with nothing finds the compiled code."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert_same(pool.map(small_flow, SEEDS[:2]), map(small_flow, SEEDS[:2]))
        assert pool.submit(problem, 0).result() == problem(0)
