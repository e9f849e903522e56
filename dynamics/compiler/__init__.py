"""Compiled code: pieces of source rendered into files, cached on disk, and run on threads."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
