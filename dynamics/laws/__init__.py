"""Studies of the scaling laws: families of problems solved without a single sample and held against theory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
