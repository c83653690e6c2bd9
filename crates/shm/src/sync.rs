// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What two ends share memory by. `crates/loom` puts loom's in its place.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
