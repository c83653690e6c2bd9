// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Net endpoints: a process's own window onto the network.

mod clock;
pub mod framing;
mod open;
mod port;
mod slots;
mod token;

pub use open::{Hears, OpenError, PROTOCOL, open_link};
pub use port::Port;
pub use slots::{Slot, Slots};
pub use token::JobToken;
