//! Names the specifications and the sections to which findings refer.

/// A section of a specification that a finding cites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecSection {
    /// The title of the specification, such as `Zarr v2`.
    pub document: &'static str,
    /// The heading of the section in the specification.
    pub heading: &'static str,
}

/// A specification of Zarr or of a convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    V2,
    V3,
    Draft2019,
    Draft2020,
    Draft2022,
    N5,
    Sharding,
    Json,
    Ome04,
    Ome05,
    Anndata,
    Cf,
    Xarray,
}

impl Spec {
    /// Returns the specification of a dialect, and that of Zarr v3 if the dialect is unknown.
    pub(crate) fn of(dialect: Option<&str>) -> Spec {
        match dialect {
            Some("v2") => Spec::V2,
            Some("n5") => Spec::N5,
            Some("draft2019") => Spec::Draft2019,
            Some("draft2020") => Spec::Draft2020,
            Some("draft2022") => Spec::Draft2022,
            _ => Spec::V3,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Spec::V2 => "Zarr v2",
            Spec::V3 => "Zarr v3 core 3.1",
            Spec::Draft2019 => "Zarr v3 draft of 2019",
            Spec::Draft2020 => "Zarr v3 draft of October 2020",
            Spec::Draft2022 => "Zarr v3 draft of May 2022",
            Spec::N5 => "N5 file system format",
            Spec::Sharding => "Zarr v3 codec sharding_indexed",
            Spec::Json => "RFC 8259 (JSON)",
            Spec::Ome04 => "OME-Zarr 0.4",
            Spec::Ome05 => "OME-Zarr 0.5",
            Spec::Anndata => "File format of anndata",
            Spec::Cf => "CF conventions 1.11",
            Spec::Xarray => "Documentation of xarray",
        }
    }

    pub(crate) const fn section(self, heading: &'static str) -> SpecSection {
        SpecSection {
            document: self.title(),
            heading,
        }
    }

    /// Returns the section of the specification on stored chunks.
    pub(crate) fn chunks(self) -> SpecSection {
        self.section(match self {
            Spec::V2 => "Chunks",
            Spec::N5 => "Blocks",
            Spec::Draft2019 => "Chunk grids",
            _ => "Chunk encoding",
        })
    }

    pub(crate) fn hierarchy(self) -> SpecSection {
        self.section(match self {
            Spec::V2 => "Groups",
            Spec::N5 => "Containers",
            Spec::Draft2019 => "Conceptual model",
            _ => "Concepts and terminology",
        })
    }

    pub(crate) fn codecs(self) -> SpecSection {
        self.section(match self {
            Spec::V2 => "Metadata",
            Spec::N5 => "Datasets",
            Spec::Draft2020 => "Chunk encoding",
            _ => "Codecs",
        })
    }

    /// Returns the section of the specification on metadata documents.
    pub(crate) fn metadata(self) -> SpecSection {
        self.section(match self {
            Spec::N5 => "Datasets",
            _ => "Metadata",
        })
    }
}
