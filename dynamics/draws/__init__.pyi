from .direction_samples import ACROSS as ACROSS
from .direction_samples import first_coordinates as first_coordinates
from .direction_samples import stream as stream
from .exchanged_pairs import exchanged_times as exchanged_times
from .sgd_runs import DRAWN_SEED as DRAWN_SEED
from .sgd_runs import LONGEST as LONGEST
from .sgd_runs import RunPlan as RunPlan
from .sgd_runs import drawn_times as drawn_times
