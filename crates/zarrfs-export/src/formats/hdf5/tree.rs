//! Collects the objects of an HDF5 file before they have addresses.
//!
//! Objects are groups, datasets and dimension scales. In HDF5, a scale is the dataset that describes a dimension: the
//! coordinate variable with the dimension's name, or else a dataset without elements, which netCDF needs for the name.
//! The objects of a group are its arrays in order, and then the dimensions without a coordinate variable. Every
//! dimension gets a scale, since netCDF does not read a dataset with scales for only some of its dimensions.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::formats::group::{GroupContents, GroupMember};
use crate::formats::hdf5::attributes;
use crate::formats::hdf5::attributes::HdfValue;
use crate::formats::hdf5::datatype::{HdfType, STRUCTURE, single};
use crate::formats::hdf5::object::{ObjectHeader, UNDEFINED};
use crate::formats::netcdf::header::unit_left_out;
use crate::formats::netcdf::names::{GroupDimensions, VisibleDimensions};
use zarr_format::model::{LEFT_OUT, bytes_of};

/// The objects of an HDF5 file, numbered in order; the first one is the root group.
pub(super) struct HdfTree {
    pub(super) objects: Vec<HdfObject>,
    /// A message about each array that the file leaves out.
    pub(super) left_out: Vec<String>,
}

pub(super) struct HdfObject {
    pub(super) body: ObjectBody,
    pub(super) attributes: Vec<(String, HdfValue)>,
}

pub(super) enum ObjectBody {
    /// A group, with the names and object numbers of its links.
    Group(Vec<(String, usize)>),
    /// A committed datatype, to which datasets refer by its object number.
    Type(Vec<u8>),
    Dataset(HdfDataset),
}

/// A dataset of the HDF5 file before it has an address.
pub(super) struct HdfDataset {
    /// The datatype message, or else the object number of a committed datatype.
    pub(super) kind: Result<Vec<u8>, usize>,
    /// The name under which the dataset's type must be committed, if netCDF requires that.
    type_name: Option<&'static str>,
    pub(super) lengths: Vec<u64>,
    pub(super) fill: Vec<u8>,
    /// Total bytes of the dataset's elements.
    pub(super) size: u64,
    /// The number of the array with the dataset's elements; `None` for a dimension scale without elements.
    pub(super) member: Option<usize>,
    /// Whether the dataset's elements are references to strings in the heap. The strings are read when the file is
    /// opened.
    pub(super) is_text: bool,
}

impl HdfTree {
    /// Collects the objects of an HDF5 file, or returns `None` if the format cannot hold any of the arrays.
    pub(super) fn of(contents: &GroupContents) -> Option<HdfTree> {
        let mut tree = HdfTree {
            objects: Vec::new(),
            left_out: Vec::new(),
        };
        let groups = tree.add_groups(contents);
        let mut members: BTreeMap<&str, Vec<PlacedMember>> = BTreeMap::new();
        for (number, member) in contents.members.iter().enumerate() {
            let (group, name) = member.path.rsplit_once('/').unwrap_or(("", &member.path));
            match PlacedMember::of(number, name, member) {
                Ok(placed) => {
                    let unit = unit_left_out(&member.path, &member.array);
                    tree.left_out.extend(unit);
                    members.entry(group).or_default().push(placed);
                }
                Err(why) => tree.left_out.push(why),
            }
        }
        if members.is_empty() {
            return None;
        }
        let mut scales = FileScales::default();
        for (path, members) in members {
            tree.add_members(path, *groups.get(path)?, members, &mut scales)?;
        }
        tree.refer_to_users(scales);
        tree.share_types();
        let mut left_out = [&contents.left_out[..], &tree.left_out].concat();
        if !left_out.is_empty() {
            // The group's attributes may already have a text with this name, such as that long attributes were left
            // out. It becomes one of the sentences.
            if let Some(Value::String(own)) = contents.attributes.get(LEFT_OUT) {
                left_out.push(own);
            }
            let root = tree.objects.first_mut()?;
            root.attributes.retain(|(name, _)| name != LEFT_OUT);
            root.attributes
                .push((LEFT_OUT.to_string(), shortened(left_out)));
        }
        Some(tree)
    }

