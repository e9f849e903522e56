"""The command `python -m sgd_check.run`: check a stored prediction by online SGD."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
