"""Options that are declared once: the tables of the commands against the signatures that take them."""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics import mean_field_study
from dynamics.commands.options import SOLVER_OPTIONS
from dynamics.commands.prepared import study_function
from dynamics.commands.study import build_parser
from dynamics.laws import __main__ as laws
from dynamics.solve import __main__ as solve
from sgd_check import study as sgd_study
from sgd_check.run.options import read_arguments

STUDIES = [
    pytest.param(study, id=f"{catalogue.prog} {name}")
    for catalogue in (laws.CATALOGUE, mean_field_study.CATALOGUE, sgd_study.CATALOGUE)
    for name, study in catalogue.studies.items()
]


def parameters_of(study):
    module, _, name = study.prepares.partition(":")
    return inspect.signature(attrgetter(name)(import_module(module))).parameters


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_an_option_for_each_setting_with_its_default(study):
    parameters = parameters_of(study)
    assert {option.key for option in study.options} | {"progress"} == set(parameters)
    for option in study.options:
        if option.default is not None:
            assert option.read(option.default) == parameters[option.key].default, option.name
        elif not option.help.endswith("]"):
            assert parameters[option.key].default in (None, False), option.name


def test_the_options_of_a_solve_have_the_defaults_of_its_functions():
    for model, function in (("overlaps", dynamics.solve_overlaps), ("mean-field", dynamics.solve_mean_field)):
        parameters = inspect.signature(function).parameters
        for option in SOLVER_OPTIONS:
            if model in option.models and option.key in parameters and option.default not in (None, "auto"):
                assert option.read(option.default) == parameters[option.key].default, option.name


@pytest.mark.parametrize(
    ("read", "arguments"),
    [
        (solve.build_parser().values, ["--k", "4"]),
        (build_parser(laws.CATALOGUE).values, ["scaling", "--seed", "3"]),
        (read_arguments, ["prediction.nc", "--seeds", "3"]),
    ],
    ids=["solve", "laws", "run"],
)
def test_parsed_values_are_read_only(read, arguments):
    values = read(arguments)
    assert isinstance(values, MappingProxyType)
    with pytest.raises(TypeError):
        values["k"] = 3


def test_a_study_function_prepares_and_runs_by_one_signature():
    for function in (dynamics.scaling_study, dynamics.finite_size, sgd_check.sample_complexity, sgd_check.sgd_transfer):
        assert inspect.signature(function).return_annotation == "xr.Dataset"
        assert list(inspect.signature(function).parameters) == list(inspect.signature(function.prepare).parameters)
        assert inspect.isfunction(function)
        assert function.__doc__ == function.prepare.__doc__

    class Twice:
        def __init__(self, number):
            self.number = number

        def run(self):
            return 2 * self.number

    twice = study_function(Twice)
    assert twice(number=np.pi) == 2 * np.pi
    assert twice.prepare(3).number == 3
