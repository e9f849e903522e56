"""The spherical network of finite width, and its linearised distance from the mean field."""
