//! What a transaction says of an object's blocks before it is written.

use std::borrow::Cow;

/// Where the content of blocks comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'t> {
    /// Zeros, stored nowhere.
    Hole,
    /// A caller's data, `offset` bytes into the slices; whole blocks.
    Data {
        slices: &'t [Cow<'t, [u8]>],
        offset: u64,
    },
    /// One block of the plan's buffers.
    Buffer(usize),
}

/// Blocks with one source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'t> {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) source: Source<'t>,
}

impl Piece<'_> {
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }

    /// The part of it from block `first` to before `end`, which must lie in it.
    fn part(&self, first: u64, end: u64) -> Self {
        let skipped = first - u64::from(self.first);
        let source = match self.source {
            Source::Data { slices, offset } => Source::Data {
                slices,
                offset: offset + skipped * super::BLOCK_BYTES,
            },
            other => other,
        };
        Self {
            first: first as u32,
            count: (end - first) as u32,
            source,
        }
    }
}

/// Pieces in the order of blocks; none overlap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces<'t>(Vec<Piece<'t>>);

impl<'t> Pieces<'t> {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Piece<'t>> {
        self.0.iter()
    }

    /// The piece that has a block.
    pub(crate) fn get(&self, block: u32) -> Option<Piece<'t>> {
        let at = self
            .0
            .partition_point(|piece| piece.end() <= u64::from(block));
        self.0.get(at).copied().filter(|piece| piece.first <= block)
    }

    /// Gives blocks a source, whatever they had.
    pub(crate) fn set(&mut self, new: Piece<'t>) {
        if new.count == 0 {
            return;
        }
        let (first, end) = (u64::from(new.first), new.end());
        let from = self.0.partition_point(|piece| piece.end() <= first);
        let to = self.0.partition_point(|piece| u64::from(piece.first) < end);
        let mut between = Vec::with_capacity(3);
        if let Some(piece) = self
            .0
            .get(from)
            .filter(|piece| u64::from(piece.first) < first)
        {
            between.push(piece.part(u64::from(piece.first), first));
        }
        between.push(new);
        if let Some(piece) = to.checked_sub(1).and_then(|last| self.0.get(last))
            && to > from
            && piece.end() > end
        {
            between.push(piece.part(end, piece.end()));
        }
        self.0.splice(from..to.max(from), between);
    }
}

/// The bytes of slices from `offset` on, `len` of them, slice by slice.
pub(crate) fn cut<'s>(
    slices: &'s [Cow<'_, [u8]>],
    offset: u64,
    len: u64,
) -> impl Iterator<Item = &'s [u8]> {
    let (mut skip, mut left) = (offset, len);
    slices.iter().filter_map(move |slice| {
        let bytes = slice.len() as u64;
        if skip >= bytes || left == 0 {
            skip -= skip.min(bytes);
            return None;
        }
        let from = skip as usize;
        let to = (skip + left).min(bytes) as usize;
        skip = 0;
        left -= (to - from) as u64;
        Some(&slice[from..to])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_a_model() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut pieces = Pieces::default();
            let mut model: Vec<Option<(usize, u32)>> = vec![None; 64];
            for step in 0..40 {
                let first = random.u32(0..64);
                let count = random.u32(0..=64 - first);
                // Buffers stand for any source: what is checked is who has which block.
                pieces.set(Piece {
                    first,
                    count,
                    source: Source::Buffer(step),
                });
                for block in first..first + count {
                    model[block as usize] = Some((step, block));
                }
                for block in 0..64 {
                    let found = pieces.get(block).map(|piece| match piece.source {
                        Source::Buffer(step) => (step, block),
                        _ => unreachable!("only buffers were set"),
                    });
                    assert_eq!(found, model[block as usize]);
                }
            }
        }
    }

    #[test]
    fn data_is_cut_across_slices() {
        let slices = [
            Cow::Borrowed(b"abc".as_slice()),
            Cow::Borrowed(b"".as_slice()),
            Cow::Borrowed(b"defg".as_slice()),
        ];
        let got: Vec<u8> = cut(&slices, 2, 3).flatten().copied().collect();
        assert_eq!(got, b"cde");
        assert_eq!(cut(&slices, 7, 0).count(), 0);
    }
}
