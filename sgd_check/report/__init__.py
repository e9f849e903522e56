"""Comparisons, runs and studies told to people: findings, tables and figures."""
