"""Rows and slots of the small-flow method, after those of the explicit pair in `slots`.

The state is [U (m, D) | ln n (m)], so that a row also holds the mean velocities of m clusters, shape (m, D + 1).
"""

# Rows: rates at the end and at the start of the last step with nothing slowed, mean velocities of its clusters over the
# step before, scratch. The first of them follow the zeros of the explicit pair.
ROW_RATES, ROW_RATES_START, ROW_DRIFT, ROW_SHIFT, ROW_MEAN, ROW_FIVE, ROW_THREE, SMALL_FLOW_ROWS = range(28, 36)
# Slots of `scalars`: length of the last step and of the one before (0: none), the last `KEPT_TIMES` ends of steps, then
# constants: the change of a coordinate by displaced clusters that others notice, whether −θ_p is as good as θ_p, and
# the squared coefficients of the link.
LAST_STEP, STEP_BEFORE, END_TIMES = 6, 7, 8
KEPT_TIMES = 1501
NOTICED, BOTH_POLES, SQUARES = range(END_TIMES + KEPT_TIMES, END_TIMES + KEPT_TIMES + 3)
# Slots of `counters`: number of clusters; then four parts of m + 1: direction of the cluster of each neuron (−1: none),
# its pole (±1), members of all clusters in order, and where in them each cluster begins.
CLUSTERS, INTEGERS = 6, 7
