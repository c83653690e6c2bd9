// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocol data units: typed, with total decoding (IEEE 802.2, clauses 3 and 5.4).
//!
//! ```text
//! byte   0      1      2                3                4 …
//! I      DSAP   SSAP   N(S)        0    N(R)       P/F   information
//! S      DSAP   SSAP   0000 SS    01    N(R)       P/F
//! U      DSAP   SSAP   MMM P/F MM 11    information (UI, XID, TEST, FRMR, AC0, AC1)
//! ```

use crate::address::{Destination, Source};

/// A protocol data unit. Borrows its information field from the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// DSAP.
    pub destination: Destination,
    /// SSAP.
    pub source: Source,
    /// Control and information fields.
    pub body: Body<'a>,
}

/// Control and information fields of a PDU. Where only a command or only a response exists, the variant implies the
/// role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields have the standard's names.
pub enum Body<'a> {
    /// Numbered information, type 2.
    I { role: Role, poll_final: bool, ns: SequenceNumber, nr: SequenceNumber, information: &'a [u8] },
    /// Supervisory, type 2.
    S { role: Role, poll_final: bool, function: Supervisory, nr: SequenceNumber },
    /// Unnumbered information, type 1: a command with P = 0.
    Ui { information: &'a [u8] },
    /// Exchange identification.
    Xid { role: Role, poll_final: bool, identification: Identification<'a> },
    /// Loopback test; the response returns the information.
    Test { role: Role, poll_final: bool, information: &'a [u8] },
    /// Set asynchronous balanced mode extended.
    Sabme { poll: bool },
    /// Disconnect.
    Disc { poll: bool },
    /// Unnumbered acknowledgement.
    Ua { final_bit: bool },
    /// Disconnected mode.
    Dm { final_bit: bool },
    /// Frame reject.
    Frmr { final_bit: bool, reason: FrmrInformation },
    /// Acknowledged connectionless information, type 3: AC0 or AC1 by `sequence`.
    AcCommand { poll: bool, sequence: bool, information: &'a [u8] },
    /// Response to an AC command; its information field starts with the status subfield.
    AcResponse { final_bit: bool, sequence: bool, status: AcStatus, information: &'a [u8] },
}

/// Command or response: the low bit of the SSAP byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// C/R = 0.
    Command,
    /// C/R = 1.
    Response,
}

/// The function of an S PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervisory {
    /// Receive ready.
    Rr,
    /// Receive not ready.
    Rnr,
    /// Reject: retransmit from N(R).
    Rej,
}

/// A sequence number of I PDUs, modulo 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceNumber(u8);

impl SequenceNumber {
    /// Number of distinct values.
    pub const MODULUS: u8 = 128;

    /// The number congruent to `count`.
    #[must_use]
    pub const fn wrapping(count: u32) -> Self {
        Self((count % Self::MODULUS as u32) as u8)
    }

    /// The value, 0 to 127.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) % Self::MODULUS)
    }
}

/// The types of operation that a station supports (IEEE 802.2, clause 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Type 1.
    I = 1,
    /// Types 1 and 2.
    Ii = 3,
    /// Types 1 and 3.
    Iii = 5,
    /// Types 1, 2 and 3.
    Iv = 7,
}

impl Class {
    /// Whether type 2 (connections) is supported.
    #[must_use]
    pub const fn has_type_2(self) -> bool {
        self as u8 & 2 != 0
    }

    /// Whether type 3 (acknowledged datagrams) is supported.
    #[must_use]
    pub const fn has_type_3(self) -> bool {
        self as u8 & 4 != 0
    }
}

/// The information field of an XID PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification<'a> {
    /// IEEE basic format.
    Basic {
        /// Class of the sender.
        class: Class,
        /// Receive window of the sender, 0 to 127; meaningless without type 2.
        window: SequenceNumber,
    },
    /// Anything else.
    Other(&'a [u8]),
}

/// The information field of an FRMR PDU.
///
/// ```text
/// byte  0, 1                    2          3               4
///       rejected control field  V(S)   0   V(R)      C/R   0 0 0 V Z Y X W
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrmrInformation(pub [u8; 5]);

impl FrmrInformation {
    /// W: the control field is undefined or not implemented.
    pub const W: u8 = 0x01;
    /// X (with W): information is not permitted, or a U PDU has a wrong length.
    pub const X: u8 = 0x02;
    /// Y: the information field exceeds the receiver's maximum.
    pub const Y: u8 = 0x04;
    /// Z: N(R) acknowledges PDUs that were not sent.
    pub const Z: u8 = 0x08;
    /// V: N(S) lies outside the receive window.
    pub const V: u8 = 0x10;

    pub(crate) const fn new(control: [u8; 2], role: Role, vs: SequenceNumber, vr: SequenceNumber, flags: u8) -> Self {
        Self([control[0], control[1], vs.0 << 1, vr.0 << 1 | role as u8, flags])
    }

    /// The bits W, X, Y, Z and V.
    #[must_use]
    pub const fn flags(self) -> u8 {
        self.0[4] & 0x1f
    }

    /// Control field of the rejected PDU; the second byte is 0 if that was a U PDU.
    #[must_use]
    pub const fn rejected_control(self) -> [u8; 2] {
        [self.0[0], self.0[1]]
    }

    /// V(S) of the rejecting station.
    #[must_use]
    pub const fn vs(self) -> SequenceNumber {
        SequenceNumber(self.0[2] >> 1)
    }

    /// V(R) of the rejecting station.
    #[must_use]
    pub const fn vr(self) -> SequenceNumber {
        SequenceNumber(self.0[3] >> 1)
    }

    /// Role of the rejected PDU.
    #[must_use]
    pub const fn rejected_role(self) -> Role {
        if self.0[3] & 1 == 0 { Role::Command } else { Role::Response }
    }
}

/// The status subfield of an AC response: status of the command (C), and of the response requested with P = 1 (R).
///
/// ```text
/// bit  8 7 6 5   4 3 2 1
///      R R R R   C C C C
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcStatus(pub u8);

impl AcStatus {
    /// Command accepted, no response requested.
    pub const ACCEPTED: Self = Self(NO_RESPONSE_REQUESTED);
    /// Command accepted; a response was requested, but the user submitted none.
    pub const ACCEPTED_WITHOUT_ANSWER: Self = Self(RESPONSE_NEVER_SUBMITTED);
    /// The service is not implemented or not activated.
    pub const NOT_ACTIVATED: Self = Self(NO_RESPONSE_REQUESTED | 0x01);

    /// Whether the command was accepted.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 & 0x0f == 0
    }
}

