"""Files of more than 4 GiB: what programs read at their end is what the array has there."""

import h5py
import mrcfile
import netCDF4
import nibabel
import numpy as np
import pytest
import rasterio
import SimpleITK
import zarr
from astropy.io import fits

import mounting
from test_formats import same, values

SHAPE = (1200, 2000, 2000)
# Columns, rows and planes of the last part, fastest first.
START, SIZE = (1992, 1996, 1199), (8, 4, 1)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Mounts a store of an array of 9 GiB, of which one plane is stored; returns the folder of its files and the last part."""
    store = tmp_path_factory.mktemp("large") / "large.zarr"
    root = zarr.open_group(store, mode="w")
    array = root.create_array("a", shape=SHAPE, chunks=(1, 1000, 1000), dtype="i2", fill_value=7, dimension_names=["z", "y", "x"])
    last = values("i2", SHAPE[1:])
    array[-1] = last
    with mounting.Mount(store, "--list", "hdr") as mount:
        yield mount.files, last[-4:, -8:]


@pytest.mark.parametrize("extension", ["mha", "mhd", "nii", "mrc"])
def test_itk(large, extension):
    files, last = large
    path = files / f"a/a.{extension}"
    reader = SimpleITK.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    assert reader.GetSize() == SHAPE[::-1]
    reader.SetExtractIndex(START)
    reader.SetExtractSize(SIZE)
    same(SimpleITK.GetArrayFromImage(reader.Execute())[0], last, extension)
    if extension != "mhd":
        assert path.stat().st_size > 2**33


@pytest.mark.parametrize("extension", ["nrrd", "nhdr"])
def test_nrrd(large, extension):
    """ITK, teem and pynrrd read the elements of NRRD all at once, which is too much here; its header says where they are."""
    import nrrd

    files, last = large
    path = files / f"a/a.{extension}"
    reader = SimpleITK.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    with open(path, "rb") as file:
        header = nrrd.read_header(file)
        start = file.tell()
    assert reader.GetSize() == tuple(header["sizes"]) == SHAPE[::-1]
    data, start = (path, start) if extension == "nrrd" else (files / "a" / header["data file"], 0)
    same(np.memmap(data, "<i2", "r", start, SHAPE)[-1, -4:, -8:], last, extension)


def test_vtk(large):
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOXML import vtkXMLImageDataReader

    files, last = large
    reader = vtkXMLImageDataReader()
    reader.SetFileName(str(files / "a/a.vti"))
    extent = [bound for start, size in zip(START, SIZE, strict=True) for bound in (start, start + size - 1)]
    reader.UpdateExtent(extent)
    image = reader.GetOutput()
    assert image.GetExtent() == tuple(extent)
    read = vtk_to_numpy(image.GetPointData().GetScalars())
    same(read.reshape(last.shape), last, "vti")


def test_maps_of_files(large):
    files, last = large
    same(np.load(files / "a/a.npy", mmap_mode="r")[-1, -4:, -8:], last, "npy")
    same(np.load(files / "a/a.f.npy", mmap_mode="r")[-1, -4:, -8:], last, "f.npy")
    same(np.asanyarray(nibabel.load(files / "a/a.nii").dataobj[-8:, -4:, -1]).T, last, "nii")
    with mrcfile.mmap(files / "a/a.mrc") as file:
        same(file.data[-1, -4:, -8:], last, "mrc")
    with fits.open(files / "a/a.fits") as file:
        same(file[0].section[-1, -4:, -8:], last, "fits")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_gdal(large):
    files, last = large
    window = rasterio.windows.Window(1992, 1996, 8, 4)
    for name in ("a.img", "a.vrt"):
        with rasterio.open(files / "a" / name) as source:
            assert (source.count, source.height, source.width) == SHAPE
            same(source.read(1200, window=window), last, name)


def test_groups(large):
    files, last = large
    # The last variable of CDF-1 has any length.
    for name, kind in (("large.nc", "NETCDF3_CLASSIC"), ("large.nc4", "NETCDF4")):
        with netCDF4.Dataset(files / name) as file:
            file.set_auto_mask(False)
            assert file.data_model == kind
            same(file["a"][-1, -4:, -8:], last, name)
    for path in ("large.h5", "a/a.h5"):
        with h5py.File(files / path) as file:
            same(file["a"][-1, -4:, -8:], last, path)
