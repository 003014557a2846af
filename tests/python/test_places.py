"""The place of a pixel on the map: the same in `.tif`, `.vrt` and `.hdr` as PROJ, xarray and GDAL's own driver of Zarr have it, in
stores as rioxarray, xarray, EOPF and GeoZarr write them."""

import base64
import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyproj
import pytest
import rasterio
import rasterio.warp
import rioxarray  # noqa: F401
import xarray as xr
import zarr

import mounting
import needs
import programs
import stalling

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, COLUMNS = 6, 8
DATA = np.arange(2 * ROWS * COLUMNS, dtype="i2").reshape(2, ROWS, COLUMNS)
EXTENSIONS = ["tif", "vrt", "hdr"]
HEIGHT = 35786023.0

ROTATED = {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}
SATELLITE = {"grid_mapping_name": "geostationary", "perspective_point_height": HEIGHT, "longitude_of_projection_origin": -75.0,
             "sweep_angle_axis": "x", "semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}

# Reference systems, each with a place in it and the step of a grid. Of those that are marked EPSG has the latitude or the
# northing first.
SYSTEMS = {
    "wgs84": (4326, (12.5, 47.5), 0.25),  # first
    "utm": (32633, (500000.0, 5200000.0), 30.0),
    "laea": (3035, (4321000.0, 3210000.0), 1000.0),  # first
    "lcc": (2154, (700000.0, 6600000.0), 250.0),
    "polar": (3413, (100000.0, -700000.0), 25000.0),
    "mercator": (3395, (1000000.0, 5000000.0), 500.0),
    "web": (3857, (1400000.0, 6000000.0), 100.0),
    "britain": (27700, (400000.0, 300000.0), 50.0),
    "poland": (2180, (500000.0, 400000.0), 100.0),  # first
    "albers": (5070, (-500000.0, 1800000.0), 30.0),
    "germany": (31467, (3500000.0, 5500000.0), 10.0),  # first
    "rotated": (ROTATED, (2.0, -1.0), 0.11),
    "satellite": (SATELLITE, (-0.02, 0.05), 5.6e-5),
}


def system_of(name):
    told = SYSTEMS[name][0]
    return pyproj.CRS.from_cf(told) if isinstance(told, dict) else pyproj.CRS(told)


def grid(start, step, count):
    return start + step * np.arange(count)


def dataset(name):
    """Returns maps of a system, in CF: by rioxarray, or with a grid mapping by its parameters."""
    told, (left, top), step = SYSTEMS[name]
    x, y = grid(left, step, COLUMNS), grid(top, -step, ROWS)
    cube = xr.DataArray(DATA, dims=["time", "y", "x"], coords={"time": [0, 1], "y": y, "x": x}, name="cube")
    maps = xr.Dataset({"cube": cube, "flat": cube[0].drop_vars("time")})
    if not isinstance(told, dict):
        return maps.rio.write_crs(told)
    names = {"rotated": ("grid_longitude", "grid_latitude", "degrees"),
             "satellite": ("projection_x_coordinate", "projection_y_coordinate", "rad")}
    for axis, standard in zip("xy", names[name]):
        maps[axis].attrs = {"standard_name": standard, "units": names[name][2]}
    for variable in ("cube", "flat"):
        maps[variable].attrs["grid_mapping"] = "crs"
    return maps.assign(crs=xr.DataArray(0, attrs=told))


def degrees_of(system):
    """Returns the longitudes and latitudes on a system's own ellipsoid."""
    return system.geodetic_crs if system.prime_meridian.longitude == 0 else pyproj.CRS(4326)


def opened(path, extension):
    """Opens a map with rasterio: ENVI's header by the file with the elements."""
    # GDAL else looks for the header in the listing.
    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="TRUE"):
        if extension == "hdr":
            return rasterio.open(path.with_suffix(".img"), driver="ENVI")
        return rasterio.open(path)


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    store = tmp_path_factory.mktemp("systems") / "systems.zarr"
    zarr.open_group(store, mode="w", zarr_format=2)
    for name in SYSTEMS:
        dataset(name).to_zarr(store, group=name, mode="a", zarr_format=2, consolidated=False)
    with mounting.Mount(store, "--list", "hdr") as mount:
        yield store, mount.files


