// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messengers on one host.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_endpoint::{Endpoint, Framing};
use barewire_link::{Counters, Incoming, Link, LinkError, MacAddress, Outgoing};
use barewire_llc::Lsap;
use barewire_messages::{
    CompletionLevel, Config, Label, Messenger, Part, Pattern, PeerId, ReceiveOptions, Selector, SendOptions,
};

/// A link with an address only: all messages go through shared memory.
pub struct NoLink(MacAddress);

impl Link for NoLink {
    fn address(&self) -> MacAddress {
        self.0
    }
    fn mtu(&self) -> usize {
        1500
    }
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        Ok(frames.len())
    }
    fn receive(&mut self) -> Option<Incoming<'_>> {
        None
    }
    fn wait_to_receive_or(&mut self, _: &[BorrowedFd<'_>], _: Duration) -> Result<bool, LinkError> {
        Ok(false)
    }
    fn wait_to_send(&mut self, _: Duration) -> Result<bool, LinkError> {
        Ok(true)
    }
    fn check(&mut self) -> Result<(), LinkError> {
        Ok(())
    }
    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(Counters::default())
    }
}

pub fn open(mac: [u8; 6], sap: u8) -> Messenger<NoLink> {
    let config = barewire_endpoint::Config::new(Lsap::new(sap).expect("an individual SAP"), Framing::default());
    Messenger::new(Endpoint::open(NoLink(MacAddress(mac)), config, None).expect("an endpoint"), Config::default())
}

pub const TAG: Label = Label { tag: Some(7), data: None };

pub fn post(messenger: &mut Messenger<NoLink>, from: PeerId, memory: &mut [u8]) {
    let wanted = Selector::Tagged(Pattern::exact(from, 7));
    // SAFETY: the memory is not accessed until the receive completes.
    unsafe { messenger.receive(wanted, &[Part::into(memory)], ReceiveOptions::default()) }.expect("there is room");
}

pub fn send(messenger: &mut Messenger<NoLink>, to: PeerId, memory: &[u8]) {
    let options = SendOptions { is_silent: true, level: CompletionLevel::Inject, ..SendOptions::default() };
    // SAFETY: the memory outlives the send, which completes before the answer arrives.
    while unsafe { messenger.send(to, TAG, &[Part::of(memory)], options) }.is_err() {
        messenger.progress().expect("no link that could fail");
    }
}
