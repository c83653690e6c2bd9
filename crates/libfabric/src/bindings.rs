// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libfabric's declarations, made by `build.rs` of its headers.

#![allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
