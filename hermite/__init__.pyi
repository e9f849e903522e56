from .conversion import expand as expand
from .expansion import HermiteExpansion as HermiteExpansion
from .version import __version__ as __version__
