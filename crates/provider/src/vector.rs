// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers by number.

use barewire_endpoint::Address;

use crate::bindings::fi_addr_t;

/// The addresses; `None` where one was removed.
pub(crate) struct Vector {
    pub addresses: Vec<Option<Address>>,
    /// Endpoints that are bound to it.
    pub users: usize,
}

/// The number for "none", which the headers have as an expression.
pub(crate) const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;