# What ENVI has no text for.
NOT_IN_ENVI = ["rotated", "satellite"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_pixel_has_its_position_in_proj_and_gdal(systems, name):
    store, files = systems
    system, (left, top), step = system_of(name), *SYSTEMS[name][1:]
    unit = HEIGHT if name == "satellite" else 1.0
    # The middle of a pixel, by the coordinate variables.
    row, column = 4, 5
    place = (left + step * column) * unit, (top - step * row) * unit
    expected = pyproj.Transformer.from_crs(system, degrees_of(system), always_xy=True).transform(*place)
    assert np.isfinite(expected).all()
    corner = np.array([left - step / 2, step, 0.0, top + step / 2, 0.0, -step]) * unit
    for extension in EXTENSIONS:
        with opened(files / name / f"cube/cube.{extension}", extension) as source:
            np.testing.assert_allclose(source.transform.to_gdal(), corner, rtol=1e-12, atol=1e-9 * unit, err_msg=extension)
            np.testing.assert_array_equal(source.read(), DATA)
            if extension == "hdr" and name in NOT_IN_ENVI:
                continue
            assert source.crs is not None, extension
            # The system of the file, by GDAL's PROJ, agrees with that of the store, by pyproj's.
            degrees = rasterio.CRS.from_wkt(degrees_of(system).to_wkt())
            if isinstance(SYSTEMS[name][0], int) and extension != "hdr":
                assert source.crs.to_epsg() == SYSTEMS[name][0]
            found = rasterio.warp.transform(source.crs, degrees, [place[0]], [place[1]])
            tolerance = 1e-6 if extension == "hdr" else 1e-8
            np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=tolerance, err_msg=extension)
            # What is at that place is what is in the store.
            assert list(next(source.sample([place]))) == list(DATA[:, row, column]), extension
    # GDAL's own driver of Zarr has no angles of satellites.
    with rasterio.open(f'ZARR:"{store}":/{name}/flat') as source:
        np.testing.assert_allclose(np.array(source.transform.to_gdal()) * unit, corner, rtol=1e-9, atol=1e-9 * unit)
    # GDAL's driver of netCDF finds the axes, also where the names of the variables alone tell them.
    for path in (files / name / "flat/flat.nc4", files / name / f"{name}.nc4", files / name / "flat/flat.nc", files / name / "flat/flat.cf.nc4"):
        with rasterio.open(f"netcdf:{path}:flat") as source:
            np.testing.assert_allclose(source.transform.to_gdal(), corner, rtol=1e-9, atol=1e-9 * unit, err_msg=path)
            # Of rotated poles it has no system.
            if name != "rotated":
                found = rasterio.warp.transform(source.crs, degrees, [place[0]], [place[1]])
                np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=1e-8, err_msg=path)
    # netCDF has the coordinate variables themselves.
    with xr.open_dataset(files / name / f"{name}.nc4", engine="h5netcdf", decode_coords=False) as read:
        np.testing.assert_array_equal(read.x, grid(left, step, COLUMNS))
        np.testing.assert_array_equal(read.y, grid(top, -step, ROWS))


def test_the_gdal_of_debian_finds_the_same_pixels(systems):
    """This GDAL is some years older than that of rasterio, and gets longitudes and latitudes."""
    needs.require("gdallocationinfo", shutil.which("gdallocationinfo"), source=programs.SOURCE)
    for name in SYSTEMS:
        system, (left, top), step = system_of(name), *SYSTEMS[name][1:]
        unit = HEIGHT if name == "satellite" else 1.0
        to_degrees = pyproj.Transformer.from_crs(system, 4326, always_xy=True)
        longitude, latitude = to_degrees.transform((left + step * 5) * unit, (top - step * 4) * unit)
        for extension in EXTENSIONS:
            if extension == "hdr" and name in NOT_IN_ENVI:
                continue
            path = systems[1] / name / f"flat/flat.{'img' if extension == 'hdr' else extension}"
            command = ["gdallocationinfo", "-valonly", "-wgs84", str(path), str(longitude), str(latitude)]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            assert found == [str(DATA[0, 4, 5])], (name, extension)


X, Y = grid(500015.0, 30.0, COLUMNS), grid(3999985.0, -30.0, ROWS)
PLACE = [500000.0, 30.0, 0.0, 4000000.0, 0.0, -30.0]
AFFINE = [30.0, 0.0, 500000.0, 0.0, -30.0, 4000000.0]
UTM = pyproj.CRS(32633)


def of_utm():
    return xr.DataArray(DATA[0], dims=["y", "x"], coords={"y": Y, "x": X}, name="a").rio.write_crs(32633)


def with_attributes(array, group=(), level=(), dims=("y", "x")):
    """Returns what makes a group with an array that has these attributes, and no coordinate variables."""

    def make(root, name, version):
        parent = root.create_group(name, attributes=dict(level))
        if level:
            parent = parent.create_group("r30m")
        parent.update_attributes(dict(group))
        more = {"dimension_names": list(dims)} if version == 3 else {}
        own = {} if version == 3 else {"_ARRAY_DIMENSIONS": list(dims)}
        parent.create_array("a", data=DATA[0], attributes={**array, **own}, **more)

    return make


def by_xarray(data):
    """Returns what makes a group that xarray writes."""
    data = data.to_dataset(name="a") if isinstance(data, xr.DataArray) else data

    def make(root, name, version):
        data.to_zarr(root.store.root, group=name, mode="a", zarr_format=version, consolidated=False)

    return make


