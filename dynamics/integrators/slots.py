"""Rows and slots of the arrays in which a compiled method keeps its state.

They are `vectors` (rows of length n), `scalars`, `counters` and `events`.
"""

# Rows of `vectors`: state now, state at the start of the last step, trial state.
ROW_STATE, ROW_START, ROW_TRIAL = 0, 1, 2
# Slots of `scalars`: time now, start of the last step, next step length, relative tolerance, forced step length
# (0: adaptive), largest step length.
TIME, TIME_START, STEP, RTOL, FIXED_STEP, LARGEST_STEP = 0, 1, 2, 3, 4, 5
# Slots of `counters`; FAILURES counts rejections since the last accepted step.
READY, DENSE_READY, ACCEPTED, REJECTED, EVALUATIONS, FAILURES = 0, 1, 2, 3, 4, 5
# Rows of `events`: time of passing (not-a-number: not yet), values now, values at the start of the last step.
EVENT_TIME, EVENT_NOW, EVENT_BEFORE = 0, 1, 2
# `advance_through` returns a status and, in units of this, how many times were passed.
PASSED = 8

# The explicit pair. Rows after the common ones: new state, the 16 stages, of which END is the derivative at the end of
# the step, the 7 dense coefficients, zeros. Slot of `counters`: accepted steps whose length stability limits.
ROW_NEW, ROW_STAGES, ROW_END, ROW_DENSE, ROW_ZERO = 3, 4, 16, 20, 27
STABILITY_LIMITED = 6

# BDF. Rows for the linear solve: residual b, solution x, diagonal of J, error weights, weighted inverse of the
# preconditioner, f(y), J z, z, and the Krylov basis.
ROW_RESIDUAL, ROW_SOLUTION, ROW_DIAGONAL, ROW_WEIGHT, ROW_FILTER, ROW_SLOPE, ROW_PRODUCT, ROW_DIRECTION = range(3, 11)
ROW_KRYLOV, MAX_KRYLOV, MAX_ORDER = 11, 10, 5
# Rows after that: correction y − y_predicted, the correction before a choice of order, what rounding does to the
# solution of a step per unit of its length, and the Nordsieck array.
ROW_CORRECTION, ROW_SAVED, ROW_NOISE, ROW_NORDSIECK = range(ROW_KRYLOV + MAX_KRYLOV + 1, ROW_KRYLOV + MAX_KRYLOV + 5)
# Slots of `scalars`: step length in the Nordsieck array, rate of convergence, error constant of the saved correction,
# error constants (lower order, this order, higher order, saved correction), largest growth, past step lengths,
# coefficients of the correction polynomial, time of steps too short for the resolution of `TIME`, and the Hessenberg
# matrix.
SCALE, RATE, SAVED_CONSTANT, CONSTANT_DOWN, CONSTANT, CONSTANT_UP, CONSTANT_SAVED, GROWTH = range(6, 14)
PAST_STEPS, POLYNOMIAL, PENDING, HESSENBERG = 14, 22, 30, 31
# Slots of `counters`; UNRESOLVED counts accepted steps since the time last moved.
ORDER, NEXT_ORDER, WAIT, PRODUCTS, ITERATIONS, FAILED_ITERATIONS, DIAGONALS, AGE, UNRESOLVED, FIXED_ORDER = range(6, 16)
# Behind those that are stored: whether the system has a product with its Jacobian.
HAS_PRODUCT = 16
