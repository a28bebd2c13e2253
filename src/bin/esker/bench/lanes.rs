//! The threads of a phase: each draws operations, performs them and records latencies.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use hdrhistogram::Histogram;

use super::arguments::RunArguments;
use super::distribution::{Permutation, Sampler};
use super::engine::Engine;
use super::workload::{Values, Versions, write_key};

/// What a phase does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Puts every key once, in random order.
    Fill,
    /// Overwrites keys of the distribution.
    Overwrite,
    /// What the workload says.
    Workload,
}

/// One phase of a run.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// What it does.
    pub action: Action,
    /// On how many threads.
    pub threads: u64,
    /// Ends after so many operations.
    pub ops: Option<u64>,
    /// Ends after so long.
    pub limit: Option<Duration>,
    /// Operations offered per second, whether or not they keep up.
    pub rate: Option<u64>,
}

/// Latencies in nanoseconds, three figures; up to ten minutes.
pub fn new_histogram() -> Histogram<u64> {
    // The bounds are constants that the crate accepts: the tests make one.
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds")
}

/// What one thread has done; its own cache lines.
#[repr(align(128))]
pub struct Lane {
    /// Latencies of gets and of puts since they were last taken. Only the sampler ever
    /// contends for the lock, a few times a second.
    pub latencies: Mutex<[Histogram<u64>; 2]>,
    /// Operations done.
    pub ops: AtomicU64,
    /// Operations done that were puts.
    pub puts: AtomicU64,
}

impl Lane {
    /// A lane that has done nothing.
    pub fn new() -> Self {
        Self {
            latencies: Mutex::new([new_histogram(), new_histogram()]),
            ops: AtomicU64::new(0),
            puts: AtomicU64::new(0),
        }
    }

