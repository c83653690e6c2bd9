// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One holder for each service access point of an interface on this host, whoever they are.
//!
//! The kernel lets any number of packet sockets hear the same frames. So whoever opens one by itself claims what it is for,
//! with a raw socket of IP's that nothing is ever received by: it takes the same right (CAP_NET_RAW) as the packet socket,
//! so that a user without it can claim nothing, and all users of the network namespace see it in `/proc/net/raw`. It costs
//! no frame anything, and ends with its process and all who have its descriptor (docs/decisions/0028).
//!
//! ```text
//! local address  239, or 238 before it is known who comes first
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
/// First octets: multicast, which a socket can be bound to whatever addresses and interfaces there are.
const HELD: u8 = 239;
const WANTED: u8 = 238;
const HASH_BITS: u32 = 17;
/// How long those are waited for who come at once and are to give way, and the time between two looks.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// Held until it is dropped, in this process and in its children.
#[derive(Debug)]
pub struct Claim {
    _socket: OwnedFd,
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// It is this process's now.
    Ours(Claim),
    /// Another one's, or one of this process's own.
    Taken,
    /// Without CAP_NET_RAW there is nothing to claim: the broker does so for who has none.
    NotPermitted,
}

impl Claim {
    /// Claims a service access point (its octet) of the interface with this address.
    ///
    /// # Errors
    /// What the system says, such as that there are no descriptors left.
    pub fn take(interface: MacAddress, sap: u8) -> io::Result<Claimed> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket() takes no pointers.
        let socket = match owned(unsafe { libc::socket(libc::AF_INET, kind, libc::c_int::from(PROTOCOL)) }) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                return Ok(Claimed::NotPermitted);
            }
            socket => socket?,
        };
        // Accepts nothing.
        attach_filter(&socket, vec![libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }])?;
        // It is there before anybody else's is looked for: of two who come at once, at least one sees the other.
        let [wanted, held] = [WANTED, HELD].map(|first| address(first, interface, sap));
        bind_to(&socket, wanted)?;
        let (own, until) = (inode(&socket)?, Instant::now() + PATIENCE);
        while Instant::now() < until {
            let all = fs::read_to_string("/proc/thread-self/net/raw")?;
            // Of those who come at once, the one with the lowest number goes on once the others have gone.
            let first = claims(&all, wanted).filter(|inode| *inode != own).min();
            match first {
                _ if claims(&all, held).next().is_some() => break,
                None => {
                    bind_to(&socket, held)?;
                    return Ok(Claimed::Ours(Self { _socket: socket }));
                }
                Some(first) if first < own => break,
                Some(_) => thread::sleep(LOOK_AGAIN_AFTER),
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

/// What stands for a service access point, in the host's order.
fn address(first: u8, interface: MacAddress, sap: u8) -> u32 {
    // FNV-1a: the same in every build. Two interfaces of a host that share it only have fewer service access points.
    let hash =
        interface.0.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let hash = (hash >> HASH_BITS ^ hash) & ((1 << HASH_BITS) - 1);
    u32::from(first) << 24 | u32::from(sap >> 1) << HASH_BITS | hash
}

/// Numbers of the sockets that claim an address, from the text of `/proc/net/raw`.
fn claims(text: &str, address: u32) -> impl Iterator<Item = u64> + '_ {
    // The kernel prints the address as the number that its four octets are in memory.
    let local = format!("{:08X}:{:04X}", address.to_be(), PROTOCOL);
    text.lines().filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        if fields.nth(1)? != local {
            return None;
        }
        // remote, state, queues, timer, retransmissions, user, timeout
        fields.nth(7)?.parse().ok()
    })
}

fn inode(socket: &OwnedFd) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::File::from(socket.try_clone()?).metadata()?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_by_their_address_and_their_protocol() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
    1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 0000000000000000 0
  253: 040201EF:00FD 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12 2 0000000000000000 0
  253: 050201EF:00FD 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 13 2 0000000000000000 0
  253: 040201EF:00FD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 14 2 0000000000000000 0
";
        let address = u32::from_be_bytes([239, 1, 2, 4]);
        let found: Vec<u64> = claims(text, address).collect();
        assert_eq!(found, if cfg!(target_endian = "little") { vec![12, 14] } else { vec![] });
    }

    #[test]
    fn each_service_access_point_of_an_interface_has_an_address_of_its_own() {
        let of = |mac: u8| (0..=255).step_by(2).map(move |sap| address(HELD, MacAddress([2, 0, 0, 0, 0, mac]), sap));
        let all: std::collections::HashSet<u32> = (0..16).flat_map(of).collect();
        assert_eq!(all.len(), 16 * 128);
        assert!(all.iter().all(|address| address >> 24 == u32::from(HELD)));
    }

    /// In as many threads as come at once in a job: one gets it; when it is given back, another does.
    #[test]
    fn a_service_access_point_has_one_holder_at_a_time() {
        let mac = MacAddress([2, 0x77, 0, 0, (std::process::id() >> 8) as u8, std::process::id() as u8]);
        if matches!(Claim::take(mac, 0x20), Ok(Claimed::NotPermitted)) {
            println!("skipped: claims need CAP_NET_RAW");
            return;
        }
        for _ in 0..20 {
            let takers: Vec<_> = (0..8).map(|_| thread::spawn(move || Claim::take(mac, 0x20).unwrap())).collect();
            let all: Vec<Claimed> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
            assert_eq!(all.iter().filter(|claimed| matches!(claimed, Claimed::Ours(_))).count(), 1, "{all:?}");
            assert!(matches!(Claim::take(mac, 0x20).unwrap(), Claimed::Taken));
            assert!(matches!(Claim::take(mac, 0x22).unwrap(), Claimed::Ours(_)));
        }
        assert!(matches!(Claim::take(mac, 0x20).unwrap(), Claimed::Ours(_)));
    }
}
