// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message layer and a peer that is hostile: messages of its own invention, and frames that are changed, repeated
//! or swallowed behind its engine's back.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use barewire_endpoint::{Address, Config as EndpointConfig, Endpoint, Framing, Inbox, InboxConfig};
use barewire_link::{Counters, Faults, Incoming, Link, LinkError, MacAddress, MemoryLink, Outgoing};
use barewire_llc::Lsap;
use barewire_messages::{
    Access, CompletionLevel, Config, Label, Messenger, Part, Pattern, ReceiveOptions, RemoteAddress, Selector,
    SendOptions,
};

use crate::input::Input;

const MTU: usize = 1500;
/// What the messenger may hold for receives to come.
const UNEXPECTED_BYTES: usize = 10_000;
const GUARD: u8 = 0xa5;
/// Between two guards.
const OPEN: std::ops::Range<usize> = 100..200;

/// What happens to the next frame that the hostile side sends.
#[derive(Default)]
enum Trick {
    #[default]
    None,
    Lose,
    Repeat,
    Set(usize, u8),
    Cut(usize),
    Instead(Vec<u8>),
}

struct HostileLink {
    inner: MemoryLink,
    next: Rc<RefCell<Trick>>,
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
            let mut times = 1;
            match self.next.take() {
                Trick::None => {}
                Trick::Lose => times = 0,
                Trick::Repeat => times = 2,
                // Behind the addresses, or it goes to nobody.
                Trick::Set(at, value) => {
                    let at = 12 + at % (bytes.len() - 12);
                    bytes[at] = value;
                }
                Trick::Cut(length) => bytes.truncate(14 + length),
                Trick::Instead(llc) => {
                    bytes.truncate(12);
                    bytes.extend((llc.len() as u16).to_be_bytes());
                    bytes.extend(llc);
                }
            }
            for _ in 0..times {
                self.inner.send(&[Outgoing { header: &bytes, payload: &[] }])?;
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

/// Whatever it sends ends its channel at most: nothing panics, what was not given to an operation stays as it is, and what
/// is held for receives to come has its bound.
#[allow(unsafe_code, reason = "operations have memory that callers lend")]
pub fn messenger(data: &[u8]) {
    let mut input = Input::new(data);
    let (good, hostile) = MemoryLink::pair(MTU, Faults::default(), 1);
    let next = Rc::new(RefCell::new(Trick::None));
    let hostile = HostileLink { inner: hostile, next: next.clone() };
    let endpoint = Endpoint::open(good, config(0x20), None).expect("a legal configuration");
    let messages = Config { unexpected_bytes: UNEXPECTED_BYTES, unexpected_messages: 20, ..Config::default() };
    let mut good = Messenger::new(endpoint, messages);
    let mut hostile = Endpoint::open(hostile, config(0x24), None).expect("a legal configuration");
    let mut inbox =
        Inbox::new(&InboxConfig { receive_descriptors: 64, buffers: 4, buffer_bytes: 4096, ..InboxConfig::default() });
    let (to_good, to_hostile): (Address, Address) = (good.address(), hostile.address());
    let enemy = good.peer(to_hostile);

    // Operations for it to interfere with, each in memory with guards around it. Vectors: they stay where they are.
    let mut memory = vec![vec![GUARD; 300]; 5];
    let lent: Vec<Part> = memory.iter_mut().map(|memory| Part::into(&mut memory[OPEN])).collect();
    let announced = vec![1; 100_000];
    let any = Selector::Tagged(Pattern { source: None, tag: 0, ignore: u64::MAX });
    for (place, wanted) in [any, Selector::Untagged(None), Selector::Untagged(Some(enemy))].into_iter().enumerate() {
        let options = ReceiveOptions { context: place as u64, ..ReceiveOptions::default() };
        // SAFETY: the memory is looked at only when the messenger is gone.
        unsafe { good.receive(wanted, &lent[place..=place], options) }.expect("there is room");
    }
    // SAFETY: as above.
    unsafe { good.register(&lent[3..4], Access::ALL, Some(2)) }.expect("the key is free");
    let at = RemoteAddress { key: 1, offset: 0 };
    let flags = input.byte();
    // SAFETY: as above. Any of them may be refused.
    unsafe {
        let label = Label { tag: Some(1), data: None };
        let options = SendOptions { level: CompletionLevel::Delivery, ..SendOptions::default() };
        if flags & 1 != 0 {
            let _ = good.send(enemy, label, &[Part::of(&announced)], options);
        }
        if flags & 2 != 0 {
            let _ = good.write(enemy, at, &[Part::of(&announced)], None, SendOptions::default());
        }
        if flags & 4 != 0 {
            let _ = good.read(enemy, at, &lent[4..5], SendOptions::default());
        }
    }
    // Nothing is sent before the connection is there.
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
                    // What is refused for want of room is not sent.
                    let _ = hostile.send_copied(channel, &head, &body, 0);
                }
            }
            4 => *next.borrow_mut() = Trick::Set(usize::from(input.byte()), input.byte()),
            5 => *next.borrow_mut() = input.of(&[|| Trick::Lose, || Trick::Repeat, || Trick::Cut(3)])(),
            6 => {
                let length = usize::from(input.byte());
                *next.borrow_mut() = Trick::Instead(input.take(length).to_vec());
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
        assert!(good.unexpected_bytes() <= UNEXPECTED_BYTES + 3200, "{} held", good.unexpected_bytes());
    }
    drop(good);
    for memory in &memory {
        let guards = memory[..OPEN.start].iter().chain(&memory[OPEN.end..]);
        assert!(guards.into_iter().all(|byte| *byte == GUARD), "written beyond the end");
    }
    assert!(announced.iter().all(|byte| *byte == 1), "what is sent has changed");
}
