// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A segment in memory with any number of stations, also of one MAC address: as many endpoints of one host have. Each
//! has a descriptor to sleep on, as a packet socket has.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barewire_link::{Counters, Incoming, Link, LinkError, MacAddress, Outgoing};

/// Where frames for a station wait, at most; more are lost, as by a full receive ring.
const RING_FRAMES: usize = 1024;

#[derive(Clone, Default)]
pub struct Segment(Arc<Mutex<Vec<Arc<Station>>>>);

struct Station {
    mac: [u8; 6],
    sap: u8,
    inside: Mutex<Inside>,
}

struct Inside {
    frames: VecDeque<Vec<u8>>,
    waker: UnixStream,
    sleeps: bool,
    lost: u64,
    /// Frames from and to it are lost.
    is_cut_off: bool,
    /// What its link says: nothing, as long as it works.
    trouble: Option<Trouble>,
}

#[derive(Clone, Copy)]
pub enum Trouble {
    Down,
    Gone,
}

/// A station's link, with the filter for its service access point that a packet socket would have.
pub struct SegmentLink {
    segment: Segment,
    station: Arc<Station>,
    woken: UnixStream,
    lent: Vec<u8>,
    mtu: usize,
    counters: Counters,
    polls_sent: u64,
}

impl Segment {
    pub fn link(&self, mac: [u8; 6], sap: u8, mtu: usize) -> SegmentLink {
        let (waker, woken) = UnixStream::pair().unwrap();
        waker.set_nonblocking(true).unwrap();
        woken.set_nonblocking(true).unwrap();
        let inside =
            Inside { frames: VecDeque::new(), waker, sleeps: false, lost: 0, is_cut_off: false, trouble: None };
        let station = Arc::new(Station { mac, sap, inside: Mutex::new(inside) });
        self.0.lock().unwrap().push(Arc::clone(&station));
        let counters = Counters::default();
        SegmentLink { segment: self.clone(), station, woken, lent: Vec::new(), mtu, counters, polls_sent: 0 }
    }

    /// Cuts a station off, or joins it again.
    pub fn cut_off(&self, mac: [u8; 6], sap: u8, is_cut_off: bool) {
        self.at(mac, sap, |inside| inside.is_cut_off = is_cut_off);
    }

    /// Puts a station's link into trouble, or out of it. One that is down loses all frames.
    pub fn trouble(&self, mac: [u8; 6], sap: u8, trouble: Option<Trouble>) {
        self.at(mac, sap, |inside| {
            inside.trouble = trouble;
            inside.is_cut_off = trouble.is_some();
            let _ = inside.waker.write(&[0]);
        });
    }

    fn at(&self, mac: [u8; 6], sap: u8, change: impl Fn(&mut Inside)) {
        for station in &*self.0.lock().unwrap() {
            if (station.mac, station.sap) == (mac, sap) {
                change(&mut station.inside.lock().unwrap());
            }
        }
    }
}

impl Station {
    fn hears(&self, frame: &[u8]) -> bool {
        (frame[..6] == self.mac || frame[0] & 1 == 1) && (frame[14] == self.sap || frame[14] & 1 == 1)
    }

    fn put(&self, frame: Vec<u8>) {
        let mut inside = self.inside.lock().unwrap();
        if inside.is_cut_off || inside.frames.len() >= RING_FRAMES {
            inside.lost += 1;
            return;
        }
        inside.frames.push_back(frame);
        if inside.sleeps {
            let _ = inside.waker.write(&[0]);
        }
    }
}

impl SegmentLink {
    /// What it is a link to.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    pub fn frames_sent(&self) -> u64 {
        self.counters.sent
    }

    /// Of the frames sent, commands RR, RNR and REJ with P = 1.
    pub fn polls_sent(&self) -> u64 {
        self.polls_sent
    }

    fn works(&self) -> Result<(), LinkError> {
        match self.station.inside.lock().unwrap().trouble {
            None => Ok(()),
            Some(Trouble::Down) => Err(LinkError::InterfaceDown("segment".to_owned())),
            Some(Trouble::Gone) => Err(LinkError::InterfaceGone("segment".to_owned())),
        }
    }
}

impl Link for SegmentLink {
    fn address(&self) -> MacAddress {
        MacAddress(self.station.mac)
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.works()?;
        let is_cut_off = self.station.inside.lock().unwrap().is_cut_off;
        for frame in frames {
            assert!(frame.len() <= self.mtu + 14, "a frame of {} bytes", frame.len());
            let mut bytes = [frame.header, frame.payload].concat();
            // Ethernet pads.
            bytes.resize(bytes.len().max(60), 0);
            let stations = self.segment.0.lock().unwrap().clone();
            for station in stations.iter().filter(|station| station.hears(&bytes) && !is_cut_off) {
                station.put(bytes.clone());
            }
            self.counters.sent += 1;
            let [source, control, numbered] = [bytes[15], bytes[16], bytes[17]];
            self.polls_sent += u64::from(control & 3 == 1 && source & 1 == 0 && numbered & 1 == 1);
        }
        Ok(frames.len())
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        let frame = self.station.inside.lock().unwrap().frames.pop_front()?;
        self.lent = frame;
        self.counters.received += 1;
        Some(Incoming { bytes: &self.lent, frame_bytes: self.lent.len(), vlan: None })
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.works()?;
        {
            let mut inside = self.station.inside.lock().unwrap();
            if !inside.frames.is_empty() {
                return Ok(true);
            }
            inside.sleeps = true;
        }
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = vec![entry(self.woken.as_raw_fd())];
        entries.extend(others.iter().map(|other| entry(other.as_raw_fd())));
        let seconds = timeout.as_secs().min(1000) as libc::time_t;
        let timeout = libc::timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
        // SAFETY: pointer and length describe `entries`, whose descriptors are open.
        let count = unsafe { libc::ppoll(entries.as_mut_ptr(), entries.len() as _, &timeout, std::ptr::null()) };
        assert!(count >= 0, "{}", std::io::Error::last_os_error());
        self.station.inside.lock().unwrap().sleeps = false;
        while self.woken.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        self.works()?;
        Ok(count > 0)
    }

    fn wait_to_send(&mut self, _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.works()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.counters.receive_dropped = self.station.inside.lock().unwrap().lost;
        Ok(self.counters)
    }
}

impl Drop for SegmentLink {
    fn drop(&mut self) {
        self.segment.0.lock().unwrap().retain(|station| !Arc::ptr_eq(station, &self.station));
    }
}
