// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds after any operations.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// What a test does to a pair.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Send(usize, u8),
    Transmit(usize, usize),
    Receive(usize),
    Lose(usize),
    Repeat(usize),
    Overtake(usize, usize),
    WantAnswer(usize),
    Busy(usize, bool),
    Sleep,
}

fn operation() -> impl Strategy<Value = Operation> {
    let end = 0..2usize;
    prop_oneof![
        4 => (end.clone(), 1..20u8).prop_map(|(end, count)| Operation::Send(end, count)),
        6 => (end.clone(), 1..30usize).prop_map(|(end, count)| Operation::Transmit(end, count)),
        20 => end.clone().prop_map(Operation::Receive),
        1 => end.clone().prop_map(Operation::Lose),
        1 => end.clone().prop_map(Operation::Repeat),
        1 => (end.clone(), 1..30usize).prop_map(|(end, by)| Operation::Overtake(end, by)),
        2 => end.clone().prop_map(Operation::WantAnswer),
        1 => (end, any::<bool>()).prop_map(|(end, busy)| Operation::Busy(end, busy)),
        2 => Just(Operation::Sleep),
    ]
}

impl Pair {
    fn apply(&mut self, operation: Operation, sent: &mut [u32; 2]) {
        match operation {
            Operation::Send(end, count) => {
                for _ in 0..count {
                    sent[end] += u32::from(self.ends[end].send(sent[end], self.now).is_ok());
                }
            }
            Operation::Transmit(end, count) => self.transmit(end, count),
            Operation::Receive(end) => _ = self.receive(end),
            Operation::Lose(end) => drop(self.wires[end].pop_front()),
            Operation::Repeat(end) => {
                // Without rounds overtaken by so few PDUs that no number can come round, whatever each acknowledges.
                let most = (63 / usize::from(self.ends[end].machine.parameters.window)).min(8);
                let wire = &mut self.wires[end];
                let place = if self.is_extended { wire.len() } else { wire.len().min(most) };
                wire.front().cloned().into_iter().for_each(|frame| wire.insert(place, frame));
            }
            Operation::Overtake(end, by) => {
                let wire = &mut self.wires[end];
                if self.is_extended && wire.len() > by {
                    let frame = wire.pop_front().expect("one is there");
                    wire.insert(by, frame);
                }
            }
            Operation::WantAnswer(end) => self.ends[end].want_answer(self.now),
            Operation::Busy(end, is_busy) => self.ends[end].set_busy(is_busy, self.now),
            // Who sends nothing that is due cannot sleep: only the stall timer would wake it.
            Operation::Sleep => {
                (0..2).for_each(|end| self.transmit(end, usize::MAX));
                self.sleep();
            }
        }
        self.collect();
        self.ends.iter().for_each(Connection::check);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Proves exactly-once in-order delivery, the window bound and progress: any sequence of operations on
    /// a connected pair, over wires that lose and repeat, then a quiet time in which all must arrive.
    #[test]
    fn whatever_happens_data_arrives_once_and_in_order(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..400),
        is_extended in any::<bool>(),
    ) {
        let stall_limit = core::time::Duration::MAX;
        let config =
            ConnectionConfig { window, inactivity: None, retries: 255, stall_limit, is_extended, ..Default::default() };
        let mut pair = Pair::connected(&config);
        let mut sent = [0, 0];
        for operation in operations {
            pair.apply(operation, &mut sent);
            for end in 0..2 {
                prop_assert!(pair.ends[end].outstanding() <= usize::from(window));
            }
        }
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.set_busy(false, now));
        for _ in 0..2000 {
            pair.exchange();
            if pair.ends.iter().all(|end| end.unacknowledged() == 0) {
                break;
            }
            pair.sleep();
        }
        prop_assert!(pair.ends.iter().all(|end| end.unacknowledged() == 0), "stuck: {:#?}", pair.ends.map(|end| end.machine));
        for end in 0..2 {
            prop_assert_eq!(&pair.received[end], &(0..sent[1 - end]).collect::<Vec<_>>());
            prop_assert_eq!(acknowledged(&pair.events[end]), (0..sent[end]).collect::<Vec<_>>());
        }
    }

    /// Proves that the short way for the usual PDU does exactly what the table says: two pairs go through
    /// the same operations, one by the table alone, and all their variables agree after each.
    #[test]
    fn the_short_way_does_what_the_table_says(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..300),
        is_extended in any::<bool>(),
    ) {
        let config = ConnectionConfig { window, is_extended, ..Default::default() };
        let (mut short, mut table) = (Pair::connected(&config), Pair::connected(&config));
        table.by_table = true;
        for operation in operations {
            short.apply(operation, &mut [0, 0]);
            table.apply(operation, &mut [0, 0]);
            for end in 0..2 {
                // When to look at the timers may differ; it is never too late.
                let machines = [&short, &table].map(|pair| pair.ends[end].machine.clone().with_exact_wake());
                prop_assert_eq!(&machines[0], &machines[1]);
            }
            prop_assert_eq!(&short.wires, &table.wires);
        }
    }

    /// Proves that the short way out sends exactly when, and with the P bit with which, the table would.
    #[test]
    fn data_leaves_when_the_table_says(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..300),
        is_extended in any::<bool>(),
    ) {
        let mut pair = Pair::connected(&ConnectionConfig { window, is_extended, ..Default::default() });
        for operation in operations {
            pair.apply(operation, &mut [0, 0]);
            for end in &mut pair.ends {
                let expected = end.machine.data_request();
                let transmit = end.machine.clone().poll_transmit(pair.now);
                if let Some((header, Some(_), _)) = transmit {
                    let poll = header.as_bytes()[3] & 1 != 0;
                    prop_assert_eq!(expected, Some(poll));
                } else if transmit.is_none() {
                    prop_assert_eq!(expected, None);
                }
            }
        }
    }

    /// Proves that no PDU, however senseless, breaks an invariant or panics, in any state.
    #[test]
    fn garbage_breaks_nothing(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 2..6), 0u8..4), 0..200),
    ) {
        let mut pair = Pair::connected(&ConnectionConfig::default());
        for (frame, what) in frames {
            let _ = pair.ends[0].send(7, pair.now);
            let mut bytes = std::vec![0xaa, 0xaa | u8::from(what & 1 != 0)];
            bytes.extend(frame);
            match Pdu::decode(&bytes) {
                Ok(pdu) => drop(pair.ends[0].handle_pdu(&pdu, pair.now)),
                Err(malformed) => pair.ends[0].handle_malformed(&bytes, malformed, pair.now),
            }
            pair.transmit(0, if what == 0 { 3 } else { 0 });
            pair.wires[0].clear();
            if what == 3 {
                pair.sleep();
                pair.ends[0].accept(pair.now);
                pair.ends[0].accept_reset(pair.now);
                pair.ends[0].reset(pair.now);
            }
            pair.collect();
        }
    }
}
