"""Arrays as TIFF: read whole by tifffile, GDAL, Pillow, ITK and ImageJ, and equal to zarr-python's values."""

import numpy as np
import pytest
import rasterio
import SimpleITK
import tifffile
import zarr
from PIL import Image

import mounting
import programs
from test_formats import arrays, gdal, is_image, same, stores, values  # noqa: F401

TYPES = ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
OME = ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "c8", "c16"]

# Arrays on a grid of longitudes and latitudes: one image of bands, with the place of the coordinate variables.
MAPS = ["tas", "psl", "pr"]

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def stacked(data, name, is_imagej):
    """Returns the values as a stack of images."""
    orders = {"pixels": (0, 1, 2), "rows": (1, 0, 2), "backwards": (2, 1, 0)}
    if is_imagej and name == "mixed":
        return data.transpose(0, 2, 1, 3, 4)
    return data.transpose(orders[name]) if name in orders else data


def files_of(arrays, extension, expects):
    for name, base, data in arrays:
        path = base.parent / f"{base.name}.{extension}"
        data = data.astype("u1") if data.dtype.kind == "b" else data
        assert path.exists() == bool(expects(data)), (name, extension)
        if path.exists():
            yield str(path), base.name, data


def test_tif(arrays):  # noqa: F811
    count = 0
    for path, name, data in files_of(arrays, "tif", lambda data: data.ndim >= 2 and is_image(data, 64, TYPES)):
        if name in MAPS:
            with tifffile.TiffFile(path) as file, rasterio.open(path) as source:
                same(file.asarray().reshape(data.shape), data, path)
                same(source.read().reshape(data.shape), data, path)
                assert source.crs.to_epsg() == 4326
            continue
        with tifffile.TiffFile(path) as file:
            is_imagej = data.dtype.str[1:] in ("u1", "u2", "f4") and data.ndim <= 5
            assert file.is_imagej == is_imagej, path
            expected = stacked(data, name, is_imagej)
            read = file.asarray()
            same(read.reshape(expected.shape), expected, path)
            assert file.pages[0].is_contiguous or data.dtype == "c16"
            is_colour = name == "pixels"
            pages = expected.reshape(-1, *expected.shape[-3:] if is_colour else expected.shape[-2:])
            assert len(file.pages) == len(pages)
        if data.dtype.str[1:] not in ("f2", "i1"):
            with rasterio.open(path) as source:
                first = source.read().transpose(1, 2, 0) if is_colour else source.read(1)
                same(first, pages[0], path)
            with rasterio.open(f"GTIFF_DIR:{len(pages)}:{path}") as source:
                same(source.read().transpose(1, 2, 0) if is_colour else source.read(1), pages[-1], path)
        if data.dtype.str[1:] in ("u1", "u2", "f4"):
            with Image.open(path) as image:
                image.seek(len(pages) - 1)
                same(np.asarray(image), pages[-1], path)
        count += 1
    assert count >= 20


def test_itk(arrays):  # noqa: F811
    count = 0
    for path, name, data in files_of(arrays, "tif", lambda data: data.ndim >= 2 and is_image(data, 64, TYPES)):
        if data.ndim == 3 and data.dtype.str[1:] in ("u1", "u2", "i2", "f4") and name not in ("pixels", *MAPS):
            same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path)), stacked(data, name, True), path)
            count += 1
    assert count >= 4


@pytest.fixture(scope="module")
def imagej():
    """Returns a function that has ImageJ open a file, in a Java of this process without a screen."""
    opener = programs.java("ij.io.Opener", "imagej")()
    return lambda path: opener.openImage(str(path))


def pixels_of(image, dtype):
    """Returns the pixels of all images of ImageJ's stack, as numbers of a type with as many bytes."""
    stack = image.getStack()
    pages = [np.array(stack.getPixels(number + 1)) for number in range(stack.getSize())]
    return np.array(pages).view(dtype.newbyteorder("="))


