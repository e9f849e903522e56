"""One folder per system of equations: its state, its compiled kernels and its observables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
