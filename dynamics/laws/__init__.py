"""Studies of the scaling laws without a single sample: families of problems, solved and held against theory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
