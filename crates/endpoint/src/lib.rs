// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Net endpoints: a process's own window onto the network.

mod clock;
mod framing;
mod open;
mod port;
mod slots;
mod token;

pub use framing::{Encapsulation, Frame, Framing, parse};
pub use open::{Hears, OpenError, PROTOCOL, open_link};
pub use port::Port;
pub use slots::{Slot, Slots};
pub use token::JobToken;