def test_imagej(arrays, imagej):  # noqa: F811
    count = 0
    for path, name, data in files_of(arrays, "tif", lambda data: data.ndim >= 2 and is_image(data, 64, TYPES)):
        # Of colours and of what it converts to floats, its numbers are others than those of the file.
        if data.ndim > 5 or data.dtype.str[1:] not in ("u1", "u2", "i2", "f4") or name in ("pixels", *MAPS):
            continue
        image = imagej(path)
        read = pixels_of(image, data.dtype)
        if data.dtype.str[1:] == "i2":
            # It shows 16 bits as unsigned, and remembers that half of their range has to be taken off.
            assert image.getCalibration().isSigned16Bit()
            read = (read.view("u2") - 2**15).view("i2")
        expected = stacked(data, name, True)
        same(read.reshape(expected.shape), expected, path)
        if name == "mixed":
            assert list(image.getDimensions()) == [6, 5, 2, 4, 3]
        count += 1
    assert count >= 8


def test_scale_and_unit_in_imagej(stores, mounted, imagej):  # noqa: F811
    scale = imagej(mounted(stores[0]).files / "image/0/0.tif").getCalibration()
    assert (scale.pixelWidth, scale.pixelHeight, scale.pixelDepth, str(scale.getUnit())) == (0.5, 0.5, 2.0, "\u00b5m")


def test_ome_tif(arrays):  # noqa: F811
    count = 0
    for path, name, data in files_of(arrays, "ome.tif", lambda data: data.ndim >= 2 and is_image(data, 5, OME)):
        with tifffile.TiffFile(path) as file:
            assert file.is_ome
            expected = stacked(data, name, False)
            series = file.series[0]
            same(series.asarray(squeeze=True).reshape(expected.shape), expected, path)
            if name == "mixed":
                assert series.axes == "TCZYX"
            is_colour = len(file.pages) and file.pages[0].samplesperpixel > 1
        # GDAL has no numbers of one byte with a sign in TIFF.
        if data.dtype.str[1:] != "i1":
            pages = expected.reshape(-1, *expected.shape[-3:] if is_colour else expected.shape[-2:])
            for number, page in enumerate(pages, 1):
                with rasterio.open(f"GTIFF_DIR:{number}:{path}") as source:
                    same(source.read().transpose(1, 2, 0) if is_colour else source.read(1), page, path)
        count += 1
    assert count >= 15


def test_scale_and_unit_reach_imagej(stores, mounted):  # noqa: F811
    with tifffile.TiffFile(mounted(stores[0]).files / "image/0/0.tif") as file:
        assert (file.imagej_metadata["spacing"], file.imagej_metadata["unit"]) == (2.0, "um")
        assert file.imagej_metadata["slices"] == 4
        assert file.pages[0].get_resolution() == (2, 2)


AXES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


def pyramid(folder, version, letters, levels, **options):
    """Makes an image of OME-Zarr with these levels, whose channels have names and colours."""
    scales = {"z": 2, "y": 0.5, "x": 0.25}
    axes = [{"name": name, "type": AXES[name]} | ({"unit": "micrometer"} if name in scales else {}) for name in letters]
    datasets = [{"path": f"s{n}", "coordinateTransformations": [
        {"type": "scale", "scale": [scales.get(name, 1) * (2**n if name in "yx" else 1) for name in letters]}]} for n in range(len(levels))]
    channels = [{"label": "DAPI & <b>", "color": "0000FF"}, {"label": "two", "color": "FF0000"}, {"label": "three"}]
    image = {"multiscales": [{"axes": axes, "datasets": datasets, "version": version}], "omero": {"channels": channels}}
    attributes = image if version == "0.4" else {"ome": {"version": version, **image}}
    root = zarr.open_group(folder, mode="w", zarr_format=2 if version == "0.4" else 3, attributes=attributes)
    for number, data in enumerate(levels):
        root.create_array(f"s{number}", shape=data.shape, **{"dtype": data.dtype, **options})[...] = data
    return folder


