"""`python -m hermite.exponents`: its text, its JSON, its refusals, and the path that it shares with a former module."""

import json

import numpy as np
import pytest

from hermite.exponents import __main__ as command
from hermite.exponents.generative import sample_laws

HE3 = """\
link                  he3
information exponent  3
generative exponent   1, λ_1² = 0.66783

   k  c_k²/Var σ       λ_k²
   1           0    0.66783
   2           0    0.62304
   3     1.00000    1.00000

samples in d dimensions
  online SGD                            d^2
  SGD on the smoothed landscape         d^1.5
  transformed labels, spectral or SGD   d
"""


def test_text(capsys):
    assert command.main(["he3", "--degrees", "3"]) == 0
    assert capsys.readouterr() == (HE3, "")


def test_json(capsys):
    assert command.main(["heaviside(abs(z) - 1)", "--json", "--degrees", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["information_exponent"], found["generative_exponent"]) == (2, 2)
    assert found["lambda_squared"] == pytest.approx(0.54057, abs=1e-4)
    np.testing.assert_allclose(found["coefficient_shares"], found["label_correlations"], atol=1e-12)
    assert found["samples"]["online"] == {"power": 1.0, "logarithm": True}


LEAPS = """\
function              z1*z2*z3
information leap      3: 3 {z1, z2, z3}
generative leap       2: 2 {z1, z2, z3}

samples in d dimensions
  online SGD                            d^2
  transformed labels, spectral or SGD   d
"""


def test_a_function_of_several_directions(capsys):
    assert command.main(["z1*z2*z3"]) == 0
    assert capsys.readouterr() == (LEAPS, "")
    assert command.main(["z1 + h2(z2)", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    steps = found["information_leap"]["flag"]
    assert [step["degree"] for step in steps] == [1, 2]
    np.testing.assert_allclose(np.abs([step["directions"][0] for step in steps]), np.eye(2), atol=1e-12)
    assert found["information_leap"]["complete"] is True
    assert found["samples"] == {
        "online": {"power": 1.0, "logarithm": True},
        "transformed": {"power": 1.0, "logarithm": False},
    }


@pytest.mark.parametrize(
    ("exponents", "online", "smoothed", "transformed"),
    [
        ((1, 1), "d", "d", "d"),
        ((2, 2), "d log d", "d", "d"),
        ((3, 1), "d^2", "d^1.5", "d"),
        ((4, 4), "d^3", "d^2", "d^2"),
    ],
)
def test_sample_laws(exponents, online, smoothed, transformed):
    laws = sample_laws(*exponents)
    assert [str(law) for law in laws.values()] == [online, smoothed, transformed]


def test_a_mean_that_dwarfs_the_rest_leaves_the_shares(capsys):
    assert command.main(["z + 1e10", "--json", "--degrees", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["coefficient_shares"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the following arguments are required: LINK"),
        (["tahn"], "Argument LINK must be a formula, but contains the name 'tahn', which is not z, x, pi or e. Did you mean"),
        (["he3", "--degrees", "0"], "Option --degrees must be an integer from 1 to 24, but is '0'."),
        (["he3", "--degrees", "9" * 5000], "Option --degrees must be an integer from 1 to 24, but is '999"),
        (["he3", "--degree", "3"], "unrecognized arguments: --degree 3. Did you mean '--degrees'?"),
        (["h2(z) - h2(z) + 0*z"], "Argument LINK must contain the variable z, but is "),
        (["sin(40*z)"], "Argument LINK must have a generative exponent of at most 24, but "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(arguments, sentence, capsys):
    assert command.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {sentence}")
    assert err.count("\n") == 1
