// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP: a message is one datagram, or several if it exceeds the largest.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recvmsg, send, sendmsg};

use super::byte_stream::sleep_to_send;
use super::datagram::{Accepted, HEADER_BYTES, Header, Reassembly};
use super::pace::Pacer;
use super::tcp::{ETHERNET_WIRE_BYTES, IP_HEADER_BYTES, MINIMUM_WIRE_BYTES, enable_busy_poll};
use super::{Counters, Endpoint, LocalConfig, Transport, socket_timeout};
use crate::protocol::{Session, Wait};
use barewire_recorder::LaunchError;

/// Payload of the largest UDP datagram over IPv4, so that most messages are one datagram.
const FRAGMENT_BYTES: usize = 65_507 - HEADER_BYTES;
/// Largest datagram that is cheaper to copy than to gather from two pieces.
const COPIED_BYTES: usize = 512;
const UDP_HEADER_BYTES: usize = 8;
/// Requested socket buffer; the kernel caps it at `net.core.rmem_max`.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

pub struct Listening {
    socket: UdpSocket,
}

impl Listening {
    pub fn new(local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        let socket = bind(local.socket_address(Ipv4Addr::UNSPECIFIED.into()))?;
        let endpoint = local_endpoint(&socket)?;
        Ok((Self { socket }, endpoint))
    }

    pub fn accept(self, session: &Session, peer: SocketAddr) -> Result<Udp, LaunchError> {
        Udp::new(self.socket, session, peer)
    }
}

pub fn connect(session: &Session, local: &LocalConfig, peer: SocketAddr) -> Result<(Udp, Endpoint), LaunchError> {
    let any = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let udp = Udp::new(bind(local.socket_address(any))?, session, peer)?;
    let endpoint = local_endpoint(&udp.socket)?;
    Ok((udp, endpoint))
}

fn bind(own: SocketAddr) -> Result<UdpSocket, LaunchError> {
    UdpSocket::bind(own).map_err(|error| LaunchError::system(&format!("cannot bind UDP to {}", own.ip()), error))
}

fn local_endpoint(socket: &UdpSocket) -> Result<Endpoint, LaunchError> {
    socket.local_addr().map(Endpoint::Socket).map_err(|error| LaunchError::system("getsockname", error))
}

pub struct Udp {
    socket: UdpSocket,
    session: u32,
    reassembly: Reassembly,
    pacer: Pacer,
    counters: Counters,
    mtu: Option<usize>,
}

