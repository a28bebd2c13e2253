//! A byte-accurate model of the log under the production policy.
//!
//! Counted: record headers and length-code padding, segment headers and their rewrite at
//! reuse, frame headers and block padding of every head a group commit touches, segment
//! tails (space only, they are not written), checkpoint images of two generations, the
//! victims that wait in limbo, open heads and the free segments held back. Not modelled:
//! the superblock (one write an open), file-system metadata, deletes.

use super::policy;
use super::workload::{Chooser, Load, Random};
use std::collections::VecDeque;

/// Group commits between the one that makes a victim's survivors durable and the victim's
/// reuse: that commit itself, and the one whose flush makes its new header durable.
const LIMBO_COMMITS: u64 = 2;

/// Segments that user writes must leave free, so that cleaning, checkpoints and deletes
/// always get through.
///
/// `transaction_bytes_max` is the largest transaction or batch, `partition_bytes` the
/// largest image of one checkpoint partition, both in log bytes. Open heads already hold
/// their segment, and a survivor may go to *any* head with room when the free list is this
/// short (its class is a hint). Hence one segment for the survivors of one victim, one for
/// the commit stream's next segment, the two images, and one more because records do not
/// span segments.
fn reserve_segments(segment_bytes: u64, transaction_bytes_max: u64, partition_bytes: u64) -> u64 {
    assert!(segment_bytes > 0, "segment size is 0");
    3 + transaction_bytes_max.div_ceil(segment_bytes) + partition_bytes.div_ceil(segment_bytes)
}

const SEGMENT_HEADER_BYTES: u64 = 512;
const FRAME_HEADER_BYTES: u64 = 64;
const BLOCK_BYTES: u64 = 512;
const RECORD_HEADER_BYTES: u64 = 16;
const PARTITIONS: usize = 64;
const GENERATIONS: usize = 2;
/// The checkpoint's own head; user fronts, if any, follow it.
const CHECKPOINT_HEAD: usize = policy::CLASSES;
const FRONT_HEAD: usize = CHECKPOINT_HEAD + 1;
const NOWHERE: u32 = u32::MAX;

/// Where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Users and survivors share one head.
    OneHead,
    /// Buffered mode: users and survivors share the head of their class.
    Shared,
    /// Committed mode: users go to one commit stream, survivors to their class.
    Front,
}

/// Which segment is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Policy,
    Greedy,
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub keys: usize,
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub capacity_bytes: u64,
    pub segment_bytes: u64,
    pub group_bytes: u64,
    pub limbo_commits: u64,
    /// Free and limbo segments below which the cleaner works; from the policy when `None`.
    pub threshold_segments: Option<u64>,
    pub checkpoint_interval_bytes: u64,
    pub placement: Placement,
    pub choice: Choice,
    pub load: Load,
    pub overwrites_before: usize,
    pub overwrites_measured: usize,
}

impl Config {
    /// The standard case: values of 4 KiB, 16 B keys, user bytes `u` of the capacity.
    pub fn standard(load: Load, keys: usize, u: f64) -> Self {
        Self::sized(load, keys, 16, 4096, |config| {
            (config.key_bytes + config.value_bytes) as f64 * keys as f64 / u
        })
    }

    /// The defaults for records of a size; `capacity` may use all but itself.
    pub fn sized(
        load: Load,
        keys: usize,
        key_bytes: u64,
        value_bytes: u64,
        capacity: impl Fn(&Self) -> f64,
    ) -> Self {
        let mut config = Self {
            keys,
            key_bytes,
            value_bytes,
            capacity_bytes: 0,
            segment_bytes: 256 << 10,
            group_bytes: 1 << 20,
            limbo_commits: LIMBO_COMMITS,
            threshold_segments: None,
            checkpoint_interval_bytes: 0,
            placement: Placement::Shared,
            choice: Choice::Policy,
            load,
            overwrites_before: 8,
            overwrites_measured: 4,
        };
        config.checkpoint_interval_bytes = (4 * config.image_bytes()).max(512 << 20);
        config.capacity_bytes = capacity(&config) as u64;
        let segment = (config.capacity_bytes / 4096).max(1);
        config.segment_bytes = (1 << segment.ilog2()).clamp(256 << 10, 256 << 20);
        config
    }

    /// One index image: 13.3 B a key.
    pub fn image_bytes(&self) -> u64 {
        (self.keys as f64 * 13.3) as u64
    }

