// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Name queries and answers on an interface.

use std::sync::atomic::Ordering;
use std::time::Duration;

use barewire_link::{Interface, Link, Outgoing, PacketConfig, PacketLink};
use barewire_llc::{Instant, Mac};
use barewire_names::{Census, Responder, SAP};

use crate::measure::INTERRUPTED;
use barewire_endpoint::{Encapsulation, Frame, parse};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Interval at which the interrupt flag is checked.
const SLEEP: Duration = Duration::from_millis(20);

/// A link for queries and answers. Both are short, so frames have a length field, and jumbo frames are ignored.
pub struct Segment {
    link: PacketLink,
}

impl Segment {
    /// Opens a link on an interface.
    ///
    /// # Errors
    /// [`LaunchError::MachineCannot`] without CAP_NET_RAW, [`LaunchError::WrongUse`] if there is no such interface.
    pub fn open(interface: &str) -> Result<Self, LaunchError> {
        let link = PacketLink::open(&PacketConfig {
            interface: interface.to_owned(),
            protocol: libc::ETH_P_802_2 as u16,
            filter: barewire_broker::sap_filter(SAP),
            ring_bytes: PacketConfig::DEFAULT_RING_BYTES,
        })?;
        Ok(Self { link })
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        self.link.interface()
    }

    /// Runs the census to its end.
    ///
    /// # Errors
    /// [`LaunchError::Interrupted`], or if the link fails.
    pub fn run_census(&mut self, census: &mut Census) -> Result<(), LaunchError> {
        loop {
            let mut now = now();
            if census.is_over(now) {
                return Ok(());
            }
            while let Some((destination, llc)) = census.poll_transmit(now) {
                self.send(destination, &llc)?;
                now = self::now();
            }
            let due = Duration::from_nanos(census.next_deadline().as_nanos().saturating_sub(now.as_nanos()));
            self.link.wait_to_receive(due.min(SLEEP))?;
            while let Some(frame) = self.link.receive() {
                if let Some(Frame { source, llc, .. }) = parse(frame.bytes) {
                    census.handle_pdu(source, llc, self::now());
                }
            }
            if INTERRUPTED.load(Ordering::Relaxed) {
                return Err(LaunchError::Interrupted);
            }
        }
    }

    /// Answers the queries that arrive within `patience`.
    ///
    /// # Errors
    /// If the link fails; it may recover, for instance when the interface comes up again.
    pub fn answer(&mut self, responder: &mut Responder, patience: Duration) -> Result<(), LaunchError> {
        self.link.wait_to_receive(patience)?;
        while let Some(frame) = self.link.receive() {
            let Some(Frame { source, llc, .. }) = parse(frame.bytes) else { continue };
            if let Some(answer) = responder.handle_pdu(source, llc, now()) {
                self.send(source, &answer)?;
            }
        }
        Ok(())
    }

    /// A frame that a busy link refuses is dropped: queries are repeated.
    fn send(&mut self, destination: Mac, llc: &[u8]) -> Result<(), LaunchError> {
        let header = Encapsulation::Length.header(destination, self.link.address().0, llc.len());
        self.link.send(&[Outgoing { header: &header, payload: llc, label: 0 }])?;
        Ok(())
    }
}

/// The current time, in the engine's type.
pub fn now() -> Instant {
    Instant::from_nanos(now_ns())
}
