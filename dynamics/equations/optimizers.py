"""The mean motion of overlaps under optimizers other than plain SGD."""
