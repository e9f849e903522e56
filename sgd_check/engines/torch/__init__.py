"""Online SGD of the full weights in torch, on a GPU or the CPU."""