    /// Adds the groups to the file, and returns the object number of each group by its path.
    fn add_groups<'a>(&mut self, contents: &'a GroupContents) -> BTreeMap<&'a str, usize> {
        self.add(
            ObjectBody::Group(Vec::new()),
            attributes::of_group(&contents.attributes),
        );
        let mut groups = BTreeMap::from([("", 0)]);
        for group in &contents.subgroups {
            let (parent, name) = group.path.rsplit_once('/').unwrap_or(("", &group.path));
            let Some(&parent) = groups.get(parent) else {
                continue;
            };
            let attributes = attributes::of_group(&group.attributes);
            let object = self.add(ObjectBody::Group(Vec::new()), attributes);
            self.link(parent, name.to_string(), object);
            groups.insert(&group.path, object);
        }
        groups
    }

    fn add(&mut self, body: ObjectBody, attributes: Vec<(String, HdfValue)>) -> usize {
        self.objects.push(HdfObject { body, attributes });
        self.objects.len() - 1
    }

    fn links(&self, group: usize) -> &[(String, usize)] {
        match self.objects.get(group) {
            Some(HdfObject {
                body: ObjectBody::Group(links),
                ..
            }) => links,
            _ => &[],
        }
    }

    fn link(&mut self, group: usize, name: String, object: usize) {
        if let Some(HdfObject {
            body: ObjectBody::Group(links),
            ..
        }) = self.objects.get_mut(group)
        {
            links.push((name, object));
        }
    }

    /// Adds the datasets of a group to the file, and those dimensions that the groups above do not have.
    fn add_members(
        &mut self,
        path: &str,
        group: usize,
        mut members: Vec<PlacedMember>,
        file: &mut FileScales,
    ) -> Option<()> {
        let subgroups = self.links(group).iter().map(|(name, _)| name.clone());
        let first = file.objects.len() as u64;
        let mut dimensions =
            GroupDimensions::below(file.visible_in(path), first, subgroups.collect());
        let arrays = members
            .iter()
            .map(|placed| (placed.name, &*placed.member.array));
        dimensions.add_coordinates(arrays);
        for placed in &mut members {
            placed.number_dimensions(&mut dimensions);
        }
        let scales = GroupScales::new(&dimensions, &members, self.objects.len(), first);
        file.objects.extend(scales.objects());
        file.visible.insert(path.to_string(), dimensions.visible());
        for placed in &members {
            file.add_user(self.objects.len(), placed);
            self.add_member(group, placed, &scales, file)?;
        }
        for (object, name, length) in scales.without_variable() {
            let attributes = scales.attributes_of_dimension(object, length)?;
            self.add(ObjectBody::Dataset(HdfDataset::scale(length)), attributes);
            self.link(group, name.to_string(), object);
        }
        Some(())
    }

    /// Adds to each dimension scale the list of the datasets that use it. A list that is too long for a message is left
    /// out.
    fn refer_to_users(&mut self, scales: FileScales) {
        for (scale, users) in scales.users {
            if let Some(object) = self.objects.get_mut(scale)
                && users.len() < 4000
            {
                let name = "REFERENCE_LIST".to_string();
                object.attributes.push((name, HdfValue::Scaled(users)));
            }
        }
    }

    fn add_member(
        &mut self,
        group: usize,
        placed: &PlacedMember,
        scales: &GroupScales,
        file: &FileScales,
    ) -> Option<()> {
        let object = self.objects.len();
        let mut own = attributes::of_array(&placed.member.array, &placed.kind);
        if scales.is_scale(object) {
            own.extend(scales.attributes(object, placed.name)?);
        } else {
            own.extend(placed.scales(|number| file.of(number)));
        }
        self.add(ObjectBody::Dataset(HdfDataset::of(placed)), own);
        self.link(group, scales.link_name(placed.name, object), object);
        Some(())
    }

    /// Returns a name for a committed type, which no link of the root group has yet.
    fn free_name(&self, name: &str) -> String {
        let is_free = |name: &String| !self.links(0).iter().any(|(known, _)| known == name);
        let numbers = (1_u64..).map(|number| format!("{name}_{number}"));
        let own = (name != STRUCTURE).then(|| name.to_string());
        let mut names = own.into_iter().chain(numbers);
        names.find(is_free).unwrap_or_default()
    }

    /// Returns the object number of each dataset whose elements are texts, and the number of its array.
    pub(super) fn texts(&self) -> impl Iterator<Item = (usize, usize)> {
        let objects = self.objects.iter().enumerate();
        objects.filter_map(|(number, object)| match &object.body {
            ObjectBody::Dataset(dataset) if dataset.is_text => Some((number, dataset.member?)),
            _ => None,
        })
    }

    /// Adds the committed datatypes that netCDF requires. Datasets of the same type refer to the same datatype.
    fn share_types(&mut self) {
        let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for number in 0..self.objects.len() {
            let Some((name, message)) = self.objects.get(number).and_then(HdfObject::own_type)
            else {
                continue;
            };
            let object = match known.get(&message) {
                Some(&object) => object,
                None => {
                    let name = self.free_name(name);
                    let object = self.add(ObjectBody::Type(message.clone()), Vec::new());
                    self.link(0, name, object);
                    known.insert(message, object);
                    object
                }
            };
            if let Some(ObjectBody::Dataset(dataset)) =
                self.objects.get_mut(number).map(|object| &mut object.body)
            {
                dataset.kind = Err(object);
            }
        }
    }
}

