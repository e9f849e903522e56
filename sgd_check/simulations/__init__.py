"""Runs of online SGD: arguments, plan, steps, records and resumption."""
