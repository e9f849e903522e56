"""Attention and memory: models that learn from tokens in stages, whose gradient descent is a few numbers exactly."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
