"""Images of OME-Zarr 0.4 to 0.6 in the formats of volumes: spacing, origin, directions and units by the readers of each."""

import base64
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

import mounting

IMAGES = Path(__file__).with_name("images")
UNITS = {"x": "micrometer", "y": "micrometer", "z": "micrometer", "t": "millisecond"}
TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


def axes(letters, units=UNITS):
    return [{"name": name, "type": TYPES[name]} | ({"unit": units[name]} if name in units else {}) for name in letters]


def system(name, letters, units=UNITS):
    return {"name": name, "axes": axes(letters, units)}


def step(kind, numbers=None, **more):
    return {"type": kind, **({} if numbers is None else {kind: numbers}), **more}


def between(start, end, transformation):
    return {**transformation, "input": {"name": start}, "output": {"name": end}}


def sequence(*steps):
    return {"type": "sequence", "transformations": list(steps)}


def placed(letters, scale, translation):
    """Returns the transformation of a level as 0.6 writes it."""
    return sequence(step("scale", scale), step("translation", translation))


def image(store, letters, shape, levels, systems=None, transformations=(), version="0.6", path="", **more):
    """Makes an image with a level for each transformation, all of the same shape."""
    group = zarr.open_group(store, path=path, mode="a", zarr_format=2 if version == "0.4" else 3)
    datasets = []
    for number, transformation in enumerate(levels):
        level = f"s{number}"
        if systems:
            transformation = [{**transformation, "input": {"path": level}, "output": {"name": systems[-1]["name"]}}]
        datasets.append({"path": level, "coordinateTransformations": transformation})
        data = np.arange(np.prod(shape), dtype="u2").reshape(shape) + number
        group.create_array(level, data=data, chunks=shape)
    described = {"datasets": datasets, **({"coordinateSystems": systems} if systems else {"axes": axes(letters)})}
    if transformations:
        described["coordinateTransformations"] = list(transformations)
    if version == "0.4":
        described["version"] = version
        group.attrs.update({"multiscales": [described], **more})
    else:
        group.attrs["ome"] = {"version": version, "multiscales": [described], **more}


def by_itk(path):
    import SimpleITK

    read = SimpleITK.ReadImage(str(path))
    rank = read.GetDimension()
    # A column for each dimension: how far one element is from the next.
    steps = np.reshape(read.GetDirection(), (rank, rank)) * read.GetSpacing()
    return SimpleNamespace(steps=steps, origin=np.array(read.GetOrigin()), keys=read)


def by_pynrrd(path):
    import nrrd

    header = nrrd.read_header(str(path))
    if "space directions" in header:
        return SimpleNamespace(steps=header["space directions"].T, origin=header["space origin"], units=header.get("space units"))
    assert set(header["centerings"]) == {"node"}
    return SimpleNamespace(steps=np.diag(header["spacings"]), origin=header["axis mins"], units=header.get("units"))


def by_metaio(path):
    import metaio

    read = metaio.read(str(path))
    rank = read.data.ndim
    return SimpleNamespace(steps=np.reshape(read.direction, (rank, rank)) * read.spacing, origin=np.array(read.origin))


def by_vtk(path):
    from vtkmodules.vtkIOXML import vtkXMLImageDataReader

    reader = vtkXMLImageDataReader()
    reader.SetFileName(str(path))
    reader.Update()
    read = reader.GetOutput()
    at = [np.array(read.GetPhysicalToIndexMatrix() and read.TransformContinuousIndexToPhysicalPoint(*index, point := [0.0] * 3) or point)
          for index in np.vstack([np.zeros(3), np.eye(3)])]
    return SimpleNamespace(steps=np.array(at[1:] - at[0]).T, origin=at[0])


def by_nibabel(path):
    import nibabel

    read = nibabel.load(path)
    zooms = np.array(read.header.get_zooms())
    return SimpleNamespace(steps=read.affine[:3, :3], origin=read.affine[:3, 3], units=read.header.get_xyzt_units(), zooms=zooms,
                           time=float(read.header["toffset"]))


