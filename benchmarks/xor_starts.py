"""Share of small starts from which K relu neurons learn XOR: `python -m benchmarks.xor_starts [--flows N]`.

Clusters are points at ±e_1 of label 1 and at ±e_2 of label −1. A neuron turns to the mean of the label of its sign that
is on its side, so that all four are right if the K neurons are mapped onto the four means: surjections/4^K of the
starts. The logistic flow of both layers, with decay, is an exact sum over four points here, and every start must have
the outcome of its map. N starts of each K, half of them good, are also solved by `solve_network` with clusters of snr
100, and must have the same outcome; each takes some 20 seconds, as steps follow kinks from a start of 1e-3.
"""

from __future__ import annotations

import argparse
import sys
from math import comb

import numpy as np
from scipy.special import expit

import dynamics

MEANS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
LABELS = np.array([1.0, 1.0, -1.0, -1.0])
SNR, DECAY, LENGTH, DRAWS, SEED = 100.0, 0.05, 1e-3, 8000, 5
#: Time at which outcomes are read, and step of the sum's flow.
END, STEP = 150.0, 0.1
NEURONS = (4, 5, 6)
#: Outcomes of the flow: a test error below this is "all right"; one missed mean is .25.
RIGHT = 0.05


def surjections(neurons: int) -> float:
    """Return the share of maps of so many neurons to four means that take all means."""
    return sum((-1) ** j * comb(4, j) * (1.0 - j / 4.0) ** neurons for j in range(4))


def starts(neurons: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return second layers (draws, K) of random sign and weights (draws, K, 2) of random direction, all of `LENGTH`."""
    rng = np.random.default_rng([SEED, neurons])
    signs = rng.choice([-1.0, 1.0], (draws, neurons))
    W = rng.standard_normal((draws, neurons, 2))
    return LENGTH * signs, LENGTH * W / np.linalg.norm(W, axis=2, keepdims=True)


def onto(V: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return for which starts the means to which the neurons turn are all four."""
    axes = np.where(V > 0.0, 0, 1)
    means = 2 * axes + (np.take_along_axis(W, axes[..., None], axis=2)[..., 0] > 0.0)
    return np.array([np.unique(row).size == len(MEANS) for row in means])


def classified(V: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return for which starts the flow on the four points has all of them right at the end."""
    V, W = V.copy(), W.copy()
    for _ in range(round(END / STEP)):
        fields = W @ MEANS.T
        active = fields > 0.0
        f = np.einsum("sk,skc->sc", V, fields * active)
        pull = LABELS * expit(-LABELS * f) / len(MEANS)
        toward = (active * pull[:, None]) @ MEANS
        grown = np.einsum("skc,sc->sk", fields * active, pull)
        W, V = W + STEP * (V[..., None] * toward - DECAY * W), V + STEP * (grown - DECAY * V)
    f = np.einsum("sk,skc->sc", V, np.maximum(W @ MEANS.T, 0.0))
    return (f * LABELS > 0.0).all(axis=1)


def solved(V: np.ndarray, W: np.ndarray) -> float:
    """Return the test error at the end by the package's flow, on clusters."""
    student = dynamics.Student(
        activation="relu", width=len(V), initial_second_layer=V, decay=(DECAY, DECAY), biases="none"
    )
    problem = dynamics.Problem(
        student=student,
        dimension=3,
        objective="logistic",
        inputs=dynamics.Mixture.xor(snr=SNR),
        initial_weights=np.pad(W, ((0, 0), (0, 1))),
    )
    answer = dynamics.solve_network(
        problem,
        save_at=dynamics.SaveAt.at([0.0, END]),
        points=2**10,
        rtol=1e-3,
        atol=1e-2 * LENGTH,
        progress=False,
    )
    return float(answer.test_error[-1])


def main() -> int:
    """Print shares with binomial standard errors; return 1 if one is off by over 3.5 of them or an outcome differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=2, help="starts of each K that are solved on clusters")
    flows, fine = parser.parse_args().flows, True
    for neurons in NEURONS:
        V, W = starts(neurons, DRAWS)
        outcomes, share = classified(V, W), surjections(neurons)
        deviation = np.sqrt(share * (1.0 - share) / DRAWS)
        z = (outcomes.mean() - share) / deviation
        mapped = (outcomes == onto(V, W)).sum()
        # Half of the solved starts are good ones.
        chosen = np.concatenate(
            [np.flatnonzero(outcomes)[: flows // 2], np.flatnonzero(~outcomes)[: flows - flows // 2]]
        )
        same = sum((solved(V[i], W[i]) < RIGHT) == outcomes[i] for i in chosen)
        print(
            f"K = {neurons}: {outcomes.mean():.4f} ± {deviation:.4f} of {DRAWS} starts, surjections {share:.4f}, "
            f"z = {z:.1f}; as their map in {mapped}; on clusters the same outcome in {same} of {len(chosen)}",
            flush=True,
        )
        fine &= abs(z) < 3.5 and mapped == DRAWS and same == len(chosen)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
