"""How many samples each algorithm needs to find directions in d dimensions: powers of d, constants left out."""

from __future__ import annotations

from typing import NamedTuple


class SampleLaw(NamedTuple):
    """Samples ~ d^power, times log d where `logarithm` says so."""

    algorithm: str
    power: float
    logarithm: bool = False

    def __str__(self) -> str:
        power = "d" if self.power == 1.0 else f"d^{self.power:g}"
        return f"{power} log d" if self.logarithm else power


def sample_laws(information: int, generative: int) -> dict[str, SampleLaw]:
    """Return the law of each algorithm from the information exponent k and the generative exponent k* of a link.

    Online SGD max(1, k - 1), times log d at k = 2 (2003.10409); smoothed max(1, k/2) (2305.10633); transformed labels
    max(1, k*/2) (2403.05529).

    Examples
    --------
    >>> {key: str(law) for key, law in sample_laws(3, 1).items()}
    {'online': 'd^2', 'smoothed': 'd^1.5', 'transformed': 'd'}
    """
    return {
        "online": SampleLaw("online SGD", max(1.0, information - 1.0), information == 2),
        "smoothed": SampleLaw("SGD on the smoothed landscape", max(1.0, information / 2.0)),
        "transformed": SampleLaw("transformed labels, spectral or SGD", max(1.0, generative / 2.0)),
    }
