// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer may do that this process has not named, and what one may not that floods it.

use barewire_messages::{Access, Config, Failure, Outcome, Part, ReceiveOptions, Refusal, Remote, SendOptions, Wanted};

use crate::common::*;

/// Proves that memory is open to peers that this process has named, and to others only if it says so; messages are not
/// concerned.
#[test]
fn memory_is_closed_to_peers_that_nobody_has_named() {
    for memory_for_all in [true, false] {
        for (carrier, mut pair) in carriers(Config { memory_for_all, ..Config::default() }) {
            let address = pair[1].address();
            let to = pair[0].peer(address);
            let (message, mut open) = (bytes(100, 1), vec![0; 100]);
            // SAFETY: the memory stays to the end.
            unsafe { pair[1].register(&[Part::into(&mut open)], Access::ALL, Some(5)) }.unwrap();
            let at = Remote { key: 5, offset: 0 };
            for is_named in [false, true] {
                if is_named {
                    let address = pair[0].address();
                    pair[1].peer(address);
                }
                let options = SendOptions { context: 7, ..SendOptions::default() };
                drive(&mut pair, |pair| {
                    // SAFETY: the message stays to the end.
                    unsafe { pair[0].write(to, at, &[Part::of(&message)], None, options) }.is_ok()
                });
                let outcome = completion(&mut pair, 0).outcome;
                if memory_for_all || is_named {
                    assert!(matches!(outcome, Outcome::Done(_)), "{carrier}: {outcome:?}");
                    assert!(open == message);
                } else {
                    let refused = matches!(
                        outcome,
                        Outcome::Failed { failure: Failure::Refused { refusal: Refusal::UnknownPeer, .. }, .. }
                    );
                    assert!(refused && open == [0; 100], "{carrier}: {outcome:?}");
                }
            }
        }
    }
}

/// Proves that a peer's zero-byte writes with data and zero-byte messages wait while their reader says so, that
/// nothing of them is lost, and that what others send goes on meanwhile.
#[test]
fn what_nobody_asked_for_waits_while_too_much_is_unread() {
    for (carrier, pair) in carriers(Config::default()) {
        let mut all = Vec::from(pair);
        let address = all[1].address();
        let to = all[0].peer(address);
        let mut many = [0; 100];
        // SAFETY: the memory stays to the end.
        unsafe {
            all[1].register(&[Part::into(&mut [0_u8; 8])], Access::ALL, Some(5)).unwrap();
            all[1]
                .receive_many(Wanted::Untagged(None), &[Part::into(&mut many)], 50, ReceiveOptions::default())
                .unwrap();
        }
        let mut number = 0_u64;
        let mut flood = |all: &mut [Tested]| {
            let options = SendOptions { is_silent: true, ..SendOptions::default() };
            let at = Remote { key: 5, offset: 0 };
            // SAFETY: no memory is concerned.
            let posted = unsafe {
                if number.is_multiple_of(2) {
                    all[0].write(to, at, &[], Some(number), options)
                } else {
                    all[0].send(to, barewire_messages::Label { tag: None, data: Some(number) }, &[], options)
                }
            };
            number += u64::from(posted.is_ok());
            all.iter_mut().for_each(|one| _ = one.progress().unwrap());
            number
        };
        let told = |all: &mut [Tested]| {
            let mut numbers = Vec::new();
            while let Some(completion) = all[1].poll() {
                match completion.outcome {
                    Outcome::Written(write) => numbers.push(write.data),
                    Outcome::Received(received) => numbers.extend(received.envelope.label.data),
                    other => panic!("{other:?}"),
                }
            }
            numbers
        };
        let mut numbers = Vec::new();
        while flood(&mut all) < 20 {}
        drive(&mut all, |all| {
            numbers.extend(told(all));
            numbers.len() == 20
        });
        all[1].refuse_unasked(true);
        for _ in 0..20_000 {
            flood(&mut all);
        }
        assert!(told(&mut all).is_empty(), "{carrier}");
        all[1].refuse_unasked(false);
        let sent = number;
        drive(&mut all, |all| {
            numbers.extend(told(all));
            numbers.len() as u64 == sent
        });
        assert!(numbers.iter().copied().eq(0..sent), "{carrier}: in their order");
    }
}
