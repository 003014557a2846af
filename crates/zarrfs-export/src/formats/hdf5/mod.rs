//! `GROUP.nc4` and `GROUP.h5`: a group and everything below it as one netCDF-4 (HDF5) file.
//!
//! Datasets are contiguous: they follow the headers one after the other, the smallest first. All headers are made
//! twice, because they contain addresses: the first time only their lengths count, which do not depend on addresses.
//! `datatype` and `attributes` encode values, `tree` collects the objects, `object` and `heap` write the low-level
//! structures. Texts of arrays are in the heap, so the layout of a file with texts is made when the file is opened.

use std::borrow::Cow;
use std::sync::Arc;

use crate::formats::format::ALIGNMENT;
use crate::formats::group::{
    GroupBody, GroupContents, GroupFormat, GroupLayout, GroupPlan, GroupScope, MadeLayout,
    OrReason, PlacedVariable,
};
use crate::formats::hdf5::datatype::HdfType;
use crate::formats::hdf5::heap::{GlobalHeap, TextsOfFile};
use crate::formats::hdf5::object::{
    MessageKind, ObjectHeader, SUPERBLOCK, UNDEFINED, data_layout, dataspace, fill_value, link,
    link_info, superblock,
};
use crate::formats::hdf5::tree::{HdfDataset, HdfObject, HdfTree, ObjectBody};
use crate::formats::{ElementForm, FileParts, cf};
use zarr_format::error::{Error, Result};
use zarrfs_array::array::vlen_elements::ReservedBytes;
use zarrfs_store::request_context::RequestContext;

mod attributes;
mod datatype;
mod heap;
mod object;
mod tree;

pub(crate) use crate::formats::hdf5::attributes::is_fill;

/// The format `.nc4`: a group as a netCDF-4 file.
pub(crate) const NETCDF: GroupFormat = GroupFormat {
    extension: "nc4",
    scope: GroupScope::Below,
    decode: cf::decoded_but_times,
    plan,
};

/// The format `.h5`: a netCDF-4 file with the extension that programs for HDF5 expect.
pub(crate) const HDF5: GroupFormat = GroupFormat {
    extension: "h5",
    ..NETCDF
};

fn plan(contents: &GroupContents) -> OrReason<GroupPlan> {
    let tree = HdfTree::of(contents);
    let tree = tree.ok_or_else(|| "the format cannot store any of the arrays".to_string())?;
    let read: Vec<usize> = tree.texts().map(|(_, member)| member).collect();
    let body = if read.is_empty() {
        let none = TextsOfFile::default();
        let file = assemble(&tree, contents, &none);
        let file = file.ok_or_else(too_long)?;
        let mut header = Vec::new();
        file.parts
            .iter()
            .for_each(|part| header.extend_from_slice(part));
        GroupBody::Laid(GroupLayout {
            header: Arc::new(header.into()),
            variables: file.variables,
        })
    } else {
        GroupBody::Made(MadeLayout {
            read,
            make: make_layout,
        })
    };
    Ok(GroupPlan {
        body,
        left_out: tree.left_out,
    })
}

fn too_long() -> String {
    "names, attributes or lengths are too large for the format".to_string()
}

/// Reads the texts of an HDF5 file and makes its layout.
fn make_layout(context: &RequestContext, contents: &GroupContents) -> Result<GroupLayout> {
    let too_large = || Error::too_large("group", too_long());
    let tree = HdfTree::of(contents).ok_or_else(too_large)?;
    let (_, begin) = place_objects(&tree).ok_or_else(too_large)?;
    let texts = TextsOfFile::read(context, &tree, contents, begin)?;
    let file = assemble(&tree, contents, &texts).ok_or_else(too_large)?;
    let mut header = contents.growing()?;
    for part in &file.parts {
        header.push(part)?;
    }
    let header: ReservedBytes = header.finish();
    Ok(GroupLayout {
        header: Arc::new(header),
        variables: file.variables,
    })
}

/// The addresses of the objects, the heap and the elements in an HDF5 file.
struct HdfPlaces {
    objects: Vec<u64>,
    heap: u64,
    /// The address of each dataset's elements, indexed by the object number.
    data: Vec<u64>,
}

/// The encoded object headers of an HDF5 file, and the heap with the texts of attributes.
struct WrittenObjects {
    objects: Vec<Vec<u8>>,
    heap: Vec<u8>,
}

/// The bytes and the layout of an HDF5 file with its final addresses.
struct AssembledFile<'a> {
    /// All bytes before the elements of fixed length.
    parts: Vec<Cow<'a, [u8]>>,
    variables: Vec<PlacedVariable>,
}

/// Computes the addresses of all objects of the file, and the address after the heap.
fn place_objects(tree: &HdfTree) -> Option<(HdfPlaces, u64)> {
    let count = tree.objects.len();
    let unknown = HdfPlaces {
        objects: vec![UNDEFINED; count],
        heap: 0,
        data: vec![UNDEFINED; count],
    };
    places_of(&write(tree, &unknown)?)
}

