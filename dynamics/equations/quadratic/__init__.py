"""Quadratic networks, solved exactly: the span of the neurons, and the matrix that the network is."""