impl HdfObject {
    /// Returns the name and the message of a dataset's type, if netCDF requires a committed datatype.
    fn own_type(&self) -> Option<(&'static str, Vec<u8>)> {
        match &self.body {
            ObjectBody::Dataset(dataset) => Some((dataset.type_name?, dataset.kind.clone().ok()?)),
            _ => None,
        }
    }
}

/// Returns a list of sentences as an attribute. Of more than 1000 sentences, the last one says how many are missing.
fn shortened(mut sentences: Vec<String>) -> HdfValue {
    let more = sentences.len().saturating_sub(1000);
    if more > 0 {
        sentences.truncate(1000);
        sentences.push(format!("{more} others"));
    }
    HdfValue::Texts(sentences)
}

impl HdfDataset {
    /// Returns the dataset that holds an array.
    fn of(placed: &PlacedMember) -> HdfDataset {
        let fill = &placed.member.array.fill_value.bytes;
        HdfDataset {
            kind: Ok(placed.kind.message.clone()),
            type_name: placed.kind.own_name,
            fill: match placed.kind.letters {
                // Readers do not need the fill value, because the file stores all elements. So a fill value that is too
                // long for a message is left out.
                None if !placed.kind.is_text && fill.len() < ObjectHeader::MAX_MESSAGE / 2 => {
                    placed.kind.written(fill)
                }
                _ => Vec::new(),
            },
            // If the size overflows, the size `UNDEFINED` makes the later computation of addresses fail.
            size: bytes_of(&placed.lengths, placed.kind.size).unwrap_or(UNDEFINED),
            lengths: placed.lengths.clone(),
            member: Some(placed.number),
            is_text: placed.kind.is_text,
        }
    }

    /// Returns the dimension scale of a dimension that has no coordinate variable: a dataset without elements.
    fn scale(length: u64) -> HdfDataset {
        HdfDataset {
            kind: Ok(single(true)),
            type_name: None,
            lengths: vec![length],
            fill: Vec::new(),
            size: length.saturating_mul(4),
            member: None,
            is_text: false,
        }
    }
}

