"""What a comparison says first: that something compared was cut short, then the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.report import Tone
from dynamics.runs import StopReason

if TYPE_CHECKING:
    import xarray as xr

_TONES = {"agree": Tone.GOOD, "disagree": Tone.BAD, "undecided": Tone.CAUTION}
_WORDS = {"agree": "Theory and {} agree.", "disagree": "Theory and {} disagree.", "undecided": "Undecided."}


def said_first(tree: xr.DataTree, measured: str) -> tuple[Tone, str]:
    """Return how a comparison of theory with what is `measured` is to be taken, and its verdict with the reasons."""
    attrs = tree["comparison"].attrs
    word, reasons = str(attrs["verdict"]), str(attrs["reasons"])
    verdict = f"{_WORDS[word].format(measured)} {reasons}"
    early = _cut_short(tree)
    if early and "stopped early" in reasons:
        verdict = f"Unfinished: {verdict[0].lower()}{verdict[1:]}"
    elif early:
        verdict = f"Unfinished: {early}. {verdict}"
    return _TONES[word], verdict


def _cut_short(tree: xr.DataTree) -> str:
    """Return which part was ended from outside before its end, and why; empty if none was."""
    for node in tree.subtree:
        reason = node.attrs.get("stop_reason")
        if any(reason == each and each.resumable for each in StopReason):
            what = "the prediction" if node.path.startswith("/prediction") else "the runs"
            return f"{what} stopped early ({str(reason).replace('_', ' ')})"
    return ""
