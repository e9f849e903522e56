"""Bad arguments of every public callable: one sentence, at once, in little memory."""

import inspect

import numpy as np
import pytest
from fuzz_calls import STUDIES, Call, calls, calls_of_answers, problem
from fuzz_guard import Case, complaint_of_call, contents, report
from fuzz_tiers import share

import dynamics
import sgd_check
from hermite.text.messages import shown

#: How often a second argument is bad too.
SECOND = 0.25
#: Arguments of `RunFile` that the program alone gives.
OUR_OWN = ("arguments", "unfinished")


def cases(call: Call, number: int, seed: int):
    """Yield so many different bad calls."""
    rng = np.random.default_rng([seed, *call.name.encode()])
    names, seen = list(call.kinds), set()
    for _ in range(40 * number):
        chosen = [str(name) for name in rng.permutation(names)[: 1 + (rng.random() < SECOND)]]
        values = {name: call.kinds[name](rng) for name in chosen}
        if any(value is None and name in call.optional for name, value in values.items()):
            continue
        label = f"{call.name}({', '.join(f'{name}={shown(value)[:60]}' for name, value in values.items())})"
        if label in seen:
            continue
        seen.add(label)
        arguments = {**call.good, **values}
        yield Case(call.name, label, lambda arguments=arguments: call.function(**arguments))
        if len(seen) == number:
            return


def check(call, number, record_property, here):
    before, complaints, count = contents(here), {}, 0
    for case in cases(call, number, 1):
        count += 1
        complaint = complaint_of_call(case)
        if complaint is not None:
            complaints[case.label] = complaint
    record_property("bad inputs: arguments", count)
    assert not complaints, report(complaints)
    assert contents(here) == before


@pytest.mark.longer
@pytest.mark.parametrize("call", list(calls()), ids=lambda call: call.name)
def test_bad_arguments(call, here, record_property):
    check(call, share("arguments", len(call.kinds)), record_property, here)


def may_be_none(call: Call):
    """Yield the arguments of a call for which None is tried, and whether it is a good value."""
    for name, parameter in inspect.signature(call.function).parameters.items():
        accepted = parameter.default is None or "None" in str(parameter.annotation)
        if not (accepted and call.name in {name for name, *_ in STUDIES}) and name not in OUR_OWN:
            yield name, accepted


@pytest.mark.thorough
@pytest.mark.parametrize("call", list(calls()), ids=lambda call: call.name)
def test_none_for_every_argument(call, here, record_property):
    """Where it is a good value it is accepted, or refused in one sentence; elsewhere it is refused."""
    complaints, count = {}, 0
    for name, accepted in may_be_none(call):
        count += 1
        arguments = {**call.good, name: None}
        case = Case(call.name, f"{call.name}({name}=None)", lambda arguments=arguments: call.function(**arguments))
        complaint = complaint_of_call(case)
        if complaint is not None and not (accepted and complaint.startswith("is accepted")):
            complaints[case.label] = complaint
    record_property("bad inputs: arguments", count)
    assert not complaints, report(complaints)


@pytest.fixture(scope="module")
def answers():
    flow = dynamics.solve_overlaps(problem(), save_at=dynamics.SaveAt.at([0.1, 1.0]), progress=False)
    runs = sgd_check.simulate(problem(), learning_rate=1e-4, steps=4, seeds=2, progress=False)
    return {"flow": flow, "runs": runs, "tree": sgd_check.compare(flow, runs)}


@pytest.mark.longer
def test_bad_answers(answers, here, record_property):
    for call in calls_of_answers(answers):
        check(call, share("arguments", len(call.kinds)), record_property, here)
