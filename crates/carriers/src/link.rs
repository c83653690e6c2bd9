// SPDX-License-Identifier: Apache-2.0 OR MIT
//! [`Carriers`] as a [`Link`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_link::{Clock, Counters, Incoming, Link, LinkError, Locator, MacAddress, Outgoing, PeerAddress};

use crate::lower::{Datagrams, Lower};
use crate::name::Name;
use crate::peer::{Peer, UDP};
use crate::{Carriers, random_bits};

/// Frames received before the rest is polled, so that they cannot keep datagrams and questions waiting.
const FRAMES_PER_TURN: u32 = 256;

impl<F: Lower, U: Datagrams> Link for Carriers<F, U> {
    fn address(&self) -> MacAddress {
        MacAddress(self.own.mac())
    }

    /// The MTU of frames, if there are links for them.
    fn mtu(&self) -> usize {
        self.mtu.unwrap_or(0).max(self.mtu_min())
    }

    fn mtu_min(&self) -> usize {
        let all = [self.mtu, self.udp.as_ref().map(Link::mtu)];
        all.into_iter().flatten().min().unwrap_or(0)
    }

    #[inline]
    fn mtu_to(&mut self, mac: MacAddress, sap: u8) -> usize {
        if self.udp.is_none() {
            return self.mtu();
        }
        let index = self.find(Name::new(mac.0, sap));
        let peer = index.map(|index| &self.peers[index]);
        let is_by_frames = |peer: &Peer| peer.current.is_some_and(|path| path != UDP) && !self.sends_batches_to(peer);
        match peer {
            Some(peer) if is_by_frames(peer) => self.mtu(),
            Some(peer) => self.mtu_min().min(peer.path_mtu.mtu()),
            None => self.mtu_min(),
        }
    }