def by_tifffile(path):
    import tifffile

    with tifffile.TiffFile(path) as file:
        return tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def check(base, steps, origin, is_itk_nifti=True):
    """Fails unless each format has the place: `steps` is a column for each dimension, the fastest first, and so are all rows."""
    steps, origin = np.array(steps, float), np.array(origin, float)
    rank = len(origin)
    for extension in ("nrrd", "nhdr", "mha", "mhd"):
        readers = [by_itk, by_pynrrd if extension.startswith("n") else by_metaio]
        for reader in readers:
            found = reader(f"{base}.{extension}")
            near(found.steps, steps)
            near(found.origin, origin)
    whole_steps, whole_origin = np.eye(3), np.zeros(3)
    count = min(rank, 3)
    whole_steps[:count, :count], whole_origin[:count] = steps[:count, :count], origin[:count]
    # Elements are put in the order of x, y and z.
    order = np.argmax(np.abs(whole_steps), axis=0)
    in_order = whole_steps[:, np.argsort(order)]
    found = by_nibabel(f"{base}.nii")
    near(found.steps, in_order)
    near(found.origin, whole_origin)
    assert found.units[0] == "micron"
    if is_itk_nifti:
        found = by_itk(f"{base}.nii")
        # ITK has millimeters, and x and y in the other direction.
        signs = np.array([-1, -1, 1, 1, 1])[:rank]
        itk = found.steps[:count, :count] * 1000
        near(itk, signs[:count, None] * in_order[:count, :count])
        near(found.origin[:count] * 1000, signs[:count] * origin[:count])
    assert by_itk(f"{base}.mha").keys.GetMetaData("ITK_VoxelUnits") == "um"
    if rank <= 3:
        found = by_vtk(f"{base}.vti")
        near(found.steps, whole_steps)
        near(found.origin, whole_origin)


def diagonal(*steps):
    return np.diag(steps)


STRAIGHT = (diagonal(0.25, 0.5, 2), [20, 10, 1])
SHAPES = {"yx": (4, 5), "zyx": (3, 4, 5), "czyx": (2, 3, 4, 5), "tzyx": (2, 3, 4, 5), "tczyx": (2, 2, 3, 4, 5)}
STEPS = {"x": (0.25, 20), "y": (0.5, 10), "z": (2, 1), "c": (1, 0), "t": (0.5, 7)}


@pytest.mark.parametrize("version", ["0.4", "0.5", "0.6"])
def test_the_position_of_an_image_in_all_formats(tmp_path, mounted, version):
    """The position is given by `scale` and `translation` of a level and of the image, in 2 to 5 dimensions."""
    store = tmp_path / "a.zarr"
    for letters, shape in SHAPES.items():
        scale, origin = ([STEPS[name][part] for name in letters] for part in (0, 1))
        half = [number / 2 for number in scale]
        if version == "0.6":
            levels = [placed(letters, half, origin), step("scale", scale)]
            systems = [system("world", letters), system("own", letters)]
            more = [between("own", "world", placed(letters, [2] * len(letters), [-number for number in origin]))]
            image(store, letters, shape, levels, systems, more, path=letters)
        else:
            levels = [[step("scale", half), step("translation", origin)], [step("scale", scale)]]
            more = [step("scale", [2] * len(letters)), step("translation", [-number for number in origin])]
            image(store, letters, shape, levels, None, more, version, path=letters)
    files = mounted(store).files
    for letters in SHAPES:
        steps = diagonal(*(STEPS[name][0] for name in reversed(letters)))
        origin = [STEPS[name][1] for name in reversed(letters)]
        check(files / letters / "s0/s0", steps, origin)
        check(files / letters / "s1/s1", 2 * steps, np.negative(origin))
        pixels = by_tifffile(files / letters / "s0/s0.ome.tif")
        for name in letters:
            if name == "t":
                assert (pixels["TimeIncrement"], pixels["TimeIncrementUnit"]) == (0.5, "ms")
                assert (pixels["Plane"]["DeltaT"], pixels["Plane"]["DeltaTUnit"]) == (7, "ms")
            elif name != "c":
                size, unit, place = (f"PhysicalSize{name.upper()}", f"PhysicalSize{name.upper()}Unit", f"Position{name.upper()}")
                assert (pixels[size], pixels[unit]) == (STEPS[name][0], "\u00b5m")
                assert (pixels["Plane"][place], pixels["Plane"][f"{place}Unit"]) == (STEPS[name][1], "\u00b5m")
        nifti = by_nibabel(files / letters / "s0/s0.nii")
        if "t" in letters:
            assert nifti.units == ("micron", "msec") and nifti.zooms[3] == 0.5
            assert nifti.time == 7 and by_nibabel(files / letters / "s1/s1.nii").time == -7
            # ITK has seconds.
            itk = by_itk(files / letters / "s0/s0.nii")
            near([itk.origin[3], itk.steps[3, 3]], [0.007, 0.0005])
        units = by_pynrrd(files / letters / "s0/s0.nrrd").units
        assert units == [UNITS.get(name, "") for name in reversed(letters)]


