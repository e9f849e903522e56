"""The spherical network under steps of SGD of a finite size γ = η d, as d → ∞, in its overlaps."""
