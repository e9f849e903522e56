"""Links that are known at points: interpolation against the function itself, its stated error, and what is refused."""

import pickle

import numpy as np
import pytest
from scipy.special import erf

import hermite
from hermite.tables import InterpolatedLink


@pytest.mark.parametrize("kind", ["monotone", "spline"])
def test_the_stated_error_bounds_that_of_the_interpolation(kind):
    z = np.linspace(-6.0, 6.0, 121)
    link = hermite.from_table(z, erf(z / np.sqrt(2.0)), kind=kind)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    off = InterpolatedLink(z, erf(z / np.sqrt(2.0)), kind)(nodes) - erf(nodes / np.sqrt(2.0))
    true, stated = np.sqrt(weights @ off**2 / weights.sum()), float(link.name.rpartition(" ")[2])
    assert true < 1.5 * stated
    assert stated < 1e-3
    exact = hermite.expand("erf").coefficients
    np.testing.assert_allclose(link.coefficients[:8], exact[:8], atol=3.0 * stated)
    assert link.information_exponent == 1


def test_coefficients_that_the_table_does_not_tell_are_zero():
    z = np.linspace(-7.0, 7.0, 301)
    assert hermite.from_table(z, hermite.expand("he4").value(z)).information_exponent == 4


def test_order_of_points_tangents_beyond_the_ends_and_pickling():
    z = np.random.default_rng(1).permutation(np.linspace(-4.0, 4.0, 81))
    link = hermite.from_table(z, 2.0 * z + 1.0)
    far = np.array([[-9.0, 0.5], [7.0, 30.0]])
    np.testing.assert_allclose(link.value(far), 2.0 * far + 1.0, rtol=1e-12)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(link)).value(far), link.value(far))


Z = np.linspace(-5.0, 5.0, 40)


@pytest.mark.parametrize(
    ("z", "values", "options", "words"),
    [
        (Z[:7], Z[:7], {}, "of one length of at least 8"),
        (Z, Z[:-1], {}, "of one length of at least 8"),
        (np.append(Z, Z[3]), np.append(Z, 1.0), {}, "each point once"),
        (0.5 * Z, Z, {}, "must reach from -4 to 4, but goes from -2.5 to 2.5"),
        (Z, np.where(Z > 0, np.nan, Z), {}, "must be finite"),
        (Z, Z, {"kind": "linear"}, "must be one of 'monotone', 'spline'"),
    ],
)
def test_bad_tables_get_one_sentence(z, values, options, words):
    with pytest.raises(ValueError, match=words):
        hermite.from_table(z, values, **options)


def test_a_command_takes_a_table_from_text_or_numpy(tmp_path, capsys):
    from dynamics.solve.__main__ import _options, build_parser, build_problem, main

    z = np.linspace(-6.0, 6.0, 121)
    np.savetxt(tmp_path / "link.csv", np.stack([z, np.tanh(z)], axis=1), delimiter=",", header="z,sigma", comments="")
    np.save(tmp_path / "link.npy", np.stack([z, np.tanh(z)], axis=1))
    links = [
        build_problem(_options(build_parser().values(["--activation", f"@{tmp_path}/link.{end}"]))).activation
        for end in ("csv", "npy")
    ]
    assert links[0].name == links[1].name
    np.testing.assert_allclose(links[0].coefficients, links[1].coefficients, atol=1e-12)
    (tmp_path / "bad.csv").write_text("z,sigma,more\n0,1,2\n")
    assert main(["--activation", f"@{tmp_path}/bad.csv", "--dry-run"]) == 2
    assert "Option --activation must name a file with two numbers a line" in capsys.readouterr().err
