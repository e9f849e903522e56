"""Systems of equations, one file each: state layout, compiled right-hand side, observables."""
