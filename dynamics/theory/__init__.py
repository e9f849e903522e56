"""Theory that needs no run and no draw: matched pairs, predicted times, learning rates, exponents, and recovery."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