/// Assembles an HDF5 file. Returns `None` if a length in it is too large for the format.
fn assemble<'a>(
    tree: &HdfTree,
    contents: &GroupContents,
    texts: &'a TextsOfFile,
) -> Option<AssembledFile<'a>> {
    let (places, headers_end) = place_objects(tree)?;
    let texts_end = headers_end.checked_add(texts.len())?;
    let begin = texts_end.next_multiple_of(ALIGNMENT as u64);
    let (mut data, end) = place_elements(tree, begin)?;
    for (object, place) in texts.places() {
        *data.get_mut(object)? = headers_end.checked_add(place)?;
    }
    let written = write(
        tree,
        &HdfPlaces {
            data: data.clone(),
            ..places
        },
    )?;
    let mut parts = vec![Cow::Owned(superblock(end, SUPERBLOCK))];
    parts.extend(written.objects.into_iter().map(Cow::Owned));
    parts.push(Cow::Owned(written.heap));
    parts.extend(texts.parts().map(Cow::Borrowed));
    let padding = usize::try_from(begin - texts_end).ok()?;
    parts.push(Cow::Owned(vec![0; padding]));
    Some(AssembledFile {
        parts,
        variables: variables(tree, contents, &data)?,
    })
}

/// Returns the addresses of the encoded objects if they follow one another after the superblock, and the address after
/// the heap.
fn places_of(written: &WrittenObjects) -> Option<(HdfPlaces, u64)> {
    let mut next = SUPERBLOCK;
    let mut objects = Vec::new();
    for object in &written.objects {
        objects.push(next);
        next += object.len() as u64;
    }
    let places = HdfPlaces {
        objects,
        heap: next,
        data: Vec::new(),
    };
    Some((places, next + written.heap.len() as u64))
}

/// Returns the datasets with elements of fixed length, the smallest first.
fn stored_datasets(tree: &HdfTree) -> Vec<(usize, &HdfDataset)> {
    let objects = tree.objects.iter().enumerate();
    let datasets = objects.filter_map(|(number, object)| match &object.body {
        ObjectBody::Dataset(dataset) => Some((number, dataset)),
        _ => None,
    });
    let mut stored: Vec<_> = datasets
        .filter(|(_, dataset)| dataset.member.is_some() && dataset.size > 0 && !dataset.is_text)
        .collect();
    stored.sort_by_key(|(number, dataset)| (dataset.size, *number));
    stored
}

/// Returns the address of each dataset's elements, and the address after the last elements.
fn place_elements(tree: &HdfTree, begin: u64) -> Option<(Vec<u64>, u64)> {
    let mut data = vec![UNDEFINED; tree.objects.len()];
    let mut next = begin;
    for (number, dataset) in stored_datasets(tree) {
        data[number] = next;
        next = next.checked_add(dataset.size.checked_next_multiple_of(8)?)?;
    }
    i64::try_from(next).ok()?;
    Some((data, next))
}

fn variables(
    tree: &HdfTree,
    contents: &GroupContents,
    data: &[u64],
) -> Option<Vec<PlacedVariable>> {
    let placed = stored_datasets(tree).into_iter().map(|(number, dataset)| {
        let member = dataset.member?;
        let array = &contents.members.get(member)?.array;
        let kind = HdfType::of(array)?;
        let padding = dataset.size.next_multiple_of(8) - dataset.size;
        Some(PlacedVariable {
            member,
            offset: *data.get(number)?,
            parts: FileParts {
                header: Vec::new(),
                elements: Some(ElementForm {
                    order: None,
                    conversion: kind.conversion,
                }),
                trailer: vec![0; usize::try_from(padding).ok()?],
                ..FileParts::default()
            },
        })
    });
    placed.collect()
}

/// Encodes all object headers and the heap. Returns `None` if a header is too long.
fn write(tree: &HdfTree, places: &HdfPlaces) -> Option<WrittenObjects> {
    let mut heap = GlobalHeap::at(places.heap);
    let objects = tree.objects.iter().zip(&places.data);
    let objects = objects.map(|(object, &data)| write_object(object, data, places, &mut heap));
    Some(WrittenObjects {
        objects: objects.collect::<Option<_>>()?,
        heap: heap.finish(),
    })
}

fn write_object(
    object: &HdfObject,
    data: u64,
    places: &HdfPlaces,
    heap: &mut GlobalHeap,
) -> Option<Vec<u8>> {
    let mut out = ObjectHeader::default();
    match &object.body {
        ObjectBody::Group(links) => {
            out.add(MessageKind::LinkInfo, &link_info(links.len() as u64))?;
            out.add(MessageKind::GroupInfo, &[0, 0])?;
            for (order, (name, object)) in (0..).zip(links) {
                let address = places.objects.get(*object)?;
                out.add(MessageKind::Link, &link(name, order, *address)?)?;
            }
        }
        ObjectBody::Type(message) => out.add(MessageKind::Datatype, message)?,
        ObjectBody::Dataset(dataset) => {
            out.add(MessageKind::Dataspace, &dataspace(&dataset.lengths)?)?;
            match &dataset.kind {
                Ok(message) => out.add(MessageKind::Datatype, message)?,
                Err(object) => {
                    out.add_shared(MessageKind::Datatype, *places.objects.get(*object)?)?
                }
            }
            out.add(MessageKind::FillValue, &fill_value(&dataset.fill)?)?;
            out.add(MessageKind::DataLayout, &data_layout(data, dataset.size))?;
        }
    }
    for (name, value) in &object.attributes {
        let message = value.message(name, heap, &places.objects)?;
        out.add(MessageKind::Attribute, &message)?;
    }
    out.finish()
}
