// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes of short messages between two processes of one host, ordered and reliable, through shared memory.
//!
//! One side opens a [`Listener`], the other [`connect`]s; each gets an end of a [`Pipe`]. A message is copied into a
//! ring of the pipe and read where it lies: no system call, no lock, no allocation on the way, unless the other side
//! sleeps.
//!
//! ```
//! use barewire_shm::{Listener, PipeConfig, connect};
//!
//! let name = format!("barewire-shm example {}", std::process::id());
//! let mut listener = Listener::open(name.as_bytes())?;
//! let mut there = connect(name.as_bytes(), b"it is me", &PipeConfig::default())?.expect("the listener is open");
//! assert!(there.send([b"header", b" and payload"]));
//! let mut here = listener.accept()?.expect("somebody has connected");
//! assert_eq!(here.hello(), b"it is me");
//! assert_eq!(here.receive(), Some(&b"header and payload"[..]));
//! # Ok::<(), barewire_shm::ShmError>(())
//! ```
//!
//! **Trust.** Both ends belong to one user, or there is no pipe. The other end may break down at any moment and in any
//! way: what it leaves in shared memory is checked before it is used, and can neither end nor hang this process. Only
//! the bytes of a message are its own: they may change while they are lent, if it breaks the rules.

mod bounds;
mod error;
mod greeting;
mod listener;
mod memory;
mod pipe;
mod process;
mod ring;
mod socket;
mod sync;

pub use bounds::{HELLO_BYTES_MAX, NAME_BYTES_MAX, RING_BYTES_MAX};
pub use error::{Fault, ShmError};
pub use listener::{Listener, Refused, connect};
pub use pipe::{Awaited, Pipe, PipeConfig};
