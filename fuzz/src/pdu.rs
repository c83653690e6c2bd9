// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoding and encoding of PDUs.

use barewire_llc::{
    AcStatus, Body, Class, Destination, FrmrInformation, Header, Identification, Pdu, Role, SequenceNumber, Source,
    Supervisory,
};

use crate::input::Input;

/// Any bytes decode to a PDU or a reason; a PDU encodes to the same bytes.
pub fn decode(data: &[u8]) {
    let Ok(pdu) = Pdu::decode(data) else { return };
    assert_eq!(encode(&pdu), data);
    assert_eq!(pdu.role() == Role::Response, data[1] & 1 == 1, "C/R is the low bit of the SSAP");
    assert_eq!(pdu.destination.byte(), data[0]);
    assert_eq!(pdu.source.byte(), data[1] & 0xfe);
    let bit_at = if data[2] & 3 == 3 { data[2] & 0x10 } else { data[3] & 1 };
    assert_eq!(pdu.poll_final(), bit_at != 0);
}

/// A PDU of any legal values decodes to itself.
pub fn identity(data: &[u8]) {
    let mut input = Input::new(data);
    let pdu = any_pdu(&mut input);
    let bytes = encode(&pdu);
    let decoded = Pdu::decode(&bytes).unwrap_or_else(|reason| panic!("{pdu:?} is {bytes:02x?} is {reason:?}"));
    // XID bytes that happen to be the basic format decode as such.
    let is_basic_format = matches!(
        (pdu.body, decoded.body),
        (
            Body::Xid { identification: Identification::Other(_), .. },
            Body::Xid { identification: Identification::Basic { .. }, .. }
        )
    );
    if is_basic_format {
        assert_eq!((pdu.destination, pdu.source, pdu.role()), (decoded.destination, decoded.source, decoded.role()));
    } else {
        assert_eq!(decoded, pdu);
    }
    assert_eq!(encode(&decoded), bytes);
}

/// Encodes a PDU, and checks the properties of every encoding.
pub fn encode(pdu: &Pdu<'_>) -> Vec<u8> {
    let length = pdu.encoded_len();
    let mut bytes = vec![0xee; length + 1];
    assert_eq!(pdu.emit(&mut bytes), Some(length));
    assert_eq!(bytes.pop(), Some(0xee), "one byte too many was written");
    assert_eq!(pdu.emit(&mut vec![0; length - 1]), None, "it cannot fit");
    let (header, information) = (pdu.header(), pdu.information());
    assert!(header.as_bytes().len() <= Header::MAX);
    assert_eq!([header.as_bytes(), information].concat(), bytes);
    bytes
}

/// A PDU of any kind, with the rest of the input as information.
pub fn any_pdu<'a>(input: &mut Input<'a>) -> Pdu<'a> {
    let (destination, source) = (Destination::from(input.byte()), Source::from_byte(input.byte()));
    let body = any_body(input, usize::MAX);
    Pdu { destination, source, body }
}

/// A body of any kind with up to `length` bytes of information.
pub fn any_body<'a>(input: &mut Input<'a>, length: usize) -> Body<'a> {
    let kind = input.byte();
    let (bit, role) = (kind & 0x40 != 0, if kind & 0x80 == 0 { Role::Command } else { Role::Response });
    let number = |input: &mut Input<'_>| SequenceNumber::wrapping(u32::from(input.byte()));
    match kind & 0x0f {
        0 => Body::Ui { information: input.take(length) },
        1 => {
            let class = input.of(&[Class::I, Class::Ii, Class::Iii, Class::Iv]);
            let identification = Identification::Basic { class, window: number(input) };
            Body::Xid { role, poll_final: bit, identification }
        }
        2 => Body::Xid { role, poll_final: bit, identification: Identification::Other(input.take(length)) },
        3 => Body::Test { role, poll_final: bit, information: input.take(length) },
        4 => Body::Sabme { poll: bit },
        5 => Body::Disc { poll: bit },
        6 => Body::Ua { final_bit: bit },
        7 => Body::Dm { final_bit: bit },
        8 => {
            let mut reason = [0; 5];
            reason.fill_with(|| input.byte());
            Body::Frmr { final_bit: bit, reason: FrmrInformation(reason) }
        }
        9 => Body::AcCommand { poll: bit, sequence: input.flag(), information: input.take(length) },
        10 => {
            let (sequence, status) = (input.flag(), AcStatus(input.byte()));
            Body::AcResponse { final_bit: bit, sequence, status, information: input.take(length) }
        }
        11 | 12 => {
            let (ns, nr) = (number(input), number(input));
            Body::I { role, poll_final: bit, ns, nr, information: input.take(length) }
        }
        _ => {
            let function = input.of(&[Supervisory::Rr, Supervisory::Rnr, Supervisory::Rej]);
            Body::S { role, poll_final: bit, function, nr: number(input) }
        }
    }
}
