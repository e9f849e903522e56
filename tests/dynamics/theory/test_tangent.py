"""The floor of the tangent kernel: features by automatic differentiation, stated means, and what is refused."""

import itertools

import numpy as np
import pytest

import dynamics
import hermite


def problem_of(**options):
    return dynamics.Problem(
        **{"activation": "he3", "teacher": dynamics.Teacher([1.0]), "width": 4, "dimension": 10, **options}
    )


@pytest.mark.parametrize(
    ("link", "teacher"),
    [
        ("he3", dynamics.Teacher([1.0])),
        ({0: 0.3, 1: 0.4, 2: 0.5, 4: 0.7}, dynamics.Teacher([1.0, 0.5], directions=[[1.0, 0.0], [0.6, 0.8]])),
    ],
    ids=["pure", "mixed"],
)
def test_the_floor_is_that_of_least_squares_on_gradients(link, teacher):
    """Weighted least squares at the nodes of an exact rule, on gradients in weight space by torch."""
    torch = pytest.importorskip("torch")
    problem = problem_of(activation=link, teacher=teacher, width=2, dimension=3, seed=3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    x = np.array(list(itertools.product(nodes, repeat=3)))
    rule = np.array([np.prod(w) for w in itertools.product(weights / weights.sum(), repeat=3)])
    c = hermite.expand(link).coefficients

    def sigma(z):
        h = [torch.ones_like(z), z]
        for j in range(1, len(c)):
            h.append((z * h[j] - j**0.5 * h[j - 1]) / (j + 1) ** 0.5)
        return sum(float(value) * h[j] for j, value in enumerate(c))

    w = torch.tensor(problem.reduced_weights(), dtype=torch.float64)
    points = torch.tensor(x)

    def network(w):
        n = (w**2).sum(1)
        return (sigma(points @ (w / n.sqrt()[:, None]).T) * n).sum(1)

    gradients = torch.autograd.functional.jacobian(network, w).reshape(len(x), -1).numpy() / 1e-2
    rows = np.eye(1) if teacher.directions is None else teacher.directions
    target = hermite.expand(link).value(x[:, : rows.shape[1]] @ rows.T) @ teacher.coefficients - network(w).numpy()
    root = np.sqrt(rule)
    fit = np.linalg.lstsq(gradients * root[:, None], target * root, rcond=1e-10)[0]
    least = float(rule @ (target - gradients @ fit) ** 2)
    floor = dynamics.tangent_floor(problem)
    assert floor.loss == pytest.approx(least, rel=1e-8)
    assert floor.features == 6
    assert floor.rank == np.linalg.matrix_rank(gradients * root[:, None], tol=1e-8)


def test_random_starts_have_the_stated_floor():
    """Means over 200 starts, as stated; each of two means passes 3.5 standard errors of their difference once in 2000."""
    for width, mean, error in ((4, 0.791, 0.013), (10, 0.491, 0.0145)):
        floors = [dynamics.tangent_floor(problem_of(width=width, seed=seed)).share for seed in range(200)]
        spread = np.hypot(np.std(floors) / 200**0.5, error)
        assert abs(np.mean(floors) - mean) < 3.5 * spread


def test_enough_neurons_leave_nothing():
    """md = 250 features span the 220 functions of degree 3 in 10 dimensions."""
    floor = dynamics.tangent_floor(problem_of(width=25))
    assert floor.share == pytest.approx(0.0, abs=1e-9)
    assert floor.rank == 220
    wide = dynamics.tangent_floor(problem_of(width=4, dimension=1000))
    assert wide.features == 4 * 5
    assert wide.share > 0.9


def test_other_problems_are_refused():
    with pytest.raises(ValueError, match=r"must have at most 4000 tangent features.* 70 × 71\."):
        dynamics.tangent_floor(problem_of(width=70, dimension=1000))
    with pytest.raises(ValueError, match="must have the homogeneous student here"):
        dynamics.tangent_floor(problem_of(student="committee"))
    with pytest.raises(ValueError, match="must have `inputs` None here"):
        dynamics.tangent_floor(problem_of(inputs=dynamics.Inputs.power_law(0.5)))
    with pytest.raises(TypeError, match="must be a Problem, but is str"):
        dynamics.tangent_floor("he3")
    with pytest.raises(ValueError, match="must have a link without jumps, but has sign"):
        dynamics.tangent_floor(problem_of(activation="sign"))
