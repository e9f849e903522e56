"""Methods that carry a state forward in time: steps, error control, dense output and the location of events."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
