"""Theory held against runs: times, losses and widths, with the rates of error of each verdict."""
