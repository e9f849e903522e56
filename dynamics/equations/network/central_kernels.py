"""The arc sine for links without biases; executed after `normal_kernels`, before `central_erf` or `central_relu`.

Without biases a mean of two neurons is an arc sine and a root, so simple that a loop over neurons without calls
computes several at once; the general kernels would take ten times as long.
"""

import math

from dynamics.compiler.compilation import kernel


@kernel
def arc_sine(x: float, lack: float) -> float:
    """Return asin(x), where `lack` is 1 − x² without cancellation, without branches: fdlibm's rational approximation.

    Beyond |x| = ½ it is π/2 − 2 asin √((1 − |x|)/2).
    """
    size = abs(x)
    far = size > 0.5
    z = 0.5 * lack / (1.0 + size) if far else x * x
    s = math.sqrt(z) if far else size
    p = 7.91534994289814532176e-04 + z * 3.47933107596021167570e-05
    p = -3.25565818622400915405e-01 + z * (2.01212532134862925881e-01 + z * (-4.00555345006794114027e-02 + z * p))
    p = z * (1.66666666666666657415e-01 + z * p)
    q = 2.02094576023350569471e00 + z * (-6.88283971605453293030e-01 + z * 7.70381505559019352791e-02)
    q = 1.0 + z * (-2.40339491173441421878e00 + z * q)
    near = s + s * p / q
    return math.copysign(0.5 * math.pi - 2.0 * near if far else near, x)
