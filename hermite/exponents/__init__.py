"""How visible directions are to SGD and to labels: generative exponents, leaps, `python -m hermite.exponents`."""