def eopf():
    """Returns a band as ESA's processors write it: with STAC's attributes, and coordinates."""
    return xr.DataArray(DATA[0], dims=["y", "x"], coords={"y": Y.astype("i4"), "x": X.astype("i4")}, attrs={
        "_eopf_attrs": {"coordinates": ["x", "y"], "dimensions": ["y", "x"]}, "long_name": "reflectance",
        "proj:bbox": [500000.0, 3999820.0, 500240.0, 4000000.0], "proj:epsg": 32633, "proj:shape": [ROWS, COLUMNS],
        "proj:transform": [*AFFINE, 0.0, 0.0, 1.0], "proj:wkt2": UTM.to_wkt()})


def of_product():
    """Returns what makes a group with the same as newer ones write it: the system is told by the root of the product, of what is
    not in longitudes and latitudes."""

    def make(root, name, version):
        root.update_attributes({"other_metadata": {"horizontal_CRS_code": "EPSG:32633"}, "stac_discovery": {}})
        by_xarray(xr.DataArray(DATA[0], dims=["y", "x"], coords={"y": Y, "x": X}))(root, name, version)

    return make


GEOZARR = {"zarr_conventions": [{"name": "proj:"}, {"name": "spatial"}], "spatial:dimensions": ["y", "x"]}
LAYOUT = {**GEOZARR, "proj:code": "EPSG:32633", "spatial:transform": [15.0, 0.0, 500000.0, 0.0, -15.0, 4000000.0],
          "multiscales": {"layout": [{"asset": "r15m", "spatial:transform": [15.0, 0.0, 500000.0, 0.0, -15.0, 4000000.0]},
                                     {"asset": "r30m", "spatial:shape": [ROWS, COLUMNS], "spatial:transform": AFFINE}]}}
HALF = [30.0, 0.0, 500015.0, 0.0, -30.0, 3999985.0]

# Stores in which the same map lies at the same place.
STORES = {
    "rioxarray": by_xarray(of_utm()),
    "rioxarray_without_coordinates": by_xarray(of_utm().rio.write_transform().drop_vars(["x", "y"])),
    "rioxarray_computed": by_xarray((of_utm() * np.int16(1)).assign_coords(spatial_ref=of_utm().spatial_ref)),
    "rioxarray_cut": by_xarray(xr.DataArray(
        np.pad(DATA[0], ((2, 0), (3, 0))), dims=["y", "x"],
        coords={"y": grid(4000045.0, -30.0, ROWS + 2), "x": grid(499925.0, 30.0, COLUMNS + 3)},
    ).rio.write_crs(32633).rio.write_transform().isel(y=slice(2, None), x=slice(3, None))),
    "two_mappings": by_xarray(xr.Dataset(
        {"a": (("y", "x"), DATA[0], {"grid_mapping": "other: lat lon crs: x y"}),
         "other": ((), 0, pyproj.CRS(4326).to_cf()), "crs": ((), 0, UTM.to_cf())}, {"y": Y, "x": X})),
    "kilometres": by_xarray(xr.Dataset(
        {"a": (("y", "x"), DATA[0], {"grid_mapping": "crs"}), "crs": ((), 0, UTM.to_cf())},
        {"y": ("y", Y / 1000, {"units": "km", "axis": "Y"}), "x": ("x", X / 1000, {"units": "km", "axis": "X"})})),
    "other_names": by_xarray(xr.Dataset(
        {"a": (("j", "i"), DATA[0], {"grid_mapping": "crs"}), "crs": ((), 0, UTM.to_cf())},
        {"j": ("j", Y, {"standard_name": "projection_y_coordinate"}), "i": ("i", X, {"standard_name": "projection_x_coordinate"})})),
    "beside_the_dimensions": by_xarray(xr.Dataset(
        {"a": (("j", "i"), DATA[0], {"grid_mapping": "crs"}), "crs": ((), 0, UTM.to_cf())},
        {"northing": ("j", Y), "easting": ("i", X)})),
    "exchanged": by_xarray(of_utm().transpose("x", "y")),
    "rounded": by_xarray(of_utm().assign_coords(x=X.astype("f4"), y=Y.astype("f4"))),
    "eopf": by_xarray(eopf()),
    "eopf_of_a_product": of_product(),
    "eopf_without_coordinates": with_attributes(eopf().attrs),
    "eopf_geozarr": with_attributes({"proj:epsg": "32633", "proj:transform": " ".join(map(str, PLACE))}),
    "geozarr": with_attributes({**GEOZARR, "proj:code": "EPSG:32633", "spatial:transform": AFFINE, "spatial:shape": [ROWS, COLUMNS]}),
    "geozarr_wkt2": with_attributes({**GEOZARR, "proj:wkt2": UTM.to_wkt(), "spatial:transform": AFFINE}),
    "geozarr_projjson": with_attributes({**GEOZARR, "proj:projjson": UTM.to_json_dict(), "spatial:transform": AFFINE}),
    "geozarr_node": with_attributes({**GEOZARR, "proj:code": "EPSG:32633", "spatial:transform": HALF, "spatial:registration": "node"}),
    "geozarr_group": with_attributes({}, {**GEOZARR, "proj:code": "EPSG:32633", "spatial:transform": AFFINE}),
    "geozarr_names": with_attributes({**GEOZARR, "spatial:dimensions": ["j", "i"], "proj:code": "EPSG:32633",
                                      "spatial:transform": AFFINE}, dims=("j", "i")),
    "geozarr_levels": with_attributes({}, level=LAYOUT),
    "of_gdal": with_attributes({"_CRS": {"projjson": UTM.to_json_dict()}, "GeoTransform": PLACE}),
}


