"""Full models of tokens in torch, trained on samples, and held against the prediction of `dynamics.tokens`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
