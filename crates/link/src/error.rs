// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with a link: the caller's part or the system's, never a peer's.

use std::io;

use thiserror::Error;

/// Why a link could not be opened or used.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No interface of this name exists in this network namespace.
    #[error("there is no interface '{0}' here; `ls /sys/class/net` lists those there are")]
    NoSuchInterface(String),
    /// The interface is not an Ethernet one.
    #[error("interface '{interface}' is no Ethernet interface (hardware type {hardware_type})")]
    NotEthernet {
        /// Its name.
        interface: String,
        /// Its ARPHRD type.
        hardware_type: u16,
    },
    /// Raw frames need a capability that this process lacks.
    #[error("raw frames need CAP_NET_RAW: run as root, or in a network namespace of a user namespace of your own")]
    NotPermitted,
    /// The interface is down or has gone.
    #[error("interface '{0}' is down or gone; bring it up with `ip link set {0} up`")]
    InterfaceDown(String),
    /// A frame was longer than the interface carries.
    #[error("a frame of {frame_bytes} bytes does not fit an MTU of {mtu}")]
    FrameTooLong {
        /// The frame's length with its Ethernet header.
        frame_bytes: usize,
        /// The interface's largest payload.
        mtu: usize,
    },
    /// A socket that was handed over is not what it should be.
    #[error("the descriptor handed over is no AF_PACKET socket bound to '{interface}': {reason}")]
    ForeignSocket {
        /// The interface that it should be bound to.
        interface: String,
        /// What it is instead.
        reason: String,
    },
    /// Any other failure of a system call.
    #[error("{operation} on interface '{interface}' failed: {source}")]
    System {
        /// The call.
        operation: &'static str,
        /// The interface's name.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
}
