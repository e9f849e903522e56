"""Theory held against runs: times, losses and widths; `check` and `compare` are the entries."""
