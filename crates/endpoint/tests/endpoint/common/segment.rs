// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An in-memory segment with any number of stations, several of which may share a MAC address, like the endpoints of
//! one host. Each link has a descriptor to sleep on, as a packet socket has.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barewire_link::{Counters, Incoming, Link, LinkError, MacAddress, Outgoing, PeerAddress};

/// Capacity of a station's receive ring; further frames are dropped.
const RING_FRAMES: usize = 1024;

#[derive(Clone, Default)]
pub struct Segment(Arc<Mutex<Vec<Arc<Station>>>>);

struct Station {
    mac: [u8; 6],
    sap: u8,
    state: Mutex<State>,
}

struct State {
    frames: VecDeque<Vec<u8>>,
    wake_writer: UnixStream,
    sleeps: bool,
    dropped: u64,
    /// Frames from and to the station are lost.
    is_cut_off: bool,
    /// Error that the link's calls return; `None` while it works.
    fault: Option<LinkFault>,
}

#[derive(Clone, Copy)]
pub enum LinkFault {
    Down,
    Gone,
}

/// A station's link, with the filter of a packet socket for its SAP.
pub struct SegmentLink {
    segment: Segment,
    station: Arc<Station>,
    wake_reader: UnixStream,
    lent: Vec<u8>,
    mtu: usize,
    counters: Counters,
    polls_sent: u64,
    peers_named: u64,
    times_told: u64,
    /// When it wants to be polled, in nanoseconds of its clock.
    pub deadline: Option<u64>,
    /// Whether it does what is due without being polled.
    pub sends_due: bool,
}

impl Segment {
    pub fn link(&self, mac: [u8; 6], sap: u8, mtu: usize) -> SegmentLink {
        let (wake_writer, wake_reader) = UnixStream::pair().unwrap();
        wake_writer.set_nonblocking(true).unwrap();
        wake_reader.set_nonblocking(true).unwrap();
        let state =
            State { frames: VecDeque::new(), wake_writer, sleeps: false, dropped: 0, is_cut_off: false, fault: None };
        let station = Arc::new(Station { mac, sap, state: Mutex::new(state) });
        self.0.lock().unwrap().push(Arc::clone(&station));
        SegmentLink {
            segment: self.clone(),
            station,
            wake_reader,
            lent: Vec::new(),
            mtu,
            counters: Counters::default(),
            polls_sent: 0,
            peers_named: 0,
            times_told: 0,
            deadline: None,
            sends_due: false,
        }
    }

    /// Disconnects a station from the segment, or reconnects it.
    pub fn cut_off(&self, mac: [u8; 6], sap: u8, is_cut_off: bool) {
        self.at(mac, sap, |state| state.is_cut_off = is_cut_off);
    }

    /// Sets or clears a link's fault. A link with a fault loses all frames.
    pub fn set_fault(&self, mac: [u8; 6], sap: u8, fault: Option<LinkFault>) {
        self.at(mac, sap, |state| {
            state.fault = fault;
            state.is_cut_off = fault.is_some();
            let _ = state.wake_writer.write(&[0]);
        });
    }

    fn at(&self, mac: [u8; 6], sap: u8, change: impl Fn(&mut State)) {
        for station in &*self.0.lock().unwrap() {
            if (station.mac, station.sap) == (mac, sap) {
                change(&mut station.state.lock().unwrap());
            }
        }
    }
}

impl Station {
    fn receives(&self, frame: &[u8]) -> bool {
        (frame[..6] == self.mac || frame[0] & 1 == 1) && (frame[14] == self.sap || frame[14] & 1 == 1)
    }

    fn put(&self, frame: Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        if state.is_cut_off || state.frames.len() >= RING_FRAMES {
            state.dropped += 1;
            return;
        }
        state.frames.push_back(frame);
        if state.sleeps {
            let _ = state.wake_writer.write(&[0]);
        }
    }
}

impl SegmentLink {
    /// The segment of this link.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    pub fn frames_sent(&self) -> u64 {
        self.counters.sent
    }

    /// Number of RR, RNR and REJ commands with P = 1 among the frames sent.
    pub fn polls_sent(&self) -> u64 {
        self.polls_sent
    }

    /// Number of times that the link was told the time, as it is with each reading of the clock.
    pub fn times_told(&self) -> u64 {
        self.times_told
    }

    /// Number of times that a peer was named.
    pub fn peers_named(&self) -> u64 {
        self.peers_named
    }

    fn check_fault(&self) -> Result<(), LinkError> {
        match self.station.state.lock().unwrap().fault {
            None => Ok(()),
            Some(LinkFault::Down) => Err(LinkError::InterfaceDown("segment".to_owned())),
            Some(LinkFault::Gone) => Err(LinkError::InterfaceGone("segment".to_owned())),
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
        self.check_fault()?;
        let is_cut_off = self.station.state.lock().unwrap().is_cut_off;
        for frame in frames {
            assert!(frame.len() <= self.mtu + 14, "a frame of {} bytes", frame.len());
            let mut bytes = [frame.header, frame.payload].concat();
            // Ethernet pads short frames.
            bytes.resize(bytes.len().max(60), 0);
            let stations = self.segment.0.lock().unwrap().clone();
            for station in stations.iter().filter(|station| station.receives(&bytes) && !is_cut_off) {
                station.put(bytes.clone());
            }
            self.counters.sent += 1;
            let [source, control, numbered] = [bytes[15], bytes[16], bytes[17]];
            self.polls_sent += u64::from(control & 3 == 1 && source & 1 == 0 && numbered & 1 == 1);
        }
        Ok(frames.len())
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        let frame = self.station.state.lock().unwrap().frames.pop_front()?;
        self.lent = frame;
        self.counters.received += 1;
        Some(Incoming { bytes: &self.lent, frame_bytes: self.lent.len(), vlan: None })
    }

    fn wait_to_receive_or(&mut self, descriptors: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.check_fault()?;
        {
            let mut state = self.station.state.lock().unwrap();
            if !state.frames.is_empty() {
                return Ok(true);
            }
            state.sleeps = true;
        }
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = vec![entry(self.wake_reader.as_raw_fd())];
        entries.extend(descriptors.iter().map(|descriptor| entry(descriptor.as_raw_fd())));
        let seconds = timeout.as_secs().min(1000) as libc::time_t;
        let timeout = libc::timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
        // SAFETY: pointer and length describe `entries`, whose descriptors are open.
        let count = unsafe { libc::ppoll(entries.as_mut_ptr(), entries.len() as _, &timeout, std::ptr::null()) };
        assert!(count >= 0, "{}", std::io::Error::last_os_error());
        self.station.state.lock().unwrap().sleeps = false;
        while self.wake_reader.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        self.check_fault()?;
        Ok(count > 0)
    }

    fn wait_to_send(&mut self, _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.check_fault()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.counters.receive_dropped = self.station.state.lock().unwrap().dropped;
        Ok(self.counters)
    }

    fn add_peer(&mut self, _: &PeerAddress) {
        self.peers_named += 1;
    }

    fn note_time(&mut self, _: u64) {
        self.times_told += 1;
    }

    fn next_deadline(&self) -> Option<u64> {
        self.deadline
    }

    fn send_due(&mut self) {
        if self.sends_due {
            self.deadline = None;
        }
    }
}

impl Drop for SegmentLink {
    fn drop(&mut self) {
        self.segment.0.lock().unwrap().retain(|station| !Arc::ptr_eq(station, &self.station));
    }
}
