from .comparison import compare as compare
from .simulation import simulate as simulate