    #[inline]
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        if self.is_single
            && let Some(Some(link)) = self.frames.first_mut()
        {
            return link.send(frames);
        }
        if let [frame] = frames {
            return self.send_to_one(destination(frame), frames).or_else(lost(1));
        }
        let mut accepted = 0;
        while let Some(first) = frames.get(accepted) {
            let name = destination(first);
            let run = |name, from: usize| frames[from..].iter().take_while(|frame| destination(frame) == name).count();
            let mut end = accepted;
            // Frames to several stations are one batch where all go as their headers say.
            while let Some(frame) = frames.get(end)
                && self.goes_by_first(destination(frame))
            {
                end += run(destination(frame), end);
            }
            let sent = if end > accepted {
                self.send_by(0, MacAddress(name.mac()), &frames[accepted..end])
            } else {
                end += run(name, end);
                self.send_to_one(name, &frames[accepted..end])
            };
            let count = end - accepted;
            let sent = sent.or_else(lost(count))?;
            accepted += sent;
            if sent < count {
                break;
            }
        }
        Ok(accepted)
    }

    #[inline]
    fn receive(&mut self) -> Option<Incoming<'_>> {
        if self.is_single {
            return self.frames.first_mut()?.as_mut()?.receive();
        }
        let this: *mut Self = self;
        if self.frames_in_turn < FRAMES_PER_TURN {
            // SAFETY: what follows a call that found nothing borrows nothing of its result.
            if let Some(frame) = unsafe { &mut *this }.receive_frame() {
                self.frames_in_turn += 1;
                return Some(frame);
            }
        }
        self.frames_in_turn = 0;
        if self.now < self.only_frames_until {
            return None;
        }
        if self.polls_of_frames > 0 {
            self.polls_of_frames -= 1;
            return None;
        }
        self.receive_other()
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        if self.has_pending() {
            return Ok(true);
        }
        let due = Duration::from_nanos(self.question_due.saturating_sub(self.now));
        let timeout = timeout.min(due);
        let Self { frames, udp, is_single, .. } = self;
        let mut links = frames.iter_mut().flatten();
        let Some(first) = links.next() else {
            return udp.as_mut().map_or(Ok(false), |udp| udp.wait_to_receive_or(others, timeout));
        };
        if *is_single {
            return first.wait_to_receive_or(others, timeout);
        }
        let of_frames = links.flat_map(|link| link.descriptors());
        let of_udp = udp.iter().flat_map(|link| link.descriptors());
        let all: Vec<BorrowedFd<'_>> = of_frames.chain(of_udp).flatten().chain(others.iter().copied()).collect();
        first.wait_to_receive_or(&all, timeout).or_else(lost(false))
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        let waited = match (self.frames.get_mut(self.busy), &mut self.udp) {
            (Some(Some(link)), _) => link.wait_to_send(timeout),
            (None, Some(link)) => link.wait_to_send(timeout),
            _ => Ok(true),
        };
        if self.is_single { waited } else { waited.or_else(lost(true)) }
    }

    fn check(&mut self) -> Result<(), LinkError> {
        // Callers check before they sleep, and whatever wakes them may be a datagram.
        (self.only_frames_until, self.polls_of_frames) = (0, 0);
        if self.is_single {
            return self.frames.iter_mut().flatten().try_for_each(Link::check);
        }
        let mut found = Ok(());
        for link in &mut self.frames {
            match link.as_mut().map(Link::check) {
                Some(Err(error @ LinkError::InterfaceGone(_))) => {
                    // It will not come back.
                    *link = None;
                    found = found.and(Err(error));
                }
                Some(Err(error)) => found = found.and(Err(error)),
                Some(Ok(())) | None => {}
            }
        }
        let is_left = self.udp.is_some() || self.frames().next().is_some();
        let found = if is_left { found.or_else(lost(())) } else { found };
        found.and_then(|()| self.udp.as_mut().map_or(Ok(()), Link::check))
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let of_frames = self.frames.iter_mut().flatten().map(Link::counters);
        of_frames.chain(self.udp.as_mut().map(Link::counters)).try_fold(Counters::default(), |sum, link| {
            let link = link?;
            Ok(Counters {
                received: sum.received + link.received,
                receive_dropped: sum.receive_dropped + link.receive_dropped,
                truncated: sum.truncated + link.truncated,
                sent: sum.sent + link.sent,
                send_busy: sum.send_busy + link.send_busy,
            })
        })
    }

    fn is_local(&self, peer: MacAddress) -> bool {
        match (self.frames.is_empty(), &self.udp) {
            (true, Some(link)) => link.is_local(peer),
            _ => peer == self.address(),
        }
    }

    fn locator(&self) -> Locator {
        let mut locator = self.udp.as_ref().map_or(Locator::FRAMES, Link::locator);
        locator.has_frames = !self.frames.is_empty();
        locator
    }

    fn set_station(&mut self, sap: u8, key: u64) {
        self.own = Name::new(self.own.mac(), sap);
        self.key = key;
    }

    fn add_peer(&mut self, peer: &PeerAddress) {
        if self.is_single {
            return;
        }
        let name = Name::new(peer.mac.0, peer.sap);
        let port = peer.locator.port;
        let known = self.by_name.get(&name).copied().filter(|index| self.peers[*index].name == name);
        if let Some(index) = known {
            let Peer { key, locator, .. } = &self.peers[index];
            let is_named_again = *key == Some(peer.key) && *locator == Some(peer.locator);
            // A peer that has sent a question needs no locator.
            if is_named_again || !peer.locator.has_frames && port == 0 {
                return;
            }
        }
        let ips = peer.locator.ips().filter(|_| port != 0);
        let sockets: Vec<MacAddress> = match &mut self.udp {
            Some(udp) => ips.filter_map(|ip| udp.address_of(ip, port)).collect(),
            None => Vec::new(),
        };
        let has_frames = peer.locator.has_frames && !self.frames.is_empty();
        let index = match known {
            Some(index) => {
                let known = &mut self.peers[index];
                if known.key == Some(peer.key) && (sockets.is_empty() || known.sockets == sockets) {
                    known.locator = Some(peer.locator);
                    return;
                }
                index
            }
            None => self.insert(name, None),
        };
        if self.peers[index].is_idle {
            self.resume(index);
        }
        if self.peers[index].key.is_some() {
            // Another process has taken the station's place.
            self.peers[index] = self.new_peer(name, None);
            self.by_udp.retain(|_, other| *other != index);
        }
        // A station named after its socket needs no probe, unless this station's datagrams may leave from several
        // addresses.
        let is_named_by_socket = self.frames.is_empty() && sockets == [peer.mac] && self.has_one_address();
        let entry = &mut self.peers[index];
        entry.key = Some(peer.key);
        if has_frames {
            (0..self.frames.len()).for_each(|path| entry.add(path));
            // A station with one interface and without UDP answers no questions.
            if sockets.is_empty() {
                entry.assume(0);
            }
        }
        if !sockets.is_empty() {
            entry.add(UDP);
        }
        if is_named_by_socket {
            entry.assume(UDP);
            entry.udp = Some(peer.mac);
            self.by_udp.insert(peer.mac, index);
        }
        (entry.sockets, entry.locator) = (sockets, Some(peer.locator));
        self.last_udp = (MacAddress::default(), usize::MAX);
        self.count_udp_peer(index);
        self.question_due = self.question_due.min(self.peers[index].due().unwrap_or(u64::MAX));
    }

    fn next_deadline(&self) -> Option<u64> {
        (self.question_due != u64::MAX).then_some(self.question_due)
    }

    fn send_due(&mut self) {
        if self.now >= self.question_due {
            self.ask_due();
        }
    }

    fn has_pending(&self) -> bool {
        self.frames().any(Link::has_pending) || self.udp.as_ref().is_some_and(Link::has_pending)
    }

    #[inline]
    fn note_time(&mut self, nanoseconds: u64) {
        self.now = nanoseconds;
    }

    fn clock(&self) -> Clock {
        let clock = self.frames().next().map(Link::clock);
        clock.or_else(|| self.udp.as_ref().map(Link::clock)).unwrap_or_default()
    }

    fn random_bits(&mut self) -> u64 {
        random_bits(&mut self.frames, &mut self.udp)
    }
}

/// Replaces the error of an interface that is down or gone by `instead`: its frames are lost, as on an unplugged wire,
/// and if UDP works, probes find it.
fn lost<T>(instead: T) -> impl FnOnce(LinkError) -> Result<T, LinkError> {
    move |error| {
        if matches!(error, LinkError::InterfaceDown(_) | LinkError::InterfaceGone(_)) {
            Ok(instead)
        } else {
            Err(error)
        }
    }
}

/// The station to which a frame goes.
#[inline]
fn destination(frame: &Outgoing<'_>) -> Name {
    Name::in_frame(frame.header, 0, 14)
}
