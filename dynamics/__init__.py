"""The theory's prediction: emergence of teacher directions in two-layer networks trained on Gaussian data.

Names are found on first use, so that `import dynamics` loads nothing heavy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("__version__")  # that of a module that imports all names is its own
__all__.remove("tokens")  # a package, whose names are listed there
