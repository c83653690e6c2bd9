// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messengers through what users can call. One program: each one more takes seconds to link.

mod access;
mod common;
mod datagrams;
mod fetched;
mod hostile;
mod leaving;
mod messages;
mod order;
mod reconnecting;
mod short;
mod unknown_peers;