# What the transformations of an image of 0.6 are after a level of `zyx`, and the steps and the origin of x, y and z.
TURN = [[1, 0, 0], [0, 0.8, -0.6], [0, 0.6, 0.8]]
SHEAR = [[1, 0, 0, 5], [0, 1, 0.5, 6], [0, 0, 1, 7]]
MAPPED = {
    "identity": (step("identity"), STRAIGHT),
    "map_axis": (step("mapAxis", [2, 1, 0]), ([[0, 0, 2], [0, 0.5, 0], [0.25, 0, 0]], [1, 10, 20])),
    "rotation": (step("rotation", TURN), ([[0.2, 0.3, 0], [-0.15, 0.4, 0], [0, 0, 2]], [22, -4, 1])),
    "affine": (step("affine", SHEAR), ([[0.25, 0, 0], [0.125, 0.5, 0], [0, 0, 2]], [27, 26, 6])),
    "homogeneous": (step("affine", [[2, 0, 0, 1], [0, -1, 0, 2], [0, 0, 3, 3], [0, 0, 0, 1]]), (diagonal(0.75, -0.5, 4), [63, -8, 3])),
    "sequence": (sequence(step("mapAxis", [2, 1, 0]), sequence(step("scale", [2, 1, 1]), step("translation", [0, 0, 9]))),
                 ([[0, 0, 2], [0, 0.5, 0], [0.5, 0, 0]], [10, 10, 40])),
    "by_dimension": ({"type": "byDimension", "transformations": [
        {"transformation": step("scale", [4]), "inputAxes": [0], "outputAxes": [0]},
        {"transformation": sequence(step("mapAxis", [1, 0]), step("translation", [3, 0])), "inputAxes": [1, 2], "outputAxes": [1, 2]},
    ]}, ([[0, 0.5, 0], [0.25, 0, 0], [0, 0, 8]], [10, 23, 4])),
    "bijection": ({"type": "bijection", "forward": step("scale", [1, 1, 2]), "inverse": step("scale", [1, 1, 0.5])},
                  (diagonal(0.5, 0.5, 2), [40, 10, 1])),
    # These lead nowhere that a file can say.
    "displacements": (step("displacements", path="field"), STRAIGHT),
    "flat": (step("affine", [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]]), STRAIGHT),
    "projection": (step("projectAxis", droppedInputs=[0]), STRAIGHT),
    "elsewhere": (step("rotation", path="nothing"), STRAIGHT),
}


def test_coordinate_systems_of_an_image_in_all_formats(tmp_path, mounted):
    store = tmp_path / "a.zarr"
    level = placed("zyx", [2, 0.5, 0.25], [1, 10, 20])
    systems = [system("world", "zyx"), system("own", "zyx")]
    for name, (transformation, _) in MAPPED.items():
        image(store, "zyx", (3, 4, 5), [level], systems, [between("own", "world", transformation)], path=name)
    back = step("affine", SHEAR)
    others = {
        # A system without units says less than the image's own.
        "pixels": ([system("own", "zyx"), system("pixels", "zyx", {})], between("own", "pixels", step("scale", [9, 9, 9])), STRAIGHT),
        # Names of axes are free.
        "letters": ([{"name": "own", "axes": [{"name": name, "type": "space", "unit": "micrometer"} for name in "kji"]}], None, STRAIGHT),
        # The transformation leads from the other system to the image's own.
        "back": (systems, between("world", "own", step("scale", [0.5, 0.5, 0.5])), (2 * STRAIGHT[0], [40, 20, 2])),
        # Drafts had names for ends.
        "draft": (systems, {**back, "input": "own", "output": "world"}, MAPPED["affine"][1]),
    }
    for name, (both, transformation, _) in others.items():
        own = "own" if both[-1]["name"] != "pixels" else "pixels"
        image(store, "zyx", (3, 4, 5), [level], both if own == "own" else both[::-1], [transformation] if transformation else (), path=name)
    files = mounted(store).files
    expected = {name: place for name, (_, place) in MAPPED.items()} | {name: place for name, (_, _, place) in others.items()}
    for name, (steps, origin) in expected.items():
        # ITK reads no NIfTI with shear but by its other place.
        check(files / name / "s0/s0", steps, origin, name not in ("affine", "draft"))
    found = by_itk(files / "affine/s0/s0.nii")
    near(found.steps * 1000, diagonal(-0.25, -0.5, 2))
    near(found.origin * 1000, [-20, -10, 1])
    said = os.getxattr(files / "affine/s0/s0.nii", "user.zarrfs.left_out").decode()
    assert said == 'coordinate system "world" for programs without shear, such as ITK\n'
    # Elements are moved where a format has an order of its own.
    pixels = by_tifffile(files / "map_axis/s0/s0.ome.tif")
    assert [pixels[f"PhysicalSize{name}"] for name in "XYZ"] == [2, 0.5, 0.25]
    assert (pixels["SizeX"], pixels["SizeZ"]) == (3, 5)
    # A selection has the place of its first element, also of one that lies aslant.
    steps, origin = (np.array(part) for part in MAPPED["rotation"][1])
    check(files / "rotation/s0/s0@:,1:,::2", steps * [2, 1, 1], origin + steps[:, 1])
    for extension in ("nrrd", "mha"):
        found = by_itk(files / f"rotation/s0/s0@1.{extension}")
        near(found.steps, steps[:2, :2])
        near(found.origin, origin[:2])


