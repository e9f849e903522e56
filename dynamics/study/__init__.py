"""Sweeps over grids of problems, and the command `python -m dynamics.study`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
