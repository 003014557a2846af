//! `GROUP.h5` and `GROUP.nc4`: a group with all that lies below it as one file of HDF5, and `NAME.h5`, an array alone.
//!
//! Datasets are contiguous: behind the headers they lie one after the other, the smallest first. Headers are made twice,
//! first without addresses, since their lengths do not depend on these. `datatype` and `attributes` say what values become,
//! `tree` has the objects, `object` and `heap` the words.

use std::sync::Arc;

use crate::export::format::ALIGNMENT;
use crate::export::group::{
    GroupContents, GroupFormat, GroupLayout, GroupMember, GroupPlan, GroupScope, OrWhyNot,
    PlacedVariable,
};
use crate::export::hdf5::datatype::Flavour;
use crate::export::hdf5::heap::GlobalHeap;
use crate::export::hdf5::object::{
    MessageKind, ObjectHeader, SUPERBLOCK, UNDEFINED, data_layout, dataspace, fill_value, link,
    link_info, superblock,
};
use crate::export::hdf5::tree::{HdfDataset, HdfObject, HdfTree, ObjectBody};
use crate::export::{ElementForm, FileParts, Format, Subject, axes};

mod attributes;
mod datatype;
mod heap;
mod member;
mod object;
mod scales;
mod tree;

pub use crate::export::hdf5::attributes::is_fill;

/// HDF5 as h5py writes it.
pub const GROUP: GroupFormat = GroupFormat {
    extension: "h5",
    scope: GroupScope::Below,
    plan: |contents| planned(contents, Flavour::Hdf5),
};

/// HDF5 as netCDF-4 has it.
pub const NETCDF: GroupFormat = GroupFormat {
    extension: "nc4",
    scope: GroupScope::Below,
    plan: |contents| planned(contents, Flavour::Netcdf4),
};

fn planned(contents: &GroupContents, flavour: Flavour) -> OrWhyNot<GroupPlan> {
    let layout = plan(contents, flavour).map(GroupPlan::laid);
    layout.ok_or_else(|| "none of the arrays can be held".to_string())
}

/// An array by itself.
pub const FORMAT: Format = Format {
    extension: "h5",
    needs: "elements of a fixed length in at most 32 dimensions, and a name of UTF-8",
    parts: Some(alone),
    ragged: None,
    is_basic: false,
};

/// Where the objects of a file lie.
struct HdfPlaces {
    objects: Vec<u64>,
    heap: u64,
    /// Where the elements of each dataset begin, by the number of the object.
    data: Vec<u64>,
}

/// Objects with their headers.
struct WrittenObjects {
    objects: Vec<Vec<u8>>,
    heap: Vec<u8>,
}

fn plan(contents: &GroupContents, flavour: Flavour) -> Option<GroupLayout> {
    let tree = HdfTree::of(contents, flavour)?;
    let count = tree.objects.len();
    let unknown = HdfPlaces {
        objects: vec![UNDEFINED; count],
        heap: 0,
        data: vec![UNDEFINED; count],
    };
    let (places, headers_end) = placed(&write(&tree, &unknown)?)?;
    let begin = headers_end.next_multiple_of(ALIGNMENT as u64);
    let (data, end) = data_places(&tree, begin)?;
    let written = write(
        &tree,
        &HdfPlaces {
            data: data.clone(),
            ..places
        },
    )?;
    let root = SUPERBLOCK;
    let mut header = superblock(end, root);
    header.extend(written.objects.concat());
    header.extend(written.heap);
    header.resize(usize::try_from(begin).ok()?, 0);
    let variables = variables(&tree, contents, &data, flavour)?;
    Some(GroupLayout {
        header: Arc::new(header.into()),
        variables,
    })
}

/// Returns the places of objects that were written without addresses, and where they end.
fn placed(written: &WrittenObjects) -> Option<(HdfPlaces, u64)> {
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

/// Returns the datasets that have elements, the smallest first.
fn stored(tree: &HdfTree) -> Vec<(usize, &HdfDataset)> {
    let objects = tree.objects.iter().enumerate();
    let datasets = objects.filter_map(|(number, object)| match &object.body {
        ObjectBody::Dataset(dataset) => Some((number, dataset)),
        _ => None,
    });
    let mut stored: Vec<_> = datasets
        .filter(|(_, dataset)| dataset.member.is_some() && dataset.size > 0)
        .collect();
    stored.sort_by_key(|(number, dataset)| (dataset.size, *number));
    stored
}

/// Returns where the elements of each object begin, and where they all end.
fn data_places(tree: &HdfTree, begin: u64) -> Option<(Vec<u64>, u64)> {
    let mut data = vec![UNDEFINED; tree.objects.len()];
    let mut next = begin;
    for (number, dataset) in stored(tree) {
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
    flavour: Flavour,
) -> Option<Vec<PlacedVariable>> {
    let placed = stored(tree).into_iter().map(|(number, dataset)| {
        let member = dataset.member?;
        let array = &contents.members.get(member)?.array;
        let kind = datatype::HdfType::of(&array.data_type, flavour)?;
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

/// Writes all objects; nothing if one is too long.
fn write(tree: &HdfTree, places: &HdfPlaces) -> Option<WrittenObjects> {
    let mut heap = GlobalHeap::at(places.heap);
    let objects = tree.objects.iter().zip(&places.data);
    let objects = objects.map(|(object, &data)| written(object, data, places, &mut heap));
    Some(WrittenObjects {
        objects: objects.collect::<Option<_>>()?,
        heap: heap.finish(),
    })
}

fn written(
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

/// Returns the file of an array by itself.
fn alone(subject: &Subject) -> Option<FileParts> {
    let path = std::str::from_utf8(subject.name).ok()?;
    if path.is_empty() || path.contains(['/', '\0']) {
        return None;
    }
    let mut array = subject.array.clone();
    let names = axes::axes_of(subject).into_iter().map(|axis| axis.name);
    (array.shape, array.dimension_names) = (subject.shape.to_vec(), names.collect());
    let contents = GroupContents {
        attributes: crate::model::Attributes::default(),
        subgroups: Vec::new(),
        members: vec![GroupMember {
            path: path.to_string(),
            array: Arc::new(array),
            source: None,
        }],
        left_out: Vec::new(),
    };
    let GroupLayout {
        header, variables, ..
    } = plan(&contents, Flavour::Hdf5)?;
    let parts = variables.into_iter().next().map(|variable| variable.parts);
    Some(FileParts {
        header: header.to_vec(),
        ..parts.unwrap_or_else(|| FileParts::plain(Vec::new()))
    })
}
