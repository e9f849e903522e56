"""Online SGD in the overlaps alone, with the exact law of the samples it needs."""