# Version, dimensions, shape, data type and how it is stored.
PYRAMIDS = {
    "chunks": ("0.5", "tczyx", (2, 3, 4, 40, 50), "u2", {"chunks": (1, 1, 2, 16, 16)}),
    "F order": ("0.4", "czyx", (3, 2, 41, 30), "f4", {"chunks": (1, 2, 16, 16), "config": {"order": "F"}}),
    "shards": ("0.5", "zyx", (5, 33, 64), "u1", {"chunks": (1, 8, 8), "shards": (2, 16, 16)}),
    "big-endian": ("0.4", "cyx", (2, 50, 40), "i4", {"chunks": (1, 16, 16), "dtype": ">i4"}),
    "plane": ("0.5", "yx", (48, 70), "f8", {"chunks": (16, 16)}),
}


@pytest.mark.parametrize("name", PYRAMIDS)
def test_the_pyramid_of_ome_zarr(tmp_path, mounted, name):
    version, letters, shape, dtype, options = PYRAMIDS[name]
    levels = [values(dtype, (*shape[:-2], shape[-2] >> n, shape[-1] >> n), n) for n in range(3)]
    path = mounted(pyramid(tmp_path / "a.zarr", version, letters, levels, **options)).files / "a.ome.tif"
    planes = levels[0].reshape(-1, *levels[0].shape[-2:])
    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        assert series.axes == letters.upper() and len(series.levels) == 3
        for level, data in zip(series.levels, levels, strict=True):
            same(level.asarray(), data, path)
        ome = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
        assert (ome["PhysicalSizeX"], ome["PhysicalSizeY"], ome.get("PhysicalSizeZ", 2)) == (0.25, 0.5, 2)
        assert ome["PhysicalSizeXUnit"] == "\u00b5m" and ("PhysicalSizeZ" in ome) == ("z" in letters)
        assert ome["DimensionOrder"].startswith("".join(letters[::-1]).upper())
        if "c" in letters:
            found = ome["Channel"][: shape[letters.index("c")]]
            assert [channel["Name"] for channel in found] == ["DAPI & <b>", "two", "three"][: len(found)]
            assert found[0]["Color"] == 0x0000FFFF
    for number, plane in enumerate(planes, 1):
        with rasterio.open(f"GTIFF_DIR:{number}:{path}") as source:
            same(source.read(1), plane, path)
        # Pillow has no floats of eight bytes.
        if dtype != "f8":
            with Image.open(path) as image:
                image.seek(number - 1)
                same(np.asarray(image), plane, path)


