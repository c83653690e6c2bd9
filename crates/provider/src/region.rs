// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that peers may read and write.

use barewire_messages::{Access, Part};

/// A region, as endpoints that are enabled later learn of it.
pub(crate) struct Region {
    pub key: u64,
    pub part: Part,
    pub access: Access,
}

// SAFETY: the pointer in it is the program's; it is used as the program has allowed, by whoever holds the domain's lock.
unsafe impl Send for Region {}

impl Region {
    /// Whether peers may do anything with it.
    pub fn is_reachable(&self) -> bool {
        self.access.read || self.access.write
    }
}
