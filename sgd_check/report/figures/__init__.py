"""Figures of comparisons, runs and studies: functions that draw on given or new axes and show nothing."""
