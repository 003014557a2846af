"""Reference files of kerchunk and fsspec: they read as the files that they refer to, wherever those are."""

import errno
import json
import os

import fsspec
import numpy as np
import pytest
import xarray
import zarr
from fsspec.implementations.reference import LazyReferenceMapper

import layout
import mounting
import places
import reference_files
from mounting import zarrfs
from servers import azurite, seaweedfs


@pytest.fixture
def data(tmp_path):
    """Makes a netCDF file with several arrays; returns its folder."""
    random = np.random.default_rng(1)
    made = xarray.Dataset(
        {
            "tas": (("time", "y", "x"), random.normal(size=(30, 20, 10)).astype("f4"), {"units": "K"}),
            "count": (("time",), np.arange(30, dtype="i2")),
            "whole": (("y", "x"), random.normal(size=(20, 10)).astype(">f8")),
        },
        {"x": np.arange(10.0), "level": ((), 5.0)},
    )
    coding = {"tas": {"chunksizes": (1, 10, 5), "zlib": True, "shuffle": True}, "whole": {"contiguous": True}}
    folder = tmp_path / "data"
    folder.mkdir()
    made.to_netcdf(folder / "a b.nc", engine="h5netcdf", encoding=coding)
    return folder


def expected(data):
    with xarray.open_dataset(data / "a b.nc", decode_cf=False) as file:
        return {name: variable.values for name, variable in file.load().variables.items()}


def write(path, document):
    path.write_text(json.dumps(document))
    return path


def check(mount, data):
    """Every variable reads as in the netCDF file: by zarr and xarray through the keys, and as .npy."""
    opened = xarray.open_zarr(mount.path, consolidated=False, mask_and_scale=False, decode_times=False)
    for name, values in expected(data).items():
        npy = np.load(layout.decoded(mount.files, mount.store, name, "npy"))
        keys = zarr.open_array(mount.path / name, mode="r")[...]
        for found in [npy, keys, opened[name].values]:
            assert found.shape == values.shape and np.array_equal(found, values), name


FORMS = {
    "version 0": lambda refs: reference_files.as_texts(refs),
    "documents as objects": lambda refs: refs,
    "version 1": lambda refs: {"version": 1, "refs": reference_files.as_texts(refs)},
    "members in another order": lambda refs: {"refs": refs, "templates": {}, "version": 1},
}


@pytest.mark.parametrize("form", FORMS)
def test_references_to_a_file_in_the_same_folder(form, data, mounted):
    refs = reference_files.of_netcdf(data / "a b.nc", "a b.nc")
    file = write(data / "refs.json", FORMS[form](refs))
    check(mounted(file, "--virtual-chunks", data), data)


@pytest.mark.parametrize("target", ["path", "file URL", "HTTP", "relative over HTTP"])
def test_templates_and_every_kind_of_target_are_read(target, data, mounted):
    with reference_files.serving(data) as server:
        url = {
            "path": f"{data}/a b.nc",
            "file URL": f"file://{data}/a%20b.nc",
            "HTTP": f"{server.url}/a%20b.nc",
            "relative over HTTP": "./x/../a b.nc",
        }[target]
        folder, name = url.rsplit("/", 1)
        refs = reference_files.of_netcdf(data / "a b.nc", "{{folder}}/{{ name(end='nc') }}")
        templates = {"folder": folder, "name": name.removesuffix("nc") + "{{end}}"}
        document = {"version": 1, "templates": templates, "refs": reference_files.as_texts(refs)}
        file = write(data / "refs.json", document)
        is_remote = target == "relative over HTTP"
        store = f"{server.url}/refs.json" if is_remote else file
        allowed = server.url if "HTTP" in target else data
        check(mounted(store, "--virtual-chunks", allowed), data)


# The words of --virtual-chunks beside the endpoint.
BUCKETS = {
    "s3": [
        f"access_key_id={seaweedfs.ACCESS_KEY}",
        f"secret_access_key={seaweedfs.SECRET_KEY}",
        f"region={seaweedfs.REGION}",
    ],
    "azure": [f"account_name={azurite.ACCOUNT}", f"account_key={azurite.KEY}"],
    "gcs": ["anon"],
}


