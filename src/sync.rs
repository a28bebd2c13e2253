//! Synchronisation primitives, and the only place that knows loom.
//!
//! Everything concurrent in the crate uses the names of this module. Under
//! `--cfg loom` in this crate's own tests they are loom's models; else the standard
//! library's. Locks ignore poisoning by panic: a panic in the engine is a bug, and a
//! store whose *device* failed says so through `Error::Poisoned`.

#[cfg(not(all(test, loom)))]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Arc, Condvar as RawCondvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use std::sync::{RwLock as RawRwLock, RwLockReadGuard, RwLockWriteGuard};
    pub(crate) use std::thread;
}

#[cfg(all(test, loom))]
mod imp {
    #[cfg(not(crossbeam_loom))]
    pub(crate) use super::model_atomic::AtomicU64;
    #[cfg(crossbeam_loom)]
    pub(crate) use loom::sync::atomic::AtomicU64;
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Arc, Condvar as RawCondvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use loom::sync::{RwLock as RawRwLock, RwLockReadGuard, RwLockWriteGuard};
    pub(crate) use loom::thread;
}

pub(crate) use imp::*;

/// Bounded channels of recovery, which runs in no model.
pub(crate) use std::sync::mpsc;

/// The standard library's `Arc`, also in models: for immutable bytes handed to callers.
pub(crate) use std::sync::Arc as SharedArc;

/// Whether this build is a loom model: constants shrink so that models stay small.
pub(crate) const MODEL: bool = cfg!(all(test, loom));

/// Gives way to the thread this one waits for.
pub(crate) fn pause(round: u32) {
    #[cfg(not(all(test, loom)))]
    if round % 64 != 63 {
        std::hint::spin_loop();
        return;
    }
    let _ = round;
    thread::yield_now();
}

/// Deferred reclamation of memory that lock-free readers may still see.
///
/// It is crossbeam-epoch, except in models without `--cfg crossbeam_loom`: there a stand-in
/// with the same names leaks what is retired, since models of the index's protocols are
/// not about reclamation and crossbeam's own steps would multiply their schedules.
pub(crate) mod epoch {
    #[cfg(not(all(test, loom)))]
    pub(crate) use crossbeam_epoch::Atomic;
    #[cfg(any(not(all(test, loom)), crossbeam_loom))]
    pub(crate) use crossbeam_epoch::{Guard, Owned, Shared, pin};

    #[cfg(all(test, loom, crossbeam_loom))]
    pub(crate) use super::touched::Atomic;

    #[cfg(all(test, loom, not(crossbeam_loom)))]
    pub(crate) use super::leaking::{Atomic, Guard, Owned, Shared, pin};
}

/// A part of memory that [`epoch`] reclaims, which tells models whether it is still there.
///
/// It is nothing, except in models with real epochs (`--cfg crossbeam_loom`).
#[cfg(not(all(test, loom, crossbeam_loom)))]
pub(crate) struct Life;

#[cfg(not(all(test, loom, crossbeam_loom)))]
impl Life {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Says that it is at its place in memory, before it is published.
    #[inline]
    pub(crate) fn begin(&self) {}

    /// Says that what it is a part of is read.
    #[inline]
    pub(crate) fn touch(&self) {}
}

#[cfg(all(test, loom, crossbeam_loom))]
pub(crate) use life::Life;
#[cfg(all(test, loom, crossbeam_loom))]
pub(crate) use life::{forget_lives, lives};

/// What a load of an [`ArcCell`] returns: dereferences to the `Arc`.
#[cfg(not(all(test, loom)))]
pub(crate) type ArcGuard<T> = arc_swap::Guard<Arc<T>>;
/// What a load of an [`ArcCell`] returns: dereferences to the `Arc`. In models it does not
/// count references: loom would take that for an ordering of the threads.
#[cfg(all(test, loom))]
pub(crate) type ArcGuard<T> = &'static Arc<T>;

/// An `Arc` that is replaced whole while others read it.
///
/// It is `ArcSwap`. Models have a pointer with the orderings of its `load` and `store`
/// instead and free nothing before the cell: they check how the crate uses it, but not
/// arc-swap itself, which loom cannot see into. (A lock in its place would order more than
/// `ArcSwap` does, and hide missing orderings elsewhere.)
#[cfg(not(all(test, loom)))]
pub(crate) struct ArcCell<T>(arc_swap::ArcSwap<T>);

#[cfg(not(all(test, loom)))]
impl<T> ArcCell<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(arc_swap::ArcSwap::new(value))
    }

    /// The current value, without a lock and without touching its reference count.
    pub(crate) fn load(&self) -> ArcGuard<T> {
        self.0.load()
    }

    /// Replaces the value.
    pub(crate) fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}

