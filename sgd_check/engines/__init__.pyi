from .registry import DEFAULT_ENGINE as DEFAULT_ENGINE
from .registry import ENGINES as ENGINES
from .registry import Engine as Engine
from .registry import EngineOptions as EngineOptions
from .registry import Measurement as Measurement
from .registry import SpanEngine as SpanEngine
from .registry import engine_of as engine_of
from .registry import make_engine as make_engine
