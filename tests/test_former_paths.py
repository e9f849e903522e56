"""Modules by the paths that they had before the packages were divided into rooms."""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec

import pytest

import dynamics
from dynamics.equations.overlaps.system import OverlapSystem
from dynamics.study.studies import find_study
from hermite.former_paths import _PRESENT


def test_every_former_path_leads_to_a_module_and_is_none_itself():
    assert len(_PRESENT) > 200
    lost = [old for old, new in _PRESENT.items() if find_spec(new) is None]
    assert lost == []
    assert not set(_PRESENT) & set(_PRESENT.values())


def test_a_former_module_is_the_present_one_and_says_where_it_is():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        former = importlib.import_module("dynamics.systems.overlaps")
    assert {str(each.message) for each in caught if each.category is DeprecationWarning} == {
        "Module dynamics.systems is dynamics.equations now.",
        "Module dynamics.systems.overlaps is dynamics.equations.overlaps.system now.",
    }
    assert former.OverlapSystem is OverlapSystem
    assert former.__spec__.name == former.__name__ == "dynamics.equations.overlaps.system"


def test_a_study_that_an_old_file_names_by_its_module_is_found():
    with pytest.warns(DeprecationWarning, match=r"Module dynamics\.flow is dynamics\.solve\.overlaps now"):
        assert find_study("dynamics.flow:solve_overlaps") is dynamics.solve_overlaps