@pytest.mark.parametrize("name", BUCKETS)
def test_targets_in_a_bucket(name, data, mounted):
    place = places.PLACES[name]()
    place.upload(data)
    refs = reference_files.of_netcdf(data / "a b.nc", f"{place.url}/a b.nc")
    file = write(data / "refs.json", {"version": 1, "refs": reference_files.as_texts(refs)})
    endpoint = place.options[place.options.index("--endpoint") + 1]
    allowed = ",".join([place.url, f"endpoint={endpoint}", *BUCKETS[name]])
    check(mounted(file, "--virtual-chunks", allowed), data)


PARQUET = {
    "local": {},
    "without dictionaries": {"use_dictionary": False},
    "pages of version 2": {"data_page_version": "2.0"},
    "HTTP": {},
}


@pytest.mark.parametrize("case", PARQUET)
def test_a_parquet_folder(case, data, mounted):
    refs = reference_files.of_netcdf(data / "a b.nc", "a b.nc")
    folder = data / "refs.parq"
    reference_files.write_parquet(folder, refs, **PARQUET[case])
    with reference_files.serving(data) as server:
        is_local = case != "HTTP"
        store = folder if is_local else f"{server.url}/refs.parq/"
        mount = mounted(store, "--virtual-chunks", data if is_local else server.url)
        check(mount, data)
        names = sorted(os.listdir(mount.path / "tas"))
        assert names == sorted([".zarray", ".zattrs", *(key[4:] for key in refs if key.startswith("tas/") and ".z" not in key)])


def test_a_parquet_folder_has_the_references_that_fsspec_reads(data, mounted):
    """Includes a missing chunk, a chunk without a file of references, and a chunk that is a whole object."""
    refs = reference_files.of_netcdf(data / "a b.nc", "a b.nc")
    (data / "whole").write_bytes(b"whole object")
    del refs["tas/0.0.1"]
    refs["tas/0.1.0"] = [f"{data}/whole"]
    folder = data / "refs.parq"
    reference_files.write_parquet(folder, refs)
    (folder / "tas/refs.3.parq").unlink()
    mapper = LazyReferenceMapper(str(folder), fsspec.filesystem("file"), engine="pyarrow")
    mount = mounted(folder, "--virtual-chunks", data)
    for key in [key for key in refs if ".z" not in key] + ["tas/0.0.1"]:
        try:
            reference = mapper[key]
        except KeyError:
            reference = [None]
        # fsspec returns NaN as the path of a chunk that is missing.
        if isinstance(reference, list) and not isinstance(reference[0], str):
            assert not (mount.path / key).exists(), key
            continue
        found = (mount.path / key).read_bytes()
        if isinstance(reference, bytes):
            assert found == reference, key
        else:
            content = (data / reference[0]).read_bytes()
            offset, length = reference[1:] if len(reference) > 1 else (0, len(content))
            assert found == content[offset : offset + length], key
    assert "3.0.0" in os.listdir(mount.path / "tas") and "8.0.0" not in os.listdir(mount.path / "tas")


def test_small_chunks_that_touch_are_fetched_together(tmp_path, mounted):
    values = np.arange(300 * 512, dtype="<f4")
    (tmp_path / "values").write_bytes(values.tobytes())
    refs = {"v/.zarray": {"zarr_format": 2, "shape": values.shape, "chunks": [512], "dtype": "<f4", "order": "C"}}
    refs["v/.zarray"] |= {"fill_value": None, "filters": None, "compressor": None}
    refs |= {".zgroup": {"zarr_format": 2}} | {f"v/{n}": ["values", n * 2048, 2048] for n in range(300)}
    write(tmp_path / "refs.json", refs)
    with reference_files.serving(tmp_path) as server:
        mount = mounted(f"{server.url}/refs.json", "--virtual-chunks", server.url)
        asked = len(server.asked)
        assert np.array_equal(np.load(layout.decoded(mount.files, mount.store, "v", "npy")), values)
        assert len(server.asked) - asked < 20
        assert (mount.path / "v/299").read_bytes() == values[-512:].tobytes()
        assert (mount.path / "v/7").read_bytes() == values[7 * 512 : 8 * 512].tobytes()


