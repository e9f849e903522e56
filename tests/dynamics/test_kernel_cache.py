"""The cache of compiled code heals when damaged, is left aside when unusable, and never runs what others wrote."""

from __future__ import annotations

import fcntl
import importlib.util
import io
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numba
import numpy as np
import pytest
from processes import python

import dynamics
from dynamics.compiler import compilation, compiling_processes, kernel_cache
from dynamics.compiler.compilation import Piece, compiler_is_off, load, read_piece
from dynamics.compiler.kernel_cache import cache_directory

pytestmark = [
    pytest.mark.skipif(compiler_is_off(), reason="nothing is cached without the compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only"),
]

ROOT = Path(dynamics.__file__).parent.parent
SOURCE = """
from dynamics.compiler.compilation import entry

@entry("f8(f8)")
def multiply(x):
    return 5.0 * x

def halve(x):
    return 0.5 * x
"""
EXPORTS = {"halve": "f8(f8)"}
SCRIPT = f"""
import ctypes
from dynamics.compiler.compilation import Piece, load
module = load([Piece("functions", {SOURCE!r})], {EXPORTS!r})
halve = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(module.functions["halve"].address)
print(module.namespace.multiply(2.0), halve(3.0))
"""
RIGHT = "10.0 1.5\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEATURE_EMERGENCE_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(compilation, "_memo", {})
    monkeypatch.setattr(kernel_cache, "_fallback", {})
    return tmp_path / "kernels"


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled") / "kernels"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEATURE_EMERGENCE_CACHE", str(folder))
        patch.setattr(compilation, "_memo", {})
        load_afresh()
    return folder


@pytest.fixture
def filled(cache, filled_once):
    """A cache that was filled elsewhere: where it lies does not matter."""
    return shutil.copytree(filled_once, cache)


def load_afresh(source=SOURCE, exports=EXPORTS):
    """Load as a new process would; whatever happened to the cache, the functions are right."""
    compilation._memo.clear()
    for name in [
        name for name, module in sys.modules.items() if name.startswith("_feature_") and hasattr(module, "halve")
    ]:
        del sys.modules[name]
    module = load([Piece("functions", source)], exports)
    assert module.namespace.multiply(2.0) == 10.0
    return module


def reads_the_cache(module):
    """Return whether all functions of a module came from the cache."""
    return bool(module.namespace.multiply.stats.cache_hits) and all(f.cache_hits for f in module.functions.values())


def only(cache, pattern):
    (found,) = cache.glob(pattern)
    return found


def start(script=SCRIPT, **environment):
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", script], text=True, env=environment, **pipes)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": cut,
    "random": lambda path: path.write_bytes(np.random.default_rng(0).bytes(4000)),
    "one bit": flip_a_bit,
    "absent": lambda path: path.unlink(),
    "dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        *((kind, f"*/*multiply*.{suffix}") for kind in DAMAGES for suffix in ("nbi", "nbc")),
        *(("cut", pattern) for pattern in ("*/*halve*.nbi", "*/*halve*.nbc", "*.py", "*.sha256")),
        ("empty", "*.sha256"),
    ],
)
def test_a_damaged_entry_is_compiled_again(filled, kind, pattern, capfd):
    DAMAGES[kind](only(filled, pattern))
    load_afresh()
    assert reads_the_cache(load_afresh())
    again = load_afresh()
    assert again.from_cache
    assert reads_the_cache(load_afresh())
    assert capfd.readouterr() == ("", "")


def test_what_lies_beside_an_entry_is_removed_with_it(filled):
    entry = only(filled, "*/*multiply*.nbc")
    entry.with_name(f"{entry.name}.tmp.0123456789abcdef").write_bytes(b"left by a process that was killed")
    entry.write_bytes(b"")
    load_afresh()
    assert len(list((filled / "__pycache__").iterdir())) == 4


def test_damaged_bytecode_of_a_generated_file_is_not_used(filled):
    path = only(filled, "*.py")
    status = path.stat()
    head = importlib.util.MAGIC_NUMBER + struct.pack("<LLL", 0, int(status.st_mtime), status.st_size)
    Path(importlib.util.cache_from_source(str(path))).write_bytes(head)
    assert reads_the_cache(load_afresh())


