"""How much of one direction estimators find in a sample that they may reuse: laws of degree 1, 2, 3 and 4."""
