"""Engines as tests make them, and what they keep to themselves: weights of the moment, samples of the steps to come."""

from itertools import pairwise

import numpy as np
import torch

from sgd_check.engines.diffusion import DiffusionEngine
from sgd_check.engines.projected import ProjectedEngine
from sgd_check.engines.registry import EngineOptions, make_engine
from sgd_check.engines.seeded_runs import set_words
from sgd_check.engines.torch.engine import OnlineEngine


def engine_of(name, problem, seeds=(0, 1, 2), **options):
    return make_engine(name, problem, EngineOptions(seeds=tuple(seeds), **options))


def weights_of(engine):
    """Weights (seeds, neurons, axes) in float64: in R^d, or on the axes of the moment of a reduced engine."""
    if isinstance(engine, ProjectedEngine):
        return engine._state["weights"].transpose(0, 2, 1).copy()
    if isinstance(engine, DiffusionEngine):
        return engine._weights.copy()
    if isinstance(engine, OnlineEngine):
        return engine.current().to(torch.float64, copy=True).cpu().numpy()
    return torch.cat([runs.weights for runs in engine._groups]).to(torch.float64).cpu().numpy()


def samples_of(engine):
    """Draw samples x and labels: of the next steps (steps, seeds, batch, d), or of one spherical step (seeds, batch, d)."""
    if isinstance(engine, OnlineEngine):
        engine.draw()
        shape = (engine._lanes, -1, engine._batch)
        x = engine._samples.view(*shape, engine._samples.shape[2])[..., : engine._dimension]
        parts = (x.transpose(0, 1), -engine._targets.view(shape).transpose(0, 1))
    else:
        batches = [runs.source.batch() for runs in engine._groups]
        parts = (torch.cat([batch[k] for batch in batches]) for k in (0, 1))
    x, labels = (values.to(torch.float64, copy=True).cpu().numpy() for values in parts)
    return x, labels


def batches_of(engine, count):
    """Draw samples x and labels of each of the next steps."""
    if isinstance(engine, OnlineEngine):
        return list(zip(*(part[:count] for part in samples_of(engine)), strict=True))
    return [samples_of(engine) for _ in range(count)]


def states_of(engine, problem):
    """Weights (seeds, neurons, axes) of all runs, or v, b and the weights of a network."""
    w = weights_of(engine)[..., : problem.dimension]
    return (*engine.layers().swapaxes(0, 1), w) if problem.kind == "network" else w


def assert_goes_on(make, rates, *cuts):
    """Assert that runs which are cut, and put back at the last cut, end bit for bit as whole ones; return these."""
    whole, cut, again = (make() for _ in range(3))
    whole.advance(rates)
    for first, last in pairwise((0, *cuts)):
        cut.advance(rates[first:last])
    again.restore(cut.state())
    again.advance(rates[cuts[-1] :])
    for name, array in whole.state().items():
        np.testing.assert_array_equal(again.state()[name], array)
    return whole


def assert_overflow_ends(run):
    """Assert that runs which overflow are NaN, layers too, and draw nothing any more."""
    with run.running(), np.errstate(all="ignore"):
        run.advance(np.full(60, 1e200))
        state = run.state()
        assert np.isnan(state["weights"]).all()
        assert np.isnan(state.get("layers", np.nan)).all()
        assert not state["running"].any()
        run.advance(np.full(5, 1e-3))
    assert np.isnan(run.measure(student=True).squared_norm).all()
    np.testing.assert_array_equal(run.state()["generators"], state["generators"])


def drawn_samples(engine, problem, rate, batch, weights_of_samples):
    """The samples of a projected engine's next step of run 0, in the axes of the moment and new ones, and label noise."""
    m, size = problem.width, engine._axes.size
    s = problem.dimension - size
    axes, radii, labels = (np.random.Generator(np.random.SFC64()) for _ in range(3))
    for stream, words in zip((axes, radii, labels), engine.state()["generators"][0], strict=True):
        set_words(stream, words)
    rows, count = min(batch, m), min(batch, m, s)
    known = axes.standard_normal((batch, size))
    factor = np.zeros((rows, count))
    if count:
        below = [(b, q) for b in range(rows) for q in range(min(b, count))]
        if batch > 1:
            factor[*np.array(below, dtype=int).reshape(-1, 2).T] = axes.standard_normal(len(below))
        np.fill_diagonal(factor, np.sqrt(2 * radii.standard_gamma((s - np.arange(count)) / 2)))
    noise = problem.label_noise * labels.standard_normal(batch)
    if batch > m:
        factor = np.linalg.qr(weights_of_samples(engine, problem, known, noise, rate)).Q @ factor
    return np.concatenate([known, factor], axis=1), noise
