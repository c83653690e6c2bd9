// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message layer with a hostile peer, which sends arbitrary messages, and whose frames are changed, duplicated or
//! dropped below its engine.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_endpoint::{Address, Config as EndpointConfig, Endpoint, Framing, Inbox, InboxConfig, Priority, Report};
use barewire_link::{Counters, Faults, Incoming, Link, LinkError, MacAddress, MemoryLink, Outgoing};
use barewire_llc::Lsap;
use barewire_messages::{
    Access, CompletionLevel, Config, Label, Messenger, Part, Pattern, ReceiveOptions, RemoteAddress, Selector,
    SendOptions,
};

use crate::input::Input;

const MTU: usize = 1500;
/// The messenger's bound for unexpected messages.
const UNEXPECTED_BYTES: usize = 10_000;
const GUARD: u8 = 0xa5;
/// Lent range of a buffer, between two guards.
const LENT: std::ops::Range<usize> = 100..200;

/// Fault of the hostile side's next frame.
#[derive(Default)]
enum Fault {
    #[default]
    None,
    Drop,
    Duplicate,
    Overwrite(usize, u8),
    Truncate(usize),
    Replace(Vec<u8>),
}

struct HostileLink {
    inner: MemoryLink,
    next_fault: Rc<RefCell<Fault>>,
}

impl Link for HostileLink {
    fn address(&self) -> MacAddress {
        self.inner.address()
    }

    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        for frame in frames {
            let mut bytes = [frame.header, frame.payload].concat();
            let mut copies = 1;
            match self.next_fault.take() {
                Fault::None => {}
                Fault::Drop => copies = 0,
                Fault::Duplicate => copies = 2,
                // After the addresses, or the frame would not be received.
                Fault::Overwrite(at, value) => {
                    let at = 12 + at % (bytes.len() - 12);
                    bytes[at] = value;
                }
                Fault::Truncate(length) => bytes.truncate(14 + length),
                Fault::Replace(llc) => {
                    bytes.truncate(12);
                    bytes.extend((llc.len() as u16).to_be_bytes());
                    bytes.extend(llc);
                }
            }
            for _ in 0..copies {
                self.inner.send(&[Outgoing { header: &bytes, payload: &[], label: 0 }])?;
            }
        }
        Ok(frames.len())
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.inner.receive()
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.inner.wait_to_receive_or(others, timeout)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.inner.wait_to_send(timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.inner.check()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.inner.counters()
    }
}

fn config(sap: u8) -> EndpointConfig {
    let mut config = EndpointConfig::new(Lsap::new(sap).expect("individual"), Framing::default());
    (config.local, config.channels, config.slots, config.send_descriptors) = (None, 4, 64, 16);
    config
}

/// A hostile peer can at most end its channel: nothing panics, memory outside of operations is unchanged, and unexpected
/// messages stay within their bound.
#[allow(unsafe_code, reason = "callers lend memory to operations")]
pub fn messenger(data: &[u8]) {
    let mut input = Input::new(data);
    let (good, hostile) = MemoryLink::pair(MTU, Faults::default(), 1);
    let next_fault = Rc::new(RefCell::new(Fault::None));
    let hostile = HostileLink { inner: hostile, next_fault: next_fault.clone() };
    let endpoint = Endpoint::open(good, config(0x20), None).expect("a legal configuration");
    let messages = Config { unexpected_bytes: UNEXPECTED_BYTES, unexpected_messages: 20, ..Config::default() };
    let mut good = Messenger::new(endpoint, messages);
    let mut hostile = Endpoint::open(hostile, config(0x24), None).expect("a legal configuration");
    let mut inbox =
        Inbox::new(&InboxConfig { receive_descriptors: 64, buffers: 4, buffer_bytes: 4096, ..InboxConfig::default() });
    let (to_good, to_hostile): (Address, Address) = (good.address(), hostile.address());
    let peer = good.peer(to_hostile);

    // Operations for the peer to attack, each in a buffer with guards. The buffers are heap-allocated, so they do not move.
    let mut memory = vec![vec![GUARD; 300]; 5];
    let lent: Vec<Part> = memory.iter_mut().map(|memory| Part::into(&mut memory[LENT])).collect();
    let announced = vec![1; 100_000];
    let any = Selector::Tagged(Pattern { source: None, tag: 0, ignore: u64::MAX });
    for (index, wanted) in [any, Selector::Untagged(None), Selector::Untagged(Some(peer))].into_iter().enumerate() {
        let options = ReceiveOptions { context: index as u64, ..ReceiveOptions::default() };
        // SAFETY: the memory is accessed only after the messenger is dropped.
        unsafe { good.receive(wanted, &lent[index..=index], options) }.expect("there is room");
    }
    // SAFETY: as above.
    unsafe { good.register(&lent[3..4], Access::ALL, Some(2)) }.expect("the key is free");
    let at = RemoteAddress { key: 1, offset: 0 };
    let flags = input.byte();
    // SAFETY: as above. Any operation may be refused.
    unsafe {
        let label = Label { tag: Some(1), data: None };
        let options = SendOptions { level: CompletionLevel::Delivery, ..SendOptions::default() };
        if flags & 1 != 0 {
            let _ = good.send(peer, label, &[Part::of(&announced)], options);
        }
        if flags & 2 != 0 {
            let _ = good.write(peer, at, &[Part::of(&announced)], None, SendOptions::default());
        }
        if flags & 4 != 0 {
            let _ = good.read(peer, at, &lent[4..5], SendOptions::default());
        }
    }
    // The hostile side can send only after the channel is open.
    let _ = hostile.connect(to_good);
    for _ in 0..4 {
        hostile.progress(&mut inbox).expect("the link works");
        good.progress().expect("the link works");
    }
    while !input.is_empty() {
        match input.byte() % 8 {
            0..=3 => {
                let length = usize::from(input.byte() % 65);
                let head = input.take(length).to_vec();
                let body = vec![2; usize::from(input.of(&[0_u16, 1, 200, 3000]))];
                if let Ok(channel) = hostile.connect(to_good) {
                    // Skipped if the queue is full.
                    let _ = hostile.post(channel, &head, &body, Priority::Normal, Report::Never);
                }
            }
            4 => *next_fault.borrow_mut() = Fault::Overwrite(usize::from(input.byte()), input.byte()),
            5 => *next_fault.borrow_mut() = input.of(&[|| Fault::Drop, || Fault::Duplicate, || Fault::Truncate(3)])(),
            6 => {
                let length = usize::from(input.byte());
                *next_fault.borrow_mut() = Fault::Replace(input.take(length).to_vec());
            }
            _ => {}
        }
        for _ in 0..3 {
            hostile.progress(&mut inbox).expect("the link works");
            while hostile.poll_event().is_some() {}
            while let Some(received) = inbox.receive() {
                inbox.done(received);
            }
            good.progress().expect("the link works");
        }
        while good.poll().is_some() {}
        // What its channels have left when they ended may take as much again.
        assert!(good.unexpected_bytes() <= 2 * UNEXPECTED_BYTES, "{} held", good.unexpected_bytes());
    }
    drop(good);
    for memory in &memory {
        let guards = memory[..LENT.start].iter().chain(&memory[LENT.end..]);
        assert!(guards.into_iter().all(|byte| *byte == GUARD), "written beyond the end");
    }
    assert!(announced.iter().all(|byte| *byte == 1), "a send buffer has changed");
}
