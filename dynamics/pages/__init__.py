"""Pages on results: what a result shows, in words, tables and figures, and the one HTML file that holds it."""
