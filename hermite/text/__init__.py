"""Text to expressions, series to text, and how messages show values."""
