from .registry import Engine as Engine
from .registry import EngineOptions as EngineOptions
from .registry import Maker as Maker
from .registry import Measurement as Measurement
from .registry import ResumableEngine as ResumableEngine
from .registry import SpanEngine as SpanEngine
from .registry import make_engine as make_engine
