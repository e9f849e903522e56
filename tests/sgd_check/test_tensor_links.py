"""Links that are functions of tensors, and what is said of those that are none; `hermite` itself needs no PyTorch."""

import numpy as np
import pytest
import torch

import hermite

RULE = "Argument `x` must be a vectorised callable (array in, real array of the same shape out), but "


def test_functions_of_tensors_are_links_too():
    """In double precision: what they are in numpy, to rounding."""

    class Leaky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.tensor(0.01, dtype=torch.float64))

        def forward(self, z):
            return torch.where(z > 0, z, self.slope * z)

    z = np.linspace(-3.0, 3.0, 7)
    for function, name in ((torch.nn.functional.silu, "silu"), (torch.tanh, "tanh"), (Leaky(), "leaky_relu")):
        link, formula = hermite.expand(function), hermite.expand(name)
        np.testing.assert_allclose(link.coefficients, formula.coefficients, rtol=0, atol=1e-12)
        np.testing.assert_allclose(link.value(z), formula.value(z), rtol=0, atol=1e-15)
        assert link.information_exponent == 1
    assert hermite.expand(lambda z: z.clamp(min=0)).name == "<lambda>"  # a method that arrays lack


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.nn.ReLU, "Argument `x` must be a function, but is a class; an object of it may be one: ReLU()."),
        (torch.nn.Linear(400, 1, dtype=torch.float32), f"{RULE}'Linear' failed on an array of shape (400,): mat1 and mat2 must have the same dtype, but got Double" " and Float"),
        (lambda z: torch.relu(z).float(), f"{RULE}'<lambda>' returns dtype float32."),
    ],
)  # fmt: skip
def test_refusals_are_single_sentences(given, sentence):
    with pytest.raises(TypeError) as caught:
        hermite.expand(given)
    assert str(caught.value) == sentence
