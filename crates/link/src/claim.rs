// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exclusive claims of service access points: one holder on this host for each one of an interface.
//!
//! The kernel lets any number of packet sockets receive the same frames. A process that opens one therefore claims its
//! service access point first, by a raw IP socket that never receives anything. That needs the same capability
//! (CAP_NET_RAW) as the packet socket, so a user without it can claim nothing, and all processes of the network
//! namespace see it in `/proc/net/raw`. A claim adds no cost per frame, and ends with the last descriptor of its socket
//! (docs/decisions/0028).
//!
//! ```text
//! local address  239 for a holder, 238 for a candidate
//!                | 7 bits of the service access point, 17 of a hash of the MAC address
//! protocol       253, for experiments (RFC 3692)
//! ```

use std::fs;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::MacAddress;
use crate::interface::owned;
use crate::packet_socket::attach_filter;
use crate::socket::bind;

const PROTOCOL: u8 = 253;
/// First octets: multicast, to which a socket can be bound regardless of local addresses and interfaces.
const HELD: u8 = 239;
const CANDIDATE: u8 = 238;
const HASH_BITS: u32 = 17;
/// How long to wait for concurrent candidates to withdraw.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of checks meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A claim, held until it is dropped in this process and in all children that inherited it.
#[derive(Debug)]
pub struct Claim {
    _socket: OwnedFd,
}

/// Result of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// The claim succeeded.
    Acquired(Claim),
    /// Another process, or this one, holds the service access point.
    Taken,
    /// This process lacks CAP_NET_RAW. The broker claims on behalf of such processes.
    NotPermitted,
}

impl Claim {
    /// Claims a service access point (its octet) of the interface with this address.
    ///
    /// # Errors
    /// The system's error, such as no descriptors left.
    pub fn take(interface: MacAddress, sap: u8) -> io::Result<Claimed> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket() takes no pointers.
        let socket = match owned(unsafe { libc::socket(libc::AF_INET, kind, libc::c_int::from(PROTOCOL)) }) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                return Ok(Claimed::NotPermitted);
            }
            socket => socket?,
        };
        // The filter drops everything.
        attach_filter(&socket, vec![libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }])?;
        // Bind before looking for others: of two concurrent candidates, at least one sees the other.
        let [candidate, held] = [CANDIDATE, HELD].map(|first| address(first, interface, sap));
        bind_to(&socket, candidate)?;
        let (own, until) = (inode(&socket)?, Instant::now() + TIMEOUT);
        while Instant::now() < until {
            let Some(all) = raw_sockets(until)? else { break };
            // The candidate with the lowest inode wins once the others have withdrawn.
            let first = claims(&all, candidate).filter(|inode| *inode != own).min();
            match first {
                _ if claims(&all, held).next().is_some() => break,
                None => {
                    bind_to(&socket, held)?;
                    return Ok(Claimed::Acquired(Self { _socket: socket }));
                }
                Some(first) if first < own => break,
                Some(_) => thread::sleep(POLL_INTERVAL),
            }
        }
        Ok(Claimed::Taken)
    }
}

fn bind_to(socket: &OwnedFd, address: u32) -> io::Result<()> {
    // SAFETY: zeros are a valid address.
    let mut at: libc::sockaddr_in = unsafe { mem::zeroed() };
    at.sin_family = libc::AF_INET as libc::sa_family_t;
    at.sin_addr.s_addr = address.to_be();
    bind(socket, &at)
}

/// The IP address that represents a service access point, in host byte order.
fn address(first: u8, interface: MacAddress, sap: u8) -> u32 {
    // FNV-1a: the same in every build. Two interfaces whose hashes collide merely share their service access points.
    let hash =
        interface.0.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let hash = (hash >> HASH_BITS ^ hash) & ((1 << HASH_BITS) - 1);
    u32::from(first) << 24 | u32::from(sap >> 1) << HASH_BITS | hash
}

