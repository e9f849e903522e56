"""Cores, threads of BLAS, workers that share rows, and work that can be given up."""
