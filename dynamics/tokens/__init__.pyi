from .answers import predict as predict
from .answers import solve as solve
from .problems import Composition as Composition
from .problems import TokenProblem as TokenProblem
from .system import KINDS as KINDS
from .system import system_of as system_of
from .variables import TOKEN_VARIABLES as TOKEN_VARIABLES
