from .conversion import expand as expand
from .expansion import HermiteExpansion as HermiteExpansion