    pub fn record_bytes(&self) -> u64 {
        let bytes = RECORD_HEADER_BYTES + self.key_bytes + self.value_bytes;
        let unit = esker::format::UNIT_BYTES_MIN;
        let code = esker::format::LengthCode::covering(bytes.div_ceil(unit));
        code.expect("a record fits a segment").units() * unit
    }

    pub fn reserve_segments(&self) -> u64 {
        let partition = self.image_bytes() / PARTITIONS as u64;
        reserve_segments(self.segment_bytes, 1 << 20, partition)
    }

    pub fn threshold(&self) -> u64 {
        let threshold = policy::cleaning_threshold_segments(self.reserve_segments());
        self.threshold_segments.unwrap_or(threshold)
    }

    /// Live share of the space that records can use: whole records of a segment, without
    /// the two images, the free segments and half of each open head.
    pub fn effective_utilization(&self) -> f64 {
        let record = self.record_bytes();
        let usable = (self.segment_bytes - SEGMENT_HEADER_BYTES - BLOCK_BYTES) / record * record;
        let images = (GENERATIONS as u64 * self.image_bytes()) as f64 / self.segment_bytes as f64;
        let segments = (self.capacity_bytes / self.segment_bytes) as f64;
        let open = policy::CLASSES as f64 / 2.0;
        let left = segments - images - self.threshold() as f64 - open;
        (self.keys as u64 * record) as f64 / (left * usable as f64)
    }

    pub fn run(&self) -> Outcome {
        Simulation::new(*self).run()
    }
}

/// What one run measured after its warm-up, all as ratios to user bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Device bytes over user bytes, everything counted.
    pub write_amplification: f64,
    /// Records written over records written by users.
    pub records: f64,
    pub padding: f64,
    pub checkpoint: f64,
    /// Group commits ended early for want of free segments, over all commits.
    pub forced: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    Open,
    Sealed,
    /// Cleaned, waiting for its reuse.
    Limbo,
}

#[derive(Debug, Clone, Default)]
struct Segment {
    records: Vec<u32>,
    live_bytes: u64,
    used_bytes: u64,
    written: policy::WriteTime,
    sealed_at: u64,
    state: State,
    checkpoint: bool,
    /// The last group commit that wrote here.
    group: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    device: u64,
    user: u64,
    user_records: u64,
    survivors: u64,
    padding: u64,
    checkpoint: u64,
    commits: u64,
    forced: u64,
}

struct Simulation {
    config: Config,
    random: Random,
    record_bytes: u64,
    segments: Vec<Segment>,
    free: VecDeque<u32>,
    limbo: VecDeque<(u64, u32)>,
    heads: [u32; FRONT_HEAD + 1],
    /// Segment and position of each key's record.
    locations: Vec<(u32, u32)>,
    exponents: Vec<u8>,
    clock: u64,
    live_bytes: u64,
    group: u64,
    group_filled: u64,
    images: VecDeque<Vec<(u32, u64)>>,
    checkpoint_due: u64,
    counters: Counters,
}

impl Simulation {
    fn new(config: Config) -> Self {
        let segments = (config.capacity_bytes / config.segment_bytes) as usize;
        Self {
            config,
            random: Random::new(1),
            record_bytes: config.record_bytes(),
            segments: vec![Segment::default(); segments],
            free: (0..segments as u32).collect(),
            limbo: VecDeque::new(),
            heads: [NOWHERE; FRONT_HEAD + 1],
            locations: vec![(NOWHERE, 0); config.keys],
            exponents: vec![policy::first_exponent(); config.keys],
            clock: 0,
            live_bytes: 0,
            group: 1,
            group_filled: 0,
            images: VecDeque::new(),
            checkpoint_due: 0,
            counters: Counters::default(),
        }
    }

    fn run(mut self) -> Outcome {
        let mut chooser = Chooser::new(self.config.load, self.config.keys, &mut self.random);
        for key in 0..self.config.keys {
            self.put(key);
        }
        for _ in 0..self.config.overwrites_before * self.config.keys {
            let key = chooser.draw(&mut self.random);
            self.put(key);
        }
        let before = self.counters;
        for _ in 0..self.config.overwrites_measured * self.config.keys {
            let key = chooser.draw(&mut self.random);
            self.put(key);
        }
        let after = self.counters;
        let user = (after.user - before.user) as f64;
        let records = (after.user_records - before.user_records) as f64;
        Outcome {
            write_amplification: (after.device - before.device) as f64 / user,
            records: 1.0 + (after.survivors - before.survivors) as f64 / records,
            padding: (after.padding - before.padding) as f64 / user,
            checkpoint: (after.checkpoint - before.checkpoint) as f64 / user,
            forced: (after.forced - before.forced) as f64
                / (after.commits - before.commits).max(1) as f64,
        }
    }

