"""Observables of particles: those of their system, and the distribution of their overlaps with each direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.mean_field.system import MeanFieldSystem
    from hermite.arrays import Array

#: Shares of the particles whose overlap lies below the recorded quantiles.
SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
OVERLAP_BINS = 100
#: Observables of single particles, which mirror images have too.
PER_PARTICLE = {"alpha", "velocity", "speed", "local_hessian", "self_concordance", "particle_mass"}
#: Of these, the factor of the image, and that of the particle itself.
IMAGES = {"alpha": (-1.0, 1.0), "velocity": (-1.0, 1.0), "particle_mass": (0.5, 0.5)}


def overlap_edges() -> Array:
    """Return the edges of the bins of an overlap, from −1 to 1."""
    return np.linspace(-1.0, 1.0, OVERLAP_BINS + 1)


def make_observer(system: MeanFieldSystem, keep: str, *, mirrored: bool) -> Callable[[Array], dict[str, Any]]:
    """Return the function of a state that gives the system's observables and the distribution of the overlaps.

    If mirrored, the particles of the system stand for themselves and for their mirror images, which come first.
    """
    observe: Callable[[Array], dict[str, Any]] = system.observer(keep)
    edges = overlap_edges()

    def record(state: Array) -> dict[str, Any]:
        found, overlaps, weights = observe(state), system.overlaps(state), system.masses(state)
        weights = weights / weights.sum()
        if mirrored:
            overlaps = np.concatenate([-overlaps[::-1], overlaps])
            weights = 0.5 * np.concatenate([weights[::-1], weights])
            for name in PER_PARTICLE.intersection(found):
                image, own = IMAGES.get(name, (1.0, 1.0))
                found[name] = np.concatenate([image * found[name][::-1], own * found[name]])
        laws = [_law(overlap, weights, edges) for overlap in overlaps.T]
        quantiles, densities = zip(*laws, strict=True)
        return {**found, "overlap_quantile": np.array(quantiles), "overlap_density": np.array(densities)}

    return record


def _law(overlap: Array, weights: Array, edges: Array) -> tuple[Array, Array]:
    """Return quantiles and density over bins of weighted particles, from the distribution function between them.

    A particle has half of its weight below it. Linear interpolation in between makes densities smooth where particles
    are finer than the bins or not.
    """
    if (np.diff(overlap) < 0.0).any():
        order = np.argsort(overlap)
        overlap, weights = overlap[order], weights[order]
    share = np.cumsum(weights) - 0.5 * weights
    known, shares = np.concatenate([[-1.0], overlap, [1.0]]), np.concatenate([[0.0], share, [1.0]])
    at_edges = np.interp(edges, known, shares)
    # The ends themselves may carry particles.
    at_edges[0], at_edges[-1] = 0.0, 1.0
    return np.interp(SHARES, share, overlap), np.diff(at_edges) / np.diff(edges)