@pytest.fixture(scope="module", params=[2, 3])
def stores(request, tmp_path_factory):
    version = request.param
    folder = tmp_path_factory.mktemp("stores") / "stores.zarr"
    root = zarr.open_group(folder, mode="w", zarr_format=version)
    for name, make in STORES.items():
        make(root, name, version)
    with mounting.Mount(folder, "--list", "hdr") as mount:
        yield folder, mount.files


def array_of(name):
    return f"{name}/r30m/a" if name == "geozarr_levels" else f"{name}/a"


@pytest.mark.parametrize("name", STORES)
def test_each_convention_gives_the_same_position(stores, name):
    folder, files = stores
    for extension in EXTENSIONS:
        if name == "exchanged" and extension == "hdr":
            continue
        with opened(files / array_of(name) / f"a.{extension}", extension) as source:
            assert source.crs is not None and source.crs.to_epsg() == 32633, (extension, source.crs)
            np.testing.assert_allclose(source.transform.to_gdal(), PLACE, rtol=1e-9, err_msg=extension)
            np.testing.assert_array_equal(source.read(1), DATA[0])


def level(asset, source=None, scale=None, translation=None, **more):
    told = {"scale": scale, "translation": translation}
    transform = {name: [number] * 2 for name, number in told.items() if number is not None}
    return {"asset": asset, **({"derived_from": source} if source else {}), **({"transform": transform} if transform else {}), **more}


BASE = {"proj:code": "EPSG:32633", "spatial:dimensions": ["y", "x"], "spatial:transform": [15.0, 0.0, 500000.0, 0.0, -15.0, 4000000.0]}
BOUNDS = {"proj:code": "EPSG:32633", "spatial:bbox": [500000.0, 4000000.0 - 24 * 15.0, 500000.0 + 32 * 15.0, 4000000.0]}
CHAIN = [level("0", scale=1, translation=0), level("1", "0", 2, 0), level("2", "1", 2, 0)]

# Layouts of three levels, of which the first has the place: what the group tells, what the first level's group tells, where
# the levels are, and what is said of the others if nobody knows where they lie.
LAYOUTS = {
    "group": (BASE, {}, CHAIN, None),
    "first_group": ({}, BASE, CHAIN, None),
    "first_entry": ({"proj:code": "EPSG:32633"}, {}, [{**CHAIN[0], "spatial:transform": BASE["spatial:transform"]}, *CHAIN[1:]], None),
    "coordinates": ({}, None, CHAIN, None),
    # topozarr writes pixels of the first level, and the middle of pixels.
    "topozarr": (BASE, {}, [level("0", scale=1, translation=0), level("1", "0", 2, 0.5), level("2", "1", 4, 0.5)], None),
    "scales": (BASE, {}, [level("0", scale=1), level("1", scale=2), level("2", scale=4)], None),
    "arrays": ({**BASE, "spatial:shape": [24, 32]}, {}, [level("0/a"), level("1/a", "0/a", 2), level("2/a", "0/a", 4)], None),
    "nested": (BASE, {}, [level("all/0"), level("all/1", "all/0", 2), level("all/2", "all/1", 2)], None),
    "draft": (BASE, {}, [{"group": "0"}, {"group": "1", "from_group": "0", "factors": [2, 2]},
                         {"group": "2", "from_group": "0", "transform": {"proj:transform": [60.0, 0.0, 500000.0, 0.0, -60.0, 4000000.0]}}], None),
    "bounds": (BOUNDS, {}, [level(name) for name in "012"], None),
    "bounds_of_nodes": ({"proj:code": "EPSG:32633"}, None, [
        {**level(name, *source), "spatial:registration": "node", "spatial:bbox": [
            500000.0 + size / 2, 4000000.0 - 24 * 15.0 + size / 2, 500000.0 + 32 * 15.0 - size / 2, 4000000.0 - size / 2]}
        for name, size, *source in (("0", 15.0), ("1", 30.0, "0"), ("2", 60.0, "1"))], None),
    "cut": (BASE, {}, [level("0"), level("1", "0", 2, 100), level("2", "0", 4, 100)], "the layout shifts the level relative to 0"),
    "odd": (BASE, {}, [level("0"), level("1", "0", 3, 0), level("2", "0", 9, 0)],
            "the scale in the layout fits neither the level's shape nor that of 0"),
}


