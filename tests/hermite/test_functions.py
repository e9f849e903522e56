"""Links that are functions of Python: one value at a point, and copies of the points."""

import numpy as np
import pytest
import torch

import hermite


def counted():
    calls = []

    def link(z):
        calls.append(z)
        return z * len(calls)

    return link


class SoftMax(torch.nn.Module):
    """A module whose values sum to 1, behind a layer that needs none of the other points."""

    def forward(self, z):
        return torch.softmax(2.0 * z, dim=0)


NOISE = np.random.default_rng(3)


@pytest.mark.parametrize(
    "link",
    [
        lambda z: z**2 - np.mean(z**2),
        lambda z: np.maximum(z, 0.0) - np.maximum(z, 0.0).mean(),
        lambda z: np.maximum(z, 0.0) / np.max(np.abs(z)),
        lambda z: z - np.median(z),
        lambda z: z / len(z),
        lambda z: z + 1e-3 * np.arange(z.size),
        lambda z: np.gradient(np.maximum(z, 0.0), z),
        lambda z: hermite.expand("he20").value(z) + 0.01 * (z - z.mean()),
        lambda z: z + 1e-3 * NOISE.standard_normal(z.shape),
        counted(),
        np.sort,
        np.cumsum,
        torch.nn.Softmax(dim=0),
        torch.nn.Dropout(0.5),
        SoftMax(),
    ],
)
def test_a_link_that_looks_at_other_points_is_refused(link):
    """Quadrature would give coefficients of no function; the noise of 1e-3 on 240 points passes with chance below 1e-300."""
    need = r"^Argument `x` must have one value at a point, whatever the other points and in every call, but '\w+|<lambda>' has "
    with pytest.raises(ValueError, match=need) as caught:
        hermite.expand(link)
    assert "\n" not in str(caught.value)


def clipped_in_place(z):
    z[z < 0.0] = 0.0
    return z


@pytest.mark.parametrize("link", [clipped_in_place, torch.nn.ReLU(inplace=True)])
def test_a_link_may_write_into_its_argument(link):
    """It is given a copy, so that neither nodes nor points of the caller change."""
    found, relu = hermite.expand(link), hermite.expand("relu")
    np.testing.assert_allclose(found.coefficients, relu.coefficients, atol=1e-12)
    z = np.array([-1.0, 0.5])
    np.testing.assert_allclose(found.value(z), [0.0, 0.5])
    np.testing.assert_array_equal(z, [-1.0, 0.5])


@pytest.mark.parametrize(
    "link", [torch.nn.functional.silu, np.vectorize(lambda z: max(z, 0.0)), lambda z: np.exp(z * z / 5.0)]
)
def test_a_link_of_its_own_point_alone_is_taken(link):
    assert hermite.expand(link).norm_squared > 0.1


@pytest.mark.parametrize(
    ("f", "axes"), [(lambda a, b: a * b - np.mean(a * b), None), (lambda z: z[:, 0] * z[:, 1] / len(z), 2)]
)
def test_a_function_of_several_directions_has_one_value_at_a_point(f, axes):
    with pytest.raises(ValueError, match=r"^Argument `f` must have one value at a point, whatever the other points"):
        hermite.leap(f, axes)


def test_a_function_of_several_directions_may_write_into_its_argument():
    def product(z):
        z *= 2.0
        return z[:, 0] * z[:, 1]

    assert hermite.leap(product, 2).leap == hermite.leap("z1*z2").leap == 2
