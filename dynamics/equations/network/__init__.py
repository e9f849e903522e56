"""Any two-layer network with any teacher, in its order parameters: both layers, biases, and their means by pair."""