def test_references_to_messages_of_a_grib_like_file(tmp_path, mounted):
    """Raw messages in a row in one file, generated references, coordinates inside the references, and keys of v3."""
    values = np.random.default_rng(2).normal(size=(12, 4, 5)).astype("<f8")
    messages = [b"HEAD%04d" % number + message.tobytes() for number, message in enumerate(values)]
    (tmp_path / "messages.grib").write_bytes(b"".join(messages))
    length = len(messages[0])

    def array(shape, chunks, names):
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": "float64",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "fill_value": "NaN",
            "dimension_names": names,
        }

    steps = np.arange(12.0)
    document = {
        "version": 1,
        "templates": {"u": "messages.grib"},
        "gen": [
            {
                "key": "t/c/{{step}}/0/0",
                "url": "{{u}}",
                "offset": f"{{{{step * {length} + 8}}}}",
                "length": str(length - 8),
                "dimensions": {"step": {"stop": 12}},
            }
        ],
        "refs": {
            "zarr.json": {"zarr_format": 3, "node_type": "group"},
            "t/zarr.json": array([12, 4, 5], [1, 4, 5], ["step", "y", "x"]),
            "step/zarr.json": json.dumps(array([12], [12], ["step"])),
            "step/c/0": reference_files.encoded(steps.tobytes()),
        },
    }
    mount = mounted(write(tmp_path / "refs.json", document), "--virtual-chunks", tmp_path)
    opened = xarray.open_zarr(mount.path, consolidated=False)
    assert np.array_equal(opened.t.values, values) and np.array_equal(opened.step.values, steps)
    assert np.array_equal(np.load(layout.decoded(mount.files, mount.store, "t", "npy")), values)


def error_of(path):
    """Returns the errno of reading a file; None if it can be read."""
    try:
        path.read_bytes()
    except OSError as error:
        return error.errno
    return None


def test_a_target_outside_the_allowed_prefixes(data, mounted):
    refs = reference_files.of_netcdf(data / "a b.nc", f"{data}/a b.nc")
    refs["tas/0.0.0"] = ["file:///etc/passwd", 0, 10]
    refs["tas/0.0.1"] = ["../data/../../etc/passwd", 0, 10]
    file = write(data / "refs.json", refs)
    mount = mounted(file)
    with pytest.raises(PermissionError) as refused:
        (mount.path / "tas/1.0.0").read_bytes()
    assert refused.value.errno == errno.EACCES
    assert f"--virtual-chunks {data}" in (mount.path / ".zarrfs/errors").read_text()
    assert np.load(layout.decoded(mount.files, mount.store, "x", "npy")).shape == (10,)
    mount = mounted(file, "--virtual-chunks", data)
    for name in ["0.0.0", "0.0.1"]:
        with pytest.raises(PermissionError):
            (mount.path / "tas" / name).read_bytes()
    (mount.path / "tas/1.0.0").read_bytes()


def test_a_target_that_changes(data, mounted):
    refs = reference_files.of_netcdf(data / "a b.nc", "a b.nc")
    file = write(data / "refs.json", refs)
    mount = mounted(file, "--virtual-chunks", data)
    check(mount, data)
    with xarray.open_dataset(data / "a b.nc") as opened:
        made = opened.load()
    content = bytearray((data / "a b.nc").read_bytes())
    _, offset, length = refs["whole/0.0"]
    content[offset : offset + length] = bytes(length)
    (data / "new").write_bytes(content)
    os.rename(data / "new", data / "a b.nc")
    assert made.whole.values.any()
    # A change of a local store shows after one second.
    mounting.wait_until(lambda: not np.load(layout.decoded(mount.files, mount.store, "whole", "npy")).any())
    check(mount, data)
    os.truncate(data / "a b.nc", 2000)
    with pytest.raises(OSError) as failed:
        (mount.path / "whole/0.0").read_bytes()
    assert failed.value.errno in (errno.EIO, errno.ESTALE)
    (data / "a b.nc").unlink()
    assert mounting.wait_until(lambda: error_of(mount.path / "tas/3.0.0") == errno.EIO)


