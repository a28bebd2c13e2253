//! Random transactions with 16 in flight: what is queued can be read at once, callbacks come
//! in the order of submission, and a close completes what is under way.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use esker::device::SimulatedDevice;
use esker::{CollectionName, Error, ObjectName, Op, Transaction};

use crate::common::{Random, seed};
use crate::contents::{assert_same, contents, object_contents};
use crate::engine_store::EngineStore;
use crate::faults::history::History;
use crate::faults::workload::{Workload, creation};
use crate::faults::{assert_exact_space, options};
use crate::interface::ObjectInterface;

const IN_FLIGHT: usize = 16;

fn steps() -> u64 {
    let steps = std::env::var("ESKER_OBJECT_OPS").ok();
    steps.and_then(|text| text.parse().ok()).unwrap_or(1500)
}

/// The objects that an operation may change.
fn objects(op: &Op<'_>) -> Vec<(CollectionName, ObjectName)> {
    let one = |collection: &CollectionName, object: &Arc<ObjectName>| {
        vec![(*collection, (**object).clone())]
    };
    match op {
        Op::Write {
            collection, object, ..
        }
        | Op::Touch { collection, object }
        | Op::Zero {
            collection, object, ..
        }
        | Op::Truncate {
            collection, object, ..
        }
        | Op::Remove { collection, object }
        | Op::SetAttrs {
            collection, object, ..
        }
        | Op::RmAttr {
            collection, object, ..
        }
        | Op::RmAttrs { collection, object }
        | Op::OmapClear { collection, object }
        | Op::OmapSetKeys {
            collection, object, ..
        }
        | Op::OmapRmKeys {
            collection, object, ..
        }
        | Op::OmapRmKeyRange {
            collection, object, ..
        }
        | Op::OmapSetHeader {
            collection, object, ..
        } => one(collection, object),
        Op::Clone {
            collection, target, ..
        }
        | Op::CloneRange {
            collection, target, ..
        }
        | Op::TryRename {
            collection, target, ..
        } => one(collection, target),
        Op::CollectionMoveRename {
            collection,
            source,
            target,
            ..
        } => {
            let mut both = one(collection, source);
            both.extend(one(collection, target));
            both
        }
        _ => Vec::new(),
    }
}

/// What the callbacks of one store said.
#[derive(Default)]
struct Heard {
    applied: u64,
    committed: u64,
}

struct Run {
    store: EngineStore,
    history: History,
    heard: Arc<Mutex<Heard>>,
    queued: u64,
}

impl Run {
    /// Queues a transaction that the model accepts; returns whether there was room.
    fn queue(&mut self, collection: CollectionName, transaction: &Transaction<'static>) -> bool {
        let Ok(after) = self.history.expect(collection, transaction) else {
            let handle = self.store.store().create_new_collection(collection);
            let refused = Box::new(|_: esker::Result<()>| panic!("a refused transaction"));
            let all = std::slice::from_ref(transaction);
            let found = self
                .store
                .store()
                .queue_transactions(&handle, all, None, Some(refused));
            assert!(found.is_err(), "{transaction:?}");
            return false;
        };
        let handle = self.store.store().create_new_collection(collection);
        let number = self.queued + 1;
        let (applied, committed) = (self.heard.clone(), self.heard.clone());
        let on_applied = Box::new(move |result: esker::Result<()>| {
            result.unwrap();
            let mut heard = applied.lock().unwrap();
            assert_eq!(
                heard.applied + 1,
                number,
                "applied in the order of submission"
            );
            heard.applied = number;
        });
        let on_commit = Box::new(move |result: esker::Result<()>| {
            result.unwrap();
            let mut heard = committed.lock().unwrap();
            assert_eq!(
                heard.committed + 1,
                number,
                "committed in the order of submission"
            );
            assert!(heard.applied >= number, "committed before it was applied");
            heard.committed = number;
        });
        let all = std::slice::from_ref(transaction);
        let engine = self.store.store();
        match engine.queue_transactions(&handle, all, Some(on_applied), Some(on_commit)) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => return false,
            Err(error) => panic!("{error:?}: {transaction:?}"),
        }
        self.queued = number;
        self.history.note(after);
        true
    }

    fn committed(&self) -> u64 {
        self.heard.lock().unwrap().committed
    }

    /// The objects of a transaction are as the model has them.
    fn compare(&self, transaction: &Transaction<'static>) {
        let touched: BTreeSet<_> = transaction.ops().iter().flat_map(objects).collect();
        let model = self.history.latest();
        for (collection, object) in touched {
            let exists = model.exists(collection, &object);
            assert_eq!(self.store.exists(collection, &object), exists, "{object}");
            if exists {
                let found = object_contents(&self.store, collection, &object);
                let expected = object_contents(model, collection, &object);
                assert!(found == expected, "{object} differs: {transaction:?}");
            }
        }
    }
}

