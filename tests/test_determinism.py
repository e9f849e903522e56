"""What docs/determinism.md promises and no test of a single module holds: the same call, the same bits."""

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from processes import ROOT, python
from threadpoolctl import threadpool_limits

import dynamics
import sgd_check
from dynamics import Problem, SaveAt, Teacher

SAVE_AT = SaveAt.geometric(0.5, 20.0, 5)
PAIR = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=3, dimension=16)
SPHERICAL = Problem(activation="he4", teacher=Teacher([1.0]), width=3, dimension=16, student="spherical")
COMMITTEE = Problem(
    activation="erf", teacher=Teacher([1.0, 1.0]), width=2, dimension=16, student="committee", initial_norm=0.5
)

QUADRATIC = Problem(activation="he2", teacher=Teacher([0.8, 0.6]), width=4, dimension=32, seed=1)


def flow(method):
    return dynamics.solve_overlaps(PAIR, save_at=SAVE_AT, method=method, progress=False)


def runs(engine, **options):
    return sgd_check.simulate(PAIR, learning_rate=1e-4, steps=200, seeds=2, engine=engine, progress=False, **options)


def frames(engine):
    frame = dataclasses.replace(QUADRATIC, student="stiefel", initial_norm=None)
    return sgd_check.simulate(frame, learning_rate=1e-4, steps=200, seeds=2, engine=engine, progress=False)


ANSWERS = {
    "prediction": lambda: dynamics.predict_emergence(PAIR, save_at=SAVE_AT),
    "decoupled": lambda: dynamics.solve_decoupled(PAIR, save_at=SAVE_AT),
    "quadratic": lambda: dynamics.solve_quadratic(QUADRATIC, save_at=SAVE_AT),
    "explicit": lambda: flow("explicit"),
    "stiff": lambda: flow("stiff"),
    "bdf": lambda: flow("bdf"),
    "mean field": lambda: dynamics.solve_mean_field(SPHERICAL, save_at=SAVE_AT, particles=64, progress=False),
    "spherical": lambda: dynamics.solve_spherical(SPHERICAL, save_at=SAVE_AT, progress=False),
    "committee": lambda: dynamics.solve_committee(COMMITTEE, save_at=SAVE_AT, progress=False),
    "projected": lambda: runs("projected"),
    "projected, batches": lambda: runs("projected", batch_size=3),
    "diffusion": lambda: runs("diffusion"),
    "torch": lambda: runs("torch", device="cpu"),
    **{f"frames, {name}": lambda name=name: frames(name) for name in ("projected", "diffusion", "torch")},
}


def digest(dataset):
    found = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        values = dataset[name].to_numpy()
        found.update(name.encode() + (values.tobytes() if values.dtype.kind in "biuf" else str(values).encode()))
    return found.hexdigest()


@pytest.mark.filterwarnings("ignore:The noise of a step has kurtosis")  # few steps will do here
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_same_call_gives_the_same_bits(answer):
    assert digest(ANSWERS[answer]()) == digest(ANSWERS[answer]())


@pytest.mark.thorough
def test_another_process_gives_the_same_bits():
    """Hashes of text, and so orders of sets, differ between the two."""
    names = ("decoupled", "explicit", "stiff", "projected")
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import test_determinism as t\nprint(*(t.digest(t.ANSWERS[name]()) for name in {names!r}))"
    )
    done = python("-c", script, PYTHONHASHSEED="12345")
    assert done.stdout.split() == [digest(ANSWERS[name]()) for name in names]


def test_threads_of_matrix_products_change_rounding_alone():
    """From 256 neurons on the explicit method lets BLAS use every core, whose sums may be in another order."""
    problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=256, dimension=512)
    answers = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            answers.append(
                dynamics.solve_overlaps(
                    problem, save_at=SaveAt.at([0.5, 1.0]), method="explicit", error_estimate=False, progress=False
                )
            )
    for name in ("loss", "teacher_overlap", "student_overlap", "squared_norm"):
        np.testing.assert_allclose(answers[1][name], answers[0][name], rtol=1e-11, atol=1e-14)


def test_the_page_names_tests_that_there_are():
    page = (ROOT / "docs" / "determinism.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page)
    assert len(named) > 8
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"
