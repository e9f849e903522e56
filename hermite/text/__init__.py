"""Text to expressions, series to text, and values in messages."""