@pytest.mark.parametrize("version", [2, 3])
def test_all_levels_of_a_map_have_the_same_position(tmp_path, version):
    """`multiscales` of GeoZarr describes how a level was made from another one."""
    store = tmp_path / "levels.zarr"
    root = zarr.open_group(store, mode="w", zarr_format=version)
    pixels = np.arange(24 * 32, dtype="i2").reshape(24, 32)
    sizes = {"0": 1, "1": 2, "2": 4}
    for name, (group, first, layout, _) in LAYOUTS.items():
        parent = root.create_group(name, attributes={**group, "multiscales": {"layout": layout}})
        for number, factor in sizes.items():
            path = f"all/{number}" if name == "nested" else number
            if name == "coordinates" and number == "0":
                data = xr.DataArray(pixels, dims=["y", "x"], coords={"y": grid(3999992.5, -15.0, 24), "x": grid(500007.5, 15.0, 32)})
                by_xarray(data.rename("a").rio.write_crs(32633))(root, f"{name}/0", version)
                continue
            folder = parent.create_group(path, attributes=first or {} if number == "0" else {})
            # One group has no names of dimensions.
            names = [] if name == "arrays" else ["y", "x"]
            more = {"dimension_names": names} if version == 3 and names else {}
            own = {"_ARRAY_DIMENSIONS": names} if version == 2 and names else {}
            folder.create_array("a", data=pixels[::factor, ::factor], attributes=own, **more)
    with mounting.Mount(store, "--list", "hdr") as mount:
        for name, (*_, said) in LAYOUTS.items():
            for number, factor in sizes.items():
                base = mount.files / name / ("all" if name == "nested" else "") / f"{number}/a/a"
                for extension in EXTENSIONS:
                    with opened(base.with_name(f"a.{extension}"), extension) as source:
                        np.testing.assert_array_equal(source.read(1), pixels[::factor, ::factor])
                        if said is None or number == "0":
                            place = [500000.0, 15.0 * factor, 0.0, 4000000.0, 0.0, -15.0 * factor]
                            np.testing.assert_allclose(source.transform.to_gdal(), place, rtol=1e-9, err_msg=(name, number, extension))
                            assert source.crs.to_epsg() == 32633, (name, number, extension)
                            continue
                        assert source.transform.is_identity, (name, number, extension)
                    found = os.getxattr(base.with_name(f"a.{extension}"), "user.zarrfs.left_out").decode().splitlines()
                    assert f"the georeference: {said}" in found, (name, number, extension)
            if said is None:
                with opened(base.with_name("a@1:,2:.tif"), "tif") as source:
                    np.testing.assert_allclose(source.transform.to_gdal(), [500120.0, 60.0, 0.0, 3999940.0, 0.0, -60.0], rtol=1e-9)
    copied = tmp_path / "copy.tif"
    mounting.zarrfs("cp", f"{store}/coordinates/2/a", copied)
    with rasterio.open(copied) as source:
        assert source.transform.a == 60.0 and source.crs.to_epsg() == 32633


# Bands of products by `images/made_by_eopf.py`, and the sizes of their pixels in metres.
BANDS = {
    "eopf_product": {"measurements/reflectance/r10m": 10.0, "measurements/reflectance/r20m": 20.0},
    "eopf_geozarr": {f"measurements/reflectance/r10m/{level}": 10.0 * 2**level for level in range(3)},
}


@pytest.mark.parametrize("product", BANDS)
def test_a_product_of_eopf_has_its_position_in_rioxarray(tmp_path, mounted, product):
    store = tmp_path / f"{product}.zarr"
    archive = tmp_path / "product.zip"
    text = Path(__file__).with_name("images") / f"{product}.zip.base64"
    archive.write_bytes(base64.b64decode(text.read_bytes()))
    shutil.unpack_archive(archive, store)
    files = mounted(store, "--list", "hdr").files
    for group, size in BANDS[product].items():
        known = xr.open_dataset(store, engine="zarr", group=group, mask_and_scale=False)
        place = known.b02.rio.transform().to_gdal()
        # eopf-geozarr 0.8 gives the coordinates of the corners in overviews, not those of the centres.
        corner = size / 2 if group.endswith(("/1", "/2")) else 0.0
        assert place == (500000.0 - corner, size, 0.0, 4000000.0 + corner, 0.0, -size), group
        for extension in EXTENSIONS:
            with opened(files / group / f"b02/b02.{extension}", extension) as source:
                assert source.transform.to_gdal() == place, (group, extension)
                assert source.crs.to_epsg() == 32633, (group, extension)
                np.testing.assert_array_equal(source.read(1), known.b02)
        for path in (files / group / "b02/b02.nc4", files / group / f"{Path(group).name}.nc4"):
            with xr.open_dataset(path, engine="h5netcdf", mask_and_scale=False) as read:
                np.testing.assert_array_equal(read.b02, known.b02)
                assert read.b02.rio.transform().to_gdal() == place, path


