"""The shared parts of all command lines: options, parsing, exit codes, and written results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
