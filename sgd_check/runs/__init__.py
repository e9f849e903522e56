"""Runs of online SGD: what is asked, the loop over steps, records and resumption."""