#[cfg(all(test, loom))]
pub(crate) use model_cell::ArcCell;

/// loom's `AtomicU64`, whose loads are steps that loom orders against each other.
///
/// loom compares a store with the last access to the object only. Where a writer loads what
/// it is about to store, as every lock holder in the index does, that access is its own,
/// and loom (0.7) never tries the store between two loads of a reader. So a load here also
/// stores to a flag that nobody reads: it makes loads conflict and orders nothing else.
/// (Models with real epochs have it for pointers only: they are not about buckets.)
#[cfg(all(test, loom))]
mod model_atomic {
    use std::ops::Deref;

    use super::{AtomicBool, Ordering};

    /// See the module.
    pub(crate) struct AtomicU64 {
        value: loom::sync::atomic::AtomicU64,
        touched: AtomicBool,
    }

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self {
                value: loom::sync::atomic::AtomicU64::new(value),
                touched: AtomicBool::new(false),
            }
        }

        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.touched.store(true, Ordering::Relaxed);
            self.value.load(order)
        }
    }

    impl Default for AtomicU64 {
        fn default() -> Self {
            Self::new(0)
        }
    }

    impl Deref for AtomicU64 {
        type Target = loom::sync::atomic::AtomicU64;

        fn deref(&self) -> &Self::Target {
            &self.value
        }
    }
}

/// The stand-in for arc-swap in models.
#[cfg(all(test, loom))]
mod model_cell {
    #![expect(unsafe_code, reason = "a pointer to what the cell keeps")]

    use super::model_atomic::AtomicU64;
    use super::{Arc, Ordering};

    /// See the other definition.
    pub(crate) struct ArcCell<T> {
        current: AtomicU64,
        kept: std::sync::Mutex<Vec<Box<Arc<T>>>>,
    }

    impl<T: 'static> ArcCell<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            let value = Box::new(value);
            Self {
                current: AtomicU64::new(&raw const *value as u64),
                kept: std::sync::Mutex::new(vec![value]),
            }
        }

        pub(crate) fn load(&self) -> &'static Arc<T> {
            let current = self.current.load(Ordering::Acquire) as *const Arc<T>;
            // SAFETY: `kept` has it as long as the cell lives, and models keep no guard longer.
            unsafe { &*current }
        }

        pub(crate) fn store(&self, value: Arc<T>) {
            let value = Box::new(value);
            let current = &raw const *value as u64;
            self.kept.lock().unwrap().push(value);
            self.current.store(current, Ordering::Release);
        }
    }
}

/// A mutex whose `lock` never fails.
pub(crate) struct Mutex<T>(RawMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RawMutex::new(value))
    }

    /// The lock, unless another has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// A lock for many readers or one writer.
pub(crate) struct RwLock<T>(RawRwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RawRwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.0.read() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.0.write() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// A condition variable for [`Mutex`].
pub(crate) struct Condvar(RawCondvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(RawCondvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        match self.0.wait(guard) {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// Waits at most `timeout`; loom has no clock, so a model waits until notified.
    pub(crate) fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        #[cfg(not(all(test, loom)))]
        let guard = match self.0.wait_timeout(guard, timeout) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        };
        #[cfg(all(test, loom))]
        let guard = {
            let _ = timeout;
            self.wait(guard)
        };
        guard
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// The stand-in for crossbeam-epoch in models; see [`epoch`].
#[cfg(all(test, loom, not(crossbeam_loom)))]
mod leaking {
    #![expect(unsafe_code, reason = "the same contracts as crossbeam-epoch's")]

    use std::marker::PhantomData;

    use super::{AtomicU64, Ordering};

    pub(crate) struct Guard;

    pub(crate) fn pin() -> Guard {
        Guard
    }

    impl Guard {
        /// # Safety
        /// None needed: it leaks.
        pub(crate) unsafe fn defer_destroy<T>(&self, _: Shared<'_, T>) {}

        pub(crate) fn flush(&self) {}
    }

    pub(crate) struct Owned<T>(Box<T>);

    impl<T> Owned<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Box::new(value))
        }

        pub(crate) fn into_shared(self, _: &Guard) -> Shared<'_, T> {
            Shared(Box::into_raw(self.0) as u64, PhantomData)
        }
    }

    impl<T> std::ops::Deref for Owned<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    pub(crate) struct Shared<'g, T>(u64, PhantomData<(&'g (), *const T)>);

    impl<T> Clone for Shared<'_, T> {
        fn clone(&self) -> Self {
            *self
        }
    }

    impl<T> Copy for Shared<'_, T> {}

    impl<T> PartialEq for Shared<'_, T> {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl<'g, T> Shared<'g, T> {
        pub(crate) fn null() -> Self {
            Self(0, PhantomData)
        }

        /// # Safety
        /// As crossbeam-epoch's.
        pub(crate) unsafe fn as_ref(&self) -> Option<&'g T> {
            // SAFETY: 0 or from `Owned::into_shared`, whose values live for ever.
            unsafe { (self.0 as *const T).as_ref() }
        }
    }

    pub(crate) struct Atomic<T>(AtomicU64, PhantomData<*const T>);

    // SAFETY: it is an address of a `T`, shared like a reference to it.
    unsafe impl<T: Send + Sync> Send for Atomic<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send + Sync> Sync for Atomic<T> {}

    impl<T> Atomic<T> {
        pub(crate) fn null() -> Self {
            Self(AtomicU64::new(0), PhantomData)
        }

        pub(crate) fn load<'g>(&self, order: Ordering, _: &'g Guard) -> Shared<'g, T> {
            Shared(self.0.load(order), PhantomData)
        }

        pub(crate) fn store(&self, pointer: Shared<'_, T>, order: Ordering) {
            self.0.store(pointer.0, order);
        }
    }
}

