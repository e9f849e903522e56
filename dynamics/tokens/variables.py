"""Names, dimensions and labels of the variables of answers that are learned from tokens."""

from __future__ import annotations

from dynamics.runs.variables import VARIABLES, Variable

COMPONENT = ("component",)

#: Every variable of every answer of this room.
TOKEN_VARIABLES = VARIABLES | {
    "component": Variable(COMPONENT, "what is learned as one stage", "c"),
    "number": Variable(("number",), "number of the reduced state", "i"),
    "state": Variable(("time", "number"), "numbers to which the model reduces", "y_i"),
    "loss": Variable(("time",), "loss of the model", "L"),
    "progress": Variable(("time", *COMPONENT), "share of the component that is learned", "q_c"),
    "learned_time": Variable(COMPONENT, "first time at which half of the component is learned", "T_c"),
    "predicted_learned_time": Variable(
        COMPONENT, "the same in closed form (inf: never; NaN: there is none)", r"T_c^{\mathrm{closed}}"
    ),
    "plateau": Variable(COMPONENT, "loss on the plateau that ends as the component is learned", "L_c"),
    "run_batch_size": Variable(("seed",), "samples per step of the run (0: the whole population)", "B"),
    "expected_time": Variable(COMPONENT, "predicted time at the learning rate of the runs", r"T_c^{(\eta)}"),
    "mean_log_ratio": Variable(
        COMPONENT, "mean logarithm of measured over predicted time, without the effect of the batch", r"\bar{m}_c"
    ),
    "standard_error": Variable(COMPONENT, "standard error of the same", "s_c"),
    "component_p_value": Variable(COMPONENT, "probability of such a distance if theory holds", "p_c"),
    "visible_error": Variable(COMPONENT, "relative error of a time that is seen with probability 0.8", r"\epsilon_c"),
}