def test_selected_pixels_keep_their_position(stores):
    files = stores[1]
    for name in ("rioxarray", "geozarr", "exchanged"):
        selection = "3:,1::2" if name == "exchanged" else "1::2,3:"
        expected = [500090.0, 30.0, 0.0, 3999985.0, 0.0, -60.0]
        for extension in EXTENSIONS:
            if name == "exchanged" and extension == "hdr":
                continue
            with opened(files / array_of(name) / f"a@{selection}.{extension}", extension) as source:
                assert list(source.transform.to_gdal()) == expected, (name, extension)
                np.testing.assert_array_equal(source.read(1), DATA[0][1::2, 3:])


def test_commands_write_the_files_of_the_mount(stores, tmp_path):
    folder, files = stores
    for name in ("rioxarray", "eopf", "geozarr_group", "geozarr_levels"):
        path = array_of(name)
        mounting.zarrfs("cp", folder / path, tmp_path / "a.tif")
        assert (tmp_path / "a.tif").read_bytes() == (files / path / "a.tif").read_bytes(), name
        described = json.loads(mounting.zarrfs("info", "--json", f"{folder / path}/a.tif").stdout)
        assert str((files / path / "a.tif").stat().st_size) in json.dumps(described), name


# Grids of longitudes and latitudes of which no reference system is told.
LONGITUDES = {
    "era5": ({"latitude": grid(90.0, -30.0, 6), "longitude": grid(0.0, 45.0, 8)}, [-22.5, 45.0, 0, 105.0, 0, -30.0]),
    "ascending": ({"lat": grid(-75.0, 30.0, 6), "lon": grid(-157.5, 45.0, 8)}, [-180.0, 45.0, 0, -90.0, 0, 30.0]),
    "westward": ({"lat": grid(50.0, -1.0, 6), "lon": grid(10.0, -1.0, 8)}, [10.5, -1.0, 0, 50.5, 0, -1.0]),
    "across_the_date_line": ({"lat": grid(5.0, -1.0, 6), "lon": (grid(176.0, 1.0, 8) + 180) % 360 - 180},
                             [175.5, 1.0, 0, 5.5, 0, -1.0]),
    "told": ({"lat": grid(5.05, -0.1, 6), "lon": grid(9.05, 0.1, 8)}, [9.0, 0.1, 0, 5.1, 0, -0.1]),
    "floats": ({"lat": grid(5.05, -0.1, 6).astype("f4"), "lon": grid(359.05, 0.1, 8).astype("f4")},
               [359.0, 0.1, 0, 5.1, 0, -0.1]),
}


def test_longitudes_and_latitudes_use_wgs84(tmp_path, mounted):
    store = tmp_path / "grids.zarr"
    # A product on a plane has tables of the weather in longitudes and latitudes.
    zarr.open_group(store, mode="w").update_attributes({"other_metadata": {"horizontal_CRS_code": "EPSG:32633"}})
    for name, (coordinates, _) in LONGITUDES.items():
        dims = list(coordinates)
        attributes = {"GeoTransform": "9 0.1 0 5.1 0 -0.1"} if name == "told" else {}
        xr.Dataset({"a": (dims, DATA[0], attributes)}, coordinates).to_zarr(store, group=name, mode="a", consolidated=False)
    files = mounted(store, "--list", "hdr").files
    for name, (_, place) in LONGITUDES.items():
        for extension in EXTENSIONS:
            if name == "westward" and extension == "hdr":
                continue
            with opened(files / name / f"a/a.{extension}", extension) as source:
                assert source.crs.to_epsg() == 4326, (name, extension)
                np.testing.assert_allclose(source.transform.to_gdal(), place, rtol=0, atol=2e-4, err_msg=(name, extension))
                np.testing.assert_array_equal(source.read(1), DATA[0])


# Invariant of `test_stalled_coordinates_time_out_and_others_are_read_once`.
def test_a_changed_coordinate_moves_the_map(tmp_path, mounted):
    store = tmp_path / "moved.zarr"
    by_xarray(of_utm())(zarr.open_group(store, mode="w"), "g", 3)
    files = mounted(store, "--cow", tmp_path / "upper").files / "g"
    with rasterio.open(files / "a/a.tif") as source:
        assert list(source.transform.to_gdal()) == PLACE
    held = open(files / "a/a.tif", "rb")
    before = held.read()
    values = np.lib.format.open_memmap(files / "x/x.npy", mode="r+")
    values[:] += 3000.0
    values.flush()
    del values
    for extension in ("tif", "vrt"):
        with rasterio.open(files / f"a/a.{extension}") as source:
            assert list(source.transform.to_gdal()) == [503000.0, *PLACE[1:]], extension
    # A reader that has the old file keeps it.
    held.seek(0)
    assert held.read() == before
    held.close()
    # The unit of a coordinate is an attribute.
    (files / "x/attributes.json").write_text(json.dumps({"units": "km"}))
    with rasterio.open(files / "a/a.tif") as source:
        assert source.transform.to_gdal()[0] == 503000000.0


