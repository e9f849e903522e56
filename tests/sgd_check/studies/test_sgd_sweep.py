"""SGD as a study of a sweep: each point is `simulate` on its problem, bit for bit."""

import numpy as np
import pytest

import dynamics
from dynamics import Problem, SaveAt, Teacher
from sgd_check import simulate


@pytest.mark.parametrize("engine", ["projected", "torch"])
def test_points_are_simulations(engine):
    common = {"activation": "he4", "teacher": Teacher([0.8, 0.6]), "width": 2, "dimension": 16, "initial_norm": 0.1}
    options = {"steps": 60, "seeds": [5, 6], "save_at": SaveAt.at([0.0, 0.006])}
    grid = {"learning_rate": [1e-4, 2e-4], "seed": [0, 3]}
    found = dynamics.sweep(Problem(**common), grid, study=f"{engine}-sgd", options=options, workers=0)
    assert found.loss.dims == ("learning_rate", "seed", "point_seed", "time")
    assert found.point_seed.values.tolist() == [5, 6]
    assert found.seed.long_name == "seed of the random start"
    assert (found.failure == "").all()
    for rate in grid["learning_rate"]:
        alone = simulate(Problem(**common, seed=3), learning_rate=rate, **options, engine=engine, progress=False)
        point = found.sel(learning_rate=rate, seed=3)
        np.testing.assert_array_equal(point.loss, alone.loss)
        np.testing.assert_array_equal(point.teacher_overlap, alone.teacher_overlap)
        np.testing.assert_array_equal(point.step, alone.step)