def test_reference_systems_reach_gdal(tmp_path, mounted):
    root = zarr.open_group(tmp_path / "geo.zarr", mode="w")
    place = [30.0, 0.0, 500000.0, 0.0, -30.0, 4000000.0]
    own = rasterio.CRS.from_string("+proj=laea +lat_0=52 +lon_0=10 +ellps=GRS80 +units=m")
    transform = {"GeoTransform": "500000 30 0 4000000 0 -30"}
    made = {
        "gdal": {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32633"}, **transform},
        "geozarr": {"proj:code": "EPSG:32633", "spatial:transform": place},
        "packed": {"crs_wkt": rasterio.CRS.from_epsg(32633).to_wkt(), **transform,
                   "scale_factor": 0.5, "add_offset": 3.0, "units": "m", "_FillValue": -1},
        "degrees": {"crs_wkt": rasterio.CRS.from_epsg(4326).to_wkt(), "GeoTransform": "10 0.5 0 60 0 0.25"},
        "own": {"crs_wkt": own.to_wkt(), **transform},
    }
    data = values("i2", (4, 70, 90))
    for name, attributes in made.items():
        root.create_array(name, data=data, attributes=attributes, dimension_names=["time", "y", "x"], chunks=(2, 50, 50))
    root.create_array("colours", data=values("u1", (3, 7, 9)), dimension_names=["band", "y", "x"], attributes=made["gdal"])
    files = mounted(tmp_path / "geo.zarr").files
    for name in made:
        path = files / name / f"{name}.tif"
        with rasterio.open(path) as source:
            same(source.read(), data, name)
            wanted = {"degrees": rasterio.CRS.from_epsg(4326), "own": own}.get(name, rasterio.CRS.from_epsg(32633))
            assert source.crs == wanted or source.crs.to_wkt() == wanted.to_wkt(), (name, source.crs.to_wkt(), wanted.to_wkt())
            assert list(source.transform)[:6] == ([0.5, 0, 10, 0, 0.25, 60] if name == "degrees" else place)
        same(tifffile.imread(path), data, name)
    with rasterio.open(files / "packed/packed.tif") as source:
        assert (source.scales, source.offsets, source.units, source.nodata) == ((0.5,) * 4, (3.0,) * 4, ("m",) * 4, -1)
    with rasterio.open(files / "colours/colours.tif") as source:
        same(source.read(), values("u1", (3, 7, 9)), "colours")
        assert [colour.name for colour in source.colorinterp] == ["red", "green", "blue"]


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_levels_in_groups_below(tmp_path, mounted, version):
    """Paths of several parts, as ngff-zarr and multiscale-spatial-image write them."""
    levels = [values("u2", (3, 40 >> n, 50 >> n), n) for n in range(3)]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    datasets = [{"path": f"scale{n}/image", "coordinateTransformations": [
        {"type": "scale", "scale": [2, 0.5 * 2**n, 0.25 * 2**n]}, {"type": "translation", "translation": [0, 10, 20]}]}
        for n in range(3)]
    multiscales = [{"axes": axes, "datasets": datasets, "version": version}]
    attributes = {"multiscales": multiscales} if version == "0.4" else {"ome": {"version": version, "multiscales": multiscales}}
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", attributes=attributes, zarr_format=2 if version == "0.4" else 3)
    for number, data in enumerate(levels):
        root.create_array(f"scale{number}/image", data=data, chunks=(1, 16, 16))
    root.create_array("other", data=values("c16", (3,)))
    files = mounted(tmp_path / "a.zarr").files
    with tifffile.TiffFile(files / "a.ome.tif") as file:
        assert len(file.series[0].levels) == 3
        for level, data in zip(file.series[0].levels, levels, strict=True):
            same(level.asarray(), data, "pyramid")
    for number in range(3):
        path = files / f"scale{number}/image"
        with tifffile.TiffFile(path / "image.ome.tif") as file:
            same(file.asarray(), levels[number], number)
            pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
            assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeY"], pixels["PhysicalSizeZ"]) == (0.25 * 2**number, 0.5 * 2**number, 2)
        image = SimpleITK.ReadImage(path / "image.nrrd")
        assert (image.GetSpacing(), image.GetOrigin()) == ((0.25 * 2**number, 0.5 * 2**number, 2), (20, 10, 0))
        same(np.load(path / "image@z=1.npy"), levels[number][1], number)


@pytest.mark.parametrize("dtype", ["u2", "f8"])
def test_beyond_four_gigabytes(tmp_path, mounted, dtype):
    """Beyond this size ImageJ's stacks have a single directory; other files are BigTIFF."""
    root = zarr.open_group(tmp_path / "large.zarr", mode="w")
    array = root.create_array("a", shape=(700, 2000, 2000), chunks=(1, 1000, 1000), dtype=dtype, fill_value=7)
    last = values(dtype, (2000, 2000))
    array[699] = last
    path = mounted(tmp_path / "large.zarr").files / "a/a.tif"
    with tifffile.TiffFile(path) as file:
        assert (file.is_bigtiff, file.is_imagej, len(file.pages)) == (dtype == "f8", dtype == "u2", 1 if dtype == "u2" else 700)
    assert path.stat().st_size > 2**32
    mapped = tifffile.memmap(path, mode="r")
    assert mapped.shape == array.shape
    same(mapped[699], last, path)
    if dtype == "f8":
        with rasterio.open(f"GTIFF_DIR:700:{path}") as source:
            same(source.read(1), last, path)
