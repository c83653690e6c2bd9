// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams: whole, truncated, kept while there is room, and dropped after that.

use barewire_endpoint::{Config, Endpoint, Framing};
use barewire_link::{Faults, MemoryLink};
use barewire_llc::Lsap;
use barewire_messages::{
    Datagrams, Failure, Operation, Outcome, Part, PostError, ReceiveOptions, UNEXPECTED_DATAGRAMS_MAX,
};

fn pair() -> [Datagrams<MemoryLink>; 2] {
    let (a, b) = MemoryLink::pair(1500, Faults::default(), 1);
    [a, b].map(|link| {
        let mut config = Config::new(Lsap::new(0x20).unwrap(), Framing::default());
        config.local = None;
        Datagrams::new(Endpoint::open(link, config, None).unwrap(), barewire_messages::Config::default())
    })
}

fn receive(at: &mut Datagrams<MemoryLink>, memory: &mut [u8], context: u64) {
    let options = ReceiveOptions { context, ..ReceiveOptions::default() };
    // SAFETY: each test leaves the memory alone until the receive completes.
    unsafe { at.receive(&[Part::into(memory)], options) }.unwrap();
}

fn send(from: &mut Datagrams<MemoryLink>, to: &Datagrams<MemoryLink>, parts: &[Part]) -> Result<(), PostError> {
    let peer = from.peer(to.address());
    // SAFETY: the parts are borrowed by the caller during the call.
    unsafe { from.send(peer, parts, None) }
}

#[test]
fn datagrams_arrive_whole_or_truncated_and_oversized_ones_are_refused() {
    let [mut a, mut b] = pair();
    let (mut whole, mut truncated_buffer) = ([0; 8], [0; 2]);
    receive(&mut b, &mut whole, 1);
    receive(&mut b, &mut truncated_buffer, 2);
    for _ in 0..2 {
        send(&mut a, &b, &[Part::of(b"one"), Part::of(b""), Part::of(b"two")]).unwrap();
    }
    assert!(matches!(send(&mut a, &b, &[Part::of(&[0; 1500])]), Err(PostError::TooLong { bytes: 1500, .. })));
    b.progress().unwrap();
    let first = b.poll().unwrap();
    assert!(matches!(first.outcome, Outcome::Received(received) if received.envelope.length == 6));
    let second = b.poll().unwrap();
    let truncated = Failure::Truncated { length: 6, room: 2 };
    assert!(
        matches!(second.outcome, Outcome::Failed { operation: Operation::Receive, failure, .. } if failure == truncated)
    );
    assert_eq!((first.context, second.context, b.poll()), (1, 2, None));
    assert_eq!((&whole[..6], &truncated_buffer), (&b"onetwo"[..], b"on"));
    assert_eq!((a.counts().sent, b.counts().received, b.counts().receives_failed), (2, 1, 1));
}

#[test]
fn unexpected_datagrams_are_kept_in_order_up_to_the_limit() {
    let [mut a, mut b] = pair();
    for number in 0..UNEXPECTED_DATAGRAMS_MAX as u64 + 10 {
        send(&mut a, &b, &[Part::of(&number.to_be_bytes())]).unwrap();
        b.progress().unwrap();
    }
    assert_eq!(b.dropped(), 10);
    for number in 0..UNEXPECTED_DATAGRAMS_MAX as u64 {
        let mut memory = [0; 8];
        receive(&mut b, &mut memory, number);
        assert_eq!(b.poll().unwrap().context, number);
        assert_eq!(u64::from_be_bytes(memory), number);
    }
    let mut memory = [0; 8];
    receive(&mut b, &mut memory, 7);
    assert_eq!(b.poll(), None);
    assert!(b.cancel(7) && !b.cancel(7));
    assert!(matches!(b.poll().unwrap().outcome, Outcome::Failed { failure: Failure::Cancelled, .. }));
}