const NO_RESPONSE_REQUESTED: u8 = 0x40;
const RESPONSE_NEVER_SUBMITTED: u8 = 0x30;

/// Why bytes are not a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Malformed {
    /// Shorter than its control field.
    TooShort,
    /// A U control field that the standard does not define.
    UndefinedControl,
    /// An S control field with an undefined function, or with reserved bits set.
    UndefinedSupervisory,
    /// A command that exists only as a response, or the other way round; a UI PDU with P = 1.
    WrongRole,
    /// An information field in a PDU that has none.
    InformationNotPermitted,
    /// A FRMR PDU without its five bytes, or an AC response without its status.
    WrongLength,
}

impl Malformed {
    /// Number of variants.
    pub const COUNT: usize = Self::WrongLength as usize + 1;

    /// Flags of the FRMR that reports it; `None` if the standard has it ignored (clause 3.3.5).
    pub(crate) const fn frmr_flags(self) -> Option<u8> {
        match self {
            Self::TooShort => None,
            Self::UndefinedControl | Self::UndefinedSupervisory | Self::WrongRole => Some(FrmrInformation::W),
            Self::InformationNotPermitted | Self::WrongLength => Some(FrmrInformation::W | FrmrInformation::X),
        }
    }
}

/// The encoded bytes of a PDU before its free-form information field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; Self::MAX],
    length: u8,
}

impl Header {
    /// Length of the longest header, that of FRMR: three bytes and its reason.
    pub const MAX: usize = 8;

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    #[inline]
    pub(crate) const fn numbered(addresses: [u8; 2], control: [u8; 2]) -> Self {
        Self { bytes: [addresses[0], addresses[1], control[0], control[1], 0, 0, 0, 0], length: 4 }
    }

    const fn unnumbered(addresses: [u8; 2], control: u8) -> Self {
        Self { bytes: [addresses[0], addresses[1], control, 0, 0, 0, 0, 0], length: 3 }
    }

    fn with(mut self, more: &[u8]) -> Self {
        let start = usize::from(self.length);
        self.bytes[start..start + more.len()].copy_from_slice(more);
        self.length += more.len() as u8;
        self
    }
}

impl core::fmt::Debug for Header {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x?}", self.as_bytes())
    }
}

