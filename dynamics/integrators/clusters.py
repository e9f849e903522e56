"""Constants of steps with slowed clusters: of the large flow, the small flow and the flow on a device.

A cluster is the neurons that have learned one direction; `large_flow.division` explains the tests.
"""

#: Squared overlap with a direction above which a neuron belongs to its group.
GROUP = 0.9
#: Tests of a cluster: relative mass, relative squared distance, displacement from the slow manifold.
MASS, DISTANCE, STILL = 0.05, 1e-3, 1e-6
#: Factors by which an accepted cluster may fail the last two before it is left.
LEAVE_DISTANCE, LEAVE_STILL = 3.0, 100.0
#: A slowed mode relaxes by e^(−κ) in a step; DOP853 is stable to 6.1, and damps best between 3 and 5.
KAPPA = 4.0
#: Mean distance of a slowed mode from where it belongs, in units of that at the end of the step. With x = M at its
#: beginning and the velocity of the last step, x − M grows like s/κ + (1 − e^(−κ s)) (1/(2 κ) − 1/κ²) in the fraction s
#: of a step, κ = 4. Measured: at 0.50 and 0.62 the overlap of a light neuron is ten times as wrong as at 0.56.
DISPLACED_SHARE = 0.553
#: Step control: safety factors of the embedded error and of the lag, growth of a step. The estimate misses part of the
#: error of single steps in which a neuron escapes: at 0.8, errors of the standard problem with 64 directions were 15 to
#: 40 times as large for a third fewer steps, and those of random problems up to 13 rtol κ instead of 1.
SAFETY, LAG_SAFETY, LARGEST_FACTOR, SMALLEST_FACTOR = 0.5, 0.9, 2.0, 0.2
#: A run that in this many steps gains less than this factor of time is held up by a stiffness that is not slowed.
STALL_STEPS, STALL_GAIN = 1500, 1.05
#: The correction of the lag may be this many tolerances, and this many times that before a step is rejected: what is
#: left after it is an order of h smaller. With 30 tolerances errors on random problems were twice as large for a
#: tenth fewer steps, and up to 17 rtol κ.
LAG_TOLERANCE, LAG_REJECTION = 10.0, 4.0
#: Clusters are moved, and the field evaluated again, where the change of another neuron's velocity times h exceeds this
#: part of the lag's tolerance. At 0.1 the overlap of a light neuron was wrong by up to 110 rtol, at 0.01 by 6, at 0.003
#: by 5, at 0 by 6; at 0.003 a fifth of the steps with 64 directions do so.
NOTICED = 0.003
