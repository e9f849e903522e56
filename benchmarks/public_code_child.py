"""Run a Python code of others in its own interpreter: JSON on stdin and stdout; needs numpy and that code alone."""

import json
import sys
import time

import numpy as np


def committee_learning(task, Q, M, P):
    from committee_learning.ode.erf import ErfActivationODE

    ode = ErfActivationODE(
        P,
        Q,
        M,
        task["step"],
        gamma_over_p=task["rate"],
        noise=task["noise"],
        quadratic_terms=task["second_order"],
    )
    losses, taken = [], 0
    for wanted in task["saved"]:
        for _ in range(wanted - taken):
            ode._update_step()
        taken = wanted
        losses.append(float(ode.risk()))
    return losses


def giant_learning(task, Q, M, P):
    from giant_learning import erf_erf, poly_poly

    module, name = {"erf": (erf_erf, "ErfErfOverlaps"), "He3": (poly_poly, "H3H3Overlaps")}[task["link"]]
    overlaps = getattr(module, "Projected" * task["sphere"] + name)
    p, step = len(Q), task["step"]
    theory = overlaps(
        P,
        M,
        Q,
        np.ones(p),
        gamma=p * step,
        noise=task["noise"],
        I4_diagonal=task["rate"] / step if task["rate"] else False,
        I4_offdiagonal=False,
    )
    theory.train(task["saved"][-1])
    return [float(theory.test_errors[n]) - task["noise"] / 2 for n in task["saved"]]


def main():
    task = json.load(sys.stdin)
    run = {"DimensionlessDynamicsSGD": committee_learning, "batch-size-time-complexity-tradeoffs": giant_learning}
    Q, M, P = (np.array(task[name]) for name in "QMP")
    seconds = []
    for _ in range(task["repeats"]):
        began = time.process_time()
        losses = run[task["code"]](task, Q.copy(), M.copy(), P)
        seconds.append(time.process_time() - began)
    json.dump({"losses": losses, "seconds": min(seconds)}, sys.stdout)


if __name__ == "__main__":
    main()
