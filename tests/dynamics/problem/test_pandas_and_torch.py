"""Columns of pandas and tensors of torch are taken wherever arrays are, and mean what the same list means."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import dynamics
import hermite
import sgd_check
from dynamics.sweeps.grid import make_grid

EYE = np.eye(2).tolist()


def column(values):
    """A column, or a table, whose rows have been picked from a longer one."""
    made = pd.Series if np.ndim(values) == 1 else pd.DataFrame
    return made(values, index=range(5, 5 + len(values)))


def parameter(values):
    return torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))


KINDS = {"pandas": column, "tensor": torch.tensor, "parameter": parameter, "half": lambda v: torch.tensor(v).bfloat16()}


def problem(**changes):
    given = {"activation": "he3", "teacher": dynamics.Teacher([1.0, 0.5]), "width": 2, "dimension": 8}
    return dynamics.Problem(**given | changes)


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def given(request):
    return request.param


def student(**changes):
    return dynamics.Student(activation="he3", width=2, biases="trained", **changes)


# Every number below is exact in half precision.
CALLS = {
    "coefficients": lambda made: dynamics.Teacher(made([1.0, 0.5])),
    "directions": lambda made: dynamics.Teacher([1.0, 0.5], directions=made([[0.0, 1.0], [1.0, 0.0]])),
    "biases": lambda made: dynamics.Teacher([1.0, 0.5], biases=made([0.25, -0.5])),
    "eigenvalues": lambda made: dynamics.Inputs(made([2.0, 0.5]), [3, 5]),
    "second layer": lambda made: student(initial_second_layer=made([1.0, -0.5])),
    "initial biases": lambda made: student(initial_biases=made([1.0, -0.5])),
    "rates and decay": lambda made: student(rates=made([1.0, 0.5, 0.25]), decay=made([0.5, 0.0])),
    "initial weights": lambda made: problem(initial_weights=made(np.eye(2, 8).tolist())),
    "initial overlaps": lambda made: problem(initial_overlaps=(made([[0.5, 0.0], [0.0, 0.25]]), made(EYE), made([1.0, 0.5]))),
    "times": lambda made: dynamics.SaveAt.at(made([1.0, 2.0])),
    "schedule": lambda made: sgd_check.piecewise(made([0.5, 0.25]), [5]).name,
    "fit": lambda made: (dynamics.fit_power_law(made([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), made([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0])).exponent),
    "moments": lambda made: dynamics.one_step_moments(problem(), made(np.eye(2, 8).tolist())).teacher_first.tolist(),
    "scalars": lambda made: problem(label_noise=first_of(made([0.5]))),
    "values": lambda made: hermite.expand("he3").value(made([1.0, 2.0])).tolist(),
    "slopes": lambda made: hermite.expand("he3").derivative(made([1.0, 2.0])).tolist(),
    "kernel": lambda made: hermite.expand("he3").kernel(made([0.5, 0.25])).tolist(),
    "slope of the kernel": lambda made: hermite.expand("he3").kernel_derivative(made([0.5, 0.25])).tolist(),
}  # fmt: skip


def first_of(values):
    """The first of several numbers, as a loop gives it: of a tensor it is an array without dimensions."""
    return next(iter(values))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_column_and_a_tensor_mean_what_the_list_means(call, given):
    assert call(given) == call(list)


def masked_first(values):
    """A masked array of which the first entry is masked."""
    made = np.ma.masked_array(np.array(values, dtype=float))
    made[(0,) * made.ndim] = np.ma.masked
    return made


def unmasked(values):
    return np.ma.masked_array(np.array(values, dtype=float))


@pytest.mark.parametrize("call", [call for name, call in CALLS.items() if name != "scalars"])
def test_a_masked_entry_is_refused_and_an_empty_mask_changes_nothing(call):
    with pytest.raises((ValueError, TypeError), match="masked"):
        call(masked_first)
    assert call(unmasked) == call(list)


@pytest.mark.parametrize("made", [torch.tensor, np.array, parameter])
def test_a_link_by_its_coefficients(made):
    assert hermite.expand(made([0.0, 0.0, 0.0, 0.5])) == hermite.expand({3: 0.5})
    assert hermite.expand(list(made([0.0, 0.5]))) == hermite.expand({1: 0.5})


def test_the_index_of_a_column_has_the_degrees_of_a_link():
    assert hermite.expand(pd.Series({6: 0.6, 4: 0.8})) == hermite.expand({4: 0.8, 6: 0.6})
    assert hermite.expand(pd.Series([0.0, 0.0, 0.0, 0.5])) == hermite.expand({3: 0.5})
    with pytest.raises(ValueError, match=r"^Argument `x` must have degrees from 0 to 300 as keys, but has 'a'\.$"):
        hermite.expand(pd.Series({"a": 1.0}))


@pytest.mark.parametrize("made", [torch.tensor, np.array, pd.Series])
def test_seeds_counts_and_grids(made):
    settings = {"learning_rate": 1e-3, "steps": 2, "save_at": dynamics.SaveAt.at([0.0]), "progress": False}
    for seeds in ([5, 7], [5]):
        assert sgd_check.simulate(problem(), seeds=made(seeds), **settings)["seed"].values.tolist() == seeds
    assert dynamics.Inputs([2.0, 0.5], made([3, 5])) == dynamics.Inputs([2.0, 0.5], [3, 5])
    (axis,) = make_grid(problem(), {"width": made([2, 4])}, "prediction", {}).axes
    assert (axis.values, axis.labels.tolist()) == ((2, 4), [2, 4])
    assert type(axis.values[0]) is int
    assert problem(width=made([4])[0], dimension=made([8.0])[0]) == problem(width=4, dimension=8)
    with pytest.raises(TypeError, match=r"^Argument `width` must be an integer, but is "):
        problem(width=made([4]))


def test_directions_of_single_precision_are_of_unit_length_within_it():
    rows = [[0.6, 0.8], [0.28, 0.96]]
    found = dynamics.Teacher([1.0, 0.5], directions=torch.tensor(rows))
    assert np.abs(np.linalg.norm(found.directions, axis=1) - 1.0).max() < 1e-15
    assert np.abs(found.directions - rows).max() < 1e-7
    with pytest.raises(ValueError, match=r"^Argument `directions` must have rows of unit length, but row 1 of 2 "):
        dynamics.Teacher([1.0, 0.5], directions=[[0.6, 0.8 + 1e-7], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"^Argument `directions` must have rows of unit length, but row 1 of 2 "):
        dynamics.Teacher([1.0, 0.5], directions=torch.tensor([[0.6, 0.8 + 1e-5], [0.0, 1.0]]))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["1.0", "0.5"]),
        pd.Series(["1.0", 0.5], dtype=object),
        pd.Series([True, 1.0], dtype=object),
        pd.Series(pd.to_timedelta([1, 2], unit="s")),
        torch.tensor([1.0 + 1j, 1.0]),
        torch.tensor([True, True]),
    ],
)
def test_what_only_spells_numbers_is_refused(column):
    with pytest.raises(TypeError, match=r"^Argument `coefficients` must be an array of real numbers, but is "):
        dynamics.Teacher(column)


NAMED_UNIT = {
    "table": lambda values: pd.DataFrame({"unit": values}),
    "label": lambda values: pd.Series(values, index=["unit", *range(len(values) - 1)]),
    "label of units": lambda values: pd.Series(values, index=["units", *range(len(values) - 1)]),
    "coordinate": lambda values: xr.DataArray(values, dims="x", coords={"unit": ("x", range(len(values)))}),
}


@pytest.mark.parametrize("made", NAMED_UNIT.values(), ids=NAMED_UNIT)
def test_a_column_a_label_or_a_coordinate_may_be_called_unit(made):
    for name in ("times", "fit"):
        assert CALLS[name](made) == CALLS[name](list)


def test_units_of_arrays_are_refused():
    for attribute in ("units", "unit"):
        array = xr.DataArray([1.0, 2.0], attrs={attribute: "m"})
        with pytest.raises(ValueError, match=r"^Argument `times` must be dimensionless, .*, but has the unit m\.$"):
            dynamics.SaveAt.at(array)
    assert len(dynamics.SaveAt.at(xr.DataArray([1.0, 2.0], attrs={"units": "1"}))) == 2
