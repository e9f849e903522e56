"""Studies of the scaling laws without a single sample: families of problems, solved and held against theory."""
