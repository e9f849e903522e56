"""Networks whose neurons, layers and rates differ, and their labels, for tests of steps of SGD."""

import numpy as np

from dynamics import Problem, Student


def uneven_network(link, teacher, dimension, width=3, inputs=None, **changes):
    """Neurons of unequal lengths with signs and biases; everything is trained, at rates of its own."""
    weights = np.random.default_rng(5).standard_normal((width, dimension))
    weights *= np.linspace(0.6, 1.3, width)[:, None] / np.linalg.norm(weights, axis=1, keepdims=True)
    asked = {
        "biases": "trained",
        "initial_second_layer": 0.9 * np.cos(1.0 + 2.0 * np.arange(width)),
        "initial_biases": 0.4 * np.sin(1.0 + np.arange(width)),
        "scale": "1/sqrt(m)",
        "rates": (1.0, 0.5, 0.25),
        "decay": (0.3, 0.2),
    }
    student = Student(activation=link, width=width, **(asked | changes))
    return Problem(
        student=student, teacher=teacher, dimension=dimension, inputs=inputs, initial_weights=weights, label_noise=0.3
    )


def labels_of(problem, x):
    """f* of samples (..., D), whitened ones where inputs are not isotropic."""
    axes = x[..., : problem.teacher.span]
    if problem.teacher.target is not None:
        return problem.teacher.target.value(axes)
    units = problem.teacher.units(problem.teacher_link)
    return sum(unit.coefficient * unit.link.value(axes @ unit.direction + unit.bias) for unit in units)