/// Maximum number of dimensions of an HDF5 dataset.
const MAX_DIMENSIONS: usize = 32;

/// An array of the file, with its HDF5 type and its dimensions.
pub(super) struct PlacedMember<'a> {
    /// The number of the array among all arrays of the file.
    pub(super) number: usize,
    pub(super) name: &'a str,
    pub(super) member: &'a GroupMember,
    pub(super) kind: HdfType,
    pub(super) lengths: Vec<u64>,
    /// The netCDF numbers of the array's dimensions, which count through the whole file.
    pub(super) dimensions: Vec<u64>,
}

impl<'a> PlacedMember<'a> {
    /// Chooses the HDF5 type of an array; fails with a message if the format cannot hold the array.
    fn of(
        number: usize,
        name: &'a str,
        member: &'a GroupMember,
    ) -> Result<PlacedMember<'a>, String> {
        let array = &member.array;
        let no_type = || format!("{}: HDF5 has no type for {}", member.path, array.data_type);
        let kind = HdfType::of(array).ok_or_else(no_type)?;
        let mut lengths = array.shape.clone();
        lengths.extend(kind.letters);
        if lengths.len() > MAX_DIMENSIONS {
            return Err(format!(
                "{}: HDF5 has at most {MAX_DIMENSIONS} dimensions",
                member.path
            ));
        }
        Ok(PlacedMember {
            number,
            name,
            member,
            kind,
            lengths,
            dimensions: Vec::new(),
        })
    }

    pub(super) fn number_dimensions(&mut self, dimensions: &mut GroupDimensions) {
        let names = &self.member.array.dimension_names;
        let rank = self.member.array.shape.len();
        let numbered = self.lengths.iter().enumerate().map(|(axis, &length)| {
            let letters = format!("string{length}");
            let name = names.get(axis).cloned().flatten();
            let name = if axis < rank { name } else { Some(letters) };
            dimensions.number(name.as_deref(), length)
        });
        self.dimensions = numbered.collect();
    }

    /// Returns the attribute `DIMENSION_LIST`, which lists the dimension scales of an array's dimensions.
    pub(super) fn scales(
        &self,
        scale_of: impl Fn(u64) -> Option<usize>,
    ) -> Option<(String, HdfValue)> {
        let scales: Vec<_> = self
            .dimensions
            .iter()
            .map(|&number| scale_of(number))
            .collect();
        let has_some = scales.iter().any(Option::is_some);
        has_some.then(|| ("DIMENSION_LIST".to_string(), HdfValue::Scales(scales)))
    }
}

/// The dimensions of a group, and the dimension scale of each.
struct GroupScales {
    /// Names and lengths of the group's dimensions, in the order of their numbers.
    dimensions: Vec<(String, u64)>,
    /// The object number of each dimension's scale.
    scales: Vec<usize>,
    /// The number of the first object that is only a dimension and not a variable.
    alone: usize,
    /// The netCDF number of the group's first dimension.
    first: u64,
}

impl GroupScales {
    /// Numbers the dimension scales of a group. The objects of the group's arrays are numbered from `base` on, its
    /// dimensions from `first` on.
    fn new(
        dimensions: &GroupDimensions,
        members: &[PlacedMember],
        base: usize,
        first: u64,
    ) -> GroupScales {
        let list = dimensions.list().into_iter();
        let dimensions: Vec<_> = list
            .map(|(name, length)| (name.to_string(), length))
            .collect();
        let (mut scales, alone) = (Vec::new(), base + members.len());
        let mut next = alone;
        for (number, (name, _)) in (first..).zip(&dimensions) {
            let is_own =
                |placed: &PlacedMember| placed.name == name && placed.dimensions == [number];
            scales.push(match members.iter().position(is_own) {
                Some(place) => base + place,
                None => {
                    next += 1;
                    next - 1
                }
            });
        }
        GroupScales {
            dimensions,
            scales,
            alone,
            first,
        }
    }

