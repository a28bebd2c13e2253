//! The threads of a phase: they queue transactions, or read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esker::{Callback, ObjectStore};
use fastrand::Rng;

use super::arguments::RunArguments;
use super::image::{Image, Log, Slot};
use super::window::Window;
use crate::bench::distribution::Sampler;
use crate::bench::lanes::Lane;
use crate::bench::measure::thread_cpu_us;

/// Transactions of a dry run, and how long it lasts at most.
const DRY_RUN: (u64, Duration) = (20_000, Duration::from_millis(500));
/// The buffers of readers in one phase are at most so many bytes.
const READ_BYTES_MAX: u64 = 1 << 30;

/// In which order operations go over the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From its begin to its end, once.
    Once,
    /// From its begin to its end, again and again.
    Sequential,
    /// As the distribution says.
    Random,
}

/// One phase.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    pub order: Order,
    /// Whether it reads.
    pub reads: bool,
    /// Bytes of an operation.
    pub len: u64,
    pub threads: u64,
    pub depth: u64,
    /// Ends after so many operations.
    pub ops: Option<u64>,
    /// Ends after so long.
    pub limit: Option<Duration>,
}

/// What a phase took.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Until the last operation was done.
    pub elapsed: Duration,
    /// CPU of the thread that watched, in microseconds.
    pub watch_us: f64,
}

/// Works on an image in a store.
pub struct Crew<'a> {
    pub store: &'a ObjectStore,
    pub image: &'a Image,
    pub arguments: &'a RunArguments,
    pub interrupted: &'a AtomicBool,
}

/// What the threads of one phase share.
struct Shared {
    lanes: Arc<[Lane]>,
    claimed: AtomicU64,
    running: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
    started: Instant,
}

impl Crew<'_> {
    /// Performs a phase; calls `tick` on this thread a few times a second, and with `true`
    /// once all threads have ended.
    pub fn perform(
        &self,
        phase: &Phase,
        tick: &mut dyn FnMut(&[Lane], Duration, bool),
    ) -> Result<Taken, String> {
        let threads = if phase.reads {
            phase.depth
        } else {
            phase.threads
        };
        let shared = Shared {
            lanes: (0..threads).map(|_| Lane::new()).collect(),
            claimed: AtomicU64::new(0),
            running: AtomicU64::new(threads),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            started: Instant::now(),
        };
        let mut watch_us = thread_cpu_us();
        let ended = std::thread::scope(|scope| {
            let main = std::thread::current();
            let spawned: Vec<_> = (0..threads)
                .map(|number| {
                    let (shared, main) = (&shared, main.clone());
                    scope.spawn(move || {
                        let done = if phase.reads {
                            self.read(phase, number, shared)
                        } else {
                            self.write(phase, number, shared)
                        };
                        if let Err(why) = done {
                            shared.stop.store(true, Ordering::Relaxed);
                            let failure = shared.failure.lock();
                            failure
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(why);
                        }
                        let ended = Instant::now();
                        if shared.running.fetch_sub(1, Ordering::SeqCst) == 1 {
                            main.unpark();
                        }
                        ended
                    })
                })
                .collect();
            let is_over = || {
                // A panic does not count down, but ends the thread.
                shared.running.load(Ordering::SeqCst) == 0
                    || spawned.iter().all(|thread| thread.is_finished())
            };
            while !is_over() {
                std::thread::park_timeout(Duration::from_millis(50));
                tick(&shared.lanes, shared.started.elapsed(), false);
            }
            let ends = spawned.into_iter().map(|thread| thread.join().ok());
            ends.collect::<Option<Vec<_>>>()
        });
        let ended = ended.ok_or("a thread panicked; this is a bug, please report it")?;
        let elapsed = ended.into_iter().max().unwrap_or(shared.started) - shared.started;
        tick(&shared.lanes, elapsed, true);
        watch_us = thread_cpu_us() - watch_us;
        let failure = shared.failure.into_inner();
        match failure.unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(why),
            None => Ok(Taken { elapsed, watch_us }),
        }
    }

    /// Whether a thread of the phase is to go on; counts the operation.
    fn goes_on(&self, phase: &Phase, shared: &Shared) -> bool {
        let stopped = shared.stop.load(Ordering::Relaxed)
            || self.interrupted.load(Ordering::Relaxed)
            || phase
                .limit
                .is_some_and(|limit| shared.started.elapsed() >= limit);
        let claim = || shared.claimed.fetch_add(1, Ordering::Relaxed);
        !stopped && phase.ops.is_none_or(|ops| claim() < ops)
    }

    /// Queues transactions, with a share of the depth in flight.
    fn write(&self, phase: &Phase, number: u64, shared: &Shared) -> Result<(), String> {
        let window = Arc::new(Window::new((phase.depth / phase.threads).max(1)));
        let mut source = Source::new(self, phase, number, phase.threads);
        let mut done = Ok(());
        while self.goes_on(phase, shared)
            && let Some(slot) = source.next()
        {
            let page = self.image.draw_page(&mut source.rng);
            window.enter();
            let mut log = self.image.log_of(slot.object);
            let transaction = self.image.transaction(slot, phase.len, page, &mut log);
            let callback = on_commit(&shared.lanes, number as usize, &window);
            let queued = self.store.queue_transactions(
                self.image.collection_of(slot.object),
                &[transaction],
                None,
                Some(callback),
            );
            if let Err(error) = queued {
                window.leave(None);
                done = Err(format!("a transaction was refused: {error}"));
                break;
            }
            self.image.note(slot, phase.len, page);
        }
        done.and(window.drain())
    }

    /// Reads one after the other.
    fn read(&self, phase: &Phase, number: u64, shared: &Shared) -> Result<(), String> {
        let mut source = Source::new(self, phase, number, 1);
        let mut buffer = vec![0; phase.len as usize];
        while self.goes_on(phase, shared)
            && let Some(slot) = source.next()
        {
            let begun = Instant::now();
            self.image.read(self.store, slot, &mut buffer)?;
            shared.lanes[number as usize].record(false, begun.elapsed());
        }
        Ok(())
    }

    /// CPU microseconds that the generator takes for a transaction: the same transactions
    /// are built and dropped, their callbacks called, and nothing is queued.
    pub fn generator_us(&self, phase: &Phase) -> f64 {
        if phase.reads {
            return 0.0;
        }
        let lanes: Arc<[Lane]> = [Lane::new()].into();
        let window = Arc::new(Window::new(2));
        let mut source = Source::new(self, phase, 0, phase.threads);
        let mut log = Log::default();
        let (mut count, started, cpu_us) = (0, Instant::now(), thread_cpu_us());
        while count < DRY_RUN.0
            && started.elapsed() < DRY_RUN.1
            && let Some(slot) = source.next()
        {
            let page = self.image.draw_page(&mut source.rng);
            window.enter();
            let transaction = self.image.transaction(slot, phase.len, page, &mut log);
            let callback = on_commit(&lanes, 0, &window);
            std::hint::black_box(&transaction);
            drop(transaction);
            callback(Ok(()));
            count += 1;
        }
        (thread_cpu_us() - cpu_us) / count.max(1) as f64
    }

    /// Reads some operations' worth of data and verifies it; how many.
    pub fn verify_sample(&self, phase: &Phase, count: u64) -> Result<u64, String> {
        let phase = Phase {
            order: Order::Random,
            ..*phase
        };
        let mut source = Source::new(self, &phase, 1 << 20, 1);
        let mut buffer = vec![0; phase.len as usize];
        let count = count.min(READ_BYTES_MAX / 4 / phase.len).max(1);
        for _ in 0..count {
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            if let Some(slot) = source.next() {
                self.image.read(self.store, slot, &mut buffer)?;
            }
        }
        Ok(count)
    }
}