    fn put(&mut self, key: usize) {
        while ((self.free.len() + self.limbo.len()) as u64) < self.config.threshold() {
            self.clean();
        }
        let (old, _) = self.locations[key];
        if old == NOWHERE {
            self.live_bytes += self.record_bytes;
        } else {
            let interval = self.clock - self.segments[old as usize].written.mean();
            let random = self.random.next() as u32;
            let current = self.exponents[key];
            self.exponents[key] = policy::next_exponent(current, interval, self.live_bytes, random);
            self.segments[old as usize].live_bytes -= self.record_bytes;
        }
        let head = match self.config.placement {
            Placement::OneHead => 0,
            Placement::Shared => policy::head_class(self.exponents[key]),
            Placement::Front => FRONT_HEAD,
        };
        self.append(head, key, self.clock);
        self.clock += self.record_bytes;
        self.counters.user += self.config.key_bytes + self.config.value_bytes;
        self.counters.user_records += 1;
        self.group_filled += self.record_bytes;
        if self.group_filled >= self.config.group_bytes {
            self.commit();
        }
        self.checkpoint_due += self.record_bytes;
        if self.checkpoint_due >= self.config.checkpoint_interval_bytes / PARTITIONS as u64 {
            self.checkpoint_due = 0;
            self.write_partition();
        }
    }

    fn append(&mut self, head: usize, key: usize, time: u64) {
        self.make_room(head, self.record_bytes);
        let segment = &mut self.segments[self.heads[head] as usize];
        self.locations[key] = (self.heads[head], segment.records.len() as u32);
        segment.records.push(key as u32);
        segment.written.add(time, self.record_bytes);
        self.fill(head, self.record_bytes);
    }

    fn fill(&mut self, head: usize, bytes: u64) {
        let segment = &mut self.segments[self.heads[head] as usize];
        segment.used_bytes += bytes;
        segment.live_bytes += bytes;
        self.counters.device += bytes;
    }

    fn has_room(&self, head: usize, bytes: u64) -> bool {
        let Some(segment) = self.segments.get(self.heads[head] as usize) else {
            return false;
        };
        let frame = if segment.group == self.group {
            0
        } else {
            FRAME_HEADER_BYTES
        };
        segment.used_bytes + frame + bytes <= self.config.segment_bytes
    }

    /// Makes the head take `bytes` in the current group: a new segment, a frame header.
    fn make_room(&mut self, head: usize, bytes: u64) {
        if !self.has_room(head, bytes) {
            self.seal(head);
            self.open(head);
        }
        let segment = &mut self.segments[self.heads[head] as usize];
        if segment.group != self.group {
            segment.group = self.group;
            segment.used_bytes += FRAME_HEADER_BYTES;
            self.counters.device += FRAME_HEADER_BYTES;
            self.counters.padding += FRAME_HEADER_BYTES;
        }
    }

    fn seal(&mut self, head: usize) {
        let id = self.heads[head];
        if id != NOWHERE {
            self.pad(id);
            let segment = &mut self.segments[id as usize];
            segment.state = State::Sealed;
            segment.sealed_at = self.clock;
            self.heads[head] = NOWHERE;
        }
    }

    fn open(&mut self, head: usize) {
        while self.free.is_empty() {
            assert!(
                !self.limbo.is_empty(),
                "out of space: the reserve is too small"
            );
            self.counters.forced += 1;
            self.commit();
        }
        let id = self.free.pop_front().expect("checked above");
        let segment = &mut self.segments[id as usize];
        let mut records = std::mem::take(&mut segment.records);
        records.clear();
        *segment = Segment {
            records,
            used_bytes: SEGMENT_HEADER_BYTES,
            state: State::Open,
            checkpoint: head == CHECKPOINT_HEAD,
            ..Segment::default()
        };
        self.counters.device += SEGMENT_HEADER_BYTES;
        self.heads[head] = id;
    }

