//! Changes of nodes, the same for a transaction that is applied and one that is replayed.

use crate::format::Seqno;
use crate::sync::SharedArc;

use super::extents::{Dropped, Extent, References, Unit};
use super::omap::Omap;
use super::table::{Node, Shard, Space};
use super::{ObjectId, OmapLocation};

/// What hears of payload that nobody refers to any more.
pub(crate) type Dead<'a> = dyn FnMut(Dropped) + 'a;

/// Calls with a node's extents and the counts that go with them: an object that shares
/// nothing has none, and everything it drops is dead.
pub(crate) fn with_references<T>(
    shard: &mut Shard,
    id: ObjectId,
    unit: Unit,
    call: impl FnOnce(&mut Node, &mut References) -> T,
) -> Option<T> {
    let (node, references) = shard.get_mut(id)?;
    Some(match references {
        Some(references) => call(node, references),
        None => call(node, &mut References::new(unit)),
    })
}

pub(crate) fn create(
    shard: &mut Shard,
    id: ObjectId,
    space: SharedArc<Space>,
    name: &[u8],
    version: Seqno,
    unit: Unit,
) {
    shard.insert(id, Node::new(space, name, version), unit);
}

/// Makes a new member with everything of another but its omap's keys.
pub(crate) fn clone(
    shard: &mut Shard,
    source: u32,
    id: ObjectId,
    space: SharedArc<Space>,
    name: &[u8],
    version: Seqno,
    unit: Unit,
) -> bool {
    let source = ObjectId {
        family: id.family,
        member: source,
    };
    let Some(source) = shard.get(source) else {
        return false;
    };
    let mut node = Node::new(space, name, version);
    node.bytes = source.bytes;
    node.stored_bytes = source.stored_bytes;
    node.attributes = source.attributes.clone();
    node.extents = source.extents.clone();
    node.set_hint(source.hint());
    node.omap = source.omap.as_ref().and_then(|omap| {
        let header = omap.header.clone();
        header.is_some().then(|| {
            Box::new(Omap {
                header,
                ..Omap::default()
            })
        })
    });
    shard.insert(id, node, unit);
    true
}

/// Takes a node out and gives its extents back.
pub(crate) fn remove(
    shard: &mut Shard,
    id: ObjectId,
    unit: Unit,
    dead: &mut Dead<'_>,
) -> Option<Node> {
    let extents = with_references(shard, id, unit, |node, references| {
        let extents = std::mem::take(&mut node.extents);
        extents.release(references, dead);
    });
    extents?;
    let node = shard.remove(id);
    shard.make_one(id.family);
    node
}

pub(crate) fn write(
    shard: &mut Shard,
    id: ObjectId,
    extent: Extent<'_>,
    version: Seqno,
    unit: Unit,
    dead: &mut Dead<'_>,
) -> bool {
    with_references(shard, id, unit, |node, references| {
        node.version = version;
        let window = (extent.first, extent.end());
        let before = stored_in(node, window);
        node.extents.replace(extent, references, dead);
        node.stored_bytes += extent.bytes();
        node.stored_bytes -= before;
    })
    .is_some()
}

pub(crate) fn unmap(
    shard: &mut Shard,
    id: ObjectId,
    blocks: (u32, u64),
    version: Seqno,
    unit: Unit,
    dead: &mut Dead<'_>,
) -> bool {
    with_references(shard, id, unit, |node, references| {
        node.version = version;
        node.stored_bytes -= stored_in(node, blocks);
        node.extents.unmap(blocks.0, blocks.1, references, dead);
    })
    .is_some()
}

/// Bytes stored of blocks from the first to before the second.
fn stored_in(node: &Node, blocks: (u32, u64)) -> u64 {
    let extents = node.extents.range(blocks.0, blocks.1);
    extents.map(|extent| extent.bytes()).sum()
}

/// The omap of a node, made if there is none.
pub(crate) fn omap_of(node: &mut Node) -> &mut Omap {
    node.omap.get_or_insert_default()
}

/// Drops an omap that says nothing.
pub(crate) fn trim_omap(node: &mut Node) {
    if node.omap.as_ref().is_some_and(|omap| omap.is_nothing()) {
        node.omap = None;
    }
}

/// Removes keys; `gone` hears where their values were.
pub(crate) fn omap_remove<'k>(
    node: &mut Node,
    keys: impl Iterator<Item = &'k [u8]>,
    gone: &mut dyn FnMut(OmapLocation),
) {
    if let Some(omap) = &mut node.omap {
        for key in keys {
            omap.remove(key, gone);
        }
    }
    trim_omap(node);
}
