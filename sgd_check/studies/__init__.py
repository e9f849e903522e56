"""Studies of the step size: each a family of runs, held against theory, with fitted exponents and their errors."""