    fn pad(&mut self, id: u32) {
        let segment = &mut self.segments[id as usize];
        let room = self.config.segment_bytes - segment.used_bytes;
        let padding =
            (segment.used_bytes.next_multiple_of(BLOCK_BYTES) - segment.used_bytes).min(room);
        segment.used_bytes += padding;
        self.counters.device += padding;
        self.counters.padding += padding;
    }

    fn commit(&mut self) {
        for head in 0..self.heads.len() {
            let id = self.heads[head];
            if id != NOWHERE && self.segments[id as usize].group == self.group {
                self.pad(id);
            }
        }
        self.counters.commits += 1;
        self.group += 1;
        self.group_filled = 0;
        while let Some(&(group, id)) = self.limbo.front() {
            if group + self.config.limbo_commits > self.group {
                break;
            }
            self.limbo.pop_front();
            self.segments[id as usize].state = State::Free;
            self.free.push_back(id);
            self.counters.device += SEGMENT_HEADER_BYTES;
        }
    }

    fn select(&self) -> u32 {
        let sealed = |segment: &Segment| segment.state == State::Sealed && !segment.checkpoint;
        let segments = self.segments.iter().enumerate().filter(|(_, s)| sealed(s));
        let victim = match self.config.choice {
            Choice::Policy => {
                let candidates = segments.map(|(id, segment)| policy::Candidate {
                    segment: id as u32,
                    live_bytes: segment.live_bytes,
                    age: self.clock - segment.sealed_at,
                });
                policy::select_victims(candidates, self.config.segment_bytes, 1)
                    .first()
                    .map(|c| c.segment)
            }
            Choice::Greedy => segments
                .min_by_key(|(_, segment)| segment.live_bytes)
                .map(|(id, _)| id as u32),
        };
        victim.expect("a store that is not full has a victim")
    }

    fn clean(&mut self) {
        let victim = self.select();
        let segment = &mut self.segments[victim as usize];
        let time = segment.written.mean();
        let records = std::mem::take(&mut segment.records);
        segment.state = State::Limbo;
        for (position, &key) in records.iter().enumerate() {
            let key = key as usize;
            if self.locations[key] != (victim, position as u32) {
                continue;
            }
            let age = self.clock - time;
            let current = self.exponents[key];
            self.exponents[key] = policy::survivor_exponent(current, age, self.live_bytes);
            let head = self.survivor_head(key);
            self.append(head, key, time);
            self.counters.survivors += 1;
        }
        let segment = &mut self.segments[victim as usize];
        segment.records = records;
        segment.live_bytes = 0;
        self.limbo.push_back((self.group, victim));
    }

    /// The head a survivor is written to; may end the group.
    fn survivor_head(&mut self, key: usize) -> usize {
        if self.config.placement == Placement::OneHead {
            return 0;
        }
        let class = policy::head_class(self.exponents[key]);
        while !self.has_room(class, self.record_bytes) {
            match policy::survivor_room(self.free.len() as u64, self.limbo.len() as u64) {
                policy::SurvivorRoom::Open => return class,
                policy::SurvivorRoom::Commit => {
                    self.counters.forced += 1;
                    self.commit();
                }
                policy::SurvivorRoom::Nearest => {
                    return (0..policy::CLASSES)
                        .filter(|&head| self.has_room(head, self.record_bytes))
                        .min_by_key(|&head| head.abs_diff(class))
                        .unwrap_or(class);
                }
            }
        }
        class
    }

    fn write_partition(&mut self) {
        let mut left = self.config.image_bytes() / PARTITIONS as u64;
        let mut pieces = Vec::new();
        while left > 0 {
            self.make_room(CHECKPOINT_HEAD, BLOCK_BYTES);
            let id = self.heads[CHECKPOINT_HEAD];
            let room = self.config.segment_bytes - self.segments[id as usize].used_bytes;
            let piece = left.min(room);
            self.fill(CHECKPOINT_HEAD, piece);
            self.counters.checkpoint += piece;
            pieces.push((id, piece));
            left -= piece;
        }
        self.images.push_back(pieces);
        if self.images.len() <= GENERATIONS * PARTITIONS {
            return;
        }
        // The image before the last two is dead; a segment of dead images frees itself.
        for (id, bytes) in self.images.pop_front().into_iter().flatten() {
            let segment = &mut self.segments[id as usize];
            segment.live_bytes -= bytes;
            if segment.live_bytes == 0 && segment.state == State::Sealed {
                segment.state = State::Limbo;
                self.limbo.push_back((self.group, id));
            }
        }
    }
}
