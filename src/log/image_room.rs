//! Room that is kept for images of what the log cannot carry.
//!
//! Operations pin their segments until two generations of images have what they did. When
//! images come late, callers could take the room that those images need, and nothing would
//! ever give it back. So callers are kept from the room in which the next two generations of all
//! images can be written, each giving back an older one once it is published (D10a).

/// A segment of images is used to this share at least, in fifths: the rest is units that did
/// not fit.
const USED_FIFTHS: u64 = 4;
/// Segments that are begun for images and copies of roots, without and with operations. Before
/// images of records give anything back the cleaner does.
const BEGUN_SEGMENTS: [u64; 2] = [2, 4];

/// Bytes of images of operations, by their owner's estimates.
#[derive(Clone, Copy, Default)]
pub(crate) struct ImageRoom {
    /// Most that two more generations take, at any moment, beyond what they have given back.
    peak: u64,
    /// Added by callers since that was found, and in the time before: then it was in the log,
    /// and perhaps not yet in its owner's count.
    growth: [u64; 2],
    /// Of the largest partition.
    pub(super) largest: u64,
}

/// What the images of a partition take: a new one, and those in force when they were written.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) now: u64,
    pub(super) newest: u64,
    pub(super) older: u64,
}

impl ImageRoom {
    /// The room for images of partitions, in the order in which they are going to be written.
    pub(super) fn of(partitions: impl Iterator<Item = Sizes> + Clone) -> Self {
        let first = partitions.clone().map(|sizes| (sizes.now, sizes.older));
        let second = partitions.clone().map(|sizes| (sizes.now, sizes.newest));
        let (mut taken, mut peak) = (0_i64, 0_i64);
        for (written, given_back) in first.chain(second) {
            taken += written as i64 - given_back as i64;
            peak = peak.max(taken);
        }
        let largest = partitions.map(|sizes| sizes.now.max(sizes.newest)).max();
        Self {
            peak: peak.max(0) as u64,
            growth: [0; 2],
            largest: largest.unwrap_or(0),
        }
    }

    /// Takes the place of what was found before.
    pub(super) fn replace(&mut self, found: Self) {
        let [recent, _] = self.growth;
        *self = found;
        self.growth = [0, recent];
    }

    /// Whether images in force are of less than there is now.
    pub(super) fn is_behind(&self) -> bool {
        self.peak + self.growth.iter().sum::<u64>() > 0
    }

    /// Segments kept from callers, one who makes images larger by `growth` bytes included.
    pub(super) fn segments(&self, growth: u64, segment_bytes: u64) -> usize {
        let added = self.growth.iter().sum::<u64>() + growth;
        let bytes = self.peak + 2 * added + self.largest;
        let begun = BEGUN_SEGMENTS[usize::from(bytes > 0)];
        (image_segments(bytes, segment_bytes) + begun) as usize
    }

    /// Counts what a caller just added. What one removes makes room only when images are
    /// written.
    pub(super) fn grow(&mut self, growth: u64) {
        self.growth[0] += growth;
    }
}

/// Segments that images of so many bytes take.
pub(super) fn image_segments(bytes: u64, segment_bytes: u64) -> u64 {
    (bytes * 5).div_ceil(segment_bytes * USED_FIFTHS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn room(partitions: &[[u64; 3]]) -> ImageRoom {
        let sizes = |[now, newest, older]: [u64; 3]| Sizes { now, newest, older };
        ImageRoom::of(partitions.iter().copied().map(sizes))
    }

    #[test]
    fn what_was_added_since_an_image_is_missing_twice() {
        let mut room = room(&[[0, 0, 0]]);
        assert!(!room.is_behind());
        assert_eq!(room.segments(0, 100), 2);
        // 80 bytes twice, of segments that take 80.
        assert_eq!(room.segments(80, 100), 4 + 2);
        room.grow(80);
        assert!(room.is_behind());
        assert_eq!(room.segments(0, 100), 4 + 2);
        // It may be that a count does not have it yet.
        room.replace(ImageRoom::default());
        assert_eq!(room.segments(0, 100), 4 + 2);
        room.replace(ImageRoom::default());
        assert!(!room.is_behind());
    }

    #[test]
    fn the_largest_partition_is_written_before_its_older_image_goes() {
        let room = room(&[[10, 10, 10], [90, 90, 90]]);
        assert!(!room.is_behind());
        assert_eq!(room.segments(0, 100), 4 + 2);
    }

    #[test]
    fn what_shrank_gives_back_only_when_its_turn_comes() {
        // As much in all, but the one that grew comes first.
        assert_eq!(room(&[[100, 0, 0], [0, 100, 100]]).peak, 100);
        assert_eq!(room(&[[0, 100, 100], [100, 0, 0]]).peak, 0);
        // Two generations of what was never imaged.
        assert_eq!(room(&[[100, 0, 0]]).peak, 200);
        assert_eq!(room(&[[100, 100, 0]]).peak, 100);
    }
}
