// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing a socket at which packets arrive waits for an RCU grace period, some 30 ms: several are closed concurrently.

use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Small, because it counts as locked memory under `mlockall`.
const STACK_BYTES: usize = 256 << 10;

/// A thread that drops a link; joined on drop.
#[derive(Default)]
pub struct Closing(Option<Box<JoinHandle<()>>>);

impl Closing {
    /// Drops a link in a thread of its own or, if there can be none, at once.
    #[must_use]
    pub fn of(link: impl Send + 'static) -> Self {
        // The thread must not receive the program's signals.
        let Ok(mask) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return Self::default() };
        let thread = Builder::new().stack_size(STACK_BYTES).spawn(move || drop(link)).ok().map(Box::new);
        // The old mask is valid, so this cannot fail.
        let _ = mask.thread_set_mask();
        Self(thread)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // The thread cannot panic.
        let _ = self.0.take().map(|thread| thread.join());
    }
}
