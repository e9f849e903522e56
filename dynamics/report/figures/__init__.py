"""Figures of results; each function takes a dataset."""
