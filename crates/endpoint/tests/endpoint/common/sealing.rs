// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seals as docs/protocol.md describes them, computed without the product's code: the product's frames must have these
//! seals, and frames made here are what an owner of the secret could send.

use aegis::aegis128l::Aegis128L;
use barewire_endpoint::{Address, Authentication, Secret};
use hkdf::Hkdf;
use sha2::Sha256;

/// 34 bytes.
pub const SECRET: &[u8] = b"a secret that the job's ranks have";

pub fn authentication(encrypts: bool) -> Authentication {
    Authentication { secret: Secret::new(SECRET).unwrap(), encrypts }
}

/// A PDU and its extension, without the seal.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Whether the frame has a length field; else the EtherType 0x8870.
    pub has_length: bool,
    pub from: [u8; 6],
    pub to: [u8; 6],
    /// DSAP to control field.
    pub llc: Vec<u8>,
    pub extension: Vec<u8>,
    /// Information, if the PDU has a free-form information field.
    pub information: Option<Vec<u8>>,
    pub counter: u64,
}

/// Bytes of the control field, whether free-form information follows, and bytes of the extension.
fn layout(llc: &[u8]) -> (usize, bool, usize) {
    let (response, control) = (llc[1] & 1 == 1, llc[2]);
    match control & 3 {
        0 | 2 => (4, true, 10),
        1 => (4, false, 27),
        _ => match control & !0x10 {
            0x03 => (3, true, 8),
            0x67 | 0xe7 if !response => (3, true, 8),
            0x6f | 0x63 => (3, false, 25),
            _ => (3, false, 8),
        },
    }
}

impl Parts {
    /// A PDU with this control field, and with extension and information of its kind.
    pub fn new(from: Address, to: Address, response: u8, control: &[u8], mark: u64) -> Self {
        let llc = [&[to.sap.byte(), from.sap.byte() | response][..], control].concat();
        let (_, has_information, bytes) = layout(&llc);
        let mut extension = mark.to_be_bytes().to_vec();
        extension.resize(bytes, 0);
        if bytes == 25 && control[0] & 3 == 3 {
            // Version, nonce, cookie.
            extension[8..].copy_from_slice(&[3, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let information = has_information.then(|| vec![3, 0, 0, 0, 1, 7]);
        Self { has_length: true, from: from.mac, to: to.mac, llc, extension, information, counter: 1 }
    }

    /// Parses a frame; also returns its tag.
    pub fn of(frame: &[u8]) -> (Self, [u8; 16]) {
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        let has_length = kind != 0x8870;
        let end = if has_length { 14 + usize::from(kind) } else { frame.len() };
        let (control_end, has_information, bytes) = layout(&frame[14..end]);
        let seal_at = if has_information { 14 + control_end } else { end };
        let extension_at = seal_at + 24;
        let parts = Self {
            has_length,
            from: frame[6..12].try_into().unwrap(),
            to: frame[..6].try_into().unwrap(),
            llc: frame[14..seal_at].to_vec(),
            extension: frame[extension_at..extension_at + bytes].to_vec(),
            information: has_information.then(|| frame[extension_at + bytes..end].to_vec()),
            counter: u64::from_be_bytes(frame[seal_at..seal_at + 8].try_into().unwrap()),
        };
        (parts, frame[seal_at + 8..extension_at].try_into().unwrap())
    }

    /// Size in bytes of the frame without padding, all of which the seal covers.
    pub fn covered(&self) -> usize {
        14 + self.llc.len() + 24 + self.extension.len() + self.information.as_ref().map_or(0, Vec::len)
    }

    pub fn mark(&self) -> u64 {
        u64::from_be_bytes(self.extension[..8].try_into().unwrap())
    }

    fn key(&self, secret: &[u8], encrypts: bool) -> [u8; 16] {
        let (_, keys) = Hkdf::<Sha256>::extract(Some(b"Barewire"), secret);
        let is_numbered = self.llc[2] & 3 != 3;
        let mut info = b"frame".to_vec();
        info.extend([u8::from(encrypts), u8::from(is_numbered)]);
        info.extend(self.from);
        info.extend([self.llc[1] & 0xfe, self.llc[0]]);
        // Without what the numbers of an I or S PDU change.
        let (identity, numbers) = self.extension[..8].split_at(5);
        info.extend(identity);
        info.extend(if is_numbered { &[0; 3] } else { numbers });
        let mut key = [0; 16];
        keys.expand(&info, &mut key).unwrap();
        key
    }

    fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.counter.to_be_bytes());
        nonce
    }

    fn in_front(&self) -> Vec<u8> {
        [&self.to[..], &self.from, &self.llc, &self.extension].concat()
    }

    /// The tag, and the information as sent.
    fn sealed(&self, secret: &[u8], encrypts: bool) -> ([u8; 16], Vec<u8>) {
        let (key, front) = (self.key(secret, encrypts), self.in_front());
        let mut information = self.information.clone().unwrap_or_default();
        if encrypts && self.information.is_some() {
            let tag = Aegis128L::<16>::new(&key, &self.nonce()).encrypt_in_place(&mut information, &front);
            return (tag, information);
        }
        let clear = [&front[..], &information].concat();
        (Aegis128L::<16>::new(&key, &self.nonce()).encrypt_in_place(&mut [], &clear), information)
    }

    /// The frame as sent.
    pub fn frame(&self, secret: &[u8], encrypts: bool) -> Vec<u8> {
        let (tag, information) = self.sealed(secret, encrypts);
        let seal = [&self.counter.to_be_bytes()[..], &tag].concat();
        let (counted, behind) = match &self.information {
            Some(_) => ([&self.llc[..], &seal, &self.extension, &information].concat(), vec![]),
            None => (self.llc.clone(), [&seal[..], &self.extension].concat()),
        };
        let kind = if self.has_length { counted.len() as u16 } else { 0x8870 };
        [&self.to[..], &self.from, &kind.to_be_bytes(), &counted, &behind].concat()
    }

    /// The information of a frame if its seal is valid.
    pub fn opened(&self, tag: [u8; 16], secret: &[u8], encrypts: bool) -> Option<Vec<u8>> {
        if encrypts && self.information.is_some() {
            let mut information = self.information.clone()?;
            let aead = Aegis128L::<16>::new(&self.key(secret, true), &self.nonce());
            return aead.decrypt_in_place(&mut information, &tag, &self.in_front()).ok().map(|()| information);
        }
        (self.sealed(secret, encrypts).0 == tag).then(|| self.information.clone().unwrap_or_default())
    }
}
