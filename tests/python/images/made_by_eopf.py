"""Makes the products in this folder, as text: `python made_by_eopf.py` with `pip install eopf==2.8.1`, then the same with
`--geozarr` with `pip install eopf-geozarr==0.8.0`, which converts the first product."""

import base64
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PRODUCT = HERE / "eopf_product.zip.base64"
PIXELS = {"r10m": 10, "r20m": 20}


def product(folder):
    """Writes a product of Sentinel-2 with one band in two resolutions."""
    import numpy as np
    import xarray as xr
    from eopf.common.constants import OpeningMode
    from eopf.product import EOProduct, EOVariable
    from eopf.store.zarr import EOZarrStore

    found = EOProduct("product", attrs={
        "stac_discovery": {"properties": {"product:type": "S02MSIL2A"}},
        "other_metadata": {"horizontal_CRS_code": "EPSG:32633", "horizontal_CRS_name": "WGS84 / UTM zone 33N"}})
    for name, size in PIXELS.items():
        rows, columns = 240 // size, 320 // size
        x = (500000 + size // 2 + size * np.arange(columns)).astype("i4")
        y = (4000000 - size // 2 - size * np.arange(rows)).astype("i4")
        band = np.arange(rows * columns, dtype="u2").reshape(rows, columns)
        found[f"measurements/reflectance/{name}/b02"] = EOVariable(
            "b02", xr.DataArray(band, dims=("y", "x"), coords={"y": y, "x": x}),
            attrs={"scale_factor": 0.0001, "add_offset": -0.1, "units": "digital_counts", "long_name": "BOA reflectance, band B2"})
    store = EOZarrStore(folder).open(OpeningMode.CREATE)
    store["product"] = found
    store.close()


def converted(folder):
    """Converts the product to GeoZarr, with overviews."""
    archive = pathlib.Path(folder) / "product.zip"
    archive.write_bytes(base64.decodebytes(PRODUCT.read_bytes()))
    shutil.unpack_archive(archive, f"{folder}/product")
    subprocess.run(["eopf-geozarr", "convert", f"{folder}/product", f"{folder}/converted", "--groups",
                    "/measurements/reflectance/r10m", "--min-dimension", "4", "--spatial-chunk", "16"], check=True)


def save(folder, path):
    archive = pathlib.Path(shutil.make_archive(f"{folder}.archive", "zip", folder))
    path.write_bytes(base64.encodebytes(archive.read_bytes()))


def main():
    with tempfile.TemporaryDirectory() as folder:
        if "--geozarr" in sys.argv:
            converted(folder)
            save(f"{folder}/converted", HERE / "eopf_geozarr.zip.base64")
        else:
            product(folder)
            save(f"{folder}/product.zarr", PRODUCT)


if __name__ == "__main__":
    sys.exit(main())
