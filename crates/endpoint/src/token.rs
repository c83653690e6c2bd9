// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The job token: 64 random bits that all frames of a job carry.
//!
//! ```text
//! I, UI, AC command   | Ethernet 14 | LLC 3 or 4 | token 8 | information … |
//! every other PDU     | Ethernet 14 | LLC 3 or more | token 8 | padding |    the length ends before the token
//! ```
//!
//! So each frame is plain LLC to everybody else: the token is user data, or lies where Ethernet pads.

/// What the frames of one job have in common and strangers do not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobToken([u8; Self::BYTES]);

impl JobToken {
    /// Length on the wire.
    pub const BYTES: usize = 8;

    /// From 64 random bits that the job's processes agreed on.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits.to_be_bytes())
    }

    /// As it goes on the wire.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Whether a frame's LLC PDU, with what lies behind it in the frame, carries this token.
    #[inline]
    #[must_use]
    pub fn is_in(&self, llc: &[u8], behind: &[u8]) -> bool {
        let place = match information_at(llc) {
            Some(at) => llc.get(at..).unwrap_or_default(),
            None => behind,
        };
        place.starts_with(&self.0)
    }
}

/// Not the bits: a token in a log is known to whoever reads it.
impl std::fmt::Debug for JobToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobToken(…)")
    }
}

/// Where the information field of a PDU that brings user data begins; `None` for every other PDU (clause 5.4).
#[inline]
fn information_at(llc: &[u8]) -> Option<usize> {
    const FINAL: u8 = 0x10;
    const UI: u8 = 0x03;
    const AC: u8 = 0x67;
    const AC_SEQUENCE: u8 = 0x80;
    let &[_, ssap, control, ..] = llc else { return None };
    let is_response = ssap & 1 == 1;
    if control & 1 == 0 {
        Some(4)
    } else if control & !FINAL == UI || (control & !(FINAL | AC_SEQUENCE) == AC && !is_response) {
        Some(3)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use barewire_llc::{AcStatus, Body, FrmrInformation, Identification, Lsap, Pdu, Role, SequenceNumber, Supervisory};

    use super::*;

    /// Every kind of PDU with its token in the one place is known, and in no other.
    #[test]
    fn each_kind_of_pdu_has_one_place_for_the_token() {
        let token = JobToken::new(0x0123_4567_89ab_cdef);
        let sap = Lsap::new(0x20).unwrap();
        let number = SequenceNumber::wrapping(3);
        let user_data = [
            Body::Ui { information: &[] },
            Body::AcCommand { poll: false, sequence: true, information: &[] },
            Body::AcCommand { poll: true, sequence: false, information: &[] },
            Body::I { role: Role::Command, poll_final: true, ns: number, nr: number, information: &[] },
            Body::I { role: Role::Response, poll_final: false, ns: number, nr: number, information: &[] },
        ];
        let others = [
            Body::Sabme { poll: true },
            Body::Disc { poll: false },
            Body::Ua { final_bit: true },
            Body::Dm { final_bit: false },
            Body::Frmr { final_bit: true, reason: FrmrInformation([0; 5]) },
            Body::S { function: Supervisory::Rr, role: Role::Response, poll_final: true, nr: number },
            Body::S { function: Supervisory::Rej, role: Role::Command, poll_final: false, nr: number },
            Body::AcResponse { final_bit: false, sequence: true, status: AcStatus::ACCEPTED, information: &[] },
            Body::Xid {
                role: Role::Command,
                poll_final: true,
                identification: Identification::Basic { class: barewire_llc::Class::Iv, window: number },
            },
            Body::Test { role: Role::Response, poll_final: true, information: &[] },
        ];
        let header = |body| Pdu { destination: sap.into(), source: sap.into(), body }.header();
        let forged = JobToken::new(1);
        for body in user_data {
            let header = header(body);
            let with = |token: &JobToken| [header.as_bytes(), token.bytes(), &[5; 20]].concat();
            assert!(token.is_in(&with(&token), &[]), "{body:?}");
            assert!(!token.is_in(&with(&forged), token.bytes()), "{body:?}");
            assert!(!token.is_in(header.as_bytes(), token.bytes()), "{body:?}");
        }
        for body in others {
            let header = header(body);
            let llc = header.as_bytes();
            assert!(token.is_in(llc, &[token.bytes(), &[0; 30][..]].concat()), "{body:?}");
            assert!(!token.is_in(&[llc, token.bytes()].concat(), &[]), "{body:?}");
            assert!(!token.is_in(llc, &token.bytes()[..7]) && !token.is_in(llc, forged.bytes()), "{body:?}");
        }
        for short in [&[][..], &[0x20], &[0x20, 0x20]] {
            assert!(!token.is_in(short, &[]));
        }
    }
}