fn run(block: u32, capacity: u64) {
    let seed = seed();
    let device = Arc::new(SimulatedDevice::new(capacity, block).without_crashes());
    let store = EngineStore::create(&device, &options()).unwrap();
    let mut workload = Workload::new(seed);
    let mut random = Random::new(!seed);
    let mut run = Run {
        store,
        history: History::new(),
        heard: Arc::default(),
        queued: 0,
    };
    for (collection, transaction) in creation() {
        assert!(run.queue(collection, &transaction));
    }
    let steps = steps();
    for step in 1..=steps {
        while run.queued - run.committed() >= IN_FLIGHT as u64 {
            std::thread::yield_now();
        }
        run.history.acknowledge(run.committed());
        let (collection, transaction) = workload.next(run.history.latest());
        if run.queue(collection, &transaction) && random.below(3) > 0 {
            run.compare(&transaction);
        }
        if step % (steps / 6 + 1) == 0 {
            let expected = contents(run.history.latest());
            assert_same(&contents(&run.store), &expected, &format!("step {step}"));
            if step % 2 == 0 {
                let handle = run.store.store().create_new_collection(collection);
                run.store.store().flush(&handle);
                assert_eq!(run.committed(), run.queued, "flush waits for callbacks");
                assert_exact_space(&device, &run.store, &format!("step {step}"));
            }
            // A close completes what is under way.
            run.store.remount();
            assert_eq!(run.committed(), run.queued, "a close calls every callback");
            assert_same(
                &contents(&run.store),
                &expected,
                &format!("step {step}, remounted"),
            );
        }
    }
    run.store.remount();
    let expected = contents(run.history.latest());
    assert_same(&contents(&run.store), &expected, "the end");
    assert_exact_space(&device, &run.store, "the end");
}

#[test]
fn sixteen_in_flight_on_512_byte_blocks() {
    run(512, 12 << 20);
}

#[test]
fn sixteen_in_flight_on_4096_byte_blocks() {
    run(4096, 24 << 20);
}

/// Several threads, each with collections of its own, and now and then a transaction over
/// a collection that all share: each sees its own in order.
#[test]
fn threads_with_collections_of_their_own() {
    let seed = seed();
    let device = Arc::new(SimulatedDevice::new(32 << 20, 512).without_crashes());
    let store = esker::ObjectStore::create_on(device.clone(), &options()).unwrap();
    let shared = CollectionName::Meta;
    let handle = store.create_new_collection(shared);
    let mut tx = Transaction::new();
    tx.create_collection(shared, 0);
    store.apply_transactions(&handle, &[tx]).unwrap();
    let steps = steps() / 4;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || own_collection(store, thread, seed ^ thread, steps));
        }
    });
    store.close().unwrap();
    let store = esker::ObjectStore::open_on(device, &options()).unwrap();
    let handle = store.open_collection(&shared).unwrap();
    for thread in 0..4_u64 {
        let object = ObjectName::new(-1, thread as u32, "log");
        let (_, entries) = store.omap_get(&handle, &object).unwrap();
        let last = entries
            .values()
            .map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()));
        assert_eq!(last.max(), Some(steps), "thread {thread}");
    }
}

fn own_collection(store: &esker::ObjectStore, thread: u64, seed: u64, steps: u64) {
    let own = CollectionName::pg(20 + thread as i64, 0);
    let handle = store.create_new_collection(own);
    let mut tx = Transaction::new();
    tx.create_collection(own, 0);
    store.apply_transactions(&handle, &[tx]).unwrap();
    let mut random = Random::new(seed);
    let log = Arc::new(ObjectName::new(-1, thread as u32, "log"));
    let committed = Arc::new(AtomicU64::new(0));
    let mut expected: VecDeque<Vec<u8>> = VecDeque::new();
    for step in 1..=steps {
        while step - committed.load(Ordering::Acquire) > IN_FLIGHT as u64 {
            std::thread::yield_now();
        }
        let data = random.bytes(1 + random.clone().below(20_000) as usize);
        let name = format!("{}", step % 16);
        let object = Arc::new(ObjectName::new(20 + thread as i64, step as u32 % 16, name));
        let mut tx = Transaction::new();
        tx.remove(own, &object)
            .write(own, &object, 0, [data.clone()]);
        tx.touch(CollectionName::Meta, &log).omap_setkeys(
            CollectionName::Meta,
            &log,
            [(format!("{:02}", step % 40), step.to_le_bytes().to_vec())],
        );
        // Half of them name the shared collection as the one that orders.
        let first = if step % 2 == 0 {
            own
        } else {
            CollectionName::Meta
        };
        let order = store.create_new_collection(first);
        let shared = committed.clone();
        let on_commit = Box::new(move |result: esker::Result<()>| {
            result.unwrap();
            let before = shared.fetch_max(step, Ordering::AcqRel);
            assert!(before < step, "commits of one thread in order");
        });
        store
            .queue_transactions(&order, &[tx], None, Some(on_commit))
            .unwrap();
        assert_eq!(store.read(&handle, &object, 0, 0).unwrap(), data);
        expected.push_back(data);
        if expected.len() > 16 {
            expected.pop_front();
            // The oldest that is still there.
            let oldest = step - 15;
            let name = format!("{}", oldest % 16);
            let object = ObjectName::new(20 + thread as i64, oldest as u32 % 16, name);
            assert_eq!(store.read(&handle, &object, 0, 0).unwrap(), expected[0]);
        }
    }
}
