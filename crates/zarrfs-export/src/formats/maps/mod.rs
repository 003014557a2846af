//! Formats of maps, and the georeference that they hold.
//!
//! `georeference` finds the reference system and the place of the first pixel, with the help of the other files;
//! `envi` and `vrt` are formats.

pub(crate) mod bands;
pub(crate) mod coordinate_variable;
pub(crate) mod envi;
pub(crate) mod geo_transform;
pub(crate) mod georeference;
pub(crate) mod grid_mapping;
pub(crate) mod levels;
pub(crate) mod plane;
pub(crate) mod projjson;
pub(crate) mod reference_system;
pub(crate) mod vrt;
