r"""Random problems with `inputs`, by two flows that know nothing of each other: `python -m benchmarks.random_inputs`.

`dynamics.solve_overlaps` carries vectors on the axes that classes leave. Beside it stand, in numpy and by scipy's
DOP853, the flow of overlaps by class, with S_i, A and B as in `dynamics.equations.classes` and ρ = √n,

.. math::
   R_c' = s_c (E R_c + H T_c), \quad Q_c' = s_c (E Q_c + H R_c^T) + \text{transpose}, \quad
   H = \mathrm{diag}(\rho) A, \\
   E = \mathrm{diag}(2S - \textstyle\sum_p A \circ C + \sum_j B \circ G)
   - \mathrm{diag}(\rho) B\, \mathrm{diag}(1/\rho),

and the flow of all d coordinates, ŵ' = Σ × the field of isotropic inputs. Losses at 30 times up to the last predicted
learned time must agree within ten tolerances, in units of the largest of 1 and the loss at the start and of the
condition number κ: how far losses move, per unit, where the start is moved by a relative `NUDGE` at random.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.integrate import solve_ivp

import dynamics
from dynamics.equations.losses import population_loss, teacher_term
from dynamics.theory.prediction import predict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

RTOL, REFEREE_RTOL, NUDGE, ALLOWED = 1e-8, 1e-11, 1e-7, 10.0
LINKS: tuple[str | dict[int, float], ...] = ("he3", "he4", {3: 0.8, 4: 0.6})
TARGET = Path(__file__).with_suffix(".json")


def random_problem(index: int) -> dynamics.Problem:
    """Return problem number `index`: k 3 or 4, α to 1, β to 1.5, 2 to 5 classes, 1 to 4 directions, 1 to 6 neurons."""
    rng = np.random.default_rng([20261122, index])
    classes, directions, width = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(1, 7))
    alpha, beta = float(rng.uniform(0.1, 1.0)), float(rng.uniform(0.0, 1.5))
    counts = rng.integers(1, 13, size=classes)
    counts[-1] += directions
    dimension = int(counts.sum())
    inputs = dynamics.Inputs(np.arange(1.0, classes + 1.0) ** -alpha, counts.tolist())
    weights = rng.standard_normal((width, dimension))
    # Overlaps with the teacher positive, so that every direction has neurons to be learned by also where k is odd.
    weights[:, :directions] = np.abs(weights[:, :directions])
    length = np.sqrt(np.sum(inputs.eigenvalues_of_axes(dimension) * weights**2, axis=1, keepdims=True))
    return dynamics.Problem(
        activation=LINKS[index % len(LINKS)],
        teacher=dynamics.Teacher.power_law(directions, beta),
        width=width,
        dimension=dimension,
        inputs=inputs,
        initial_weights=0.05 * weights / length,
    )


class Referee:
    """The flow of a problem by class, and in all coordinates."""

    def __init__(self, problem: dynamics.Problem) -> None:
        inputs, weights = problem.inputs, problem.initial_weights
        if inputs is None or weights is None:
            msg = "Argument `problem` must have `inputs` and `initial_weights`, but lacks one of them."
            raise ValueError(msg)
        self.problem, self.link, self.a = problem, problem.activation, problem.teacher.coefficients
        self.eigenvalues = inputs.eigenvalues_of_axes(problem.dimension)
        self.weights = weights * np.sqrt(self.eigenvalues)
        self.teacher = np.zeros((problem.num_directions, problem.dimension))
        rows = problem.teacher.directions
        self.teacher[:, : problem.teacher.span] = np.eye(problem.num_directions) if rows is None else rows
        self.s = np.unique(self.eigenvalues)

    def field(self, C: Array, G: Array, n: Array) -> tuple[Array, Array]:
        """Return E (m, m) and H (m, P)."""
        A, B = self.a * self.link.kernel_derivative(C), n * self.link.kernel_derivative(G)
        S, rho = self.link.kernel(C) @ self.a - self.link.kernel(G) @ n, np.sqrt(n)
        E = np.diag(2.0 * S - np.sum(A * C, axis=1) + np.sum(B * G, axis=1)) - B * rho[:, None] / rho
        return E, rho[:, None] * A

    def vectors(self, flat: Array) -> Array:
        """Return Ŵ' in all coordinates."""
        W = flat.reshape(self.weights.shape)
        n = np.sum(W**2, axis=1)
        U = W / np.sqrt(n)[:, None]
        E, H = self.field(U @ self.teacher.T, U @ U.T, n)
        return np.ravel((E @ W + H @ self.teacher) * self.eigenvalues)

    def classes(self, flat: Array) -> Array:
        """Return the rates of [R_c | Q_c] of all classes, flat."""
        R, Q = self.unpacked(flat)
        E, H = self.field(*self.overlaps(R.sum(axis=0), Q.sum(axis=0)))
        dR, dQ = np.empty_like(R), np.empty_like(Q)
        for c, s in enumerate(self.s):
            T = self.teacher[:, self.eigenvalues == s]
            dR[c] = s * (E @ R[c] + H @ (T @ T.T))
            half = s * (E @ Q[c] + H @ R[c].T)
            dQ[c] = half + half.T
        return np.concatenate([dR.ravel(), dQ.ravel()])

    def packed(self, W: Array) -> Array:
        """Return [R_c | Q_c] of weights Ŵ (m, d)."""
        parts = [self.eigenvalues == s for s in self.s]
        R = [W[:, part] @ self.teacher[:, part].T for part in parts]
        return np.concatenate([np.ravel(R), np.ravel([W[:, part] @ W[:, part].T for part in parts])])

    def unpacked(self, flat: Array) -> tuple[Array, Array]:
        """Return R (classes, m, P) and Q (classes, m, m)."""
        m, P, K = self.problem.width, self.problem.num_directions, self.s.size
        return flat[: K * m * P].reshape(K, m, P), flat[K * m * P :].reshape(K, m, m)

    @staticmethod
    def overlaps(R: Array, Q: Array) -> tuple[Array, Array, Array]:
        """Return C, G and n."""
        n = np.diag(Q)
        rho = np.sqrt(n)
        return R / rho[:, None], Q / np.outer(rho, rho), n

    def losses(self, which: str, times: Array, rtol: float = REFEREE_RTOL, moved: Array | float = 0.0) -> Array:
        """Return the losses at times by "classes" or "vectors", from weights moved by a part of theirs."""
        W = self.weights * (1.0 + moved)
        start = self.packed(W) if which == "classes" else W.ravel()
        rates = self.classes if which == "classes" else self.vectors
        found = solve_ivp(
            lambda _, y: rates(y), (0.0, times[-1]), start, method="DOP853", t_eval=times, rtol=rtol, atol=rtol * 1e-6
        )
        totals = []
        for state in found.y.T:
            R, Q = self.unpacked(state if which == "classes" else self.packed(state.reshape(W.shape)))
            C, G, n = self.overlaps(R.sum(axis=0), Q.sum(axis=0))
            totals.append(population_loss(self.link, teacher_term(self.problem), self.a, C, G, n))
        return np.array(totals)


