// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes between two processes of one host, through shared memory: ordered, reliable, for short messages.
//!
//! One side opens a [`Listener`], the other [`connect`]s; each gets one end of a [`Pipe`]. A message is copied into a
//! ring and read in place, without system call, lock or allocation, unless the other side sleeps.
//!
//! ```
//! use barewire_shm::{Listener, PipeConfig, connect};
//!
//! let name = format!("barewire-shm example {}", std::process::id());
//! let mut listener = Listener::open(name.as_bytes())?;
//! let mut initiator = connect(name.as_bytes(), b"it is me", &PipeConfig::default())?.expect("the listener is open");
//! assert!(initiator.send([b"header", b" and payload"]));
//! let mut acceptor = listener.accept()?.expect("an initiator has connected");
//! assert_eq!(acceptor.hello(), b"it is me");
//! assert_eq!(acceptor.receive(), Some(&b"header and payload"[..]));
//! # Ok::<(), barewire_shm::ShmError>(())
//! ```
//!
//! **Trust.** Both ends belong to one user, or there is no pipe. The other end may fail at any moment and in any way:
//! what it wrote to shared memory is checked before it is used, and can neither crash nor hang this process. Only the
//! bytes of a message are not protected: a faulty peer may change them while they are lent.

mod bounds;
mod error;
mod greeting;
mod listener;
mod memory;
mod other_users;
mod pipe;
mod process;
mod ring;
mod socket;
mod sync;

pub use bounds::{HELLO_BYTES_MAX, NAME_BYTES_MAX, RING_BYTES_MAX};
pub use error::{Fault, ShmError};
pub use listener::{Listener, Refused, connect};
pub use pipe::{Awaited, Pipe, PipeConfig};
