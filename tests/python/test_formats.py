"""Decoded files in the formats of other programs: each read whole by two of them, and equal to zarr-python's values."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import zarr

import corpus
import layout
import mounting
import needs
import programs

NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def values(dtype, shape, seed=0):
    """Returns numbers of a type over all of its range, the extremes among them."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        data = random.integers(info.min, info.max, shape, dtype, endpoint=True)
        data.flat[0], data.flat[-1] = info.min, info.max
        return data
    data = (random.standard_normal(shape) * 1000).astype(dtype)
    if dtype.kind == "c":
        data = (data + 1j * random.standard_normal(shape)).astype(dtype)
    return data


def made(folder, version=3, is_sharded=False):
    """Makes a store with arrays of all numbers, of several ranks and orders: of final v3, of v2 in Fortran's order, or of
    shards of big-endian chunks."""
    root = zarr.open_group(folder, mode="w", zarr_format=version)

    def add(name, data, chunks, names=None, **attributes):
        more = {"dimension_names": names} if version == 3 and names else {}
        if version == 2 and names:
            attributes["_ARRAY_DIMENSIONS"] = names
        order = "F" if version == 2 else "C"
        if is_sharded:
            more["shards"] = tuple(2 * length for length in chunks)
            more["serializer"] = zarr.codecs.BytesCodec(endian="big") if data.itemsize > 1 else "auto"
        array = root.create_array(
            name, shape=data.shape, dtype=data.dtype, chunks=chunks, attributes=attributes,
            config={"order": order}, **more,
        )
        array[...] = data

    for dtype in [*NUMBERS, "bool", "f2", "c8", "c16"]:
        add(dtype, values(dtype, (5, 7, 9), 1), (2, 4, 9), ["z", "y", "x"])
    add("line", values("f4", 1000, 2), (300,))
    add("plane", values("f4", (21, 33), 3), (8, 8), ["y", "x"], units="K", spacing=[-0.5, 0.25], origin=[10, -20])
    add("four", values("i2", (3, 4, 5, 6), 4), (1, 4, 3, 6), ["t", "z", "y", "x"])
    add("mixed", values("u2", (3, 2, 4, 5, 6), 5), (1, 1, 4, 3, 6), ["t", "c", "z", "y", "x"])
    add("pixels", values("u1", (11, 13, 3), 6), (11, 5, 3), ["y", "x", "band"])
    add("rows", values("u2", (11, 3, 13), 7), (4, 3, 13), ["y", "band", "x"])
    add("placed", values("i2", (4, 5, 6), 8), (4, 5, 3), ["z", "y", "x"], spacing=[2.0, 0.5, 0.25], origin=[1, 2, 3],
        long_name="placed", number=5)
    add("backwards", values("f4", (4, 5, 6), 9), (4, 5, 3), ["x", "y", "z"], spacing=[2.0, 0.5, -0.25], origin=[1, 2, 3])
    if version == 3:
        image = root.create_group("image", attributes={"ome": {"version": "0.5", "multiscales": [{
            "axes": [{"name": "z", "type": "space", "unit": "micrometer"}, {"name": "y", "type": "space", "unit": "micrometer"},
                     {"name": "x", "type": "space", "unit": "micrometer"}],
            "datasets": [{"path": str(level), "coordinateTransformations": [
                {"type": "scale", "scale": [2.0, 0.5 * 2**level, 0.5 * 2**level]},
                {"type": "translation", "translation": [0, 10, 20]}]} for level in (0, 1)],
        }]}})
        for level in (0, 1):
            data = values("u2", (4, 8 >> level, 10 >> level), 10)
            image.create_array(str(level), data=data, chunks=(2, 4, 5))
    return folder


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Returns the made stores, a dialect each, and the samples."""
    folder = tmp_path_factory.mktemp("formats")
    return [
        made(folder / "three.zarr"), made(folder / "two.zarr", 2), made(folder / "sharded.zarr", is_sharded=True),
        mounting.ROOT / "samples" / "climate.zarr", mounting.ROOT / "samples" / "relief.zarr",
    ]


@pytest.fixture(scope="module")
def arrays(stores, tmp_path_factory):
    """Mounts the stores, and of the corpus those of two other writers; returns (name, folder of files, values)."""
    found = []
    with contextlib.ExitStack() as mounts:
        for store in [*stores, *of_corpus(tmp_path_factory)]:
            files = mounts.enter_context(mounting.Mount(store)).files
            root = zarr.open(store, mode="r")
            members = root.members(max_depth=None) if isinstance(root, zarr.Group) else [("", root)]
            for path, node in members:
                if isinstance(node, zarr.Array) and node.dtype.kind in "biufc":
                    base = layout.decoded(files, store, path, "x").with_suffix("")
                    found.append((f"{store.name}/{path}", base, node[...]))
        yield found


def of_corpus(tmp_path_factory):
    """Returns stores that zarr.js and z5py wrote, if the corpus is there."""
    if needs.is_named("shared") or not (needs.SHARED / "corpus").is_dir():
        return []
    folder = tmp_path_factory.mktemp("corpus")
    corpus.unpack(folder)
    names = ["zarr.js-fixtures/simple_F.zarr", "zarr.js-fixtures/simple_BE.zarr", "z5py/flat.zr", "ome-zarr-py-data/v2.zarr"]
    return [folder / name for name in names if (folder / name).is_dir()]


def each(arrays, extension, expects):
    """Yields the path and the values of every array that has a file of this format; `expects` says which must."""
    count = 0
    for name, base, data in arrays:
        path = base.parent / f"{base.name}.{extension}"
        assert path.exists() == bool(expects(data)), (name, extension)
        if path.exists():
            count += 1
            yield str(path), data
    assert count >= 3, f"{count} files {extension}"


def is_image(data, most, types):
    return 1 <= data.ndim <= most and 0 not in data.shape and data.dtype.newbyteorder("=") in [np.dtype(t) for t in types]


def same(read, data, name):
    """Fails unless the values are equal, bit for bit where there are NaNs."""
    read = np.asarray(read)
    assert read.shape == data.shape, (name, read.shape, data.shape)
    np.testing.assert_array_equal(read, data.astype(bool) if read.dtype == bool else data, err_msg=str(name))


def test_fortran_order(arrays):
    for path, data in each(arrays, "f.npy", lambda data: True):
        read = np.load(path, mmap_mode="r")
        assert read.flags.f_contiguous
        same(read, data, path)


def read_by_node(script, package, paths):
    """Returns what a package of npm reads of files: dictionaries as the script prints them."""
    modules = mounting.ROOT / ".tools/npm/node_modules"
    is_here = shutil.which("node") and (modules / package).is_dir()
    # Both packages are installed together.
    needs.require("vtk.js", is_here, source=" (scripts/setup tools installs it)")
    done = subprocess.run(["node", mounting.ROOT / "tests/python" / script, modules, *paths], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_npy_in_npyjs(arrays):
    for extension, order in (("npy", "C"), ("f.npy", "F")):
        found = list(each(arrays, extension, lambda data: True))
        for (path, data), read in zip(found, read_by_node("read_npy.mjs", "npyjs", [path for path, _ in found]), strict=True):
            assert (read["shape"], read["order"]) == (list(data.shape), order), path
            elements = np.frombuffer(base64.b64decode(read["elements"]), data.dtype.newbyteorder("<"))
            assert read["type"] == data.dtype.str[1:]
            same(elements.reshape(data.shape, order=order), data, path)


def in_teem(path, data):
    """Returns the values as teem reads a file and writes it again, with a header before an empty line."""
    done = subprocess.run(["teem-unu", "save", "-i", path, "-f", "nrrd", "-e", "raw", "-o", "-"], check=True, capture_output=True)
    header, _, elements = done.stdout.partition(b"\n\n")
    fields = dict(line.split(b": ", 1) for line in header.splitlines() if b": " in line)
    assert fields.get(b"endian", b"little") == b"little"
    shape = tuple(int(length) for length in fields[b"sizes"].split())[::-1]
    return np.frombuffer(elements, data.dtype.newbyteorder("<")).reshape(shape)


def test_nrrd(arrays):
    import nrrd
    import SimpleITK

    needs.require("teem-unu", shutil.which("teem-unu"), source=" (scripts/setup tools installs it)")
    for extension in ("nrrd", "nhdr"):
        for path, data in each(arrays, extension, lambda data: is_image(data, 16, [*NUMBERS, "bool"])):
            read, header = nrrd.read(path, index_order="C")
            same(read, data, path)
            same(in_teem(path, data), data, path)
            if 2 <= data.ndim <= 4:
                same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path)), data, path)


def test_metaimage(arrays):
    import metaio
    import SimpleITK
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOImage import vtkMetaImageReader

    for extension in ("mha", "mhd"):
        for path, data in each(arrays, extension, lambda data: is_image(data, 10, [*NUMBERS, "bool"])):
            # A reader without the library that ITK and VTK share.
            same(metaio.read(path).data, data, path)
            if 2 <= data.ndim <= 5:
                same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path)), data, path)
            # VTK's own reader knows three dimensions and no integers of eight bytes.
            if data.ndim == 3 and data.dtype.str[1:] not in ("i8", "u8"):
                reader = vtkMetaImageReader()
                reader.SetFileName(path)
                reader.Update()
                read = vtk_to_numpy(reader.GetOutput().GetPointData().GetScalars())
                same(read.reshape(data.shape), data, path)


def space(path):
    import SimpleITK

    image = SimpleITK.ReadImage(path)
    return image.GetSpacing(), image.GetOrigin(), image.GetDirection()


@pytest.mark.parametrize("extension", ["nrrd", "nhdr", "mha", "mhd", "nii"])
def test_scale_and_origin_reach_the_header(stores, mounted, extension):
    files = mounted(stores[0]).files
    spacing, origin, direction = space(str(files / f"placed/placed.{extension}"))
    # ITK has the other handedness of NIfTI.
    signs = np.array([-1, -1, 1] if extension == "nii" else [1, 1, 1])
    assert spacing == (0.25, 0.5, 2.0)
    assert origin == tuple(signs * [3, 2, 1])
    np.testing.assert_array_equal(np.reshape(direction, (3, 3)), np.diag(signs))
    spacing, origin, _ = space(str(files / f"image/1/1.{extension}"))
    # NIfTI has the unit in its header, and ITK converts micrometers.
    unit = 1000 if extension == "nii" else 1
    np.testing.assert_allclose(np.multiply(spacing, unit), (1.0, 1.0, 2.0), rtol=1e-6)
    np.testing.assert_allclose(np.multiply(origin, unit), signs * [20, 10, 0], rtol=1e-6)
    spacing, origin, direction = space(str(files / f"backwards/backwards.{extension}"))
    if extension == "nii":
        # The elements are put in the order of x, y and z.
        assert (spacing, origin) == ((2.0, 0.5, 0.25), (-1, -2, 3))
        np.testing.assert_array_equal(np.reshape(direction, (3, 3)), np.diag([-1, -1, -1]))
    else:
        assert (spacing, origin) == ((0.25, 0.5, 2.0), (1, 2, 3))
        np.testing.assert_array_equal(np.reshape(direction, (3, 3)), [[0, 0, 1], [0, 1, 0], [-1, 0, 0]])


def test_attributes_reach_nrrd(stores, mounted):
    import nrrd

    header = nrrd.read_header(str(mounted(stores[0]).files / "placed/placed.nrrd"))
    assert (header["long_name"], header["number"]) == ("placed", "5")
    assert header["labels"] == ["x", "y", "z"]


def test_attributes_named_like_header_fields_stop_no_reader(tmp_path, mounted):
    import nrrd
    import SimpleITK

    store = tmp_path / "fields.zarr"
    data = values("i2", (4, 5))
    attributes = {"type": "x", "Encoding": "gzip", "sizes": [1], "units": "K m-2", "data file": "/etc/passwd", "mine": "kept"}
    zarr.open_group(store, mode="w").create_array("a", data=data, chunks=(2, 3), attributes=attributes)
    files = mounted(store).files / "a"
    for extension in ("nrrd", "nhdr"):
        path = str(files / f"a.{extension}")
        read, header = nrrd.read(path, index_order="C")
        same(read, data, extension)
        same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path)), data, extension)
        assert (header["sample units"], header["mine"]) == ("K m-2", "kept")


def in_nifti_order(data, name):
    """Returns the values as nibabel shows them."""
    if name.endswith("/mixed.nii"):
        return data.transpose(4, 3, 2, 0, 1)
    if name.endswith("/backwards.nii"):
        return data
    if name.endswith("/pixels.nii"):
        return data.transpose(1, 0, 2)[:, :, None, None, :]
    if name.endswith("/rows.nii"):
        return data.transpose(2, 0, 1)[:, :, None, None, :]
    if any(name.endswith(f"/{part}.nii") for part in ("tas", "psl", "pr")):
        return data.T[:, :, None, :]
    if name.endswith("/time.nii"):
        return data[None, None, None, :]
    if name.endswith("/lat.nii"):
        return data[None, :]
    return data.T


def test_nifti(arrays):
    import nibabel
    import SimpleITK

    types = [*NUMBERS, "bool", "c8", "c16"]
    for path, data in each(arrays, "nii", lambda data: is_image(data, 7, types)):
        read = nibabel.load(path)
        expected = in_nifti_order(data, path)
        same(np.asanyarray(read.dataobj), expected, path)
        if 2 <= expected.ndim <= 4 and data.dtype.kind != "c":
            itk = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path))
            # ITK takes zeros for numbers that are not finite.
            finite = np.nan_to_num(expected, nan=0, posinf=0, neginf=0)
            same(itk.squeeze(), finite.T.squeeze(), path)


def in_niftilib(path, folder):
    """Returns the values that nifti_tool copies out of an image."""
    import nibabel

    needs.require("nifti_tool", shutil.which("nifti_tool"), source=" (scripts/setup tools installs it)")
    copy = folder / "copy.nii"
    copy.unlink(missing_ok=True)
    # A collapsed image of all indices along each dimension: what can hold any number of them.
    subprocess.run(["nifti_tool", "-cci", *["-1"] * 7, "-prefix", copy, "-infiles", path], check=True, capture_output=True)
    return np.asanyarray(nibabel.load(copy, mmap=False).dataobj)


def test_nifti_in_niftilib(arrays, tmp_path):
    types = [*NUMBERS, "bool", "c8", "c16"]
    for path, data in each(arrays, "nii", lambda data: is_image(data, 7, types)):
        expected = in_nifti_order(data, path)
        # As ITK, which has the same library within.
        finite = np.nan_to_num(expected, nan=0, posinf=0, neginf=0) if data.dtype.kind == "f" else expected
        # It leaves out dimensions of one element at the end.
        same(in_niftilib(path, tmp_path).reshape(finite.shape), finite, path)


def test_nifti_2_for_long_dimensions(tmp_path, mounted):
    import nibabel

    data = values("i2", (3, 40000))
    root = zarr.open_group(tmp_path / "long.zarr", mode="w")
    root.create_array("long", data=data, chunks=(1, 1000))
    path = mounted(tmp_path / "long.zarr").files / "long/long.nii"
    read = nibabel.load(path)
    assert isinstance(read, nibabel.Nifti2Image)
    same(np.asanyarray(read.dataobj), data.T, path)
    same(in_niftilib(path, tmp_path), data.T, path)
    # The header by its numbers alone.
    raw = path.read_bytes()
    assert np.frombuffer(raw, "<i8", 8, 16).tolist() == [2, 40000, 3, 1, 1, 1, 1, 1]
    same(np.frombuffer(raw, "<i2", offset=544).reshape(3, 40000), data, path)


def test_fits(arrays):
    import fitsio
    from astropy.io import fits

    types = [*NUMBERS, "bool", "f2"]
    for path, data in each(arrays, "fits", lambda data: is_image(data, 64, types)):
        data = data.astype("f4") if data.dtype.str[1:] == "f2" else data
        with fits.open(path, memmap=False) as file:
            file.verify("exception")
            same(file[0].data, data, path)
        # cfitsio does not read the upper half of unsigned integers of eight bytes.
        if data.dtype.str[1:] != "u8":
            same(fitsio.read(path), data, path)
        assert os.stat(path).st_size % 2880 == 0


def in_nom_tam(path):
    """Returns the words that the library of FITS for Java reads, with what the header says is to be added."""
    image = programs.java("nom.tam.fits.Fits", "nom.tam.fits")(path).readHDU()
    stored = np.array(image.getKernel())
    if stored.dtype.kind != "i":
        return stored
    words = stored.view(f"u{stored.itemsize}")
    return words + np.array(int(image.getBZero()) % 2 ** (8 * stored.itemsize), words.dtype)


def test_fits_in_java(arrays):
    """A reader that does not use cfitsio or astropy."""
    types = [*NUMBERS, "bool", "f2"]
    for path, data in each(arrays, "fits", lambda data: is_image(data, 64, types)):
        wider = {"f2": "f4", "b1": "u1"}.get(data.dtype.str[1:])
        data = data.astype(wider) if wider else data
        data = data.astype(data.dtype.newbyteorder("="))
        same(in_nom_tam(path).view(data.dtype), data, path)


def test_scale_and_unit_reach_fits(stores, mounted):
    from astropy.io import fits

    files = mounted(stores[0]).files
    header = fits.getheader(files / "image/0/0.fits")
    assert [header[f"CDELT{axis}"] for axis in (1, 2, 3)] == [0.5, 0.5, 2.0]
    assert [header[f"CRVAL{axis}"] for axis in (1, 2, 3)] == [20, 10, 0]
    assert [header[f"CTYPE{axis}"] for axis in (1, 2, 3)] == ["x", "y", "z"]
    assert header["CUNIT1"] == "um"
    assert fits.getheader(files / "plane/plane.fits")["BUNIT"] == "K"


def test_mrc(arrays):
    import mrcfile
    import mrcz
    import SimpleITK

    types = ["i1", "bool", "u1", "i2", "u2", "f2", "f4", "c8"]
    for path, data in each(arrays, "mrc", lambda data: data.ndim >= 2 and is_image(data, 4, types)):
        with mrcfile.open(path) as file:
            same(file.data, data, path)
        assert mrcfile.validate(path, print_file=open(os.devnull, "w")), path
        if data.dtype.str[1:] != "f2":
            # It has an axis for sections where there is one alone, and none for volumes.
            read, header = mrcz.readMRC(path)
            assert header["dimensions"].tolist() == [np.prod(data.shape[:-2]), *data.shape[-2:]]
            same(np.reshape(read, data.shape), data, path)
        if data.ndim == 3 and data.dtype.str[1:] in ("i2", "u2", "f4"):
            same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path)), data, path)


def test_mrc_by_its_header(arrays):
    """Parses the header of MRC2014: programs other than mrcfile read few of its types, and only images of three dimensions."""
    types = {0: "i1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 12: "f2"}
    for path, data in each(arrays, "mrc", lambda data: data.ndim >= 2 and is_image(data, 4, [*types.values(), "bool", "u1"])):
        raw = open(path, "rb").read()
        columns, rows, sections, mode = np.frombuffer(raw, "<i4", 4)
        # A stack of volumes has as many sections as all of them, and the space group 401.
        assert (columns, rows) == data.shape[:-3:-1] and sections == np.prod(data.shape[:-2])
        assert np.frombuffer(raw, "<i4", 1, 88)[0] == {2: 0, 3: 1, 4: 401}[data.ndim]
        assert np.frombuffer(raw, "<i4", 3, 64).tolist() == [1, 2, 3] and raw[208:212] == b"MAP "
        read = np.frombuffer(raw, f"<{types[mode]}", offset=1024).reshape(data.shape)
        same(read, data, path)


def test_lengths_in_angstrom_reach_mrc(stores, mounted):
    import mrcfile

    with mrcfile.open(mounted(stores[0]).files / "image/0/0.mrc") as file:
        assert file.voxel_size.tolist() == (5000, 5000, 20000)
        assert file.header.origin.tolist() == (200000, 100000, 0)


def test_vti(arrays):
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOXML import vtkXMLImageDataReader

    for path, data in each(arrays, "vti", lambda data: is_image(data, 3, [*NUMBERS, "bool"])):
        reader = vtkXMLImageDataReader()
        reader.SetFileName(path)
        reader.Update()
        image = reader.GetOutput()
        assert image.GetDimensions() == (*data.shape[::-1], 1, 1)[:3]
        read = vtk_to_numpy(image.GetPointData().GetScalars())
        same(read.reshape(data.shape), data, path)
        if path.endswith("/placed.vti"):
            assert (image.GetSpacing(), image.GetOrigin()) == ((0.25, 0.5, 2.0), (3, 2, 1))
        # The XML by itself: what stands where it says the elements are.
        raw = open(path, "rb").read()
        start = raw.index(b'encoding="raw">') + len(b'encoding="raw">')
        start = raw.index(b"_", start) + 1
        assert int.from_bytes(raw[start : start + 8], "little") == data.nbytes
        same(np.frombuffer(raw, data.dtype.newbyteorder("<"), data.size, start + 8).reshape(data.shape), data, path)


def test_vti_in_vtkjs(arrays):
    found = list(each(arrays, "vti", lambda data: is_image(data, 3, [*NUMBERS, "bool"])))
    # It cuts integers of eight bytes to four.
    found = [(path, data) for path, data in found if data.dtype.str[1:] not in ("i8", "u8")]
    for (path, data), read in zip(found, read_by_node("read_vti.mjs", "@kitware/vtk.js", [path for path, _ in found]), strict=True):
        assert read["dimensions"] == [*data.shape[::-1], 1, 1][:3]
        elements = np.frombuffer(base64.b64decode(read["elements"]), data.dtype.newbyteorder("<"))
        same(elements.reshape(data.shape), data, path)
        if path.endswith("/placed.vti"):
            assert (read["spacing"], read["origin"], read["type"]) == ([0.25, 0.5, 2.0], [3, 2, 1], "Int16Array")


def bands(data, name):
    """Returns the values of a raster as bands of rows."""
    if name == "pixels":
        return data.transpose(2, 0, 1)
    if name == "rows":
        return data.transpose(1, 0, 2)
    if name == "backwards":
        return data.transpose(2, 1, 0)
    return data[None] if data.ndim == 2 else data


ENVI = ["bool", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]


def gdal(path, *drivers):
    """Returns what GDAL reads, and the data set."""
    import rasterio

    with rasterio.open(path, driver=drivers[0] if drivers else None) as source:
        return source.read(), source.profile


def raster_bands(data, name):
    """Like `bands`; of dimensions that are not rows and columns in this order the last two are taken."""
    return data if name == "backwards" else bands(data, name)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_envi(arrays):
    import spectral.io.envi

    def fits(data):
        return data.ndim in (2, 3) and is_image(data, 3, ENVI)

    for path, data in each(arrays, "img", fits):
        name = os.path.basename(path).removesuffix(".img")
        expected = raster_bands(data, name)
        read, profile = gdal(path, "ENVI")
        same(read, expected, path)
        # Its table of types has no integers of one byte with a sign; those have no file.
        opened = spectral.io.envi.open(path.replace(".img", ".hdr"), path)
        same(np.asarray(opened.open_memmap(interleave="bsq")), expected, path)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_vrt(arrays):
    types = [*ENVI, "i1"]

    def fits(data):
        return data.ndim >= 2 and is_image(data, 64, types)

    for path, data in each(arrays, "vrt", fits):
        name = os.path.basename(path).removesuffix(".vrt")
        read, profile = gdal(path)
        expected = bands(data, name)
        expected = expected.reshape(-1, *expected.shape[-2:])
        same(read, expected, path)
        same(by_the_lines_of_vrt(path, data.dtype), expected, path)


def test_vrt_in_another_gdal(arrays, tmp_path):
    """The GDAL of Debian, some years older than that of rasterio, copies all bands."""
    import tifffile

    needs.require("gdal_translate", shutil.which("gdal_translate"), source=programs.SOURCE)
    copy = tmp_path / "copy.tif"
    for path, data in each(arrays, "vrt", lambda data: data.ndim >= 2 and is_image(data, 64, [*ENVI, "i1"])):
        name = os.path.basename(path).removesuffix(".vrt")
        # It has no integers of one byte with a sign before 3.7.
        if data.dtype != "i1":
            subprocess.run(["gdal_translate", "-q", "-co", "INTERLEAVE=BAND", path, copy], check=True, capture_output=True)
            expected = bands(data, name)
            same(tifffile.imread(copy).reshape(expected.shape), expected, path)


def by_the_lines_of_vrt(path, dtype):
    """Returns what stands where a VRT says its bands are. Nobody but GDAL reads them."""
    tree = ET.parse(path).getroot()
    rows, columns = int(tree.get("rasterYSize")), int(tree.get("rasterXSize"))
    read = []
    for band in tree.findall("VRTRasterBand"):
        source = band.find("SourceFilename")
        assert (source.get("relativeToVRT"), band.findtext("ByteOrder")) == ("1", "LSB")
        start, *strides = (int(band.findtext(name)) for name in ("ImageOffset", "LineOffset", "PixelOffset"))
        raw = np.memmap(os.path.join(os.path.dirname(path), source.text), mode="r")
        read.append(np.ndarray((rows, columns), dtype.newbyteorder("<"), raw, start, strides))
    return np.array(read)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_gdal_finds_an_unlisted_header_without_listing_the_folder(stores, mounted):
    import rasterio

    path = mounted(stores[0]).files / "rows/rows.img"
    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="TRUE"), rasterio.open(path, driver="ENVI") as source:
        same(source.read(), values("u2", (11, 3, 13), 7).transpose(1, 0, 2), path)


@pytest.mark.parametrize("extension", ["npy", "raw"])
def test_elements_are_written_in_place(tmp_path, mounted, extension):
    data = values("i2", (4, 6, 8))
    store = tmp_path / "written.zarr"
    group = zarr.open_group(store, mode="w")
    group.create_array("a", data=data, chunks=(2, 3, 8), attributes={"x": 1})
    mount = mounted(store, "--cow", tmp_path / "upper")
    path = mount.files / f"a/a.{extension}"
    raw = path.read_bytes()
    start = raw.index(data.tobytes())
    with open(path, "r+b") as file:
        file.seek(start + 2 * (1 * 48 + 2 * 8 + 3))
        file.write(np.array([7, -7], "<i2").tobytes())
    data[1, 2, 3:5] = [7, -7]
    same(np.load(mount.files / "a/a.npy"), data, extension)
    assert path.read_bytes()[start : start + data.nbytes] == data.tobytes()
    if start:
        with pytest.raises(OSError), open(path, "r+b", buffering=0) as file:
            file.write(b"other")
        assert path.read_bytes()[:start] == raw[:start]
    mounting.zarrfs("commit", mount.path)
    same(zarr.open_group(store, mode="r")["a"][...], data, extension)


def test_other_forms_are_not_written(tmp_path, mounted):
    store = tmp_path / "read.zarr"
    zarr.open_group(store, mode="w").create_array("a", data=values("i2", (4, 6)), chunks=(2, 3))
    mount = mounted(store, "--cow", tmp_path / "upper")
    files = mount.files
    names = os.getxattr(files / "a", "user.zarrfs.files").decode().split()
    names = [*names, "a@0.npy", "chunks/0.0.npy", "chunks/0.0.raw", "metadata.json"]
    read_only = [name for name in names if name not in ("a.npy", "a.raw", "chunks/")]
    assert len(read_only) > 10
    for name in read_only:
        assert (files / "a" / name).stat().st_mode & 0o222 == 0, name
        with pytest.raises(PermissionError):
            open(files / "a" / name, "r+b")
    said = (mount.path / ".zarrfs/errors").read_text()
    assert "a/a.f.npy" in said and "write NAME.npy, NAME.raw or attributes.json" in said


def test_one_file_of_an_array_is_open_for_writing(tmp_path, mounted):
    store = tmp_path / "one.zarr"
    zarr.open_group(store, mode="w").create_array("a", data=values("i2", (4, 6)), chunks=(2, 3))
    mount = mounted(store, "--cow", tmp_path / "upper")
    a, chunk = mount.files / "a", mount.path / "a/c/0/0"
    for other in (a / "a.raw", chunk):
        mapped = np.load(a / "a.npy", mmap_mode="r+")
        with open(a / "a.npy", "r+b"):
            with pytest.raises(OSError, match="busy"):
                open(other, "r+b")
        assert other.read_bytes()
        mapped[0, 0] = 7
        del mapped
        # The kernel tells of the last close a moment later.
        with open(other, "r+b") as file:
            assert file.read()
    with open(chunk, "r+b"), pytest.raises(OSError, match="busy"):
        open(a / "a.npy", "r+b")
    said = (mount.path / ".zarrfs/errors").read_text()
    assert "a/a.npy is open for writing" in said and "a/c/0/0 is open for writing" in said


def test_changed_attributes_change_the_header(tmp_path, mounted):
    import nrrd

    store = tmp_path / "changed.zarr"
    root = zarr.open_group(store, mode="w")
    root.create_array("a", data=values("i2", (4, 6)), chunks=(2, 3), attributes={"note": "one"})
    files = mounted(store, "--cow", tmp_path / "upper").files
    path = files / "a/a.nrrd"
    assert nrrd.read(str(path))[1]["note"] == "one"
    kept = open(path, "rb")
    before = kept.read(20)
    (files / "a/attributes.json").write_text(json.dumps({"note": "another and longer one"}))
    header = nrrd.read(str(path), index_order="C")
    assert header[1]["note"] == "another and longer one"
    same(header[0], values("i2", (4, 6)), path)
    kept.seek(0)
    assert kept.read(20) == before
    kept.close()


def test_arrays_that_a_format_cannot_hold_have_no_file(tmp_path, mounted):
    root = zarr.open_group(tmp_path / "odd.zarr", mode="w")
    root.create_array("scalar", shape=(), dtype="f4")
    root.create_array("empty", shape=(0, 3), chunks=(1, 3), dtype="f4")
    root.create_array("words", shape=(3,), chunks=(3,), dtype="U4")
    root.create_array("line", data=values("c16", (30,)))
    files = mounted(tmp_path / "odd.zarr").files
    names = ["nrrd", "nhdr", "mha", "mhd", "nii", "fits", "mrc", "vti", "vrt", "hdr", "img", "tif", "ome.tif"]
    for array in ("scalar", "empty", "words"):
        for name in names:
            assert not (files / array / f"{array}.{name}").exists(), (array, name)
    assert (files / "line/line.nii").exists()
    open_names = os.getxattr(files / "line", "user.zarrfs.files").decode().split()
    assert open_names == ["line.npy", "line.raw", "line.f.npy", "line.nii", "line.h5", "line.nc4", "chunks/"]


def test_a_removed_format_is_missing_and_errors_say_what_replaces_it(tmp_path, mounted):
    zarr.open_group(tmp_path / "old.zarr", mode="w").create_array("a", data=values("i2", (4, 6)), chunks=(2, 3))
    mount = mounted(tmp_path / "old.zarr")
    for name, instead in [("a/a.wav", "use .raw"), ("a/a@0.png", "use 'zarrfs preview -o FILE.png'"), ("old.cdf5.nc", "use .nc4")]:
        with pytest.raises(FileNotFoundError):
            open(mount.files / name)
        lines = [line for line in (mount.path / ".zarrfs/errors").read_text().splitlines() if name in line]
        assert len(lines) == 1 and instead in lines[0], lines