/// crossbeam-epoch's `Atomic`, whose loads are steps that loom orders against each other, for
/// the reason that [`model_atomic`] has.
#[cfg(all(test, loom, crossbeam_loom))]
mod touched {
    use super::epoch::{Guard, Shared};
    use super::{AtomicBool, Ordering};

    /// See the module.
    pub(crate) struct Atomic<T> {
        pointer: crossbeam_epoch::Atomic<T>,
        touched: AtomicBool,
    }

    impl<T> Atomic<T> {
        pub(crate) fn null() -> Self {
            Self {
                pointer: crossbeam_epoch::Atomic::null(),
                touched: AtomicBool::new(false),
            }
        }

        pub(crate) fn load<'g>(&self, order: Ordering, guard: &'g Guard) -> Shared<'g, T> {
            self.touched.store(true, Ordering::Relaxed);
            self.pointer.load(order, guard)
        }

        pub(crate) fn store(&self, pointer: Shared<'_, T>, order: Ordering) {
            self.pointer.store(pointer, order);
        }
    }
}

/// [`Life`] in models with real epochs.
///
/// Two things fail a model. Reading at an address where something ended, found by a list of
/// these before memory is touched. And an end that is not ordered after every read, or a read
/// not ordered after the beginning, which loom finds by the cell, whatever the schedule.
#[cfg(all(test, loom, crossbeam_loom))]
mod life {
    #![expect(unsafe_code, reason = "shares loom's cell between threads")]

    use std::cell::RefCell;
    use std::collections::BTreeSet;

    /// What a schedule's lives did.
    #[derive(Debug, Default, Clone)]
    pub(crate) struct Lives {
        pub(crate) began: usize,
        pub(crate) ended: usize,
        /// Addresses where one ended and none began since.
        gone: BTreeSet<usize>,
    }

    thread_local! {
        /// All threads of a model are one of the system's.
        static LIVES: RefCell<Lives> = RefCell::default();
    }

    /// What happened since the last [`forget_lives`].
    pub(crate) fn lives() -> Lives {
        LIVES.with_borrow(Clone::clone)
    }

    /// Starts a schedule.
    pub(crate) fn forget_lives() {
        LIVES.with_borrow_mut(|lives| *lives = Lives::default());
    }

    /// See the other definition.
    pub(crate) struct Life {
        cell: loom::cell::UnsafeCell<()>,
        began: std::cell::Cell<bool>,
    }

    // SAFETY: loom runs one thread at a time, and checks the order of the accesses to `cell`;
    // `began` is written before others can see it.
    unsafe impl Sync for Life {}

    impl Life {
        pub(crate) fn new() -> Self {
            Self {
                cell: loom::cell::UnsafeCell::new(()),
                began: std::cell::Cell::new(false),
            }
        }

        fn address(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }

        pub(crate) fn begin(&self) {
            self.began.set(true);
            LIVES.with_borrow_mut(|lives| {
                lives.began += 1;
                lives.gone.remove(&self.address());
            });
        }

        #[track_caller]
        pub(crate) fn touch(&self) {
            let gone = LIVES.with_borrow(|lives| lives.gone.contains(&self.address()));
            assert!(!gone, "read after it was reclaimed");
            self.cell.with(|_| ());
        }
    }

    impl Drop for Life {
        fn drop(&mut self) {
            if std::thread::panicking() || !self.began.get() {
                return;
            }
            self.cell.with_mut(|_| ());
            LIVES.with_borrow_mut(|lives| {
                lives.ended += 1;
                lives.gone.insert(self.address());
            });
        }
    }
}
