// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registered memory.

use barewire_messages::{Access, Part};

/// A memory region, kept for endpoints that are enabled later.
pub(crate) struct Region {
    pub key: u64,
    pub part: Part,
    pub access: Access,
}

// SAFETY: the memory is the program's; it is accessed as the program permits, by the holder of the domain's lock.
unsafe impl Send for Region {}

impl Region {
    /// Whether peers have any access to it.
    pub fn is_reachable(&self) -> bool {
        self.access.read || self.access.write
    }
}