def test_an_entry_that_is_added_keeps_the_others(cache):
    """As another method does, which needs one more function of the same system."""
    load_afresh(exports={})
    before = only(cache, "*/*multiply*.nbc").stat()
    assert not load_afresh().from_cache
    after = only(cache, "*/*multiply*.nbc").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert load_afresh().from_cache
    assert load_afresh(exports={}).from_cache


def test_the_checksums_are_those_of_sha256sum(filled):
    checked = subprocess.run(
        ["sha256sum", "--check", only(filled, "*.sha256").name], cwd=filled, capture_output=True, text=True, check=True
    )
    assert checked.stdout.count(": OK\n") == 4


class Planted:
    """What writes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_a_planted_pickle_would_run(tmp_path):
    pickle.loads(pickle.dumps(Planted(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


def give_away(path):
    if os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 12345, 12345)


def link_to_a_copy(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


PLANTINGS = {
    "by the user": lambda path: None,
    "writable by all": lambda path: path.chmod(0o666),
    "of another user": give_away,
    "in a link": link_to_a_copy,
}


@pytest.mark.parametrize("planting", PLANTINGS.values(), ids=PLANTINGS)
@pytest.mark.parametrize("pattern", ["*/*multiply*.nbi", "*/*multiply*.nbc"])
def test_a_planted_pickle_does_not_run(filled, tmp_path, planting, pattern):
    entry = only(filled, pattern)
    entry.write_bytes(pickle.dumps(numba.__version__) + pickle.dumps(Planted(tmp_path / "ran")))
    if pattern.endswith("nbc"):
        entry.write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    planting(entry)
    load_afresh()
    assert reads_the_cache(load_afresh())
    assert not (tmp_path / "ran").exists()
    assert load_afresh().from_cache


@pytest.mark.parametrize(
    ("open_up", "words"),
    [
        (lambda folder: folder.chmod(0o777), "has a folder __pycache__ that can be written by others"),
        (lambda folder: folder.chmod(0o770), "has a folder __pycache__ that can be written by others"),
        (give_away, "has a folder __pycache__ that belongs to another user"),
    ],
    ids=["all", "group", "owner"],
)
def test_a_planted_pickle_with_its_checksum_does_not_run_from_a_folder_of_others(filled, tmp_path, open_up, words):
    """Not even where a cache of this user has the same content: who can write the folder can change it at any moment."""
    path = only(filled, "*.py")
    only(filled, "*/*multiply*.nbi").write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    kernel_cache.seal(path)
    open_up(filled / "__pycache__")
    with pytest.warns(RuntimeWarning, match=words) as told:
        module = load_afresh()
    assert len(told) == 1
    assert reads_the_cache(load_afresh())
    assert module.path.parent != filled
    assert not (tmp_path / "ran").exists()


def test_a_cache_below_a_folder_that_everybody_can_write_to_is_refused(cache, tmp_path):
    tmp_path.chmod(0o1777)
    assert cache_directory() == cache
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=re.escape(f"lies in {tmp_path}, which everybody can write to")):
        assert cache_directory() != cache


def test_a_cache_behind_a_link_is_used_where_it_lies(cache, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "real")
    assert load_afresh().path.parent == tmp_path / "real"


def test_a_cache_that_numba_is_told_of_is_not_used(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba"))
    load_afresh()
    assert len(list((cache / "__pycache__").iterdir())) == 4
    assert not (tmp_path / "numba").exists()


def test_files_are_private_whatever_the_umask(cache):
    before = os.umask(0)
    try:
        load_afresh()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in (cache, *cache.rglob("*"))} == {0}


def put_a_directory(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def directory_as_lock(path):
    shutil.rmtree(path.parent / "__pycache__")
    put_a_directory(path.with_suffix(".lock"))


def directory_as_checksums(path):
    put_a_directory(path.with_suffix(".sha256"))


def directory_as_entry(path):
    put_a_directory(next((path.parent / "__pycache__").glob("*.nbi")))


@pytest.mark.parametrize(
    "obstacle",
    [put_a_directory, directory_as_lock, directory_as_checksums, directory_as_entry],
    ids=lambda f: f.__name__,
)
def test_a_directory_in_the_place_of_a_file_is_left_aside(filled, obstacle):
    obstacle(only(filled, "*.py"))
    with pytest.warns(RuntimeWarning) as told:
        load_afresh()
    (message,) = [str(entry.message) for entry in told]
    assert message.startswith(f"The cache directory {filled} cannot be used (")
    assert message.endswith("; set FEATURE_EMERGENCE_CACHE to a directory that you alone can write to.")
    assert reads_the_cache(load_afresh())


def test_a_lock_that_is_a_link_leaves_its_target_as_it_is(filled, tmp_path):
    path = only(filled, "*.py")
    shutil.rmtree(filled / "__pycache__")
    (tmp_path / "precious").write_text("years of work")
    path.with_suffix(".lock").unlink()
    path.with_suffix(".lock").symlink_to(tmp_path / "precious")
    with pytest.warns(RuntimeWarning, match=r"cannot be used \(Too many levels of symbolic links\)"):
        load_afresh()
    assert reads_the_cache(load_afresh())
    assert (tmp_path / "precious").read_text() == "years of work"


def test_a_cache_that_is_removed_while_it_is_filled_is_left_aside(cache):
    removing = f"import shutil\nshutil.rmtree({str(cache)!r}, ignore_errors=True)\n{SOURCE}"
    with pytest.warns(RuntimeWarning, match=r"cannot be used \(No such file or directory\)") as told:
        load_afresh(removing)
    assert len(told) == 1
    assert reads_the_cache(load_afresh(removing))


LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
{SCRIPT}
"""


