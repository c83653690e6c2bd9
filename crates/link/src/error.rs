// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with a link: the caller's part or the system's, never a peer's.

use std::io;

use thiserror::Error;

use crate::XdpMode;

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
    /// AF_XDP needs more: the program at the hook is loaded for the whole system.
    #[error(
        "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF on the system itself, not in a user namespace: \
         run as root, or use --link packet"
    )]
    XdpNotPermitted,
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, CONFIG_BPF_SYSCALL); use --link packet")]
    NoXdp,
    /// Another program has the interface's XDP hook, or another socket its queue.
    #[error(
        "interface '{0}' is in use by another XDP program or AF_XDP socket, and has one at a time; \
         `ip link show {0}` names the program"
    )]
    XdpTaken(String),
    /// The interface lacks a mode.
    #[error(
        "interface '{interface}' has no {mode} XDP as it is set up ({source}); choose another mode, or `--link xdp`"
    )]
    XdpMode {
        /// Its name.
        interface: String,
        /// The mode asked for.
        mode: XdpMode,
        /// What the system said.
        source: io::Error,
    },
    /// The interface has no queue of that number.
    #[error("interface '{interface}' has no queue {queue}; `ls /sys/class/net/{interface}/queues` lists them")]
    NoSuchQueue {
        /// Its name.
        interface: String,
        /// The queue's number, from 0.
        queue: u16,
    },
    /// A frame would not fit the memory that is shared with the driver.
    #[error(
        "AF_XDP carries an MTU of at most {most} here, and that of interface '{interface}' is {mtu}: \
         `ip link set {interface} mtu {most}`, or use --link packet"
    )]
    MtuTooLarge {
        /// Its name.
        interface: String,
        /// Its MTU.
        mtu: usize,
        /// The largest that goes.
        most: usize,
    },
    /// The limit of locked memory is below what the link shares with the driver.
    #[error("AF_XDP needs {bytes} bytes of locked memory, more than is allowed: `ulimit -l unlimited`")]
    MemoryNotLocked {
        /// What is needed.
        bytes: usize,
    },
    /// The interface is down, and may come up again: the link goes on then.
    #[error("interface '{0}' is down; bring it up with `ip link set {0} up`")]
    InterfaceDown(String),
    /// The interface was removed, or moved to another network namespace. The link is of no use any more.
    #[error("interface '{0}' is gone; start again once it is there, or on another one")]
    InterfaceGone(String),
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
