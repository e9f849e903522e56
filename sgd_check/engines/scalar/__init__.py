"""The engine of one spherical neuron and one direction, a chain in one number."""
