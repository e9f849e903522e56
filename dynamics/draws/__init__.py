"""Answers by drawn numbers: runs of SGD in large steps, neurons that noise exchanges, and samples of a direction."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
