"""The coupled overlap flow of the 2-homogeneous student."""
