"""One spherical neuron and one direction: the flow of their correlation, smoothed or not, and its mean steps."""
