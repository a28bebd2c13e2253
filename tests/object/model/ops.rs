//! What each operation does to the state.

use std::sync::Arc;

use esker::{CollectionName, Error, ObjectName, Op, Result, Transaction};

use super::{Collection, Object, State};

pub(super) fn run(state: &mut State, transactions: &[Transaction<'_>]) -> Result<()> {
    for transaction in transactions {
        transaction.check()?;
    }
    transactions
        .iter()
        .flat_map(Transaction::ops)
        .try_for_each(|op| run_op(state, op))
}

fn run_op(state: &mut State, op: &Op<'_>) -> Result<()> {
    match op {
        Op::Nop | Op::CollectionHint { .. } => {}
        Op::Create { collection, object } | Op::Touch { collection, object } => {
            made(state, *collection, object)?;
        }
        Op::Write {
            collection,
            object,
            offset,
            data,
        } => {
            let object = made(state, *collection, object)?;
            object.data.write(*offset, &data.concat());
        }
        Op::Zero {
            collection,
            object,
            offset,
            len,
        } => made(state, *collection, object)?.data.zero(*offset, *len),
        Op::Truncate {
            collection,
            object,
            size,
        } => {
            if let Some(object) = found(state, *collection, object)? {
                object.data.truncate(*size);
            }
        }
        Op::Remove { collection, object } => {
            self::collection(state, *collection)?.objects.remove(object);
        }
        Op::SetAttrs {
            collection,
            object,
            attrs,
        } => {
            let object = needed(state, *collection, object)?;
            for (attr, value) in attrs {
                object.attrs.insert(attr.to_vec(), value.to_vec());
            }
        }
        Op::RmAttr {
            collection,
            object,
            attr,
        } => {
            needed(state, *collection, object)?
                .attrs
                .remove(attr.as_ref());
        }
        Op::RmAttrs { collection, object } => {
            if let Some(object) = found(state, *collection, object)? {
                object.attrs.clear();
            }
        }
        Op::Clone {
            collection,
            source,
            target,
        } => {
            let source = needed(state, *collection, source)?.clone();
            *made(state, *collection, target)? = source;
        }
        Op::CloneRange {
            collection,
            source,
            target,
            source_offset,
            len,
            target_offset,
        } => {
            let source = needed(state, *collection, source)?.data.clone();
            if source_offset + len > source.size {
                return Err(Error::InvalidArgument("a range past the source's end"));
            }
            let target = made(state, *collection, target)?;
            target
                .data
                .clone_range(&source, *source_offset, *len, *target_offset);
        }
        Op::SetAllocHint {
            collection, object, ..
        } => {
            found(state, *collection, object)?;
        }
        Op::CollectionMoveRename {
            collection,
            source,
            target,
            ..
        }
        | Op::TryRename {
            collection,
            source,
            target,
        } => rename(self::collection(state, *collection)?, source, target)?,
        Op::OmapClear { .. }
        | Op::OmapSetKeys { .. }
        | Op::OmapRmKeys { .. }
        | Op::OmapRmKeyRange { .. }
        | Op::OmapSetHeader { .. } => run_omap(state, op)?,
        _ => run_collection(state, op)?,
    }
    Ok(())
}

fn run_omap(state: &mut State, op: &Op<'_>) -> Result<()> {
    match op {
        Op::OmapClear { collection, object } => {
            if let Some(object) = found(state, *collection, object)? {
                object.omap.clear();
                object.header.clear();
            }
        }
        Op::OmapSetKeys {
            collection,
            object,
            entries,
        } => {
            let object = needed(state, *collection, object)?;
            for (key, value) in entries {
                object.omap.insert(key.to_vec(), value.to_vec());
            }
        }
        Op::OmapRmKeys {
            collection,
            object,
            keys,
        } => {
            let object = needed(state, *collection, object)?;
            for key in keys {
                object.omap.remove(key.as_ref());
            }
        }
        Op::OmapRmKeyRange {
            collection,
            object,
            first,
            last,
        } => {
            let object = needed(state, *collection, object)?;
            let gone = first.as_ref()..last.as_ref();
            object.omap.retain(|key, _| !gone.contains(&key.as_slice()));
        }
        Op::OmapSetHeader {
            collection,
            object,
            header,
        } => needed(state, *collection, object)?.header = header.to_vec(),
        other => panic!("not an operation on an omap: {other:?}"),
    }
    Ok(())
}

fn run_collection(state: &mut State, op: &Op<'_>) -> Result<()> {
    match *op {
        Op::CreateCollection {
            collection: name,
            bits,
        } => {
            if state.contains_key(&name) {
                let what = name.to_string();
                return Err(Error::Exists { what });
            }
            let made = Collection {
                bits,
                ..Collection::default()
            };
            state.insert(name, Arc::new(made));
        }
        Op::RemoveCollection { collection: name } => {
            empty(name, collection(state, name)?)?;
            state.remove(&name);
        }
        Op::CollectionSetBits {
            collection: name,
            bits,
        } => collection(state, name)?.bits = bits,
        Op::SplitCollection {
            collection: name,
            bits,
            rem,
            target,
        } => {
            collection(state, name)?;
            let to = collection(state, target)?;
            if to.bits != bits {
                return Err(Error::InvalidArgument("the target has other bits"));
            }
            empty(target, to)?;
            let from = collection(state, name)?;
            if from.bits > bits {
                return Err(Error::InvalidArgument("a split to fewer bits"));
            }
            from.bits = bits;
            let mask = u32::MAX.checked_shl(bits).map_or(u32::MAX, |high| !high);
            let (gone, kept) = std::mem::take(&mut from.objects)
                .into_iter()
                .partition(|(object, _)| object.hash() & mask == rem);
            from.objects = kept;
            collection(state, target)?.objects = gone;
        }
        Op::MergeCollection {
            collection: name,
            target,
            bits,
        } => {
            let moved = collection(state, name)?.objects.clone();
            let to = collection(state, target)?;
            to.objects.extend(moved);
            to.bits = bits;
            state.remove(&name);
        }
        ref other => panic!("not an operation on a collection: {other:?}"),
    }
    Ok(())
}

fn rename(
    collection: &mut Collection,
    source: &Arc<ObjectName>,
    target: &Arc<ObjectName>,
) -> Result<()> {
    if !collection.objects.contains_key(source) {
        return Ok(());
    }
    if collection.objects.contains_key(target) {
        let what = target.to_string();
        return Err(Error::Exists { what });
    }
    if let Some(object) = collection.objects.remove(source) {
        collection.objects.insert(target.clone(), object);
    }
    Ok(())
}

fn empty(name: CollectionName, collection: &Collection) -> Result<()> {
    if collection.objects.is_empty() {
        return Ok(());
    }
    let what = name.to_string();
    Err(Error::NotEmpty { what })
}

fn collection(state: &mut State, name: CollectionName) -> Result<&mut Collection> {
    let found = state.get_mut(&name).ok_or(Error::NoEntry("collection"))?;
    Ok(Arc::make_mut(found))
}

/// The object, if it is there.
fn found<'s>(
    state: &'s mut State,
    collection: CollectionName,
    object: &ObjectName,
) -> Result<Option<&'s mut Object>> {
    let objects = &mut self::collection(state, collection)?.objects;
    Ok(objects.get_mut(object).map(Arc::make_mut))
}

/// The object, which must be there.
fn needed<'s>(
    state: &'s mut State,
    collection: CollectionName,
    object: &ObjectName,
) -> Result<&'s mut Object> {
    found(state, collection, object)?.ok_or(Error::NoEntry("object"))
}

/// The object, which is made if it is not there.
fn made<'s>(
    state: &'s mut State,
    collection: CollectionName,
    object: &Arc<ObjectName>,
) -> Result<&'s mut Object> {
    let objects = &mut self::collection(state, collection)?.objects;
    Ok(Arc::make_mut(objects.entry(object.clone()).or_default()))
}
