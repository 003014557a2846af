//! Formats of maps, and the georeference that they hold.
//!
//! `georeference` finds the reference system and the place of the first pixel, with the help of the other files;
//! `envi` and `vrt` are formats.

pub mod bands;
pub mod coordinate_variable;
pub mod envi;
pub mod geo_transform;
pub mod georeference;
pub mod grid_mapping;
pub mod levels;
pub mod plane;
pub mod projjson;
pub mod reference_system;
pub mod vrt;
