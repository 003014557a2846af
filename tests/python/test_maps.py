"""Where maps lie: reference systems and places as GDAL finds them in `.vrt`, `.tif` and headers, equal to what PROJ makes of CF."""

import functools
import json
import os

import numpy as np
import pyproj
import pytest
import rasterio
import rasterio.warp
import zarr

import mounting
from test_formats import gdal, same, stores, values  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def test_positions_reach_gdal(stores, mounted):  # noqa: F811
    files = mounted(stores[0], "--list", "hdr").files
    # The corner of the first pixel, of which the metadata have the centre.
    corner = (0.25, 0.0, -20.125, 0.0, -0.5, 10.25)
    for extension, driver in [("vrt", "VRT"), ("img", "ENVI")]:
        _, profile = gdal(files / f"plane/plane.{extension}", driver)
        assert tuple(profile["transform"])[:6] == corner, extension


def test_reference_systems_reach_gdal(tmp_path, mounted):
    root = zarr.open_group(tmp_path / "geo.zarr", mode="w")
    place = [30.0, 0.0, 500000.0, 0.0, -30.0, 4000000.0]
    for name, attributes in {
        "gdal": {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32633"}, "GeoTransform": "500000 30 0 4000000 0 -30"},
        "geozarr": {"proj:code": "EPSG:32633", "spatial:transform": place},
        "packed": {"crs_wkt": rasterio.CRS.from_epsg(32633).to_wkt(), "scale_factor": 0.5, "add_offset": 3.0, "units": "m",
                   "_FillValue": -1},
    }.items():
        root.create_array(name, data=values("i2", (7, 9)), attributes=attributes, dimension_names=["y", "x"])
    files = mounted(tmp_path / "geo.zarr").files
    for name in ("gdal", "geozarr", "packed"):
        with rasterio.open(files / name / f"{name}.vrt") as source:
            assert source.crs.to_epsg() == 32633, name
            if name != "packed":
                assert list(source.transform)[:6] == place
    with rasterio.open(files / "packed/packed.vrt") as source:
        assert (source.scales, source.offsets, source.units, source.nodata) == ((0.5,), (3.0,), ("m",), -1)


ELLIPSOID = {"semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}

# Grid mappings of CF by their parameters, each with two places of longitude and latitude that it shows.
MAPPINGS = {
    "albers_conical_equal_area": [({"standard_parallel": [29.5, 45.5], "latitude_of_projection_origin": 23.0,
                                    "longitude_of_central_meridian": -96.0, **ELLIPSOID}, [-100, -90], [30, 40])],
    "azimuthal_equidistant": [({"latitude_of_projection_origin": 40.0, "longitude_of_projection_origin": -100.0,
                                "false_easting": 10.0, "false_northing": 20.0}, [-95, -110], [35, 45])],
    "geostationary": [
        ({"perspective_point_height": 35785831.0, "longitude_of_projection_origin": 9.5, "sweep_angle_axis": "y",
          "semi_major_axis": 6378169.0, "semi_minor_axis": 6356583.8}, [10, 0], [20, -30]),
        ({"perspective_point_height": 35786023.0, "longitude_of_projection_origin": -75.0, "sweep_angle_axis": "x",
          "false_easting": 7.0, **ELLIPSOID}, [-80, -70], [20, -30]),
        ({"perspective_point_height": 35786023.0, "longitude_of_projection_origin": -75.0, "fixed_angle_axis": "y"},
         [-80, -70], [20, -30]),
    ],
    "lambert_azimuthal_equal_area": [({"latitude_of_projection_origin": 52.0, "longitude_of_projection_origin": 10.0,
                                       "false_easting": 4321000.0, "false_northing": 3210000.0, "semi_major_axis": 6378137.0,
                                       "semi_minor_axis": 6356752.314140356}, [5, 15], [50, 60])],
    "lambert_conformal_conic": [
        ({"standard_parallel": 25.0, "earth_radius": 6371200.0, "latitude_of_projection_origin": 25.0,
          "longitude_of_central_meridian": 265.0}, [-100, -90], [30, 40]),
        ({"standard_parallel": [30.0, 60.0], "latitude_of_projection_origin": 45.0, "longitude_of_central_meridian": 10.0},
         [5, 15], [50, 60]),
    ],
    "lambert_cylindrical_equal_area": [({"standard_parallel": 30.0, "longitude_of_central_meridian": -20.0}, [-30, 10], [10, -50])],
    "latitude_longitude": [
        ({}, [10, 12], [50, 60]),
        ({"semi_major_axis": 6377397.155, "inverse_flattening": 299.1528128, "longitude_of_prime_meridian": 2.33722917},
         [10, 12], [50, 60]),
    ],
    "mercator": [
        ({"standard_parallel": 20.0, "longitude_of_projection_origin": 5.0}, [0, 10], [30, -60]),
        ({"scale_factor_at_projection_origin": 0.9, "longitude_of_projection_origin": 5.0}, [0, 10], [30, -60]),
    ],
    "oblique_mercator": [({"azimuth_of_central_line": 35.0, "latitude_of_projection_origin": 40.0, "false_easting": 100.0,
                           "longitude_of_projection_origin": 10.0, "scale_factor_at_projection_origin": 0.9996}, [10, 12], [41, 38])],
    "orthographic": [({"latitude_of_projection_origin": 30.0, "longitude_of_projection_origin": 10.0, "earth_radius": 6371000.0},
                      [5, 20], [30, 40])],
    "polar_stereographic": [
        ({"standard_parallel": 70.0, "latitude_of_projection_origin": 90.0, "straight_vertical_longitude_from_pole": -45.0},
         [-50, 100], [70, 80]),
        ({"standard_parallel": -71.0, "latitude_of_projection_origin": -90.0, "straight_vertical_longitude_from_pole": 10.0},
         [-50, 100], [-70, -80]),
        ({"scale_factor_at_projection_origin": 0.994, "latitude_of_projection_origin": 90.0, "false_easting": 2e6,
          "straight_vertical_longitude_from_pole": 0.0}, [-50, 100], [70, 80]),
    ],
    "rotated_latitude_longitude": [
        ({"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}, [10, 12], [50, 60]),
        ({"grid_north_pole_latitude": 32.5, "grid_north_pole_longitude": 190.0, "north_pole_grid_longitude": 5.0,
          "earth_radius": 6371229.0}, [10, 12], [50, 60]),
    ],
    "sinusoidal": [({"longitude_of_projection_origin": 20.0, "earth_radius": 6371007.181, "false_northing": 3.0}, [10, 30], [50, -20])],
    "stereographic": [({"latitude_of_projection_origin": 52.0, "longitude_of_projection_origin": 5.0,
                        "scale_factor_at_projection_origin": 0.9999}, [4, 8], [50, 55])],
    "transverse_mercator": [({"scale_factor_at_central_meridian": 0.9996, "false_easting": 5e5, "longitude_of_central_meridian": 15.0,
                              "latitude_of_projection_origin": 0.0}, [14, 17], [50, 60])],
    "vertical_perspective": [({"perspective_point_height": 5e6, "latitude_of_projection_origin": 30.0,
                               "longitude_of_projection_origin": 10.0, **ELLIPSOID}, [10, 12], [20, 35])],
}


def each_mapping():
    """Yields a name, the attributes and places of each grid mapping."""
    for kind, all_of_kind in MAPPINGS.items():
        for number, (attributes, *places) in enumerate(all_of_kind):
            yield f"{kind}_{number}", {"grid_mapping_name": kind, **attributes}, places


def with_grid_mappings(folder, version):
    """Makes a store of maps whose attribute `grid_mapping` names a variable that says where they lie."""
    root = zarr.open_group(folder, mode="w", zarr_format=version)
    wkt = rasterio.CRS.from_epsg(32633).to_wkt()
    variables = {
        "spatial_ref": {"crs_wkt": wkt, "spatial_ref": wkt, "grid_mapping_name": "transverse_mercator",
                        "GeoTransform": "500000 30 0 4000000 0 -30"},
        "crs": {"spatial_ref": wkt},
        **{name: attributes for name, attributes, _ in each_mapping()},
    }
    for name, attributes in variables.items():
        root.create_array(name, shape=(), dtype="i4", attributes=attributes)
    for name, named in {"a": "spatial_ref", "b": "crs: x y", **{f"of_{name}": name for name, *_ in each_mapping()}}.items():
        more = {"dimension_names": ["y", "x"]} if version == 3 else {}
        root.create_array(name, data=values("i2", (7, 9)), attributes={"grid_mapping": named, "GeoTransform": "0 2 0 9 0 -2"}
                          if named != "spatial_ref" else {"grid_mapping": named}, **more)
    below = root.create_group("below")
    below.create_array("c", data=values("i2", (3, 7, 9)), attributes={"grid_mapping": "spatial_ref"})
    below.create_array("d", data=values("i2", (7, 9)), attributes={"grid_mapping": "/below/missing"})
    return folder


@pytest.mark.parametrize("version", [2, 3])
def test_grid_mappings_reach_gdal(tmp_path, mounted, version):
    store = with_grid_mappings(tmp_path / "maps.zarr", version)
    files = mounted(store).files
    place = [30.0, 0.0, 500000.0, 0.0, -30.0, 4000000.0]
    for path, shape in (("a/a", (1, 7, 9)), ("below/c/c", (3, 7, 9))):
        for extension in ("vrt", "tif"):
            with rasterio.open(files / f"{path}.{extension}") as source:
                assert source.crs.to_epsg() == 32633, (path, extension)
                assert list(source.transform)[:6] == place
                same(source.read(), values("i2", shape), path)
        with rasterio.open(files / f"{path}@...,2:,3:.tif") as source:
            assert list(source.transform)[:6] == [30.0, 0.0, 500090.0, 0.0, -30.0, 3999940.0]
    for extension in ("vrt", "tif"):
        with rasterio.open(files / f"b/b.{extension}") as source:
            assert source.crs.to_epsg() == 32633
        with rasterio.open(files / f"below/d/d.{extension}") as source:
            assert source.crs is None
    # The command says the same.
    info = json.loads(mounting.zarrfs("info", "--json", store / "a").stdout)
    assert "a.tif" in info["files"]
    mounting.zarrfs("cp", store / "a", tmp_path / "a.tif")
    assert (tmp_path / "a.tif").read_bytes() == (files / "a/a.tif").read_bytes()


def degrees_of(system):
    """Returns the longitudes and latitudes, from Greenwich, of a system's ellipsoid as GDAL and PROJ name them."""
    ellipsoid = system.ellipsoid
    axes = f"+a={ellipsoid.semi_major_metre:.12f} +b={ellipsoid.semi_minor_metre:.12f}"
    return f"+proj=longlat {axes} +no_defs"


@functools.cache
def as_pyproj_has_them():
    """Returns the name of each grid mapping, its degrees, places in these, and where pyproj has these places."""
    found = []
    for name, attributes, places in each_mapping():
        system = pyproj.CRS.from_cf(attributes)
        degrees = degrees_of(system)
        expected = pyproj.Transformer.from_crs(degrees, system, always_xy=True).transform(*places)
        assert np.isfinite(expected).all(), name
        found.append((name, degrees, places, expected))
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_grid_mappings_by_parameters_agree_with_proj(tmp_path, mounted, version):
    """pyproj has its own table of CF, and another build of PROJ than GDAL."""
    files = mounted(with_grid_mappings(tmp_path / "maps.zarr", version)).files
    for name, degrees, places, expected in as_pyproj_has_them():
        for extension in ("vrt", "tif"):
            with rasterio.open(files / f"of_{name}/of_{name}.{extension}") as source:
                found = rasterio.warp.transform(rasterio.CRS.from_string(degrees), source.crs, *places)
                is_angle = "latitude_longitude" in name
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 if is_angle else 1e-3, err_msg=(name, extension))


def satellite_map(folder, version):
    """Makes a store of maps that a satellite sees, whose places are angles in radians, as CF has them, or metres."""
    root = zarr.open_group(folder, mode="w", zarr_format=version)
    mapping = {"grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0, "longitude_of_projection_origin": -75.0,
               "sweep_angle_axis": "x", **ELLIPSOID}
    root.create_array("goes", shape=(), dtype="i4", attributes=mapping)
    step, left, top = 5.6e-5, -0.051332, 0.068212
    lists = {"spacing": [-step, step], "origin": [top, left], "units": ["rad", "rad"]}
    corner = [left - step / 2, step, 0.0, top + step / 2, 0.0, -step]
    metres = [number * 35786023.0 for number in corner]
    places = {
        "lists": lists,
        "gdal": {"GeoTransform": " ".join(map(repr, corner))},
        "geozarr": {"spatial:transform": [corner[1], 0.0, corner[0], 0.0, corner[5], corner[3]]},
        "metres": {"GeoTransform": " ".join(map(repr, metres))},
    }
    for name, attributes in places.items():
        more = {"dimension_names": ["y", "x"]} if version == 3 else {}
        attributes = {"grid_mapping": "goes", **attributes, **({"_ARRAY_DIMENSIONS": ["y", "x"]} if version == 2 else {})}
        root.create_array(name, data=values("i2", (70, 90)), attributes=attributes, **more)
    return folder, mapping, metres


@pytest.mark.parametrize("version", [2, 3])
def test_scan_angles_of_a_geostationary_map_become_metres(tmp_path, mounted, version):
    store, mapping, metres = satellite_map(tmp_path / "maps.zarr", version)
    files = mounted(store).files
    system = pyproj.CRS.from_cf(mapping)
    degrees = degrees_of(system)
    # The centre of a pixel lies where PROJ has it by its angles.
    angles = [metres[0] / 35786023.0 + 80.5 * 5.6e-5, metres[3] / 35786023.0 - 60.5 * 5.6e-5]
    to_degrees = pyproj.Transformer.from_crs(system, degrees, always_xy=True)
    expected = to_degrees.transform(*(angle * 35786023.0 for angle in angles))
    assert np.isfinite(expected).all()
    first = None
    for name in ("lists", "gdal", "geozarr", "metres"):
        for extension in ("vrt", "tif"):
            with rasterio.open(files / name / f"{name}.{extension}") as source:
                same(source.read(1), values("i2", (70, 90)), name)
                np.testing.assert_allclose(source.transform.to_gdal(), metres, rtol=1e-12, atol=1e-6, err_msg=(name, extension))
                if first is None:
                    first = source.crs
                    found = rasterio.warp.transform(source.crs, degrees, *([v] for v in source.xy(60, 80)))
                    np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=1e-6, err_msg=(name, extension))
                assert source.crs == first, (name, extension)
            with rasterio.open(files / name / f"{name}@10:,20:.{extension}") as source:
                moved = [metres[0] + 20 * metres[1], *metres[1:3], metres[3] + 10 * metres[5], *metres[4:]]
                np.testing.assert_allclose(source.transform.to_gdal(), moved, rtol=1e-12, atol=1e-6, err_msg=(name, extension))


def test_an_incomplete_grid_mapping_leaves_no_reference_system(tmp_path, mounted):
    root = zarr.open_group(tmp_path / "maps.zarr", mode="w")
    odd = {
        "unknown": {"grid_mapping_name": "healpix", "healpix_order": 3},
        "no_height": {"grid_mapping_name": "geostationary"},
        "scaled": {"grid_mapping_name": "lambert_cylindrical_equal_area", "scale_factor_at_projection_origin": 0.8},
        "empty": {"grid_mapping_name": ""},
    }
    for name, attributes in odd.items():
        root.create_array(name, shape=(), dtype="i4", attributes=attributes)
        root.create_array(f"of_{name}", data=values("i2", (7, 9)), attributes={"grid_mapping": name, "GeoTransform": "0 2 0 9 0 -2"})
    files = mounted(tmp_path / "maps.zarr").files
    for name in odd:
        for extension in ("vrt", "tif"):
            with rasterio.open(files / f"of_{name}/of_{name}.{extension}") as source:
                assert source.crs is None, (name, extension)
                assert list(source.transform)[:6] == [2, 0, 0, 0, -2, 9]
                same(source.read(1), values("i2", (7, 9)), name)
            said = os.getxattr(files / f"of_{name}/of_{name}.{extension}", "user.zarrfs.left_out").decode()
            kind = odd[name]["grid_mapping_name"]
            assert said == f'the reference system: the grid mapping "{kind}" is unknown or incomplete\n'


def test_a_changed_grid_mapping_changes_the_header(tmp_path, mounted):
    store = with_grid_mappings(tmp_path / "maps.zarr", 3)
    files = mounted(store, "--cow", tmp_path / "upper").files
    with rasterio.open(files / "a/a.tif") as source:
        assert source.crs.to_epsg() == 32633
    (files / "spatial_ref/attributes.json").write_text(json.dumps({"crs_wkt": rasterio.CRS.from_epsg(3035).to_wkt()}))
    for extension in ("vrt", "tif"):
        with rasterio.open(files / f"a/a.{extension}") as source:
            assert source.crs.to_epsg() == 3035