def test_without_any_place_for_files_functions_stay_in_memory(cache, tmp_path):
    """The limit of the size of a file stands for a disk that is full, so that the temporary directory is of no use."""
    (tmp_path / "temporary").mkdir()
    printed, told = start(LIMITED, TMPDIR=str(tmp_path / "temporary")).communicate(timeout=60)
    assert printed == RIGHT
    assert told.count("RuntimeWarning: The cache directory") == 2
    assert (
        f"The cache directory {cache} cannot be used (File too large), so compiled code is kept in {tmp_path}/temporary/"
        in told
    )
    assert "cannot be used (File too large), so compiled code is kept in memory alone and will" in told
    assert "Traceback" not in told
    assert not list(cache.glob("*.partial"))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_cache_on_a_full_disk_is_left_aside(cache):
    """A source fits into 16 k, its compiled code does not."""
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = f"mount -t tmpfs -o mode=700,size=16k none {cache}"
    cache.mkdir(mode=0o700)
    try:
        subprocess.run([*apart, disk], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small disk can be mounted here")
    done = subprocess.run(
        [*apart, f'{disk} && exec "$@"', "sh", sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, RIGHT)
    assert done.stderr.count("RuntimeWarning: ") == 1
    assert f"The cache directory {cache} cannot be used (No space left on device), so" in done.stderr


@contextmanager
def held(lock):
    """Hold a lock, as a process does that was stopped while it compiled."""
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@pytest.mark.timeout(30)
def test_a_filled_cache_needs_no_lock(filled, capfd):
    with held(only(filled, "*.lock")):
        assert load_afresh().from_cache
    assert capfd.readouterr().err == ""


def empty_cache_with_lock(filled):
    path = only(filled, "*.py")
    shutil.rmtree(filled / "__pycache__")
    return path.with_suffix(".lock")


def test_a_wait_is_told_and_can_be_interrupted(filled):
    with held(empty_cache_with_lock(filled)) as _, start() as run:
        line = run.stderr.readline()
        assert re.fullmatch(
            rf"Waiting for another process that compiles {filled}/kernels_\w+\.py and holds {filled}/kernels_\w+\.lock; "
            r"if it stands still for 10 seconds this one will compile for itself\.\n",
            line,
        )
        run.send_signal(signal.SIGINT)
        printed, told = run.communicate(timeout=30)
    assert "KeyboardInterrupt" in told
    assert printed == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "told"), [(Terminal, "Compiling kernels, once per machine …\n"), (io.StringIO, "")])
def test_progress_of_a_compilation_is_told_once_and_on_a_terminal_alone(cache, monkeypatch, stream, told):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr(compiling_processes, "_told", False)
    load_afresh()
    assert sys.stderr.getvalue() == told
    shutil.rmtree(cache)
    load_afresh()
    assert sys.stderr.getvalue() == told


