// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address vectors.

use barewire_endpoint::Address;

use crate::bindings::fi_addr_t;

/// An address vector.
pub(crate) struct Vector {
    /// The addresses by number; `None` where one was removed.
    pub addresses: Vec<Option<Address>>,
    /// Number of endpoints bound to it.
    pub bound_endpoints: usize,
}

/// The number that means "none"; the C headers define it as an expression, which bindgen skips.
pub(crate) const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;
