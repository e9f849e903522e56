"""Studies of the step size: many runs over step sizes, dimensions or widths, and fits to them."""
