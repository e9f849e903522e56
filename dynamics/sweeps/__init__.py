"""Sweeps: a grid of problems, each answered by the same study, as one dataset."""
