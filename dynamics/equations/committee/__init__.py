"""The flow of a committee machine, whose second layer is fixed to 1."""