def test_a_wait_ends_with_the_lock(filled, monkeypatch, capfd):
    monkeypatch.setattr(compiling_processes, "SILENCE", 0.0)
    loaded = []
    waiting = threading.Thread(target=lambda: loaded.append(load_afresh()))
    with held(empty_cache_with_lock(filled)):
        waiting.start()
        told = ""
        while "Waiting for another process" not in told:
            told += capfd.readouterr().err
            time.sleep(0.01)
    waiting.join(timeout=60)
    assert reads_the_cache(load_afresh())
    assert told.count("\n") == 1
    assert load_afresh().from_cache


def test_the_lock_of_a_process_that_stands_still_is_taken_over(filled, monkeypatch):
    lock = empty_cache_with_lock(filled)
    monkeypatch.setattr(compiling_processes, "STILL", 2.0)
    monkeypatch.setattr(compiling_processes, "BEAT", 0.02)
    with held(lock):
        module = load_afresh()
        assert module.path.parent == filled
        assert reads_the_cache(load_afresh())
    assert load_afresh().from_cache


def test_the_lock_of_a_process_that_works_is_not_taken_over(filled, monkeypatch):
    """However long that takes: it shows a sign of life more often than it would be taken for one that stands still."""
    monkeypatch.setattr(compiling_processes, "STILL", 0.5)
    lock, signs = empty_cache_with_lock(filled), 0
    loaded = []
    waiting = threading.Thread(target=lambda: loaded.append(load_afresh()))
    with held(lock):
        before = lock.stat().st_ino
        waiting.start()
        while signs < 40:
            os.utime(lock, ns=(signs, signs))
            time.sleep(0.05)
            signs += 1
        assert loaded == []
        assert lock.stat().st_ino == before
        monkeypatch.setattr(compiling_processes, "STILL", 10.0)
    waiting.join(timeout=60)
    assert reads_the_cache(load_afresh())


@pytest.mark.parametrize(("busy", "signs"), [(True, 3), (False, 0)])
def test_a_process_shows_signs_of_life_while_it_works(tmp_path, monkeypatch, busy, signs):
    monkeypatch.setattr(compiling_processes, "BEAT", 0.01)
    path = tmp_path / "kernels_x.py"
    lock = compiling_processes.lock_of(path)
    lock.touch()
    seen, until = {lock.stat().st_mtime_ns}, time.monotonic() + (30.0 if busy else 0.5)
    with compiling_processes.signs_of_life(path):
        while len(seen) <= signs and time.monotonic() < until:
            seen.add(lock.stat().st_mtime_ns)
            time.sleep(0.0 if busy else 0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "signs of life"]
    assert (len(seen) > signs) if busy else (len(seen) == 1)


def test_processes_that_heal_the_same_entry_at_once_all_get_it(filled):
    only(filled, "*/*multiply*.nbc").write_bytes(b"")
    runs = [start() for _ in range(3)]
    said = [run.communicate(timeout=60) for run in runs]
    assert [answer for answer, _ in said] == [RIGHT] * 3
    # On a busy machine one waits so long for another that it says so.
    assert all(told == "" or told.startswith("Waiting for another process that compiles") for _, told in said)
    assert load_afresh().from_cache


def test_the_command_heals_a_damaged_cache(cache, tmp_path):
    """With a problem whose only kernel is the sum of the losses of more pairs than have histories."""
    kernels = [read_piece(ROOT / "dynamics" / "equations" / "transit" / "decoupled_kernels.py")]
    assert not load(kernels).from_cache
    entries = list(cache.glob("__pycache__/*"))
    assert len(entries) == 2
    for entry in entries:
        entry.write_bytes(b"")
    question = ["--model", "decoupled", "--directions", "10001", "--beta", "1", "--no-plot", "--output", "pairs.nc"]
    done = python("-m", "dynamics.solve", *question, cwd=tmp_path, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    loss = dynamics.load(tmp_path / "pairs.nc").loss.values
    assert loss[0] > loss[-1] >= 0.0
    assert all(entry.stat().st_size for entry in entries)
