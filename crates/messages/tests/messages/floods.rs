// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow control against floods of peers that this process has not added.

use barewire_messages::{Access, Config, Outcome, Part, ReceiveOptions, RemoteAddress, Selector, SendOptions};

use crate::common::*;

/// Proves that a peer's empty writes with data and empty messages wait while refused, that none is lost, and that their
/// order is kept.
#[test]
fn unsolicited_messages_wait_while_refused() {
    for (carrier, pair) in carriers(Config::default()) {
        let mut all = Vec::from(pair);
        let address = all[1].address();
        let to = all[0].peer(address);
        let mut many = [0; 100];
        // SAFETY: the memory lives until the end.
        unsafe {
            all[1].register(&[Part::into(&mut [0_u8; 8])], Access::ALL, Some(5)).unwrap();
            all[1]
                .receive_multi(Selector::Untagged(None), &[Part::into(&mut many)], 50, ReceiveOptions::default())
                .unwrap();
        }
        let mut number = 0_u64;
        let mut flood = |all: &mut [Tested]| {
            let options = SendOptions { is_silent: true, ..SendOptions::default() };
            let at = RemoteAddress { key: 5, offset: 0 };
            // SAFETY: no memory is involved.
            let posted = unsafe {
                if number.is_multiple_of(2) {
                    all[0].write(to, at, &[], Some(number), options)
                } else {
                    all[0].send(to, barewire_messages::Label { tag: None, data: Some(number) }, &[], options)
                }
            };
            number += u64::from(posted.is_ok());
            all.iter_mut().for_each(|messenger| _ = messenger.progress().unwrap());
            number
        };
        let poll_all = |all: &mut [Tested]| {
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
            numbers.extend(poll_all(all));
            numbers.len() == 20
        });
        all[1].refuse_unsolicited(true);
        for _ in 0..20_000 {
            flood(&mut all);
        }
        assert!(poll_all(&mut all).is_empty(), "{carrier}");
        all[1].refuse_unsolicited(false);
        let sent = number;
        drive(&mut all, |all| {
            numbers.extend(poll_all(all));
            numbers.len() as u64 == sent
        });
        assert!(numbers.iter().copied().eq(0..sent), "{carrier}: in order");
    }
}
