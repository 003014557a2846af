"""Makes the images of OME-Zarr in this folder, as text: `pip install ngff-zarr==0.50.0 itk nibabel`, then
`python made_by_ngff_zarr.py`."""

import base64
import pathlib
import shutil
import sys
import tempfile

import ngff_zarr
import numpy as np
from ngff_zarr.v06 import zarr_metadata as v06

# z stays; y and x turn so that a right angle has the sides 3 and 4.
TURNED = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.8, -0.6], [0, 0, 0.6, 0.8]]


def image(folder, is_turned):
    dims, spaces = ("c", "z", "y", "x"), ("z", "y", "x")
    data = np.arange(2 * 4 * 8 * 12, dtype="u2").reshape(2, 4, 8, 12)
    single = ngff_zarr.to_ngff_image(
        data, dims=dims, scale=dict(c=1.0, z=2.0, y=0.5, x=0.25), translation=dict(c=0.0, z=1.0, y=10.0, x=20.0),
        axes_units=dict.fromkeys(spaces, "micrometer"))
    chunks = {"c": 1, "z": 4, "y": 8, "x": 12}
    found = ngff_zarr.to_multiscales(
        single, scale_factors=[{"z": 1, "y": 2, "x": 2}], chunks=chunks, method=ngff_zarr.Methods.ITKWASM_BIN_SHRINK)
    if is_turned:
        metadata, end = found.metadata, v06.CoordinateSystemIdentifier
        own = metadata.coordinateSystems[0]
        metadata.coordinateSystems.append(v06.CoordinateSystem(name="world", axes=own.axes))
        metadata.coordinateTransformations = [
            v06.TransformSequence(input=end(name=own.name), output=end(name="world"), transformations=[
                v06.Rotation(rotation=TURNED), v06.Translation(translation=[0.0, 100.0, 200.0, 300.0])])]
    ngff_zarr.to_ome_zarr(folder, found, version="0.6")


def in_body(folder, program):
    """Makes an image whose axes go to the head, to the left and to the front, with the place that a program tells."""
    data = np.arange(4 * 6 * 8, dtype="u2").reshape(4, 6, 8)
    turned = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    if program == "itk":
        import itk

        read = itk.image_from_array(data)
        read.SetSpacing([0.5, 1, 2])
        read.SetOrigin([10, 20, 30])
        read.SetDirection(turned)
        single = ngff_zarr.itk_image_to_ngff_image(read)
    else:
        import nibabel

        affine = np.eye(4)
        affine[:3, :3] = np.diag([-1, -1, 1]) @ turned @ np.diag([0.5, 1, 2])
        affine[:3, 3] = [-10, -20, 30]
        single = ngff_zarr.nibabel_image_to_ngff_image(nibabel.Nifti1Image(data.T, affine))
    found = ngff_zarr.to_multiscales(single, scale_factors=[2])
    ngff_zarr.to_ome_zarr(folder, found, version="0.4" if program == "itk" else "0.5")


def main():
    here = pathlib.Path(__file__).parent
    for name in ("straight", "turned", "itk", "nibabel"):
        with tempfile.TemporaryDirectory() as folder:
            if name in ("straight", "turned"):
                image(f"{folder}/{name}", name == "turned")
            else:
                in_body(f"{folder}/{name}", name)
            archive = pathlib.Path(shutil.make_archive(f"{folder}/archive", "zip", f"{folder}/{name}"))
            text = base64.encodebytes(archive.read_bytes())
            (here / f"ngff_zarr_{name}.zip.base64").write_bytes(text)


if __name__ == "__main__":
    sys.exit(main())