/// Local address and inode of each raw socket, as of some moment during the call; `None` if they kept changing.
///
/// The kernel hands lines out by their number, over several reads, and skips one if an earlier socket closes in
/// between. Two passes that agree have skipped nothing: the first saw the socket that closed, the second cannot have.
fn raw_sockets(until: Instant) -> io::Result<Option<Vec<(String, u64)>>> {
    let mut before = None;
    while Instant::now() < until {
        let now = Some(parse(&fs::read_to_string("/proc/thread-self/net/raw")?));
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    Ok(None)
}

/// Local address and inode of each socket in the text of `/proc/net/raw`.
fn parse(text: &str) -> Vec<(String, u64)> {
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?.to_owned();
        // remote, state, queues, timer, retransmissions, user, timeout
        Some((local, fields.nth(7)?.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

/// Inodes of the sockets bound to an address.
fn claims(all: &[(String, u64)], address: u32) -> impl Iterator<Item = u64> + '_ {
    // The kernel prints the address as the native-endian number that its four octets form in memory.
    let wanted = format!("{:08X}:{:04X}", address.to_be(), PROTOCOL);
    all.iter().filter(move |(local, _)| *local == wanted).map(|(_, inode)| *inode)
}

fn inode(socket: &OwnedFd) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::File::from(socket.try_clone()?).metadata()?.ino())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn claims_are_found_by_address_and_protocol() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
    1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 0000000000000000 0
  253: 040201EF:00FD 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12 2 0000000000000000 0
  253: 050201EF:00FD 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 13 2 0000000000000000 0
  253: 040201EF:00FD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 14 2 0000000000000000 0
";
        let address = u32::from_be_bytes([239, 1, 2, 4]);
        let found: Vec<u64> = claims(&parse(text), address).collect();
        assert_eq!(found, if cfg!(target_endian = "little") { vec![12, 14] } else { vec![] });
    }

    #[test]
    fn each_service_access_point_has_its_own_address() {
        let of = |mac: u8| (0..=255).step_by(2).map(move |sap| address(HELD, MacAddress([2, 0, 0, 0, 0, mac]), sap));
        let all: std::collections::HashSet<u32> = (0..16).flat_map(of).collect();
        assert_eq!(all.len(), 16 * 128);
        assert!(all.iter().all(|address| address >> 24 == u32::from(HELD)));
    }

    /// Of eight concurrent threads, one acquires the claim; after its release, another can.
    #[test]
    fn service_access_point_has_one_holder_at_a_time() {
        let mac = MacAddress([2, 0x77, 0, 0, (std::process::id() >> 8) as u8, std::process::id() as u8]);
        if matches!(Claim::take(mac, 0x20), Ok(Claimed::NotPermitted)) {
            println!("skipped: claims need CAP_NET_RAW");
            return;
        }
        for _ in 0..20 {
            let takers: Vec<_> = (0..8).map(|_| thread::spawn(move || Claim::take(mac, 0x20).unwrap())).collect();
            let all: Vec<Claimed> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
            assert_eq!(all.iter().filter(|claimed| matches!(claimed, Claimed::Acquired(_))).count(), 1, "{all:?}");
            assert!(matches!(Claim::take(mac, 0x20).unwrap(), Claimed::Taken));
            assert!(matches!(Claim::take(mac, 0x22).unwrap(), Claimed::Acquired(_)));
        }
        assert!(matches!(Claim::take(mac, 0x20).unwrap(), Claimed::Acquired(_)));
    }

    /// Others open and close sockets meanwhile, which the kernel lists before the holder's.
    #[test]
    fn a_holder_is_seen_while_other_sockets_come_and_go() {
        let mac = MacAddress([2, 0x78, 0, 0, (std::process::id() >> 8) as u8, std::process::id() as u8]);
        let Ok(Claimed::Acquired(_held)) = Claim::take(mac, 0x20) else {
            println!("skipped: claims need CAP_NET_RAW");
            return;
        };
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for sap in [0x30, 0x32] {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(Claim::take(mac, sap));
                    }
                });
            }
            let seen = (0..2000).all(|_| matches!(Claim::take(mac, 0x20), Ok(Claimed::Taken)));
            is_over.store(true, Ordering::Relaxed);
            assert!(seen, "a second holder");
        });
    }
}
