// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the public API. One program, because each further one takes seconds to link.

mod access;
mod common;
mod datagrams;
mod fast_path;
mod fetched;
mod floods;
mod hostile;
mod messages;
mod order;
mod reconnecting;
mod removal;