    /// Counts an operation, a put or not.
    pub fn record(&self, put: bool, latency: Duration) {
        let mut latencies = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        latencies[usize::from(put)].saturating_record(latency.as_nanos() as u64);
        drop(latencies);
        self.ops.fetch_add(1, Ordering::Relaxed);
        if put {
            self.puts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sums over lanes.
pub fn totals(lanes: &[Lane]) -> (u64, u64) {
    let sum = |pick: fn(&Lane) -> &AtomicU64| {
        lanes
            .iter()
            .map(|lane| pick(lane).load(Ordering::Relaxed))
            .sum()
    };
    (sum(|lane| &lane.ops), sum(|lane| &lane.puts))
}

/// What the threads of all phases share.
pub struct Crew<'a> {
    /// The store under test.
    pub engine: &'a dyn Engine,
    /// Set from outside to end the run.
    pub interrupted: &'a AtomicBool,
    arguments: &'a RunArguments,
    values: Values,
    versions: Option<Versions>,
    sampler: Sampler,
    fill_order: Permutation,
    verified: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl<'a> Crew<'a> {
    /// Makes what the threads need, before memory is measured.
    pub fn new(
        engine: &'a dyn Engine,
        arguments: &'a RunArguments,
        interrupted: &'a AtomicBool,
    ) -> Self {
        let seed = arguments.seed;
        Self {
            engine,
            interrupted,
            arguments,
            values: Values::new(arguments.value_bytes as usize, seed),
            versions: (!arguments.no_verify).then(|| Versions::new(arguments.keys)),
            sampler: Sampler::new(arguments.distribution, arguments.keys, seed),
            // Another order than that of the ranks, or the load would sort keys by heat.
            fill_order: Permutation::new(arguments.keys, !seed),
            verified: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Gets verified so far.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// The first failure of any thread.
    pub fn take_failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.interrupted.load(Ordering::Relaxed)
    }

    /// Performs a phase; calls `tick` on this thread a few times a second, and with `true`
    /// once all threads have ended. Returns how long operations ran.
    pub fn perform(
        &self,
        phase: &Phase,
        tick: &mut dyn FnMut(&[Lane], Duration, bool),
    ) -> Duration {
        let lanes: Vec<Lane> = (0..phase.threads).map(|_| Lane::new()).collect();
        let claim = AtomicU64::new(0);
        let started = Instant::now();
        let running = AtomicU64::new(phase.threads);
        let ended = std::thread::scope(|scope| {
            let main = std::thread::current();
            let threads: Vec<_> = lanes
                .iter()
                .enumerate()
                .map(|(number, lane)| {
                    let (claim, running, main) = (&claim, &running, main.clone());
                    scope.spawn(move || {
                        if let Err(why) = self.work(phase, lane, number as u64, claim, started) {
                            self.stop.store(true, Ordering::Relaxed);
                            let mut failure =
                                self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                            failure.get_or_insert(why);
                        }
                        let ended = Instant::now();
                        if running.fetch_sub(1, Ordering::SeqCst) == 1 {
                            main.unpark();
                        }
                        ended
                    })
                })
                .collect();
            while running.load(Ordering::SeqCst) > 0 {
                std::thread::park_timeout(Duration::from_millis(50));
                tick(&lanes, started.elapsed(), false);
            }
            // A thread that panicked has printed why.
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .max()
        });
        let elapsed = ended.unwrap_or(started) - started;
        tick(&lanes, elapsed, true);
        elapsed
    }

    /// One thread's part of a phase.
    fn work(
        &self,
        phase: &Phase,
        lane: &Lane,
        number: u64,
        claim: &AtomicU64,
        started: Instant,
    ) -> Result<(), String> {
        let mut rng = Rng::with_seed(
            self.arguments.seed.wrapping_mul(31) ^ (phase.action as u64) << 56 ^ number << 40,
        );
        let mut key = vec![0; self.arguments.key_bytes as usize];
        let mut value = vec![0; self.arguments.value_bytes as usize];
        if phase.rate.is_some() {
            // The default slack of 50 us would be measured as latency of the store.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        // Small enough that threads end together, large enough not to contend.
        let share = phase.ops.unwrap_or(u64::MAX) / phase.threads;
        let chunk = if phase.rate.is_some() {
            1
        } else {
            (share / 64).clamp(1, 64)
        };
        loop {
            let first = claim.fetch_add(chunk, Ordering::Relaxed);
            for index in first..first + chunk {
                if self.stopped() || phase.ops.is_some_and(|ops| index >= ops) {
                    return Ok(());
                }
                let intended = phase
                    .rate
                    .map(|rate| started + Duration::from_secs_f64(index as f64 / rate as f64));
                if let Some(limit) = phase.limit {
                    let now = Instant::now();
                    if intended.unwrap_or(now).max(now) - started >= limit {
                        return Ok(());
                    }
                }
                if let Some(intended) = intended {
                    std::thread::sleep(intended.saturating_duration_since(Instant::now()));
                }
                let (put, id) = self.choose(phase.action, index, &mut rng);
                write_key(id, &mut key);
                let latency = if put {
                    self.put(id, &key, &mut value, &mut rng, intended)?
                } else {
                    self.get(id, &key, intended)?
                };
                lane.record(put, latency);
            }
        }
    }

    /// The next operation: whether it puts, and its key.
    fn choose(&self, action: Action, index: u64, rng: &mut Rng) -> (bool, u64) {
        match action {
            Action::Fill => (true, self.fill_order.at(index)),
            Action::Overwrite => (true, self.sampler.draw(rng)),
            Action::Workload => {
                let put = rng.f64() >= self.arguments.workload.read_share();
                (put, self.sampler.draw(rng))
            }
        }
    }

    fn put(
        &self,
        id: u64,
        key: &[u8],
        value: &mut [u8],
        rng: &mut Rng,
        intended: Option<Instant>,
    ) -> Result<Duration, String> {
        let version = match &self.versions {
            Some(versions) => versions.begin(id),
            None => rng.u64(..),
        };
        self.values.write(id, version, value);
        let begun = intended.unwrap_or_else(Instant::now);
        let done = self.engine.put(key, value);
        let latency = begun.elapsed();
        if let Some(versions) = &self.versions {
            versions.end(id);
        }
        done.map_err(|error| format!("a put failed: {error}"))?;
        Ok(latency)
    }

    fn get(&self, id: u64, key: &[u8], intended: Option<Instant>) -> Result<Duration, String> {
        let oldest = self
            .versions
            .as_ref()
            .map_or(0, |versions| versions.oldest(id));
        let begun = intended.unwrap_or_else(Instant::now);
        let mut latency = Duration::ZERO;
        let mut verdict = Ok(());
        self.engine
            .get(key, &mut |value| {
                latency = begun.elapsed();
                let Some(versions) = &self.versions else {
                    std::hint::black_box(value);
                    return;
                };
                let newest = versions.newest(id);
                verdict = match value {
                    Some(value) => self.values.verify(id, value, oldest.max(1), newest),
                    None if oldest == 0 => Ok(()),
                    None => Err(format!("key {id} is missing")),
                };
            })
            .map_err(|error| format!("a get failed: {error}"))?;
        if self.versions.is_some() {
            self.verified.fetch_add(1, Ordering::Relaxed);
        }
        verdict.map_err(|why| format!("a get returned wrong data: {why}"))?;
        Ok(latency)
    }

    /// Gets a sample of all keys and verifies it, so that a run of puts is verified too.
    pub fn verify_sample(&self, count: u64) -> Result<(), String> {
        if self.versions.is_none() {
            return Ok(());
        }
        let mut rng = Rng::with_seed(self.arguments.seed ^ 0x5a5a);
        let mut key = vec![0; self.arguments.key_bytes as usize];
        for position in 0..count.min(self.arguments.keys) {
            // Every key of a small store, random ones of a large one.
            let all = count >= self.arguments.keys;
            let id = if all {
                position
            } else {
                rng.u64(..self.arguments.keys)
            };
            write_key(id, &mut key);
            self.get(id, &key, None)?;
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}
