"""Answers held against each other, bit by bit, and a problem and times of a run that is stopped and goes on."""

import numpy as np
import xarray as xr

import dynamics

AT = dynamics.SaveAt.geometric(0.5, 60.0, 40)


def problem_of(**changes):
    given = {"activation": "he4", "teacher": dynamics.Teacher([1.0, 0.5, 0.4]), "width": 9, "dimension": 32}
    return dynamics.Problem(**given | changes)


#: Attributes that say when, how fast and by which command an answer was made.
CHANGING = {"history", "date_created", "git_commit", "steps_per_second"}


def assert_same(found, expected):
    """Every bit of two answers but dates, commands and measured seconds."""
    xr.testing.assert_identical(_lasting(found), _lasting(expected))


def _lasting(answer):
    lasting = {name: value for name, value in answer.attrs.items() if name not in CHANGING and "seconds" not in name}
    seconds = [name for name in answer.variables if "seconds" in str(name)]
    return answer.drop_vars(seconds).drop_attrs().assign_attrs(lasting)


def assert_same_values(one, other):
    """Every variable but measured seconds: dims, kind and values, whatever the answers say of themselves."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        if "seconds" not in name:
            assert one[name].dims == other[name].dims
            assert one[name].dtype == other[name].dtype or one[name].dtype.kind in "OUT"
            np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name)
