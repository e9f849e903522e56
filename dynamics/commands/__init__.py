"""What all command lines share: options, parsing, exit codes, and how results are written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
