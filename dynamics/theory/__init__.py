"""Theory without integration: matched pairs, predicted times, limits of the learning rate, exponents and fits."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
