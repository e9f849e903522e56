"""SGD by each engine as a study of `dynamics.sweep`: "projected-sgd", "diffusion-sgd" and "torch-sgd".

The names are entry points of the group `feature_emergence.studies` in `pyproject.toml`, where `dynamics` finds them.
"""

from __future__ import annotations

from functools import partial

from sgd_check.simulations.simulation import simulate

__all__ = ["diffusion_sgd", "projected_sgd", "torch_sgd"]

projected_sgd = partial(simulate, engine="projected")
diffusion_sgd = partial(simulate, engine="diffusion")
torch_sgd = partial(simulate, engine="torch")