impl<'a> Pdu<'a> {
    /// Decodes a PDU. `bytes` must not include padding: they end at the frame's length.
    ///
    /// # Errors
    /// Why the bytes are not a PDU.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let [dsap, ssap, control, rest @ ..] = bytes else { return Err(Malformed::TooShort) };
        let role = if ssap & 1 == 0 { Role::Command } else { Role::Response };
        let body = match control & 3 {
            U_FORMAT => decode_unnumbered(*control, role, rest)?,
            S_FORMAT => {
                let [second, information @ ..] = rest else { return Err(Malformed::TooShort) };
                let function = match *control {
                    RR => Supervisory::Rr,
                    RNR => Supervisory::Rnr,
                    REJ => Supervisory::Rej,
                    _ => return Err(Malformed::UndefinedSupervisory),
                };
                if !information.is_empty() {
                    return Err(Malformed::InformationNotPermitted);
                }
                Body::S { role, poll_final: second & 1 != 0, function, nr: SequenceNumber(second >> 1) }
            }
            _ => {
                let [second, information @ ..] = rest else { return Err(Malformed::TooShort) };
                let (ns, nr) = (SequenceNumber(control >> 1), SequenceNumber(second >> 1));
                Body::I { role, poll_final: second & 1 != 0, ns, nr, information }
            }
        };
        Ok(Self { destination: Destination::from(*dsap), source: Source::from_byte(*ssap), body })
    }

    /// The encoded PDU without [`information`](Self::information).
    #[must_use]
    pub fn header(&self) -> Header {
        let addresses = |role: Role| [self.destination.byte(), self.source.byte() | role as u8];
        let u = |role, control, pf| Header::unnumbered(addresses(role), control | if pf { PF } else { 0 });
        match self.body {
            Body::I { role, poll_final, ns, nr, .. } => {
                Header::numbered(addresses(role), information_control(ns, nr, poll_final))
            }
            Body::S { role, poll_final, function, nr } => {
                Header::numbered(addresses(role), supervisory_control(function, nr, poll_final))
            }
            Body::Ui { .. } => u(Role::Command, UI, false),
            Body::Xid { role, poll_final, identification } => {
                let header = u(role, XID, poll_final);
                match identification {
                    Identification::Basic { class, window } => header.with(&[XID_BASIC, class as u8, window.0 << 1]),
                    Identification::Other(_) => header,
                }
            }
            Body::Test { role, poll_final, .. } => u(role, TEST, poll_final),
            Body::Sabme { poll } => u(Role::Command, SABME, poll),
            Body::Disc { poll } => u(Role::Command, DISC, poll),
            Body::Ua { final_bit } => u(Role::Response, UA, final_bit),
            Body::Dm { final_bit } => u(Role::Response, DM, final_bit),
            Body::Frmr { final_bit, reason } => u(Role::Response, FRMR, final_bit).with(&reason.0),
            Body::AcCommand { poll, sequence, .. } => u(Role::Command, if sequence { AC1 } else { AC0 }, poll),
            Body::AcResponse { final_bit, sequence, status, .. } => {
                u(Role::Response, if sequence { AC1 } else { AC0 }, final_bit).with(&[status.0])
            }
        }
    }

    /// The free-form information field; empty if there is none.
    #[must_use]
    pub const fn information(&self) -> &'a [u8] {
        match self.body {
            Body::I { information, .. }
            | Body::Ui { information }
            | Body::Xid { identification: Identification::Other(information), .. }
            | Body::Test { information, .. }
            | Body::AcCommand { information, .. }
            | Body::AcResponse { information, .. } => information,
            _ => &[],
        }
    }

    /// Number of bytes that [`emit`](Self::emit) writes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.header().as_bytes().len() + self.information().len()
    }

    /// Encodes the PDU at the start of `buffer`. Returns its length, or `None` if it does not fit.
    #[must_use]
    pub fn emit(&self, buffer: &mut [u8]) -> Option<usize> {
        let (header, information) = (self.header(), self.information());
        let start = header.as_bytes().len();
        let end = start + information.len();
        buffer.get_mut(..start)?.copy_from_slice(header.as_bytes());
        buffer.get_mut(start..end)?.copy_from_slice(information);
        Some(end)
    }

    /// Whether this PDU is a command or a response.
    #[must_use]
    pub const fn role(&self) -> Role {
        match self.body {
            Body::I { role, .. } | Body::S { role, .. } | Body::Xid { role, .. } | Body::Test { role, .. } => role,
            Body::Ui { .. } | Body::Sabme { .. } | Body::Disc { .. } | Body::AcCommand { .. } => Role::Command,
            Body::Ua { .. } | Body::Dm { .. } | Body::Frmr { .. } | Body::AcResponse { .. } => Role::Response,
        }
    }

    /// The P bit of a command, the F bit of a response.
    #[must_use]
    pub const fn poll_final(&self) -> bool {
        match self.body {
            Body::I { poll_final: bit, .. }
            | Body::S { poll_final: bit, .. }
            | Body::Xid { poll_final: bit, .. }
            | Body::Test { poll_final: bit, .. }
            | Body::Sabme { poll: bit }
            | Body::Disc { poll: bit }
            | Body::Ua { final_bit: bit }
            | Body::Dm { final_bit: bit }
            | Body::Frmr { final_bit: bit, .. }
            | Body::AcCommand { poll: bit, .. }
            | Body::AcResponse { final_bit: bit, .. } => bit,
            Body::Ui { .. } => false,
        }
    }
}

