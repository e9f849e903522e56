"""Results told to people: findings, tables, figures and pages, and the command `python -m dynamics.report`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