/// Counts a transaction and makes room for the next when it is committed.
fn on_commit(lanes: &Arc<[Lane]>, number: usize, window: &Arc<Window>) -> Callback {
    let (lanes, window, begun) = (lanes.clone(), window.clone(), Instant::now());
    Box::new(move |result| {
        lanes[number].record(true, begun.elapsed());
        window.leave(
            result
                .err()
                .map(|error| format!("a commit failed: {error}")),
        );
    })
}

/// Where the operations of one thread go: over every n-th object, from its number on.
struct Source {
    rng: Rng,
    sampler: Option<Sampler>,
    is_once: bool,
    /// The next operation in order.
    next: u64,
    count: u64,
    per_object: u64,
    len: u64,
    first_object: u64,
    threads: u64,
}

impl Source {
    fn new(crew: &Crew<'_>, phase: &Phase, number: u64, threads: u64) -> Self {
        let seed = crew.arguments.seed;
        let first_object = number % threads;
        let objects = (crew.image.object_count() - first_object).div_ceil(threads);
        let per_object = crew.image.object_bytes() / phase.len;
        let count = objects * per_object;
        let sampler = || Sampler::new(crew.arguments.distribution, count, seed);
        Self {
            rng: Rng::with_seed(seed.wrapping_mul(31) ^ phase.len << 20 ^ number << 40),
            sampler: (phase.order == Order::Random).then(sampler),
            is_once: phase.order == Order::Once,
            next: 0,
            count,
            per_object,
            len: phase.len,
            first_object,
            threads,
        }
    }

    fn next(&mut self) -> Option<Slot> {
        let at = match &self.sampler {
            Some(sampler) => sampler.draw(&mut self.rng),
            None if self.is_once && self.next == self.count => return None,
            None => {
                self.next += 1;
                (self.next - 1) % self.count
            }
        };
        Some(Slot {
            object: at / self.per_object * self.threads + self.first_object,
            offset: at % self.per_object * self.len,
        })
    }
}
