"""The files: readable by others, refused in one sentence when damaged, foreign, newer or hostile."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import h5netcdf
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import dynamics
from dynamics import Callback
from dynamics.runs import storage
from dynamics.runs.dataset import SCHEMA_VERSION
from dynamics.runs.seal import SEAL_BYTES


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "run.nc"
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=3, dimension=16)
    dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.geometric(0.5, 30.0, 10), method="explicit", progress=False,
        trackers=[Callback(lambda time, _: time > 3.0)], checkpoint=path,
    )  # fmt: skip
    return path


def test_plain_xarray_reads_the_files(unfinished):
    ours = dynamics.load(unfinished)
    for engine in ("netcdf4", "h5netcdf"):
        with xr.open_dataset(unfinished, engine=engine) as plain:
            xr.testing.assert_equal(plain.load(), ours)
            assert set(plain.attrs) == set(ours.attrs)
    with xr.open_dataset(unfinished) as plain:
        xr.testing.assert_identical(plain.load(), ours)


def test_ncdump_reads_the_files(unfinished):
    program = shutil.which("ncdump")
    if program is None:
        pytest.skip("there is no ncdump here: it is in Debian's netcdf-bin")
    shown = subprocess.run([program, str(unfinished)], capture_output=True, text=True, check=True).stdout
    assert "group: checkpoint" in shown
    assert 'loss:units = "1"' in shown
    numbers = re.search(r"\n loss = ([^;]*);", shown)
    assert numbers is not None
    ours = dynamics.load(unfinished).loss.values
    read = [float("nan") if word.strip() in ("NaN", "_") else float(word) for word in numbers.group(1).split(",")]
    np.testing.assert_allclose(read, ours, rtol=1e-13)


def test_h5netcdf_and_netcdf4_read_the_files(unfinished):
    ours = dynamics.load(unfinished)
    with h5netcdf.File(unfinished) as file:
        np.testing.assert_array_equal(file.variables["loss"][:], ours.loss)
        assert set(file.groups["checkpoint"].groups) == {"run", "companion"}
    with netCDF4.Dataset(unfinished) as file:
        assert file.variables["loss"].long_name == ours.loss.attrs["long_name"]
        assert file.schema_version == SCHEMA_VERSION


def test_a_finished_file_has_no_checkpoint_and_loading_never_shows_one(unfinished, tmp_path):
    assert "checkpoint" in storage.load_tree(unfinished).children
    assert isinstance(dynamics.load(unfinished), xr.Dataset)
    path = shutil.copy(unfinished, tmp_path / "run.nc")
    dynamics.resume(path, progress=False)
    with netCDF4.Dataset(path) as file:
        assert file.groups == {}


def refusal(path, read=dynamics.load):
    with pytest.raises(dynamics.StorageError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


CHANGED = "must hold what was written to it, but has changed since: it is damaged."


def test_a_flipped_bit_of_a_checkpoint_is_refused(unfinished, tmp_path):
    """Of a record, of the parameters, of the state: each led to another answer, or to a raw error, or to nothing."""
    ours, content = dynamics.load(unfinished), unfinished.read_bytes()
    places = {
        "a record": content.index(ours["loss"].values[:2].tobytes()) + 5,
        "the parameters": content.index(b'"initial_norm": ') + len(b'"initial_norm": '),
        "a name": content.index(b"teacher_overlap"),
        "the end": len(content) - SEAL_BYTES - 1,
    }
    path = tmp_path / "run.nc"
    for place in places.values():
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        for read in (dynamics.load, dynamics.resume):
            assert refusal(path, read) == f"File {str(path)!r} {CHANGED}"


def test_a_file_with_a_damaged_seal_or_none_is_read_as_it_is(unfinished, tmp_path):
    """Files of earlier versions have none, and programs that change a file drop it."""
    ours, content, path = dynamics.load(unfinished), bytearray(unfinished.read_bytes()), tmp_path / "run.nc"
    path.write_bytes(content[:-SEAL_BYTES])
    assert dynamics.load(path).identical(ours)
    path.write_bytes(content[:-3])
    assert dynamics.load(path).identical(ours)
    path.write_bytes(content)
    with netCDF4.Dataset(path, "a") as file:
        file.title = "Mine"
    assert dynamics.load(path).attrs["title"] == "Mine"


def test_numbers_of_answers_have_checksums_that_every_reader_sees(tmp_path):
    path, large = tmp_path / "run.nc", xr.DataArray(np.ones((2, 10**5)), dims=("a", "b"))
    dynamics.save(xr.Dataset({"large": large, "few": ("c", [1, 2])}, attrs={"schema_version": 1}), path)
    with netCDF4.Dataset(path) as file:
        assert all(variable.filters()["fletcher32"] for variable in file.variables.values())


def test_a_newer_file_is_refused(unfinished, tmp_path):
    path = Path(shutil.copy(unfinished, tmp_path / "run.nc"))
    with netCDF4.Dataset(path, "a") as file:
        file.schema_version = SCHEMA_VERSION + 1
    assert refusal(path) == (
        f"File {str(path)!r} must have a schema_version of at most {SCHEMA_VERSION}, but has {SCHEMA_VERSION + 1}: "
        "a newer version of this program wrote it."
    )
    assert "newer version" in refusal(path, dynamics.resume)


@pytest.mark.parametrize(("version", "value"), [(None, "none"), ("1", "'1'"), (SCHEMA_VERSION + 1, SCHEMA_VERSION + 1)])
def test_a_result_that_load_would_refuse_is_told_the_versions_that_it_reads(version, value, tmp_path):
    result = xr.Dataset({"x": 1.0}, attrs={} if version is None else {"schema_version": version})
    with pytest.raises(dynamics.StorageError) as refused:
        dynamics.save(result, tmp_path / "answer.nc")
    assert str(refused.value) == (
        f"Argument `result` must have a schema_version from 1 to {SCHEMA_VERSION}, so that `load` reads it, but has "
        f"{value}."
    )
    assert not (tmp_path / "answer.nc").exists()


def test_a_file_that_claims_more_than_it_can_hold_is_refused(tmp_path):
    """Ten terabytes that were never written take a few kilobytes; to read them would take the memory."""
    path = tmp_path / "bomb.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.schema_version = 1
        file.createDimension("x", 10**9)
        file.createDimension("y", 10**4)
        file.createVariable("loss", "u1", ("y", "x"), chunksizes=(1, 10**6), zlib=True)
    claimed = 10**13 + 4 * (10**9 + 10**4)  # the dims are stored as single floats
    assert refusal(path) == (
        f"File {str(path)!r} must hold what it claims, as those of this program do, but {claimed} bytes are more than "
        f"{path.stat().st_size} can be."
    )


def nested(file):
    for _ in range(1500):
        file = file.create_group("a")


def outside(file):
    place = Path(file.filename).with_name("secret.bin")
    np.arange(10.0).tofile(place)
    file.create_dataset("zz", shape=(10,), dtype="f8", external=[(str(place), 0, 80)])


def virtual(file):
    layout = h5py.VirtualLayout(shape=(6,), dtype="f8")
    layout[:] = h5py.VirtualSource("/proc/self/exe", "loss", shape=(6,))
    file.create_virtual_dataset("zz", layout)


def longer(file):
    """A variable longer than its dim, of which nothing has been written."""
    file.create_dataset("zz", shape=(2**40,), dtype="f8").dims[0].attach_scale(file["time"])


def many(file):
    for number in range(6000):
        file.create_group(f"a{number}")


#: What makes netCDF take all memory, read other files, or end the process; the sentence by which it is refused.
HOSTILE_STRUCTURES = {
    "a link to the root": (lambda file: file.update(zz=h5py.SoftLink("/")), "'zz' is a link elsewhere"),
    "the root by another name": (lambda file: file.update(zz=file["/"]), "'zz' is one that has another name"),
    "a broken link": (lambda file: file.update(zz=h5py.SoftLink("/none")), "'zz' is a link elsewhere"),
    "another file": (lambda file: file.update(zz=h5py.ExternalLink("other.nc", "/")), "'zz' is a link elsewhere"),
    "numbers elsewhere": (outside, "those of 'zz' are in another file"),
    "numbers of other files": (virtual, "those of 'zz' are in another file"),
    "nested groups": (nested, "exceeds that"),
    "many groups": (many, "'/' exceeds that"),
    "half precision": (lambda file: file.create_dataset("zz", data=np.ones(5, "f2")), "'zz' is something else"),
    "long doubles": (lambda file: file.create_dataset("zz", data=np.ones(5, np.longdouble)), "'zz' is something else"),
    "records": (lambda file: file.create_dataset("zz", data=np.zeros(3, [("a", "f8")])), "'zz' is something else"),
    "a type": (lambda file: file.update(zz=np.dtype("f8")), "'zz' is something else"),
    "a long variable": (longer, "'zz' is not"),
    "nothing written": (lambda file: file.create_dataset("zz", shape=(10**9, 10**3), dtype="f8"), "can be"),
    "a large piece": (lambda file: file.create_dataset("zz", shape=(1,), maxshape=(None,), chunks=(4 * 10**8,), dtype="f8"), "can be"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE_STRUCTURES)
def test_structures_that_netcdf_cannot_bear_are_refused_before_it_reads_them(kind, unfinished, tmp_path):
    path = Path(shutil.copy(unfinished, tmp_path / "run.nc"))
    spoil, sentence = HOSTILE_STRUCTURES[kind]
    with h5py.File(path, "a") as file:
        spoil(file)
    for read in (dynamics.load, dynamics.resume):
        told = refusal(path, read)
        assert told.startswith(f"File {str(path)!r} must ")
        assert told.endswith(f"{sentence}.")


@pytest.mark.parametrize(("index", "size"), [(0, 0), (0, 8), (7, 2**64 - 16)])
def test_a_list_that_never_ends_is_refused(unfinished, tmp_path, index, size):
    """HDF5 goes from one object of a heap to the next by its size, for ever where that is nothing."""
    path, content = tmp_path / "endless.nc", bytearray(unfinished.read_bytes()[:-SEAL_BYTES])
    struct.pack_into("<H6xQ", content, content.index(b"GCOL\x01") + 16, index, size)
    path.write_bytes(content)
    for read in (dynamics.load, dynamics.resume):
        assert refusal(path, read).endswith(
            "have lists that end, as those of this program do, but one of them does not."
        )
