from .compilation import Piece as Piece
from .compilation import load as load
from .compilation import read_piece as read_piece
from .cores import available_cores as available_cores
from .cores import one_blas_thread as one_blas_thread
from .stopping import in_worker as in_worker
from .stopping import interruption as interruption