def test_a_reference_file_that_is_replaced(data, mounted):
    refs = reference_files.of_netcdf(data / "a b.nc", "a b.nc")
    file = write(data / "refs.json", refs)
    mount = mounted(file, "--virtual-chunks", data)
    check(mount, data)
    first = refs["tas/0.0.0"]
    refs["tas/0.0.0"], refs["new/0"] = refs["tas/1.0.0"], "new"
    write(data / "next", {"version": 1, "refs": refs})
    os.rename(data / "next", file)
    content = (data / "a b.nc").read_bytes()

    def chunk(reference):
        return content[reference[1] : reference[1] + reference[2]]

    assert chunk(first) != chunk(refs["tas/0.0.0"])
    assert mounting.wait_until(lambda: (mount.path / "tas/0.0.0").read_bytes() == chunk(refs["tas/0.0.0"]))
    assert mounting.wait_until(lambda: "new" in os.listdir(mount.path))
    # A file that is being written is no answer, and neither is none.
    file.write_text('{"refs": {"tas')
    assert mounting.wait_until(lambda: error_of(mount.path / "tas/0.0.0") == errno.EIO)
    write(file, refs)
    assert mounting.wait_until(lambda: (mount.path / "new/0").exists())


@pytest.mark.parametrize("form", ["npy", "chunk"])
@pytest.mark.parametrize("filters", [None, [{"id": "zlib"}]])
def test_a_chunk_in_a_folder_that_does_not_exist_is_an_error(filters, form, tmp_path, mounted):
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": None}
    array |= {"filters": filters, "fill_value": 9, "order": "C"}
    folder = tmp_path / "away"
    refs = {".zgroup": {"zarr_format": 2}, "a/.zarray": array, "a/0": [f"file://{folder}/a.raw", 0, 4]}
    file = write(tmp_path / "refs.json", refs)
    allow = ["--virtual-chunks", folder]
    for command in [["cat", "--select", ":", f"{file}/a"], ["cp", f"{file}/a", tmp_path / "a.npy"]]:
        failed = zarrfs(*command, *allow, check=False)
        assert failed.returncode == 2 and "a.raw" in failed.stderr, failed
    mount = mounted(file, *allow)
    path = layout.decoded(mount.files, mount.store, "a", "npy") if form == "npy" else mount.path / "a/0"
    assert error_of(path) == errno.EIO
    assert "a.raw" in (mount.path / ".zarrfs/errors").read_text()


def test_commands_read_references_without_a_mount(data):
    refs = reference_files.of_netcdf(data / "a b.nc", "a b.nc")
    refs["tas/../x"] = "hidden"
    file = write(data / "refs.json", {"version": 1, "refs": refs})
    tree = zarrfs("tree", file)
    assert "tas" in tree.stdout and "5 arrays" in tree.stdout
    assert "tas/../x" in zarrfs("check", file, check=False).stdout
    values = zarrfs("cat", "--virtual-chunks", data, f"{file}/x/.zarray").stdout
    assert json.loads(values)["shape"] == [10]
    copy = data / "tas.npy"
    zarrfs("cp", "--virtual-chunks", data, f"{file}/tas", copy)
    assert np.array_equal(np.load(copy), expected(data)["tas"])
    refused = zarrfs("cp", f"{file}/tas", data / "no.npy", check=False)
    assert refused.returncode == 2 and "--virtual-chunks" in refused.stderr


def test_other_files_are_refused_as_reference_files(data):
    for text, said in [
        ('{"zarr_format": 2}', "metadata file of Zarr"),
        ('{"refs": {"a": "b"', "the JSON text ends"),
        ("[1, 2]", "not a Zarr store"),
    ]:
        (data / "no.json").write_text(text)
        failed = zarrfs("tree", data / "no.json", check=False)
        assert failed.returncode == 2 and said in failed.stderr, failed.stderr
    with reference_files.serving(data) as server:
        (data / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
        failed = zarrfs("mount", f"{server.url}/zarr.json", data, check=False)
        assert failed.returncode == 2 and "metadata file of Zarr" in failed.stderr, failed.stderr
        failed = zarrfs("mount", f"{server.url}/none.json", data, check=False)
        assert failed.returncode == 2 and "404" in failed.stderr, failed.stderr


def test_too_many_references_for_memory_are_an_error(tmp_path):
    refs = {f"a/{number}": ["x", number, 1] for number in range(200_000)}
    file = write(tmp_path / "refs.json", {"version": 1, "refs": refs})
    failed = zarrfs("tree", "--memory", "2M", file, check=False)
    assert failed.returncode == 2 and "give more --memory" in failed.stderr, failed.stderr