    /// Returns the object numbers of the dimension scales, in the order of the dimensions.
    fn objects(&self) -> &[usize] {
        &self.scales
    }

    fn is_scale(&self, object: usize) -> bool {
        self.scales.contains(&object)
    }

    /// Returns the attributes that make an object a dimension scale. `label` is the value of its attribute `NAME`.
    fn attributes(&self, object: usize, label: &str) -> Option<Vec<(String, HdfValue)>> {
        let fixed = |text: &str| HdfValue::FixedText(format!("{text}\0"));
        let mut list = vec![
            ("CLASS".to_string(), fixed("DIMENSION_SCALE")),
            ("NAME".to_string(), fixed(label)),
        ];
        let number = self.scales.iter().position(|&scale| scale == object)?;
        let number = HdfValue::dimension_number(self.first + number as u64)?;
        list.push(("_Netcdf4Dimid".to_string(), number));
        Some(list)
    }

    /// Returns the attributes of a dimension scale that is not a variable.
    fn attributes_of_dimension(
        &self,
        object: usize,
        length: u64,
    ) -> Option<Vec<(String, HdfValue)>> {
        // netCDF recognizes by this text that the HDF5 dataset is only a dimension.
        let label = format!("This is a netCDF dimension but not a netCDF variable. {length:>9}");
        self.attributes(object, &label)
    }

    /// Returns the object number, the name and the length of each dimension that has no variable.
    fn without_variable(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        let dimensions = self.dimensions.iter().zip(&self.scales);
        let alone = dimensions.filter(|&(_, &object)| object >= self.alone);
        alone.map(|((name, length), &object)| (object, name.as_str(), *length))
    }

    /// Returns the name under which an array is linked in its group. netCDF requires a prefix if the array has the name
    /// of a dimension but is not the scale of the dimension.
    fn link_name(&self, name: &str, object: usize) -> String {
        let mut dimensions = self.dimensions.iter().zip(&self.scales);
        let is_other =
            dimensions.any(|((dimension, _), &scale)| dimension == name && scale != object);
        let prefix = if is_other { "_nc4_non_coord_" } else { "" };
        format!("{prefix}{name}")
    }
}

/// The dimension scales of all groups of an HDF5 file.
#[derive(Default)]
struct FileScales {
    /// The object number of each dimension's scale, indexed by the netCDF number of the dimension.
    objects: Vec<usize>,
    /// The dimensions that the arrays of a group and the groups below it can use, by the path of the group.
    visible: BTreeMap<String, VisibleDimensions>,
    /// The datasets that use a dimension scale, each with the index of its dimension, by the object number of the
    /// scale.
    users: BTreeMap<usize, Vec<(usize, u32)>>,
}

impl FileScales {
    /// Returns the dimensions that a group inherits from the nearest group above it.
    fn visible_in(&self, path: &str) -> VisibleDimensions {
        let mut above = path;
        while let Some((group, _)) = above.rsplit_once('/') {
            if let Some(visible) = self.visible.get(group) {
                return visible.clone();
            }
            above = group;
        }
        let top = self.visible.get("").filter(|_| !path.is_empty());
        top.cloned().unwrap_or_default()
    }

    /// Returns the object number of a dimension's scale; `None` if the file has no dimension with this number.
    fn of(&self, number: u64) -> Option<usize> {
        self.objects.get(usize::try_from(number).ok()?).copied()
    }

    fn add_user(&mut self, object: usize, placed: &PlacedMember) {
        for (axis, &number) in (0_u32..).zip(&placed.dimensions) {
            if let Some(scale) = self.of(number).filter(|&scale| scale != object) {
                self.users.entry(scale).or_default().push((object, axis));
            }
        }
    }
}
