"""What every bad input is held to: one sentence, at once, in little memory, and no file touched."""

import contextlib
import io
import resource
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

from dynamics.runs.storage import StorageError

#: Seconds of the processor that a refusal may take, those that it may wait, and the bytes that it may take.
SECONDS, WAITING, MOST_BYTES = 10.0, 60.0, 2 * 2**30
LONGEST_SENTENCE = 700
REFUSALS = (TypeError, ValueError, StorageError, ImportError)


class Case(NamedTuple):
    """One bad input: its kind in the table of counts, how to reproduce it, and what hands it to the program."""

    kind: str
    label: str
    call: object


class OutOfTimeError(BaseException):
    """A refusal took too long; no handler of the program catches it."""


@contextlib.contextmanager
def guarded():
    """Bound time and memory in the body, and give the alarm clock back to who had set it."""

    def ring(*_):
        raise OutOfTimeError

    handlers = {number: signal.signal(number, ring) for number in (signal.SIGALRM, signal.SIGPROF)}
    left, _ = signal.setitimer(signal.ITIMER_REAL, WAITING)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    began = time.monotonic()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = address_space() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001))


def address_space():
    """Return the bytes of address space that this process has taken."""
    status = Path("/proc/self/statm")
    return int(status.read_text(encoding="ascii").split()[0]) * resource.getpagesize() if status.exists() else 2**40


def contents(folder):
    """Return every file under a folder with what it holds; None for what is no plain file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def complaint_of_sentence(sentence):
    """Return what is wrong with the form of a message: one line, not endless, saying what must hold."""
    if "\n" in sentence:
        return f"more than one line: {sentence!r}"
    if len(sentence) > LONGEST_SENTENCE:
        return f"{len(sentence)} characters: {sentence[:200]!r}"
    if " must " not in sentence:
        return f"does not say what must hold: {sentence!r}"
    return None


def complaint_of_call(case):
    """Return how a call of the library breaks the contract, or None."""
    printed = io.StringIO()
    threads = threading.active_count()
    try:
        with guarded(), contextlib.redirect_stdout(printed):
            result = case.call()
    except REFUSALS as error:
        if printed.getvalue():
            return f"prints {printed.getvalue()!r}"
        if threading.active_count() > threads:
            return "leaves a thread behind"
        return complaint_of_sentence(str(error))
    except OutOfTimeError:
        return f"takes more than {SECONDS} s of the processor or {WAITING} s"
    except BaseException as error:
        return f"raises {type(error).__name__}: {str(error)[:300]!r}"
    return f"is accepted: {str(result)[:120]!r}"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def ended(main, arguments):
    """Run the main function of a command in this process, bounded in time and memory."""
    out, err = io.StringIO(), io.StringIO()
    with guarded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return Ended(code, out.getvalue(), err.getvalue())


def complaint_of_command(case, folder, *, readable=False):
    """Return how a command, run in `folder`, breaks the contract, or None."""
    before = contents(folder)
    try:
        end = case.call()
    except OutOfTimeError:
        return f"takes more than {SECONDS} s of the processor or {WAITING} s"
    except BaseException as error:
        return f"raises {type(error).__name__}: {str(error)[:300]!r}"
    assert isinstance(end, Ended)
    if contents(folder) != before:
        return "touches a file"
    if readable and end.code == 0:
        return None
    if end.code != 2 or end.out:
        return f"ends with code {end.code} and prints {end.out[:200]!r}, {end.err[:300]!r}"
    lines = end.err.splitlines()
    if len(lines) != 1 or not lines[0].startswith("error: ") or "Traceback" in end.err:
        return f"prints {end.err[:400]!r}"
    return None if len(end.err) <= LONGEST_SENTENCE else f"prints {len(end.err)} characters: {end.err[:200]!r}"


def report(complaints):
    return f"{len(complaints)} complaints\n" + "\n".join(f"{label}: {text}" for label, text in complaints.items())
