"""Makes the images of OME-Zarr 0.6 in this folder, as text: `pip install ngff-zarr==0.50.0`, then `python made_by_ngff_zarr.py`."""

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


def main():
    here = pathlib.Path(__file__).parent
    for name, is_turned in (("straight", False), ("turned", True)):
        with tempfile.TemporaryDirectory() as folder:
            image(f"{folder}/{name}", is_turned)
            archive = pathlib.Path(shutil.make_archive(f"{folder}/archive", "zip", f"{folder}/{name}"))
            text = base64.encodebytes(archive.read_bytes())
            (here / f"ngff_zarr_{name}.zip.base64").write_bytes(text)


if __name__ == "__main__":
    sys.exit(main())
