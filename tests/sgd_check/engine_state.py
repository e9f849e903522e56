"""What engines keep to themselves and tests look at: weights of the moment, and samples of the steps to come."""

import torch

from sgd_check.engines.diffusion.engine import DiffusionEngine
from sgd_check.engines.projected.engine import ProjectedEngine
from sgd_check.engines.torch.engine import OnlineEngine


def weights_of(engine):
    """Weights (seeds, neurons, axes) in float64: in R^d, or on the axes of the moment of a reduced engine."""
    if isinstance(engine, ProjectedEngine):
        return engine._weights.transpose(0, 2, 1).copy()
    if isinstance(engine, DiffusionEngine):
        return engine._weights.copy()
    if isinstance(engine, OnlineEngine):
        return engine._stepper.current().to(torch.float64, copy=True).cpu().numpy()
    return torch.cat([runs.weights for runs in engine._groups]).to(torch.float64).cpu().numpy()


def samples_of(engine):
    """Draw samples x and labels: of the next steps (steps, seeds, batch, d), or of one spherical step (seeds, batch, d)."""
    if isinstance(engine, OnlineEngine):
        stepper = engine._stepper
        stepper.draw()
        shape = (stepper._lanes, -1, stepper._setting.batch)
        x = stepper._samples.view(*shape, stepper._samples.shape[2])[..., : stepper._setting.dimension]
        parts = (x.transpose(0, 1), -stepper._targets.view(shape).transpose(0, 1))
    else:
        batches = [runs.source.batch() for runs in engine._groups]
        parts = (torch.cat([batch[k] for batch in batches]) for k in (0, 1))
    x, labels = (values.to(torch.float64, copy=True).cpu().numpy() for values in parts)
    return x, labels