#[inline]
pub(crate) const fn information_control(ns: SequenceNumber, nr: SequenceNumber, poll_final: bool) -> [u8; 2] {
    [ns.0 << 1, nr.0 << 1 | poll_final as u8]
}

#[inline]
pub(crate) const fn supervisory_control(function: Supervisory, nr: SequenceNumber, poll_final: bool) -> [u8; 2] {
    let first = match function {
        Supervisory::Rr => RR,
        Supervisory::Rnr => RNR,
        Supervisory::Rej => REJ,
    };
    [first, nr.0 << 1 | poll_final as u8]
}

fn decode_unnumbered(control: u8, role: Role, information: &[u8]) -> Result<Body<'_>, Malformed> {
    let pf = control & PF != 0;
    let empty = if information.is_empty() { Ok(()) } else { Err(Malformed::InformationNotPermitted) };
    match (control & !PF, role) {
        (UI, Role::Command) if !pf => Ok(Body::Ui { information }),
        (XID, _) => Ok(Body::Xid { role, poll_final: pf, identification: decode_identification(information) }),
        (TEST, _) => Ok(Body::Test { role, poll_final: pf, information }),
        (SABME, Role::Command) => empty.map(|()| Body::Sabme { poll: pf }),
        (DISC, Role::Command) => empty.map(|()| Body::Disc { poll: pf }),
        (UA, Role::Response) => empty.map(|()| Body::Ua { final_bit: pf }),
        (DM, Role::Response) => empty.map(|()| Body::Dm { final_bit: pf }),
        (FRMR, Role::Response) => {
            let reason = <[u8; 5]>::try_from(information).map_err(|_| Malformed::WrongLength)?;
            Ok(Body::Frmr { final_bit: pf, reason: FrmrInformation(reason) })
        }
        (ac @ (AC0 | AC1), Role::Command) => Ok(Body::AcCommand { poll: pf, sequence: ac == AC1, information }),
        (ac @ (AC0 | AC1), Role::Response) => {
            let [status, information @ ..] = information else { return Err(Malformed::WrongLength) };
            Ok(Body::AcResponse { final_bit: pf, sequence: ac == AC1, status: AcStatus(*status), information })
        }
        (UI | SABME | DISC | UA | DM | FRMR, _) => Err(Malformed::WrongRole),
        _ => Err(Malformed::UndefinedControl),
    }
}

fn decode_identification(information: &[u8]) -> Identification<'_> {
    let &[XID_BASIC, class, window] = information else { return Identification::Other(information) };
    let class = match class {
        1 => Class::I,
        3 => Class::Ii,
        5 => Class::Iii,
        7 => Class::Iv,
        _ => return Identification::Other(information),
    };
    if window & 1 == 0 {
        Identification::Basic { class, window: SequenceNumber(window >> 1) }
    } else {
        Identification::Other(information)
    }
}

