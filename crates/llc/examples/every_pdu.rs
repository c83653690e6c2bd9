// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints every kind of PDU that the engine encodes as JSON Lines: the Ethernet frame and the value of each
//! field. `tests/test_llc_tshark.py` compares them with Wireshark's dissector.

use barewire_llc::{
    AcStatus, Body, Class, Destination, FrmrInformation, GroupSap, Identification, Lsap, Mac, Pdu, Role,
    SequenceNumber, Source, Supervisory,
};

const TO: Mac = [2, 0, 0, 0, 0, 2];
const FROM: Mac = [2, 0, 0, 0, 0, 1];
/// Minimum frame length without FCS; shorter frames are padded.
const FRAME_MIN: usize = 60;
/// Longest LLC data with a length field.
const LENGTH_MAX: usize = 1500;
/// LLC encapsulation for jumbo frames.
const ETHERTYPE_JUMBO: u16 = 0x8870;
const ETHERTYPE_VLAN: u16 = 0x8100;
const VLAN: u16 = 42;

fn main() {
    let local = Lsap::new(0x48).expect("an individual address");
    let (remote, payload) = (Destination::Individual(Lsap::new(0x44).expect("an individual address")), [0x5a; 9000]);
    let group = Destination::Group(GroupSap::new(0x47).expect("a group's address"));

    for body in every_body(&payload[..10]) {
        print(&Pdu { destination: remote, source: local.into(), body }, false);
    }
    // The other kinds of addresses, with the PDUs that a group accepts.
    for destination in [group, Destination::Global, Destination::Null] {
        for body in [
            Body::Test { role: Role::Command, poll_final: true, information: &payload[..3] },
            Body::Xid { role: Role::Command, poll_final: true, identification: xid(Class::Iv, 64) },
        ] {
            print(&Pdu { destination, source: Source::Null, body }, false);
        }
        print(&Pdu { destination, source: local.into(), body: Body::Ui { information: &payload[..4] } }, false);
    }
    let (sap, snap) = (Lsap::SNAP, [0x00, 0x80, 0xc2, 0x12, 0x34, 1, 2, 3]);
    for information in [&snap[..], &[0, 0, 0, 0x88, 0xb5, 9]] {
        print(&Pdu { destination: sap.into(), source: sap.into(), body: Body::Ui { information } }, false);
    }
    // Limits of the sequence numbers, and lengths around every change of the framing.
    for (ns, nr) in [(0, 0), (127, 0), (0, 127), (127, 127), (64, 63)] {
        print(&Pdu { destination: remote, source: local.into(), body: i(Role::Command, false, ns, nr, &[7]) }, false);
    }
    for length in [0, 1, 41, 42, 43, 1495, 1496, 1497, 1500, 2000, 4000, 8996] {
        for is_tagged in [false, true] {
            let body = i(Role::Command, false, 5, 9, &payload[..length]);
            print(&Pdu { destination: remote, source: local.into(), body }, is_tagged);
            let body = Body::Ui { information: &payload[..length] };
            print(&Pdu { destination: remote, source: local.into(), body }, is_tagged);
        }
    }
}

/// Every variant, with every role, P/F bit, function, class, and reason.
fn every_body(payload: &[u8]) -> Vec<Body<'_>> {
    let mut bodies = vec![Body::Ui { information: payload }];
    for poll_final in [false, true] {
        let reason = |flags| FrmrInformation([0x0a, 0x0d, 5 << 1, 6 << 1 | u8::from(poll_final), flags]);
        bodies.extend([Body::Sabme { poll: poll_final }, Body::Disc { poll: poll_final }]);
        bodies.extend([Body::Ua { final_bit: poll_final }, Body::Dm { final_bit: poll_final }]);
        for flags in [0x01, 0x03, 0x04, 0x08, 0x10] {
            bodies.push(Body::Frmr { final_bit: poll_final, reason: reason(flags) });
        }
        for sequence in [false, true] {
            bodies.push(Body::AcCommand { poll: poll_final, sequence, information: payload });
            for status in [AcStatus::ACCEPTED, AcStatus::NOT_ACTIVATED, AcStatus::ACCEPTED_WITHOUT_ANSWER] {
                bodies.push(Body::AcResponse { final_bit: poll_final, sequence, status, information: &[] });
            }
        }
        for role in [Role::Command, Role::Response] {
            for class in [Class::I, Class::Ii, Class::Iii, Class::Iv] {
                bodies.push(Body::Xid { role, poll_final, identification: xid(class, 127) });
            }
            let identification = Identification::Other(&[0x11, 2, 3]);
            bodies.push(Body::Xid { role, poll_final, identification });
            bodies.push(Body::Test { role, poll_final, information: payload });
            bodies.push(i(role, poll_final, 3, 4, payload));
            for function in [Supervisory::Rr, Supervisory::Rnr, Supervisory::Rej] {
                bodies.push(Body::S { role, poll_final, function, nr: number(101) });
            }
        }
    }
    bodies
}

