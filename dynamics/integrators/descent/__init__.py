"""Gradient descent on the population loss with a fixed step."""