const S_FORMAT: u8 = 1;
const U_FORMAT: u8 = 3;
const PF: u8 = 0x10;
const RR: u8 = 0x01;
const RNR: u8 = 0x05;
const REJ: u8 = 0x09;
const UI: u8 = 0x03;
const DM: u8 = 0x0f;
const DISC: u8 = 0x43;
const UA: u8 = 0x63;
const AC0: u8 = 0x67;
const SABME: u8 = 0x6f;
const FRMR: u8 = 0x87;
const XID: u8 = 0xaf;
const TEST: u8 = 0xe3;
const AC1: u8 = 0xe7;
const XID_BASIC: u8 = 0x81;

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    fn role() -> impl Strategy<Value = Role> {
        any::<bool>().prop_map(|response| if response { Role::Response } else { Role::Command })
    }

    fn number() -> impl Strategy<Value = SequenceNumber> {
        (0u32..128).prop_map(SequenceNumber::wrapping)
    }

    /// Any body. Leaks its information field.
    fn body() -> impl Strategy<Value = Body<'static>> {
        let information = || prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| &*bytes.leak());
        let bit = any::<bool>;
        let class = prop_oneof![Just(Class::I), Just(Class::Ii), Just(Class::Iii), Just(Class::Iv)];
        let function = prop_oneof![Just(Supervisory::Rr), Just(Supervisory::Rnr), Just(Supervisory::Rej)];
        let basic = (class, number()).prop_map(|(class, window)| Identification::Basic { class, window });
        let other = information().prop_map(decode_identification);
        prop_oneof![
            (role(), bit(), number(), number(), information()).prop_map(|(role, poll_final, ns, nr, information)| {
                Body::I { role, poll_final, ns, nr, information }
            }),
            (role(), bit(), function, number()).prop_map(|(role, poll_final, function, nr)| Body::S {
                role,
                poll_final,
                function,
                nr
            }),
            information().prop_map(|information| Body::Ui { information }),
            (role(), bit(), prop_oneof![basic, other]).prop_map(|(role, poll_final, identification)| Body::Xid {
                role,
                poll_final,
                identification
            }),
            (role(), bit(), information()).prop_map(|(role, poll_final, information)| Body::Test {
                role,
                poll_final,
                information
            }),
            bit().prop_map(|poll| Body::Sabme { poll }),
            bit().prop_map(|poll| Body::Disc { poll }),
            bit().prop_map(|final_bit| Body::Ua { final_bit }),
            bit().prop_map(|final_bit| Body::Dm { final_bit }),
            (bit(), any::<[u8; 5]>())
                .prop_map(|(final_bit, reason)| Body::Frmr { final_bit, reason: FrmrInformation(reason) }),
            (bit(), bit(), information()).prop_map(|(poll, sequence, information)| Body::AcCommand {
                poll,
                sequence,
                information
            }),
            (bit(), bit(), any::<u8>(), information()).prop_map(|(final_bit, sequence, status, information)| {
                Body::AcResponse { final_bit, sequence, status: AcStatus(status), information }
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_an_error_or_a_pdu_that_encodes_to_them(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(pdu) = Pdu::decode(&bytes) {
                let mut again = vec![0; bytes.len()];
                prop_assert_eq!(pdu.emit(&mut again), Some(bytes.len()));
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn every_pdu_round_trips(dsap: u8, ssap: u8, body in body()) {
            let pdu = Pdu { destination: dsap.into(), source: Source::from_byte(ssap), body };
            let mut bytes = vec![0; pdu.encoded_len()];
            prop_assert_eq!(pdu.emit(&mut bytes), Some(pdu.encoded_len()));
            prop_assert_eq!(Pdu::decode(&bytes), Ok(pdu));
            let short = pdu.encoded_len() - 1;
            prop_assert_eq!(pdu.emit(&mut bytes[..short]), None);
        }
    }

    #[test]
    fn control_fields_match_the_standard() {
        let control = |bytes: &'static [u8]| Pdu::decode(bytes).map(|pdu| pdu.body);
        assert_eq!(control(&[4, 8, 0x7f]), Ok(Body::Sabme { poll: true }));
        assert_eq!(control(&[4, 8, 0x53]), Ok(Body::Disc { poll: true }));
        assert_eq!(control(&[4, 9, 0x73]), Ok(Body::Ua { final_bit: true }));
        assert_eq!(control(&[4, 9, 0x0f]), Ok(Body::Dm { final_bit: false }));
        let s = Body::S {
            role: Role::Response,
            poll_final: true,
            function: Supervisory::Rej,
            nr: SequenceNumber::wrapping(5),
        };
        assert_eq!(control(&[4, 9, 0x09, 11]), Ok(s));
    }

    #[test]
    fn each_kind_of_malformed_pdu_has_its_error() {
        let reason = |bytes: &[u8]| Pdu::decode(bytes).unwrap_err();
        assert_eq!(reason(&[4, 8]), Malformed::TooShort);
        assert_eq!(reason(&[4, 8, 0x00]), Malformed::TooShort);
        assert_eq!(reason(&[4, 8, 0xff]), Malformed::UndefinedControl);
        assert_eq!(reason(&[4, 8, 0x0d, 0]), Malformed::UndefinedSupervisory);
        assert_eq!(reason(&[4, 8, 0x11, 0]), Malformed::UndefinedSupervisory);
        assert_eq!(reason(&[4, 9, 0x7f]), Malformed::WrongRole);
        assert_eq!(reason(&[4, 8, 0x13]), Malformed::WrongRole);
        assert_eq!(reason(&[4, 8, 0x7f, 0]), Malformed::InformationNotPermitted);
        assert_eq!(reason(&[4, 9, 0x87, 0]), Malformed::WrongLength);
    }
}