fn number(value: u8) -> SequenceNumber {
    SequenceNumber::wrapping(u32::from(value))
}

fn xid(class: Class, window: u8) -> Identification<'static> {
    Identification::Basic { class, window: number(window) }
}

fn i(role: Role, poll_final: bool, ns: u8, nr: u8, information: &[u8]) -> Body<'_> {
    Body::I { role, poll_final, ns: number(ns), nr: number(nr), information }
}

/// Prints the line of a PDU with the fields that [`Pdu::decode`] finds in its bytes.
fn print(pdu: &Pdu<'_>, is_tagged: bool) {
    let mut bytes = vec![0; pdu.encoded_len()];
    pdu.emit(&mut bytes).expect("it fits");
    let pdu = Pdu::decode(&bytes).expect("an encoded PDU can be decoded");
    let frame: String = frame(&bytes, is_tagged).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut fields = vec![
        format!(r#""frame": "{frame}", "vlan": {}"#, if is_tagged { VLAN.to_string() } else { "null".into() }),
        format!(r#""length": {}, "is_jumbo": {}"#, bytes.len(), bytes.len() > LENGTH_MAX),
        format!(r#""dsap": {}, "ssap": {}"#, pdu.destination.byte(), pdu.source.byte()),
        format!(r#""is_group": {}"#, matches!(pdu.destination, Destination::Group(_) | Destination::Global)),
        format!(r#""is_response": {}, "poll_final": {}"#, pdu.role() == Role::Response, pdu.poll_final()),
    ];
    let (kind, kind_fields) = kind_and_fields(&pdu);
    fields.push(format!(r#""kind": "{kind}", "information": {}"#, pdu.information().len()));
    fields.extend(kind_fields);
    println!("{{{}}}", fields.join(", "));
}

/// The name of the PDU's kind, and the fields specific to it.
fn kind_and_fields(pdu: &Pdu<'_>) -> (&'static str, Vec<String>) {
    let ac = |sequence: bool| if sequence { "AC1" } else { "AC0" };
    match pdu.body {
        Body::I { ns, nr, .. } => ("I", vec![format!(r#""ns": {}, "nr": {}"#, ns.value(), nr.value())]),
        Body::S { function, nr, .. } => {
            let kind = match function {
                Supervisory::Rr => "RR",
                Supervisory::Rnr => "RNR",
                Supervisory::Rej => "REJ",
            };
            (kind, vec![format!(r#""nr": {}"#, nr.value())])
        }
        Body::Ui { .. } => ("UI", Vec::new()),
        Body::Xid { identification: Identification::Basic { class, window }, .. } => {
            ("XID", vec![format!(r#""xid": {{"class": {}, "window": {}}}"#, class as u8, window.value())])
        }
        Body::Xid { .. } => ("XID", vec![]),
        Body::Test { .. } => ("TEST", vec![]),
        Body::Sabme { .. } => ("SABME", vec![]),
        Body::Disc { .. } => ("DISC", vec![]),
        Body::Ua { .. } => ("UA", vec![]),
        Body::Dm { .. } => ("DM", vec![]),
        Body::Frmr { reason, .. } => {
            let [first, second] = reason.rejected_control();
            let is_response = reason.rejected_role() == Role::Response;
            let (vs, vr, flags) = (reason.vs().value(), reason.vr().value(), reason.flags());
            (
                "FRMR",
                vec![format!(
                    r#""frmr": {{"control": [{first}, {second}], "vs": {vs}, "vr": {vr}, "is_response": {is_response}, "flags": {flags}}}"#
                )],
            )
        }
        Body::AcCommand { sequence, .. } => (ac(sequence), vec![]),
        Body::AcResponse { sequence, status, .. } => (ac(sequence), vec![format!(r#""status": {}"#, status.0)]),
    }
}

/// The Ethernet frame around LLC bytes, without FCS.
fn frame(llc: &[u8], is_tagged: bool) -> Vec<u8> {
    let mut frame = [TO, FROM].concat();
    if is_tagged {
        frame.extend(ETHERTYPE_VLAN.to_be_bytes());
        frame.extend(VLAN.to_be_bytes());
    }
    let field = if llc.len() > LENGTH_MAX { ETHERTYPE_JUMBO } else { llc.len() as u16 };
    frame.extend(field.to_be_bytes());
    frame.extend(llc);
    let length_min = FRAME_MIN + if is_tagged { 4 } else { 0 };
    if frame.len() < length_min {
        frame.resize(length_min, 0);
    }
    frame
}
