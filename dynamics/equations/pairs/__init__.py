"""The field of unit vectors, from the overlaps of all pairs of neurons and of neurons with directions."""