impl Udp {
    fn new(socket: UdpSocket, session: &Session, peer: SocketAddr) -> Result<Self, LaunchError> {
        socket.connect(peer).map_err(|error| LaunchError::Failed(format!("cannot reach {peer} by UDP: {error}")))?;
        let failed = |error| LaunchError::system("setsockopt", error);
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBuf, &SOCKET_BUFFER_BYTES)
            .map_err(failed)?;
        socket
            .set_read_timeout(socket_timeout(session.wait))
            .map_err(|error| LaunchError::system("SO_RCVTIMEO", error))?;
        if session.wait == Wait::Busypoll {
            enable_busy_poll(&socket)?;
        }
        let mtu = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::IpMtu).ok();
        Ok(Self {
            socket,
            session: session.session,
            reassembly: Reassembly::new(FRAGMENT_BYTES),
            pacer: Pacer::default(),
            counters: Counters::default(),
            mtu: mtu.and_then(|mtu| usize::try_from(mtu).ok()),
        })
    }

    /// Receives one datagram; `None` if there is none, else the sequence number of the message that it completes.
    fn receive_next(&mut self, message: &mut [u8], flags: MsgFlags) -> Result<Option<Option<u32>>, LaunchError> {
        // A datagram's offset must be known before it is read: so nothing is copied twice, and a stale datagram does
        // not overwrite a partial message.
        let one_datagram = message.len() <= FRAGMENT_BYTES;
        let mut header = [0; HEADER_BYTES];
        let received = if one_datagram {
            self.read(&mut header, message, flags)?
        } else {
            self.read(&mut header, &mut [], flags | MsgFlags::MSG_PEEK)?
        };
        let Some(received_bytes) = received else { return Ok(None) };
        let accepted = match Header::parse(&header[..received_bytes.min(HEADER_BYTES)]) {
            Some((header, _)) if header.session == self.session => {
                let payload_bytes = received_bytes - HEADER_BYTES;
                self.reassembly.accept(header, payload_bytes, false, message.len(), &mut self.counters)
            }
            _ => {
                self.counters.foreign += 1;
                Accepted::Ignored
            }
        };
        if !one_datagram {
            let target = match accepted {
                Accepted::New { offset, bytes } => &mut message[offset..offset + bytes],
                Accepted::Ignored => &mut [],
            };
            self.read(&mut header, target, MsgFlags::MSG_DONTWAIT)?;
        }
        Ok(Some(if accepted == Accepted::Ignored { None } else { self.reassembly.complete(message.len()) }))
    }

    /// Reads one datagram into two buffers; returns its full length, which may exceed theirs.
    fn read(&self, header: &mut [u8], payload: &mut [u8], flags: MsgFlags) -> Result<Option<usize>, LaunchError> {
        let mut parts = [IoSliceMut::new(header), IoSliceMut::new(payload)];
        match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, None, flags | MsgFlags::MSG_TRUNC) {
            Ok(received) => Ok(Some(received.bytes)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Transport for Udp {
    unsafe fn try_send(&mut self, sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        while *done < message.len() {
            if !self.pacer.allows() {
                return Ok(false);
            }
            let part = &message[*done..message.len().min(*done + FRAGMENT_BYTES)];
            let fragment = (*done / FRAGMENT_BYTES) as u32;
            let header = Header { session: self.session, sequence, fragment }.to_bytes();
            let descriptor = self.socket.as_raw_fd();
            let sent = if part.len() <= COPIED_BYTES - HEADER_BYTES {
                let mut datagram = [0; COPIED_BYTES];
                datagram[..HEADER_BYTES].copy_from_slice(&header);
                datagram[HEADER_BYTES..HEADER_BYTES + part.len()].copy_from_slice(part);
                send(descriptor, &datagram[..HEADER_BYTES + part.len()], MsgFlags::MSG_DONTWAIT)
            } else {
                let parts = [IoSlice::new(&header), IoSlice::new(part)];
                sendmsg::<()>(descriptor, &parts, &[], MsgFlags::MSG_DONTWAIT, None)
            };
            match sent {
                Ok(_) => {
                    *done += part.len();
                    self.pacer.sent(self.wire_bytes(part.len()));
                }
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => {
                    self.counters.send_busy += 1;
                    return Ok(false);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(true)
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let mut flags = if patience.is_zero() { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        while let Some(taken) = self.receive_next(message, flags)? {
            if taken.is_some() {
                return Ok(taken);
            }
            flags = MsgFlags::MSG_DONTWAIT;
        }
        Ok(None)
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        if self.pacer.is_off() { sleep_to_send(&self.socket, patience) } else { Ok(()) }
    }

    fn set_pace(&mut self, bit_s: Option<f64>) {
        self.pacer.set(bit_s);
    }

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        let datagrams = message_bytes.div_ceil(FRAGMENT_BYTES);
        let datagram_bytes = message_bytes + datagrams * (HEADER_BYTES + UDP_HEADER_BYTES);
        let packets = datagram_bytes.div_ceil(self.mtu.unwrap_or(1500) - IP_HEADER_BYTES).max(datagrams);
        (datagram_bytes + packets * (IP_HEADER_BYTES + ETHERNET_WIRE_BYTES)).max(MINIMUM_WIRE_BYTES)
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        match self.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(LaunchError::system("UDP", error)),
        }
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        Ok(self.counters)
    }

    fn mtu(&self) -> Option<usize> {
        self.mtu
    }
}

fn failed(error: Errno) -> LaunchError {
    match error {
        Errno::ECONNREFUSED => LaunchError::Failed("the peer's UDP socket is gone".to_owned()),
        _ => LaunchError::system("UDP", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Pattern, Sender};
    use crate::protocol::{Kind, LinkKind};

    fn pair() -> (Udp, Udp) {
        let session = Session {
            version: 1,
            transport: Kind::Udp,
            link: LinkKind::Packet,
            wait: Wait::Spin,
            seed: 1,
            session: 77,
            pairs: 1,
            pair: 0,
            processes: false,
            walk_bytes: 0,
            give_way: false,
            token: 0,
            provider: None,
            tuned: Vec::new(),
        };
        let ip = Some(Ipv4Addr::LOCALHOST.into());
        let local = LocalConfig { interface: None, queue: 0, ip, scope_id: 0, broker: None };
        let (listening, endpoint) = Listening::new(&local).unwrap();
        let Endpoint::Socket(address) = endpoint else { panic!("{endpoint:?}") };
        let (a, endpoint) = connect(&session, &local, address).unwrap();
        let Endpoint::Socket(address) = endpoint else { panic!("{endpoint:?}") };
        (a, listening.accept(&session, address).unwrap())
    }

    #[test]
    fn messages_below_and_above_the_largest_datagram_arrive_intact() {
        let (mut a, mut b) = pair();
        for (sequence, bytes) in (0..).zip([1, 499, 500, 501, 9000, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 100_000]) {
            let mut pattern = Pattern::new(3, bytes, 0, 0);
            let mut done = 0;
            // SAFETY: UDP borrows nothing.
            assert!(unsafe { a.try_send(sequence, pattern.message(sequence, Sender::Active), &mut done) }.unwrap());
            let mut message = vec![0; bytes];
            // SAFETY: UDP keeps no message.
            let received = (0..1_000_000).find_map(|_| unsafe { b.receive(&mut message, Duration::ZERO) }.unwrap());
            assert_eq!(received, Some(sequence), "{bytes} bytes");
            assert!(pattern.is_intact(&message, sequence, Sender::Active));
        }
    }

    #[test]
    fn foreign_datagrams_are_counted_and_ignored() {
        let (mut a, mut b) = pair();
        let header = Header { session: 77, sequence: 0, fragment: 0 }.to_bytes();
        for foreign in [&b""[..], b"short", &[0; 100], &header[..11]] {
            a.socket.send(foreign).unwrap();
        }
        a.socket.send(&[&header[..], &[1; 41]].concat()).unwrap();
        a.socket.send(&[&header[..], &[1; 39]].concat()).unwrap();
        // SAFETY: UDP borrows nothing.
        assert!(unsafe { a.try_send(0, &[5; 40], &mut 0) }.unwrap());
        let mut message = [0; 40];
        // SAFETY: UDP keeps no message.
        let received = (0..1_000_000).find_map(|_| unsafe { b.receive(&mut message, Duration::ZERO) }.unwrap());
        assert_eq!((received, message), (Some(0), [5; 40]));
        let counters = b.counters().unwrap();
        assert_eq!((counters.foreign, counters.malformed), (4, 2));
    }
}
