// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PDUs of names on a real interface.

use std::sync::atomic::Ordering;
use std::time::Duration;

use barewire_link::{Interface, Link, Outgoing, PacketConfig, PacketLink};
use barewire_llc::{Instant, Mac};
use barewire_names::{Census, Responder, SAP};

use crate::measure::INTERRUPTED;
use barewire_endpoint::{Encapsulation, Frame, parse};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Longest sleep: after it the interrupt flag is looked at.
const SLEEP: Duration = Duration::from_millis(20);

/// A link for queries and answers. Both are short, so that frames have a length and no jumbo frame is looked at.
pub struct Segment {
    link: PacketLink,
}

impl Segment {
    /// Opens an interface.
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

    /// Asks until the census is over.
    ///
    /// # Errors
    /// [`LaunchError::Interrupted`], or when the link no longer works.
    pub fn ask(&mut self, census: &mut Census) -> Result<(), LaunchError> {
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

    /// Answers what has come within `patience`.
    ///
    /// # Errors
    /// When the link does not work now; an interface that was down may work again later.
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

    /// A frame that a busy link does not take is lost, as it may be on the wire: questions are repeated.
    fn send(&mut self, destination: Mac, llc: &[u8]) -> Result<(), LaunchError> {
        let header = Encapsulation::Length.header(destination, self.link.address().0, llc.len());
        self.link.send(&[Outgoing { header: &header, payload: llc }])?;
        Ok(())
    }
}

/// What the engine calls the time.
pub fn now() -> Instant {
    Instant::from_nanos(now_ns())
}
