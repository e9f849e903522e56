"""Predictions that are wrong on purpose, which a verdict must refute."""


def stretched(flow, factor):
    found = flow.assign_coords(time=flow["time"] * factor)
    for name in ("emergence_time", "learned_time", "component_learned_time"):
        if name in flow:
            found[name] = flow[name] * factor
    return found
