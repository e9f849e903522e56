"""Packages load quickly and list their names."""

import pytest
from processes import python

import dynamics
import hermite
import sgd_check

PROBLEM = "dynamics.Problem(activation='he3', teacher=dynamics.Teacher([1.0]), width=2, dimension=8)"
TOKENS = "from dynamics import tokens; problem = tokens.Composition(vocabulary=6, hops=4)"
#: Statements, and the libraries that they must not load.
LIGHT = {
    "import hermite": "numpy scipy sympy",
    "import hermite; hermite.expand('he3')._repr_html_()": "pandas matplotlib xarray numba",
    f"import dynamics; {PROBLEM}.start()": "numba xarray matplotlib torch sympy netCDF4",
    f"import dynamics; {PROBLEM}._repr_html_()": "pandas matplotlib xarray numba",
    f"{TOKENS}; problem._repr_html_()": "pandas matplotlib xarray numba torch",
    f"{TOKENS}; tokens.solve(problem, progress=False)": "torch",
    "import dynamics.integrators.large_flow.device": "torch",
    "import sgd_check": "torch xarray numba matplotlib sympy",
}


@pytest.mark.parametrize(("statement", "heavy"), LIGHT.items(), ids=LIGHT)
def test_nothing_heavy_is_loaded(statement, heavy):
    done = python("-c", f"import sys; {statement}; print(sorted(set({heavy.split()}) & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("package", [hermite, dynamics, sgd_check])
def test_a_package_lists_its_names_and_says_which_it_lacks(package):
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"No {package.__name__} attribute simulat"):
        package.simulat  # noqa: B018
