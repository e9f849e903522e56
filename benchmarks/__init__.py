"""Measured speed, accuracy and memory of this program, side by side with the solvers of others: `python -m benchmarks`.

Every claim of speed is a ratio of two things measured in one run on one machine; nothing here is asserted by tests.
"""
