"""One neuron beside one direction: exact times, and all such pairs at once."""