# Invariant of `test_stalled_coordinates_time_out_and_others_are_read_once`.
def test_an_unreadable_coordinate_is_an_error(tmp_path, mounted):
    store = tmp_path / "broken.zarr"
    by_xarray(of_utm())(zarr.open_group(store, mode="w"), "g", 3)
    chunk = store / "g/x/c/0"
    chunk.write_bytes(b"no chunk")
    files = mounted(store).files / "g"
    assert "a.npy" in [path.name for path in (files / "a").iterdir()]
    for extension in EXTENSIONS:
        with pytest.raises(OSError) as caught:
            (files / f"a/a.{extension}").read_bytes()
        assert caught.value.errno == 5, extension
    np.testing.assert_array_equal(np.load(files / "a/a.npy"), DATA[0])
    failed = mounting.zarrfs("cp", store / "g/a", tmp_path / "a.tif", check=False)
    assert failed.returncode == 2 and "x" in failed.stderr


# Invariant (formats): The header of a map uses coordinate variables that are read once for each version. If they cannot
# be read, opening fails: there is no map without a place.
def test_stalled_coordinates_time_out_and_others_are_read_once(tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    for name in ("healthy", "stalled"):
        by_xarray(of_utm())(root, name, 3)
    with stalling.serving(tmp_path / "s.zarr") as server, mounting.Mount(server.url, "--timeout", "3s") as mount:
        with pytest.raises(OSError) as caught:
            os.stat(mount.files / "stalled/a/a.tif")
        assert caught.value.errno == 5
        # Only what needs the coordinates waits for them.
        assert os.stat(mount.files / "stalled/a/a.npy").st_size == 128 + DATA[0].nbytes
        assert os.stat(mount.files / "stalled/a/a.nrrd").st_size > DATA[0].nbytes
        for _ in range(3):
            for extension in EXTENSIONS:
                (mount.files / f"healthy/a/a.{extension}").read_bytes()
                os.stat(mount.files / f"healthy/a/a@1:,:.{extension}")
        for axis in "xy":
            assert server.asked.count(f"healthy/{axis}/c/0") <= 2, server.asked


def odd(coordinates, attributes=(), dims=("y", "x")):
    return by_xarray(xr.Dataset({"a": (dims, DATA[0], dict(attributes))}, coordinates))


def beside_map(variables):
    """Returns what makes a group of a map and of arrays that are none or another one, with the `spatial_ref` of the map."""
    return by_xarray(of_utm().rename("map").to_dataset().rio.write_transform().assign(variables))


STEPS, COLUMN = grid(10.0, -1.0, ROWS), grid(0.0, 2.0, COLUMNS)

# Maps whose place, or whose system, cannot be said: with what is said of which files instead.
ODD = {
    "gaussian": (odd({"lat": [80.0, 71.0, 61.0, 50.0, 40.0, 30.0], "lon": COLUMN}, dims=("lat", "lon")),
                 {"the georeference: the values of lat are not evenly spaced": EXTENSIONS}),
    "one_axis": (odd({"x": COLUMN}), {"the georeference: the dimension y has no coordinate variable": EXTENSIONS}),
    "curved": (odd({"lat": (("j", "i"), DATA[0] * 1.0), "lon": (("j", "i"), DATA[0] * 2.0)}, dims=("j", "i")),
               {"the georeference: the coordinates lat lon are not one-dimensional": EXTENSIONS}),
    "texts": (odd({"y": list("abcdef"), "x": COLUMN}), {"the georeference: y cannot be read: the values are strings": EXTENSIONS}),
    "exchanged": (odd({"x": STEPS, "y": COLUMN}, dims=("x", "y")),
                  {"the georeference: the rows and columns of the file do not run along y and x": ["hdr"]}),
    "stale": (odd({"y": STEPS, "x": COLUMN}, {"GeoTransform": "50 2 0 10.5 0 -1"}),
              {"the georeference in GeoTransform: the coordinate variables contradict GeoTransform": EXTENSIONS}),
    "other_level": (with_attributes({}, {"spatial:transform": AFFINE, "spatial:shape": [99, 99]}),
                    {"the georeference: the group has the georeference of arrays of another shape": EXTENSIONS}),
    "esri": (odd({"y": STEPS, "x": COLUMN}, {"proj:code": "ESRI:54030"}),
             {"the reference system ESRI:54030: GeoTIFF supports only EPSG codes; use the .vrt": ["tif"],
              "the reference system ESRI:54030: ENVI supports neither EPSG codes nor WKT 2; use the .vrt": ["hdr"]}),
    "skewed": (with_attributes({"spatial:transform": [10, 1, 5, 1, -10, 7]}),
               {"the georeference: ENVI requires rows that run east": ["hdr"]}),
    "polynomial": (with_attributes({"spatial:transform": AFFINE, "spatial:transform_type": "rpc"}),
                   {"the georeference: spatial:transform_type is not affine": EXTENSIONS}),
    # rioxarray keeps the old GeoTransform where a program takes some of the rows.
    "picked_rows": (by_xarray(of_utm().rio.write_transform().isel(y=[0, 2, 3])),
                    {"the georeference: the values of y are not evenly spaced": EXTENSIONS,
                     "the reference system: ENVI requires a georeference too": ["hdr"]}),
    "one_row": (by_xarray(of_utm().rio.write_transform().isel(y=slice(3, 4))),
                {"the georeference in GeoTransform: the coordinate variables contradict GeoTransform": EXTENSIONS}),
    "first_row": (by_xarray(of_utm().rio.write_transform().isel(y=slice(0, 1))), {}),
    "units": (odd({"y": ("y", STEPS, {"units": "furlong"}), "x": COLUMN}),
              {"the georeference: unknown unit furlong of y": EXTENSIONS}),
    "feet": (by_xarray(xr.Dataset({"a": (("y", "x"), DATA[0])}, {"y": STEPS, "x": COLUMN}).rio.write_crs(2263)
                       .rio.write_coordinate_system()), {}),
    "missing": (odd({"y": STEPS, "x": COLUMN}, {"grid_mapping": "crs"}),
                {"the reference system: grid_mapping names crs, which does not exist": EXTENSIONS}),
    # What is told of a map is not told of what lies beside it.
    "degrees_beside": (beside_map({"a": xr.DataArray(DATA[0], dims=["lat", "lon"], coords={"lat": STEPS, "lon": COLUMN})}),
                       {"the reference system WGS 84 / UTM zone 33N: the coordinates are longitudes and latitudes": EXTENSIONS}),
    "table_beside": (beside_map({"a": xr.DataArray(DATA[0], dims=["sample", "feature"])}), {}),
    "overview_beside": (with_attributes({}, {"spatial:transform": AFFINE, "proj:code": "EPSG:32633"}, dims=("y_ov", "x_ov")), {}),
    "plain": (with_attributes({}), {}),
}

# Those with no place, though nothing is left out.
NO_MAPS = ["table_beside", "overview_beside", "plain"]


def test_positions_that_a_format_cannot_store_are_left_out(tmp_path, mounted):
    store = tmp_path / "odd.zarr"
    root = zarr.open_group(store, mode="w")
    for name, (make, _) in ODD.items():
        make(root, name, 3)
    files = mounted(store, "--list", "hdr").files
    for name, (_, sentences) in ODD.items():
        info = json.loads(mounting.zarrfs("info", "--json", store / name / "a").stdout)
        told = {left["sentence"]: [file.removeprefix("a.") for file in left["files"]] for left in info["left_out"]}
        assert {sentence: sorted(formats) for sentence, formats in told.items()} == {
            sentence: sorted(formats) for sentence, formats in sentences.items()}, name
        for extension in EXTENSIONS:
            path = files / name / f"a/a.{extension}"
            expected = [sentence for sentence, formats in sentences.items() if extension in formats]
            try:
                attribute = os.getxattr(path, "user.zarrfs.left_out").decode().splitlines()
            except OSError as error:
                assert error.errno == errno.ENODATA
                attribute = []
            assert sorted(attribute) == sorted(expected), (name, extension)
            with opened(path, extension) as source:
                whole = source.transform
                has_place = any("the georeference: " in sentence for sentence in expected)
                assert (whole.to_gdal() == (0, 1, 0, 0, 0, 1)) == (has_place or name in NO_MAPS), (name, extension)
    said = mounting.zarrfs("cp", store / "gaussian/a", tmp_path / "a.tif").stderr
    assert "the file leaves out the georeference: the values of lat are not evenly spaced" in said
    for name, corner in {"one_row": 4000000.0 - 90.0, "first_row": 4000000.0}.items():
        with rasterio.open(files / name / "a/a.tif") as source:
            assert list(source.transform.to_gdal()) == [*PLACE[:3], corner, *PLACE[4:]], name
    with rasterio.open(files / "degrees_beside/a/a.tif") as source:
        assert source.transform.to_gdal() == (-1.0, 2.0, 0.0, 10.5, 0.0, -1.0) and source.crs.to_epsg() == 4326
    with rasterio.open(files / "feet/a/a.tif") as source:
        assert source.transform.to_gdal() == (-1.0, 2.0, 0.0, 10.5, 0.0, -1.0) and source.crs.to_epsg() == 2263
    for name in NO_MAPS:
        with rasterio.open(files / name / "a/a.tif") as source:
            assert source.crs is None, name
    # The elements are those of the store all the same.
    with rasterio.open(files / "gaussian/a/a.tif") as source:
        np.testing.assert_array_equal(source.read(1), DATA[0])
    with rasterio.open(files / "stale/a/a.tif") as source:
        assert source.transform.to_gdal() == (-1.0, 2.0, 0.0, 10.5, 0.0, -1.0)
    with rasterio.open(files / "exchanged/a/a.tif") as source:
        np.testing.assert_array_equal(source.read(1), DATA[0].T)
        assert source.transform.to_gdal() == (10.5, -1.0, 0.0, -1.0, 0.0, 2.0)
