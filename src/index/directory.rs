//! A shard: a directory of units, and the lock of those who change them.
//!
//! The directory has a cell for every value of the next `depth` bits of a hash; a unit of
//! smaller depth has several. Doubling copies one shard's cells: at 1e9 keys a shard has
//! about 1e9 / 256 / 2900 = 1,350 units and 2 to 4 cells for each, 4 Ki; copying 32 KiB
//! takes some 10 microseconds. No other pause grows with the index: growing a unit copies
//! at most 3,840 entries.
//!
//! Cells are null until something is inserted: a new index has no units.

use super::DEPTH_MAX;
use super::position::{OFFSET_END, cell_of, unit_span};
use super::unit::{Unit, UnitCell, replace, unit_bytes};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{Arc, ArcCell, ArcGuard, AtomicU64, Mutex, Ordering};

/// The cells of a shard.
pub(super) struct Directory {
    depth: u32,
    cells: Box<[UnitCell]>,
}

impl Directory {
    fn new() -> Self {
        Self {
            depth: 0,
            cells: [UnitCell::null()].into(),
        }
    }

    /// One with twice the cells, two for each.
    fn doubled(&self, guard: &Guard) -> Self {
        let copies = self.cells.iter().flat_map(|cell| [cell, cell]);
        Self {
            depth: self.depth + 1,
            cells: copies.map(|cell| UnitCell::copy(cell, guard)).collect(),
        }
    }

    fn bytes(&self) -> u64 {
        // The `Arc` with its counts, the allocators' headers, the cells.
        (64 + size_of_val(&*self.cells)) as u64
    }

    /// Bits of the hash that select a cell.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// The unit at `offset`.
    pub(super) fn unit<'g>(&self, offset: u64, guard: &'g Guard) -> Option<&'g Unit> {
        self.cells[cell_of(offset, self.depth)].load(guard)
    }
}

/// What the lock protects.
pub(super) struct Writer {
    /// How far images were loaded, as an offset.
    pub(super) loaded: u64,
}

/// One of the parts with a lock each.
pub(super) struct Shard {
    pub(super) directory: ArcCell<Directory>,
    pub(super) writer: Mutex<Writer>,
    /// Entries; changed under the lock.
    pub(super) count: AtomicU64,
}

impl Shard {
    pub(super) fn new(memory: &AtomicU64) -> Self {
        let directory = Directory::new();
        memory.fetch_add(directory.bytes(), Ordering::Relaxed);
        Self {
            directory: ArcCell::new(Arc::new(directory)),
            writer: Mutex::new(Writer { loaded: 0 }),
            count: AtomicU64::new(0),
        }
    }

    /// Adds to the number of entries; under the lock, so that no addition is lost.
    pub(super) fn add_count(&self, change: i64) {
        // Relaxed: a counter.
        let count = self.count.load(Ordering::Relaxed);
        self.count
            .store(count.wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Bytes it takes beyond the present to have cells of `depth`; under the lock.
    pub(super) fn bytes_to_deepen(&self, depth: u32) -> u64 {
        let directory = self.directory.load();
        let missing = depth.saturating_sub(directory.depth);
        (size_of_val(&*directory.cells) as u64) * ((1 << missing) - 1)
    }

    /// Makes sure that the directory has a cell for every prefix of `depth` bits; under the
    /// lock.
    pub(super) fn deepen(&self, depth: u32, memory: &AtomicU64) {
        assert!(depth <= DEPTH_MAX, "directory too deep");
        let guard = pin();
        let mut directory: ArcGuard<Directory> = self.directory.load();
        while directory.depth < depth {
            let doubled = directory.doubled(&guard);
            memory.fetch_add(doubled.bytes() - directory.bytes(), Ordering::Relaxed);
            self.directory.store(Arc::new(doubled));
            directory = self.directory.load();
        }
    }

    /// Puts `parts`, each for an equal share, in the place of the unit that covers the `depth`
    /// bits at `offset` exactly, or of nothing; under the lock.
    pub(super) fn install<const PARTS: usize>(
        &self,
        offset: u64,
        depth: u32,
        parts: [Unit; PARTS],
        memory: &AtomicU64,
    ) {
        let guard = pin();
        let directory = self.directory.load();
        let first = cell_of(offset - offset % unit_span(depth), directory.depth);
        let cells = &directory.cells[first..first + (1 << (directory.depth - depth))];
        if let Some(old) = cells[0].load(&guard) {
            assert_eq!(old.depth(), depth, "replaces one unit");
            memory.fetch_sub(unit_bytes(old.slots()), Ordering::Relaxed);
        }
        for part in &parts {
            memory.fetch_add(unit_bytes(part.slots()), Ordering::Relaxed);
        }
        replace(cells, parts, &guard);
    }

    /// Retires every unit and starts anew; under the lock or with no other user.
    pub(super) fn clear(&self, memory: &AtomicU64) {
        let mut offset = 0;
        while offset < OFFSET_END {
            let guard = pin();
            let directory = self.directory.load();
            let unit = directory.unit(offset, &guard);
            let depth = unit.map_or(directory.depth, Unit::depth);
            if unit.is_some() {
                self.install(offset, depth, [], memory);
            }
            offset += unit_span(depth);
        }
        let directory = Directory::new();
        memory.fetch_add(directory.bytes(), Ordering::Relaxed);
        memory.fetch_sub(self.directory.load().bytes(), Ordering::Relaxed);
        self.directory.store(Arc::new(directory));
        self.count.store(0, Ordering::Relaxed);
    }
}
