"""The method "stiff" carried by torch, on a GPU or the CPU."""
