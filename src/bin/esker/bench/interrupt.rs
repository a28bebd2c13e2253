//! Ctrl-C and termination: a run ends in order, and its temporary files go.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Outcome};

/// Set once the user wants no more.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Removed when a second signal ends the process at once.
static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Exit code of a process ended by Ctrl-C, as shells report it.
const INTERRUPTED_CODE: i32 = 130;

/// From now on the first signal sets the flag returned; the second ends the process.
pub fn install() -> Outcome<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            let path = TEMPORARY
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(path) = path {
                let _ = fs::remove_dir_all(path);
            }
            std::process::exit(INTERRUPTED_CODE);
        }
    })
    .map_err(|error| Failure::failed(format!("cannot watch for Ctrl-C: {error}")))?;
    Ok(&INTERRUPTED)
}

/// A directory that is removed however the command ends, short of
/// a kill that cannot be caught.
pub struct TemporaryDirectory {
    directory: tempfile::TempDir,
}

impl TemporaryDirectory {
    /// Makes it in `place`.
    pub fn new(place: &Path, prefix: &str) -> Outcome<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(place);
        let directory = directory.map_err(|error| {
            Failure::failed(format!(
                "cannot make a temporary directory in {}: {error}; give --path, or work in \
                 another directory",
                place.display()
            ))
        })?;
        let mut path = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
        *path = Some(directory.path().to_owned());
        drop(path);
        Ok(Self { directory })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        TEMPORARY
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}
