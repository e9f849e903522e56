"""The mean motion of overlaps under steps of online SGD of a finite learning rate."""
