// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registered memory.

use std::sync::Arc;

use barewire_messages::{Access, AccessCounts, Part};

use crate::bindings::*;

/// A memory region, kept for endpoints that are enabled later.
pub(crate) struct Region {
    pub key: u64,
    pub part: Part,
    pub access: Access,
    /// Peers' accesses through all endpoints, if a counter is bound.
    pub counts: Option<Arc<AccessCounts>>,
}

// SAFETY: the memory is the program's; it is accessed as the program permits, by the holder of the domain's lock.
unsafe impl Send for Region {}

impl Region {
    /// Whether peers have any access to it.
    pub fn is_reachable(&self) -> bool {
        self.access.read || self.access.write
    }

    /// Numbers of successful and failed accesses, of the kinds in a counter binding's `flags`. Only initiators learn of
    /// failures.
    pub fn completed(&self, flags: u64) -> (u64, u64) {
        let Some(counts) = &self.counts else { return (0, 0) };
        let all = [(FI_REMOTE_WRITE, counts.written()), (FI_REMOTE_READ, counts.read())];
        (all.into_iter().filter(|(kind, _)| flags & kind != 0).map(|(_, count)| count).sum(), 0)
    }
}
