// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties that hold after any sequence of operations.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// An operation on a pair.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Send(usize, u8),
    Transmit(usize, usize),
    Receive(usize),
    Lose(usize),
    Repeat(usize),
    Overtake(usize, usize),
    RequestAck(usize),
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
        2 => end.clone().prop_map(Operation::RequestAck),
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
                // Without rounds a duplicate may be overtaken only by so few PDUs that no number can wrap.
                let distance_max = (63 / usize::from(self.ends[end].machine.parameters.window)).min(8);
                let wire = &mut self.wires[end];
                let position = if self.is_extended { wire.len() } else { wire.len().min(distance_max) };
                wire.front().cloned().into_iter().for_each(|frame| wire.insert(position, frame));
            }
            Operation::Overtake(end, by) => {
                let wire = &mut self.wires[end];
                if self.is_extended && wire.len() > by {
                    let frame = wire.pop_front().expect("the wire is not empty");
                    wire.insert(by, frame);
                }
            }
            Operation::RequestAck(end) => self.ends[end].request_ack(self.now),
            Operation::Busy(end, is_busy) => self.ends[end].set_busy(is_busy, self.now),
            // Transmit first: with PDUs pending only the stall timer may be running.
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

    /// Exactly-once in-order delivery, window bound and progress: any sequence of operations on
    /// a connected pair over wires that lose and duplicate, then a time without faults in which all data must arrive.
    #[test]
    fn data_arrives_once_and_in_order_whatever_happens(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..400),
        is_extended in any::<bool>(),
        labels in prop::sample::select(&[0_u8, 2, 5][..]),
    ) {
        let stall_limit = core::time::Duration::MAX;
        let config = ConnectionConfig {
            window,
            inactivity: None,
            retries: 255,
            stall_limit,
            is_extended,
            labels,
            ..Default::default()
        };
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

    /// Two pairs perform the same operations, one of them without the fast path; all their variables agree after
    /// each operation.
    #[test]
    fn fast_path_agrees_with_the_table(
        window in 1..=63u8,
        operations in prop::collection::vec(operation(), 0..300),
        is_extended in any::<bool>(),
    ) {
        let config = ConnectionConfig { window, is_extended, ..Default::default() };
        let (mut fast, mut table) = (Pair::connected(&config), Pair::connected(&config));
        table.by_table = true;
        for operation in operations {
            fast.apply(operation, &mut [0, 0]);
            table.apply(operation, &mut [0, 0]);
            for end in 0..2 {
                // `wake` may differ; it is a lower bound.
                let machines = [&fast, &table].map(|pair| pair.ends[end].machine.clone().with_exact_wake());
                prop_assert_eq!(&machines[0], &machines[1]);
            }
            prop_assert_eq!(&fast.wires, &table.wires);
        }
    }

    /// `poll_transmit` sends data exactly when the table does, and with the same P bit.
    #[test]
    fn data_is_sent_when_the_table_says(
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

    /// No PDU violates an invariant or panics, in any state.
    #[test]
    fn random_pdus_violate_no_invariant(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 2..6), 0u8..4), 0..200),
    ) {
        let mut pair = Pair::connected(&ConnectionConfig::default());
        for (frame, action) in frames {
            let _ = pair.ends[0].send(7, pair.now);
            let mut bytes = std::vec![0xaa, 0xaa | u8::from(action & 1 != 0)];
            bytes.extend(frame);
            match Pdu::decode(&bytes) {
                Ok(pdu) => drop(pair.ends[0].handle_pdu(&pdu, pair.now)),
                Err(malformed) => pair.ends[0].handle_malformed(&bytes, malformed, pair.now),
            }
            pair.transmit(0, if action == 0 { 3 } else { 0 });
            pair.wires[0].clear();
            if action == 3 {
                pair.sleep();
                pair.ends[0].accept(pair.now);
                pair.ends[0].accept_reset(pair.now);
                pair.ends[0].reset(pair.now);
            }
            pair.collect();
        }
    }
}
