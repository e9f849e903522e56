"""The infinite-width limit, carried by particles on the axes that the teacher spans."""
