//! A commit to wait for.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::Result;
use crate::sync::{Arc, Mutex};

#[derive(Default)]
pub(super) struct CommitState {
    pub(super) result: Option<Result<()>>,
    pub(super) waker: Option<Waker>,
}

/// Ready when a transaction survives power loss.
pub struct Commit {
    pub(super) state: Arc<Mutex<CommitState>>,
}

impl Future for Commit {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state.lock();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
