"""The matrix-free method of backward differences, order 1 to 5."""
