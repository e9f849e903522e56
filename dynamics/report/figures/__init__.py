"""Figures of results: functions that draw a dataset on given or new axes and show nothing."""