def test_images_of_ngff_zarr(tmp_path, mounted):
    """`images/made_by_ngff_zarr.py` made these images; the rotation is in an array of its own."""
    for name, number in (("straight", 0), ("turned", 0), ("turned", 1)):
        store = tmp_path / f"{name}.zip"
        store.write_bytes(base64.b64decode((IMAGES / f"ngff_zarr_{name}.zip.base64").read_bytes()))
        files = mounted(store).files
        shift = np.array([0.125, 0.25, 0]) * number
        steps, origin = diagonal(*(np.array([0.25, 0.5]) * 2**number), 2, 1), np.array([*([20, 10, 1] + shift), 0])
        if name == "turned":
            turn = np.array([[0.8, 0.6, 0, 0], [-0.6, 0.8, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
            steps, origin = turn @ steps, turn @ origin + [300, 200, 100, 0]
        check(files / f"scale{number}/image/image", steps, origin)


SIDES = {"right-to-left": (0, 1), "left-to-right": (0, -1), "anterior-to-posterior": (1, 1), "posterior-to-anterior": (1, -1),
         "inferior-to-superior": (2, 1), "superior-to-inferior": (2, -1)}

# The ways of z, y and x in a body.
WAYS = {
    "lps": ("inferior-to-superior", "anterior-to-posterior", "right-to-left"),
    "ras": ("inferior-to-superior", "posterior-to-anterior", "left-to-right"),
    "sagittal": ("left-to-right", "superior-to-inferior", "anterior-to-posterior"),
    "coronal": ("posterior-to-anterior", "superior-to-inferior", "left-to-right"),
}


def with_ways(ways, letters="zyx", unit="millimeter"):
    """Returns the axes of an image in a body, as RFC 4 describes them."""
    found = axes(letters, dict.fromkeys("zyx", unit))
    for axis, way in zip(found[-len(ways):], ways, strict=True):
        axis["orientation"] = {"type": "anatomical", "value": way}
    return found


def with_axes(store, path, found):
    """Gives an image of up to 0.5 other axes."""
    group = zarr.open_group(store, path=path, mode="a")
    ome = group.attrs["ome"]
    ome["multiscales"][0]["axes"] = found
    group.attrs["ome"] = ome


def in_body(ways, steps, origin):
    """Returns steps and origin of x, y and z in ITK's space of a body, where those along the ways are these."""
    matrix = np.zeros((3, 3))
    for dimension, way in enumerate(reversed(ways)):
        side, sign = SIDES[way]
        matrix[side, dimension] = sign
    return matrix @ np.diag(steps), matrix @ origin


def check_in_body(base, steps, origin, data=None):
    """Fails unless all programs have an image at the same place in a body; with `data`, and the same voxels there."""
    import nibabel
    import SimpleITK

    for extension in ("nrrd", "nhdr", "mha", "mhd", "nii"):
        found = by_itk(f"{base}.{extension}")
        near(found.steps[:3, :3], steps)
        near(found.origin[:3], origin)
    assert by_pynrrd(f"{base}.nrrd").steps.shape == by_itk(f"{base}.nrrd").steps.shape
    found, to_nifti = nibabel.load(f"{base}.nii"), np.diag([-1, -1, 1, 1])
    near(found.affine[:3, :3], to_nifti[:3, :3] @ steps)
    near(found.affine[:3, 3], to_nifti[:3, :3] @ origin)
    if data is not None:
        found = by_vtk(f"{base}.vti")
        near(found.steps, steps)
        near(found.origin, origin)
        for extension in ("nrrd", "mha", "nii"):
            np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(f"{base}.{extension}")), data)


def test_anatomical_orientation_reaches_every_format(tmp_path, mounted):
    """RFC 4: each voxel has the same anatomical position in all programs."""
    import SimpleITK

    store, data = tmp_path / "a.zarr", np.arange(60, dtype="u2").reshape(3, 4, 5)
    for name, ways in WAYS.items():
        levels = [[step("scale", [2, 0.5, 0.25]), step("translation", [3, 10, 20])]]
        image(store, "zyx", (3, 4, 5), levels, version="0.5", path=f"axes/{name}")
        with_axes(store, f"axes/{name}", with_ways(ways))
        place = [placed("tzyx", [1, 2, 0.5, 0.25], [7, 3, 10, 20])]
        systems = [system("pixels", "tzyx"), {"name": "own", "axes": with_ways(ways, "tzyx")}]
        # Another system that does not say the ways is not shown.
        image(store, "tzyx", (2, 3, 4, 5), place, systems, [between("own", "pixels", step("identity"))], path=f"systems/{name}")
    # Labels go the ways of their image.
    image(store, "zyx", (3, 4, 5), levels, version="0.5", path="axes/ras/labels/cells", **{"image-label": {}})
    with_axes(store, "axes/ras/labels/cells", axes("zyx", dict.fromkeys("zyx", "millimeter")))
    files = mounted(store).files
    for name, ways in WAYS.items():
        steps, origin = in_body(ways, [0.25, 0.5, 2], [20, 10, 3])
        base = files / f"axes/{name}/s0/s0"
        check_in_body(base, steps, origin, data)
        check_in_body(files / f"systems/{name}/s0/s0", steps, origin)
        if name == "ras":
            check_in_body(files / "axes/ras/labels/cells/s0/s0", steps, origin, data)
        written = SimpleITK.ReadImage(f"{base}.mha")
        SimpleITK.WriteImage(written, tmp_path / "own.mha")
        own, header = ((path.read_bytes().split(b"AnatomicalOrientation = ")[1][:3]) for path in (tmp_path / "own.mha", base.with_suffix(".mha")))
        assert own == header
        check_in_body(files / f"axes/{name}/s0/s0@:,1:,::2", steps * [2, 1, 1], origin + steps[:, 1], data[:, 1:, ::2])
    # The plane of a sagittal image: x goes to the back, and y to the feet.
    found = by_nibabel(files / "axes/sagittal/s0/s0@1.nii")
    near(found.steps, [[0, 0, 1], [-0.25, 0, 0], [0, -0.5, 0]])
    near(found.origin, [0, -20, -10])
    found = by_itk(files / "axes/sagittal/s0/s0@1.nii")
    near(found.steps, [[0, 0, -1], [0.25, 0, 0], [0, -0.5, 0]])
    ways = "orientation of z (inferior-to-superior), y (posterior-to-anterior), x (left-to-right)"
    said = {extension: os.getxattr(files / f"axes/ras/s0/s0.{extension}", "user.zarrfs.left_out").decode() for extension in ("mrc", "ome.tif", "fits")}
    assert all(f"{ways}: the format cannot store orientations\n" in sentences for sentences in said.values()), said
    with pytest.raises(OSError, match="No data"):
        os.getxattr(files / "axes/ras/s0/s0.nii", "user.zarrfs.left_out")


def test_unsupported_anatomical_orientations_are_reported(tmp_path, mounted):
    store = tmp_path / "a.zarr"
    rodent = ("dorsal-to-ventral", "rostral-to-caudal", "left-to-right")
    for name, ways in (("rodent", rodent), ("twice", ("left-to-right", "right-to-left", "superior-to-inferior")), ("some", rodent[2:])):
        systems = [{"name": "own", "axes": with_ways(ways, unit="micrometer")}]
        image(store, "zyx", (3, 4, 5), [placed("zyx", [2, 0.5, 0.25], [1, 10, 20])], systems, path=name)
    files = mounted(store).files
    for name, told in (("rodent", "z (dorsal-to-ventral), y (rostral-to-caudal), x (left-to-right)"), ("some", "x (left-to-right)"),
                       ("twice", "z (left-to-right), y (right-to-left), x (superior-to-inferior)")):
        check(files / name / "s0/s0", *STRAIGHT)
        said = os.getxattr(files / name / "s0/s0.nii", "user.zarrfs.left_out").decode()
        assert said == (f"orientation of {told}: files can only store left, right, anterior, posterior, inferior and superior, "
                        "one per axis\n")


@pytest.mark.parametrize("program", ["itk", "nibabel"])
def test_images_of_ngff_zarr_keep_the_position_of_itk_and_nibabel(tmp_path, mounted, program):
    """ngff-zarr writes the orientation of the axes, and the position of the first voxel as ITK or nibabel report it."""
    store = tmp_path / "a.zip"
    store.write_bytes(base64.b64decode((IMAGES / f"ngff_zarr_{program}.zip.base64").read_bytes()))
    files = mounted(store).files
    turned = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    for level, factor in (("scale0", 1), ("scale1", 2)):
        steps = turned @ np.diag([0.5, 1, 2])
        # The first voxel of the next level has its middle between two of this one.
        origin = [10, 20, 30] + steps @ np.full(3, (factor - 1) / 2)
        (folder,) = (path for path in (files / level).iterdir() if path.is_dir())
        data = np.arange(4 * 6 * 8, dtype="u2").reshape(4, 6, 8) if factor == 1 else np.load(folder / f"{folder.name}.npy")
        check_in_body(folder / folder.name, steps * factor, origin, data)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.filterwarnings("ignore")
def test_image_and_labels_of_ome_zarr_py_coincide(tmp_path, mounted, version):
    from ome_zarr import format as formats
    from ome_zarr import writer

    store = tmp_path / "a.zarr"
    group = zarr.open_group(store, mode="w", zarr_format=2 if version == "0.4" else 3)
    data = np.arange(2 * 4 * 8 * 12, dtype="u2").reshape(2, 4, 8, 12)
    options = {"fmt": formats.FormatV04() if version == "0.4" else formats.FormatV05(), "scale_factors": [2],
               "scale": {"c": 1, "z": 2, "y": 0.5, "x": 0.25}, "axes_units": dict.fromkeys("zyx", "micrometer")}
    writer.write_image(data, group, axes="czyx", **options)
    writer.write_labels((data > 99).astype("u1"), group, name="cells", axes="czyx", **options)
    files = mounted(store).files
    for level, factor in (("s0", 1), ("s1", 2)):
        steps = diagonal(0.25 * factor, 0.5 * factor, 2, 1)
        origin = [0.125 * (factor - 1), 0.25 * (factor - 1), 0, 0]
        for folder in (files, files / "labels/cells"):
            check(folder / level / level, steps, origin)


def test_labels_of_0_6_have_the_position_of_their_image(tmp_path, mounted):
    """The image is shown in a system that its labels do not know."""
    store = tmp_path / "a.zarr"
    level = placed("czyx", [1, 2, 0.5, 0.25], [0, 1, 10, 20])
    turn = [[1, 0, 0, 0]] + [[0, *row] for row in TURN]
    to_labels = {"type": "translation", "translation": [0, 0, 0, 5], "input": {"name": "own"},
                 "output": {"path": "labels/moved", "name": "own"}}
    systems = [system("world", "czyx"), system("own", "czyx")]
    image(store, "czyx", (2, 3, 4, 5), [level], systems, [between("own", "world", step("rotation", turn)), to_labels])
    for name, letters in (("same", "czyx"), ("flat", "zyx"), ("moved", "czyx")):
        own = placed(letters, [1, 2, 0.5, 0.25][-len(letters):], [0, 1, 10, 25 if name == "moved" else 20][-len(letters):])
        image(store, letters, (2, 3, 4, 5)[-len(letters):], [own], [system("own", letters)], path=f"labels/{name}", **{"image-label": {}})
    files = mounted(store).files
    steps, origin = np.eye(4), np.zeros(4)
    steps[:3, :3], origin[:3] = MAPPED["rotation"][1]
    for base in (files, files / "labels/same", files / "labels/moved"):
        check(base / "s0/s0", steps, origin)
    check(files / "labels/flat/s0/s0", *MAPPED["rotation"][1])


def linked(start, end, transformation):
    """Returns a transformation of a scene: an end is the path of an image and the name of a system, or that of one of its own."""
    ends = ({"path": end[0], "name": end[1]} if isinstance(end, tuple) else {"name": end} for end in (start, end))
    return {**transformation, **dict(zip(("input", "output"), ends, strict=True))}


def test_images_are_placed_in_the_first_system_of_their_scene(tmp_path, mounted):
    """Includes transformations through other images, inverse ones, arrays of numbers, and labels; broken ones are reported."""
    store, own = tmp_path / "a.zarr", [system("own", "zyx")]
    level = placed("zyx", [2, 0.5, 0.25], [1, 10, 20])
    scene = zarr.open_group(store, mode="w")
    moved = step("translation", [100, 200, 300])
    affine = np.array([[1, 0, 0, 5], [0, 0.8, -0.6, 6], [0, 0.6, 0.8, 7]])
    scene.create_array("transformations/affine", data=affine)
    links = {
        "tile": [linked(("tile", "own"), "world", moved)],
        "deep/hop": [linked(("deep/hop", "own"), ("tile", "own"), step("scale", [1, 2, 4]))],
        "back": [linked("world", ("back", "own"), moved)],
        "turned": [linked(("./turned/", "own"), "world", step("affine", path="transformations/affine"))],
        # The longer way is the one that a file can say.
        "twice": [linked(("twice", "own"), "world", step("displacements", path="field")), linked(("twice", "other"), "world", moved)],
        "bent": [linked(("bent", "own"), "world", step("displacements", path="field"))],
        "alone": [],
    }
    expected = {
        "tile": (STRAIGHT[0], [320, 210, 101]),
        "deep/hop": (diagonal(1, 1, 2), [380, 220, 101]),
        "back": (STRAIGHT[0], [-280, -190, -99]),
        "turned": ([[0.2, 0.3, 0], [-0.15, 0.4, 0], [0, 0, 2]], [29, 2, 6]),
        "twice": (3 * STRAIGHT[0], [360, 230, 103]),
        "bent": STRAIGHT,
        "alone": STRAIGHT,
    }
    for path in links:
        image(store, "zyx", (3, 4, 5), [level], own if path != "twice" else [system("other", "zyx"), *own],
              [between("own", "other", step("scale", [3, 3, 3]))] if path == "twice" else (), path=path)
    image(store, "zyx", (3, 4, 5), [level], own, path="tile/labels/cells", **{"image-label": {}})
    systems = [system("world", "zyx"), system("late", "zyx")]
    late = linked("world", "late", step("scale", [2, 2, 2]))
    transformations = [late, *(link for each in links.values() for link in each)]
    scene.attrs["ome"] = {"version": "0.6", "scene": {"coordinateSystems": systems, "coordinateTransformations": transformations}}
    # A scene that has no system of its own leaves its images where they are.
    other = zarr.open_group(store, path="pair", mode="a")
    between_images = linked(("one", "own"), ("two", "own"), moved)
    other.attrs["ome"] = {"version": "0.6", "scene": {"coordinateTransformations": [between_images]}}
    for name in ("one", "two"):
        image(store, "zyx", (3, 4, 5), [level], own, path=f"pair/{name}")
    files = mounted(store).files
    for path, (steps, origin) in expected.items():
        check(files / path / "s0/s0", steps, origin)
    check(files / "tile/labels/cells/s0/s0", *expected["tile"])
    check(files / "pair/one/s0/s0", *STRAIGHT)
    bent = 'the transformation has the unsupported type "displacements"'
    said = {
        "tile": ['"late" of the scene: a file can have only one coordinate system'],
        "twice": ['"late" of the scene: a file can have only one coordinate system', '"other": a file can have only one coordinate system'],
        "bent": [f'"world" of the scene: {bent}', f'"late" of the scene: {bent}'],
        "alone": [f'"{name}" of the scene: no transformation leads to this system' for name in ("world", "late")],
        "pair/one": ['"own": belongs to the image "two"'],
    }
    for path, sentences in said.items():
        found = os.getxattr(files / path / "s0/s0.nii", "user.zarrfs.left_out").decode().splitlines()
        assert found == [f"coordinate system {sentence}" for sentence in sentences], path
        info = json.loads(mounting.zarrfs("info", "--json", f"{store}/{path}/s0").stdout)["left_out"]
        assert {f"coordinate system {sentence}" for sentence in sentences} <= {item["sentence"] for item in info}
    copied = tmp_path / "copy.nii"
    mounting.zarrfs("cp", f"{store}/turned/s0", copied)
    assert copied.read_bytes() == (files / "turned/s0/s0.nii").read_bytes()


def test_an_attribute_says_what_a_file_leaves_out(tmp_path, mounted):
    store = tmp_path / "a.zarr"
    level = placed("tzyx", [3, 2, 0.5, 0.25], [4, 1, 10, 20])
    turn = [[1, 0, 0, 0]] + [[0, *row] for row in TURN]
    systems = [system(name, "tzyx") for name in ("world", "atlas", "own")]
    more = [between("own", "world", step("rotation", turn)), between("own", "atlas", step("displacements", path="field"))]
    image(store, "tzyx", (2, 3, 4, 5), [level], systems, more, path="inner/image")
    image(store, "zyx", (3, 4, 5), [step("scale", [2, 0.5, 0.25])], [system("own", "zyx", {})], path="plain")
    atlas = 'coordinate system "atlas": the transformation has the unsupported type "displacements"'
    world = 'coordinate system "world": the dimensions are oblique'
    units = "units millisecond of t: the header supports one of um, mm and cm for all lengths"
    expected = {"nrrd": [atlas], "mha": [atlas, units], "nii": [atlas], "ome.tif": [atlas, world]}
    files = mounted(store).files / "inner/image/s0"
    said = json.loads(mounting.zarrfs("info", "--json", f"{store}/inner/image/s0").stdout)["left_out"]
    for extension, sentences in expected.items():
        found = os.getxattr(files / f"s0.{extension}", "user.zarrfs.left_out").decode().splitlines()
        assert found == sentences, extension
        copied = mounting.zarrfs("cp", f"{store}/inner/image/s0", tmp_path / f"copy.{extension}")
        assert [line.split("leaves out ", 1)[1] for line in copied.stderr.splitlines()] == sentences
        assert (tmp_path / f"copy.{extension}").read_bytes() == (files / f"s0.{extension}").read_bytes() or extension == "ome.tif"
        for sentence in sentences:
            assert f"s0.{extension}" in next(item["files"] for item in said if item["sentence"] == sentence), said
    sizes = "spacing of x, y, z: OME would read a spacing without a unit as micrometres or seconds\n"
    assert os.getxattr(files.parents[2] / "plain/s0/s0.ome.tif", "user.zarrfs.left_out").decode() == sizes
    for extension in expected.keys() - {"ome.tif"}:
        plain = files.parents[2] / f"plain/s0/s0.{extension}"
        with pytest.raises(OSError, match="No data"):
            os.getxattr(plain, "user.zarrfs.left_out")


def test_units_reach_each_format(tmp_path, mounted):
    """If a header has one unit for all lengths, they are converted to it."""
    store = tmp_path / "a.zarr"
    units = {"micron": ("micrometer", "\u00b5m", "um", 1), "nano": ("nanometer", "nm", None, 1e-3), "inch": ("inch", "in", None, 25.4),
             "milli": ("millimeter", "mm", "mm", 1), "kilo": ("kilometer", "km", None, 1e3), "none": (None, None, None, 1)}
    for name, (unit, *_) in units.items():
        described = dict.fromkeys("yx", unit) if unit else {}
        image(store, "yx", (4, 5), [step("scale", [2, 4])], [system("own", "yx", described)], path=name)
    image(store, "zyx", (3, 4, 5), [step("scale", [2000, 2, 4])], [system("own", "zyx", {"x": "micrometer", "y": "micrometer", "z": "nanometer"})], path="mixed")
    files = mounted(store).files
    codes = {"micron": "micron", "nano": "micron", "inch": "mm", "milli": "mm", "kilo": "meter", "none": "unknown"}
    for name, (unit, symbol, distance, factor) in units.items():
        base = files / name / "s0/s0"
        pixels = by_tifffile(f"{base}.ome.tif")
        # OME takes a distance without a unit for micrometres.
        assert (pixels.get("PhysicalSizeX"), pixels.get("PhysicalSizeXUnit")) == ((4, symbol) if unit else (None, None))
        nifti = by_nibabel(f"{base}.nii")
        assert nifti.units[0] == codes[name]
        near(nifti.zooms, [4 * factor, 2 * factor])
        image_keys = by_itk(f"{base}.mha").keys
        assert (image_keys.GetMetaData("ITK_VoxelUnits") if image_keys.HasMetaDataKey("ITK_VoxelUnits") else None) == distance
        assert by_pynrrd(f"{base}.nrrd").units == ([unit, unit] if unit else None)
    nifti = by_nibabel(files / "mixed/s0/s0.nii")
    assert nifti.units[0] == "micron"
    near(nifti.zooms, [4, 2, 2])


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_both_files_of_a_pair_are_listed_after_a_lookup_of_one(tmp_path, mounted):
    import rasterio

    store = tmp_path / "a.zarr"
    data = np.arange(60, dtype="u2").reshape(3, 4, 5)
    group = zarr.open_group(store, mode="w")
    for name in ("img", "raw", "mhd", "two"):
        group.create_array(name, data=data, dimension_names=["z", "y", "x"])
    group.create_array("line", data=data.ravel())
    files = mounted(store).files

    def listed(name):
        return sorted(path.name for path in (files / name).iterdir() if not path.name.endswith(".json"))

    for name in ("img", "raw", "mhd"):
        assert listed(name) == [f"{name}.npy"]
        assert not (files / name / f"{name}.nothing").exists()
        assert listed(name) == [f"{name}.npy"]
    for name, extension in (("img", "img"), ("raw", "raw")):
        path = files / name / f"{name}.{extension}"
        with rasterio.open(path, driver="ENVI") as source:
            np.testing.assert_array_equal(source.read(), data)
        info = subprocess.run(["gdalinfo", path], capture_output=True, text=True, check=True).stdout
        assert "Driver: ENVI" in info and f"{name}.hdr" in info
        selected = files / name / f"{name}@1.{extension}"
        with rasterio.open(selected, driver="ENVI") as source:
            np.testing.assert_array_equal(source.read(1), data[1])
    assert listed("img") == ["img.hdr", "img.img", "img.npy", "img@1.hdr", "img@1.img"]
    assert listed("raw") == [f"raw{chosen}.{extension}" for chosen, extension in
                             [("", "hdr"), ("", "mhd"), ("", "nhdr"), ("", "npy"), ("", "raw")]] + [
        f"raw@1.{extension}" for extension in ("hdr", "mhd", "nhdr", "raw")]
    near(by_itk(files / "mhd/mhd.mhd").origin, [0, 0, 0])
    assert {"mhd.mhd", "mhd.raw"} <= set(listed("mhd"))
    # A header that the elements cannot have is not there.
    assert (files / "line/line.raw").stat().st_size == 120
    assert listed("line") == ["line.mhd", "line.nhdr", "line.npy", "line.raw"]
    assert mounting.zarrfs("ls", f"{store}/img").stdout.count(".img") == 0
