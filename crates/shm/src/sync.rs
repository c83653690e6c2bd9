// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomics for the shared memory. `crates/loom` replaces them with its own.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
