// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of links, caused by the caller or the system, never by a peer.

use std::io;

use thiserror::Error;

use crate::XdpMode;

/// Why a link could not be opened or used.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No interface of this name exists in this network namespace.
    #[error("there is no interface '{0}'; `ls /sys/class/net` lists the interfaces")]
    NoSuchInterface(String),
    /// The interface is not an Ethernet interface.
    #[error("interface '{interface}' is not an Ethernet interface (hardware type {hardware_type})")]
    NotEthernet {
        /// Its name.
        interface: String,
        /// Its ARPHRD type.
        hardware_type: u16,
    },
    /// This process lacks the capability for raw frames.
    #[error("raw frames need CAP_NET_RAW: run as root, or in a network namespace of a user namespace of your own")]
    NotPermitted,
    /// This process lacks the capabilities for AF_XDP, whose program is loaded for the whole system.
    #[error(
        "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF on the system itself, not in a user namespace: \
         run as root, or use --link packet"
    )]
    XdpNotPermitted,
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, CONFIG_BPF_SYSCALL); use --link packet")]
    NoXdp,
    /// Another program occupies the interface's XDP hook, or another socket its queue.
    #[error("interface '{0}' is in use by another XDP program or AF_XDP socket; `ip link show {0}` names the program")]
    XdpTaken(String),
    /// The interface does not support the mode.
    #[error(
        "interface '{interface}' does not support {mode} XDP in its configuration ({source}); \
         choose another mode, or `--link xdp`"
    )]
    XdpMode {
        /// Its name.
        interface: String,
        /// The requested mode.
        mode: XdpMode,
        /// The system's error.
        source: io::Error,
    },
    /// The interface has no queue with this number.
    #[error("interface '{interface}' has no queue {queue}; `ls /sys/class/net/{interface}/queues` lists them")]
    NoSuchQueue {
        /// Its name.
        interface: String,
        /// The queue's number, from 0.
        queue: u16,
    },
    /// A frame would not fit a chunk of the memory that is shared with the driver.
    #[error(
        "AF_XDP supports an MTU of at most {mtu_max} here, and that of interface '{interface}' is {mtu}: \
         `ip link set {interface} mtu {mtu_max}`, or use --link packet"
    )]
    MtuTooLarge {
        /// Its name.
        interface: String,
        /// Its MTU.
        mtu: usize,
        /// The largest supported MTU.
        mtu_max: usize,
    },
    /// The limit of locked memory is below the memory that the link shares with the driver.
    #[error("AF_XDP needs {bytes} bytes of locked memory, more than the limit: `ulimit -l unlimited`")]
    MemoryNotLocked {
        /// Number of bytes needed.
        bytes: usize,
    },
    /// The interface is down. The link recovers when it comes up again.
    #[error("interface '{0}' is down; bring it up with `ip link set {0} up`")]
    InterfaceDown(String),
    /// The interface was removed, or moved to another network namespace. The link is unusable.
    #[error("interface '{0}' is gone; restart once it exists again, or use another one")]
    InterfaceGone(String),
    /// The interface has no IP address.
    #[error("interface '{0}' has no IP address, which UDP needs; `ip address` lists the addresses of all interfaces")]
    NoIpAddress(String),
    /// None of the ports to choose from is free.
    #[error(
        "no UDP port from {first} to {last} is free, of {usable} that can name a process (an even high byte, and a \
         multiple of the number of labels): free some, or allow more, one for each process of the host and each label"
    )]
    NoPort {
        /// The first port to choose from.
        first: u16,
        /// The last.
        last: u16,
        /// How many of them can be a station's: its first, if it has several.
        usable: usize,
    },
    /// A frame exceeded the interface's MTU.
    #[error("a frame of {frame_bytes} bytes does not fit an MTU of {mtu}")]
    FrameTooLong {
        /// The frame's length with its Ethernet header.
        frame_bytes: usize,
        /// The interface's largest payload.
        mtu: usize,
    },
    /// An adopted descriptor is not a suitable socket.
    #[error("the adopted descriptor is not an AF_PACKET socket bound to '{interface}': {reason}")]
    ForeignSocket {
        /// The interface to which it should be bound.
        interface: String,
        /// What is wrong.
        reason: String,
    },
    /// Any other failure of a system call.
    #[error("{operation} on interface '{interface}' failed: {source}")]
    System {
        /// The call.
        operation: &'static str,
        /// The interface's name.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
}