def measure(index: int) -> dict[str, float]:
    """Return the differences of problem number `index`, in units of the tolerance and κ; at most 10 is agreement."""
    problem = random_problem(index)
    prediction = predict(problem)
    learned = prediction.predicted_learned_time
    last = float(np.max(learned[np.isfinite(learned)], initial=10.0))
    times = np.linspace(0.0, 1.5 * last, 31)
    flow = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at(times), rtol=RTOL, method="explicit", keep="summary", progress=False,
        error_estimate=False,
    )  # fmt: skip
    referee = Referee(problem)
    classes, vectors = (referee.losses(which, times) for which in ("classes", "vectors"))
    move = NUDGE * np.random.default_rng(index).standard_normal(referee.weights.shape)
    scale = max(1.0, float(vectors[0]))
    condition = max(1.0, float(np.abs(referee.losses("vectors", times, moved=move) - vectors).max()) / scale / NUDGE)
    unit = RTOL * scale * condition
    return {
        "condition": condition,
        "flow against vectors": float(np.abs(flow.loss.values - vectors).max()) / unit,
        "flow against classes": float(np.abs(flow.loss.values - classes).max()) / unit,
        "classes against vectors": float(np.abs(classes - vectors).max()) / unit,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_inputs", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="number of problems (default: 100)")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    records = [measure(index) for index in range(options.count)]
    largest = {name: float(f"{max(record[name] for record in records):.3g}") for name in records[0]}
    names = list(largest)[1:]
    agreed = sum(all(record[name] <= ALLOWED for name in names) for record in records)
    found = {"problems": len(records), "agree": agreed, "largest": largest}
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
