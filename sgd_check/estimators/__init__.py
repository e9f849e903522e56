"""Estimators of one direction from a sample that is there at once: vectors and matrices made of it, without descent."""
