"""`sgd_check.draw_weak_to_strong`: least-squares teachers and students on drawn samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem import checked_integer
from dynamics.problem.checks import check_type
from dynamics.theory import WeakToStrong, WeakToStrongRisk, checked_times
from hermite.arrays import Array
from hermite.text.command_line import stop_if_heard


def draw_weak_to_strong(
    problem: WeakToStrong, *, draws: int, times: ArrayLike = (), seed: int = 0
) -> list[WeakToStrongRisk]:
    r"""Fit teachers to noisy labels, students to the labels of the teachers, and return the risks of every draw.

    .. math:: \hat w = \arg\min \sum_{i=1}^n (w \cdot u_i - f^*_i - \sigma\xi_i)^2, \qquad
       \hat\beta = \arg\min \sum_{j=1}^N (\beta \cdot z_j - \hat w \cdot u_j)^2

    Nothing of the law is used: features are drawn, fits are solved, and the student's flow takes the eigenvectors of
    its own inputs. Risks are means over all inputs, not over a sample.

    Parameters
    ----------
    problem : dynamics.WeakToStrong
    draws : int
        Number of independent draws, at least 1.
    times : array_like, shape (k,), optional
        As for `dynamics.predict_weak_to_strong`.
    seed : int, default 0
        Draws everything.

    Returns
    -------
    list of dynamics.WeakToStrongRisk
        One per draw, with the fields of the prediction.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> import dynamics, numpy as np
    >>> pair = dynamics.WeakToStrong(
    ...     correlations=[1.0] * 5, weak_features=30, strong_features=20, samples=60, pseudo_labels=200
    ... )
    >>> drawn = draw_weak_to_strong(pair, draws=400)
    >>> bool(abs(np.mean([each.weak_to_strong for each in drawn]) - 0.2687) < 0.04)
    True
    """
    check_type("problem", problem, WeakToStrong, "a WeakToStrong")
    count, t = checked_integer(draws, "draws", minimum=1), checked_times(times)
    rng = np.random.default_rng(checked_integer(seed, "seed", minimum=0))
    found = []
    for _ in range(count):
        stop_if_heard()
        found.append(_drawn(problem, t, rng))
    return found


def _drawn(problem: WeakToStrong, t: Array, rng: np.random.Generator) -> WeakToStrongRisk:
    c = np.array(problem.correlations)
    weak, strong, shared = problem.weak_features, problem.strong_features, np.flatnonzero(c == 1.0)
    target = np.zeros(max(weak, strong))
    target[shared] = problem.target_norm / max(shared.size, 1) ** 0.5

    def features(samples: int) -> tuple[Array, Array]:
        u, z = rng.standard_normal((samples, weak)), rng.standard_normal((samples, strong))
        z[:, : c.size] = c * u[:, : c.size] + np.sqrt(1.0 - c**2) * z[:, : c.size]
        return u, z

    u, z = features(problem.samples)
    labels = u @ target[:weak] + problem.label_noise * rng.standard_normal(problem.samples)
    teacher = np.linalg.lstsq(u, labels, rcond=None)[0]
    alone = np.linalg.lstsq(z, labels, rcond=None)[0]
    u, z = features(problem.pseudo_labels)
    x, V = np.linalg.eigh(z.T @ z / problem.pseudo_labels)
    end = V.T @ np.linalg.lstsq(z, u @ teacher, rcond=None)[0]
    # The target has no other features than shared ones, so that risks are distances of the weights.
    path = (1.0 - np.exp(-np.outer(t, x))) * end
    apart = [float(np.sum((w - target[: w.size]) ** 2)) for w in (teacher, V @ end, alone)]
    return WeakToStrongRisk(apart[0], apart[1], apart[2], t, np.sum((path @ V.T - target[:strong]) ** 2, axis=1))
