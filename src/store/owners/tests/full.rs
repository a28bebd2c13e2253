//! A full store with pinned operations gets its space back.

use std::collections::BTreeSet;

use super::*;

/// Runs with the log's own threads.
fn with_threads(tested: &Tested, f: impl FnOnce()) {
    let (log, owners) = (&tested.log, &tested.owners);
    std::thread::scope(|scope| {
        scope.spawn(|| log.flusher());
        scope.spawn(|| log.cleaner(owners));
        scope.spawn(|| log.checkpointer(owners));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        log.stop();
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
}

impl Tested {
    fn write(&self, model: &mut Model, some: &[Change]) -> Result<()> {
        self.append(some, some.len().is_multiple_of(2), &mut |rooms| {
            self.log.wait_for_room(rooms, None)
        })?;
        self.log.throttle(1 << 20)?;
        apply(model, some);
        Ok(())
    }
}

fn of_family(family: u64) -> [Change; 2] {
    [
        Change::Write {
            family,
            block: 0,
            bytes: 16 << 10,
            tag: family,
        },
        Change::Omap {
            family,
            key: 1,
            bytes: 100,
            tag: family,
        },
    ]
}

#[test]
fn a_full_store_gets_its_space_back() {
    let capacity = (72 << 10) + 96 * (128 << 10);
    let device = SharedArc::new(SimulatedDevice::new(capacity, 512).without_crashes());
    let tested = Tested::create(&device).unwrap();
    let mut model = Model::new();
    let families =
        |model: &Model| -> BTreeSet<u64> { model.keys().map(|(family, _)| *family).collect() };
    with_threads(&tested, || {
        let mut next = 0;
        for round in 0..4 {
            let first = next;
            loop {
                match tested.write(&mut model, &of_family(next)) {
                    Ok(()) => next += 1,
                    Err(Error::NoSpace { .. }) => break,
                    Err(error) => panic!("{error:?}"),
                }
            }
            let live = tested.log.table().live_total();
            assert!(live > 6 << 20, "round {round}: full with {live} bytes");
            assert!(next - first > 150, "round {round}: {first} to {next}");
            // Every other family goes; that must work on a full store.
            for family in families(&model).into_iter().step_by(2) {
                let removed = tested.write(&mut model, &[Change::Remove { family }]);
                assert!(removed.is_ok(), "round {round}: {removed:?}");
            }
        }
        // Overwriting goes on for as long as one likes.
        let all = families(&model);
        for family in all.iter().cycle().take(3000) {
            tested.write(&mut model, &of_family(*family)).unwrap();
        }
    });
    assert!(tested.owners.objects.relocated.load(Ordering::Relaxed) > 0);
    tested.check(&model);
    tested.log.close(&tested.owners).unwrap();
    let again = Tested::open(&device).unwrap();
    again.check(&model);
}
