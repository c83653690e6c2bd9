// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authentication of frames, and encryption: keys, counters, and what of them is remembered.
//!
//! A key belongs to one sender, two service access points and one mark, and to I and S PDUs or to all others. A connection's
//! mark is made of both ends' nonces, so no two connections have a key in common, and what an end sent cannot be sent back to
//! it. Each frame has its own counter, from which its nonce is made; a frame that is sent again has another one.
//!
//! ```text
//! key    HKDF-Expand(secret, "frame" | mode 1 | numbered 1 | sender's MAC 6 | sender's SAP 1 | DSAP 1 | mark 8), 16 bytes
//! nonce  | counter 8 | 0 8 |
//! tag    AEGIS-128L, 16 bytes, over addresses 12 | DSAP to control field | extension without seal | information
//! ```
//!
//! Of I and S PDUs each end of a connection keeps key and counters, and believes none twice. All others have keys that are
//! derived again, but for some that were used lately: what they say has nonces of its own, or may come twice.
//!
//! Nothing is remembered of a frame that is not authentic.

use aegis::aegis128l::{Aegis128L, Aegis128LMac};
use barewire_llc::extension::{Guard, Sealed, TAG, is_numbered, saps, sealed};
use barewire_llc::Mac;
use hkdf::Hkdf;
use sha2::Sha256;

use crate::check::ADDRESSES;
use crate::framing::Frame;
use crate::replay::ReplayWindow;
use crate::secret::{Authentication, expand};

/// Bytes in front of what an extension says.
pub(crate) const SEAL_BYTES: usize = Guard::Seal.bytes();

type Key = [u8; 16];
/// What stands in front of the information: addresses, a PDU's header, its extension without the seal.
const HEAD_MAX: usize = 64;
/// Keys of PDUs other than I and S that are remembered; each takes 48 bytes.
const RECENT: usize = 64;

/// Why a frame is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbelieved {
    /// No seal, or a wrong one.
    Unauthentic,
    /// Authentic, and came before.
    Replayed,
}

/// Whose frames a key is for.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Direction {
    is_numbered: bool,
    sender: Mac,
    saps: [u8; 2],
    mark: u64,
}

#[derive(Clone, Copy, Default)]
struct Recent {
    direction: Direction,
    key: Option<Key>,
}

/// Of what a connection sends.
struct Sender {
    mark: u64,
    key: Key,
    next: u64,
}

/// Of what a connection receives.
struct Receiver {
    mark: u64,
    key: Key,
    window: ReplayWindow,
}

/// A frame to be sealed, without its information.
#[derive(Clone, Copy)]
pub(crate) struct Unsealed<'a> {
    /// Destination and source.
    pub addresses: &'a [u8],
    /// DSAP to control field; of a PDU without free-form information all of it.
    pub llc: &'a [u8],
    /// Without the seal.
    pub extension: &'a [u8],
    pub mark: u64,
    /// The number of the connection that an I or S PDU is of.
    pub connection: Option<usize>,
}

/// See the module.
pub(crate) struct Seal {
    keys: Hkdf<Sha256>,
    encrypts: bool,
    own: Mac,
    /// By the connection's number.
    senders: Box<[Option<Sender>]>,
    receivers: Box<[Option<Box<Receiver>>]>,
    recent: Box<[Recent; RECENT]>,
    /// Counter of the next frame that is of no connection, whatever its key.
    next: u64,
}

impl Seal {
    /// For so many connections. `random` makes it unlikely that a successor of this process at
    /// its address counts where this one did.
    pub fn new(authentication: &Authentication, own: Mac, connections: u16, random: u64) -> Self {
        Self {
            keys: authentication.secret.keys(),
            encrypts: authentication.encrypts,
            own,
            senders: (0..connections).map(|_| None).collect(),
            receivers: (0..connections).map(|_| None).collect(),
            recent: Box::new([Recent::default(); RECENT]),
            next: random,
        }
    }

    /// Whether information is encrypted.
    #[inline]
    pub fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// The seal of a frame whose information stays as it is. `random` is asked for a number to start counting with.
    #[inline]
    pub fn authenticate(
        &mut self,
        frame: &Unsealed<'_>,
        information: [&[u8]; 2],
        random: impl FnOnce() -> u64,
    ) -> [u8; SEAL_BYTES] {
        let (key, counter) = self.next_of(frame, random);
        let mut mac = mac_of(&key, counter, [frame.addresses, frame.llc, frame.extension]);
        information.into_iter().filter(|piece| !piece.is_empty()).for_each(|piece| mac.update(piece));
        joined(counter, mac.finalize())
    }

    /// The seal of a frame whose information is encrypted where it lies.
    #[inline]
    pub fn encrypt(
        &mut self,
        frame: &Unsealed<'_>,
        information: &mut [u8],
        random: impl FnOnce() -> u64,
    ) -> [u8; SEAL_BYTES] {
        let (key, counter) = self.next_of(frame, random);
        let (head, bytes) = head(frame.addresses, frame.llc, frame.extension);
        let tag = Aegis128L::<TAG>::new(&key, &nonce(counter)).encrypt_in_place(information, &head[..bytes]);
        joined(counter, tag)
    }

    /// The PDU of an authentic frame, decrypted into `opened`, if it was encrypted. `connection_with` says which connection I
    /// and S PDUs with a mark are of, by the sender's address, both service access points and the mark.
    ///
    /// # Errors
    /// Why it is not believed.
    #[inline]
    pub fn open<'a>(
        &mut self,
        frame: &Frame<'a>,
        opened: &'a mut [u8],
        connection_with: impl FnOnce(Mac, [u8; 2], u64) -> Option<usize>,
    ) -> Result<&'a [u8], Unbelieved> {
        let sealed = sealed(frame.llc, frame.behind).ok_or(Unbelieved::Unauthentic)?;
        let Sealed { is_numbered, saps, mark, counter, .. } = sealed;
        let direction = Direction { is_numbered, sender: frame.source, saps, mark };
        let connection = if is_numbered { connection_with(frame.source, saps, mark) } else { None };
        let Some(connection) = connection else {
            let key = self.recent_key(&direction);
            let is_new = key.is_none();
            let key = key.unwrap_or_else(|| self.derive(&direction));
            let llc = self.verify(&key, frame, &sealed, opened)?;
            if is_new {
                self.remember(direction, key);
            }
            return Ok(llc);
        };
        match &self.receivers[connection] {
            Some(receiver) if receiver.mark == mark => {
                let llc = self.verify(&receiver.key, frame, &sealed, opened)?;
                let receiver = self.receivers[connection].as_mut().expect("looked at above");
                if receiver.window.accept(counter) { Ok(llc) } else { Err(Unbelieved::Replayed) }
            }
            _ => {
                let key = self.derive(&direction);
                let llc = self.verify(&key, frame, &sealed, opened)?;
                let receiver = Receiver { mark, key, window: ReplayWindow::new(counter) };
                self.receivers[connection] = Some(Box::new(receiver));
                Ok(llc)
            }
        }
    }

    /// The PDU of a frame whose seal is right.
    #[inline]
    fn verify<'a>(
        &self,
        key: &Key,
        frame: &Frame<'a>,
        sealed: &Sealed<'a>,
        opened: &'a mut [u8],
    ) -> Result<&'a [u8], Unbelieved> {
        let Sealed { llc, extension, information, has_information, counter, ref tag, .. } = *sealed;
        let verified = if self.encrypts && has_information {
            let opened = opened.get_mut(..frame.llc.len()).ok_or(Unbelieved::Unauthentic)?;
            opened.copy_from_slice(frame.llc);
            let start = frame.llc.len() - information.len();
            let (head, bytes) = head(frame.addresses, llc, extension);
            let aead = Aegis128L::<TAG>::new(key, &nonce(counter));
            aead.decrypt_in_place(&mut opened[start..], tag, &head[..bytes]).map(|()| &*opened)
        } else {
            let mut mac = mac_of(key, counter, [frame.addresses, llc, extension]);
            mac.update(information);
            mac.verify(tag).map(|()| frame.llc)
        };
        verified.map_err(|_| Unbelieved::Unauthentic)
    }

    /// Key and counter of a frame to be sent.
    #[inline]
    fn next_of(&mut self, frame: &Unsealed<'_>, random: impl FnOnce() -> u64) -> (Key, u64) {
        let Unsealed { llc, mark, connection, .. } = *frame;
        let is_numbered = is_numbered(llc);
        let direction = Direction { is_numbered, sender: self.own, saps: saps(llc), mark };
        if let (true, Some(connection)) = (is_numbered, connection) {
            if self.senders[connection].as_ref().is_none_or(|sender| sender.mark != mark) {
                let key = self.derive(&direction);
                self.senders[connection] = Some(Sender { mark, key, next: random() });
            }
            let sender = self.senders[connection].as_mut().expect("set above");
            let counter = sender.next;
            sender.next = counter.wrapping_add(1);
            return (sender.key, counter);
        }
        let key = self.recent_key(&direction).unwrap_or_else(|| {
            let key = self.derive(&direction);
            self.remember(direction, key);
            key
        });
        let counter = self.next;
        self.next = counter.wrapping_add(1);
        (key, counter)
    }

    fn recent_key(&self, direction: &Direction) -> Option<Key> {
        let recent = &self.recent[direction.place()];
        recent.key.filter(|_| recent.direction == *direction)
    }

    fn remember(&mut self, direction: Direction, key: Key) {
        self.recent[direction.place()] = Recent { direction, key: Some(key) };
    }

    fn derive(&self, direction: &Direction) -> Key {
        let Direction { is_numbered, sender, saps: [dsap, ssap], mark } = *direction;
        let mut key = Key::default();
        let kind = [u8::from(self.encrypts), u8::from(is_numbered)];
        expand(&self.keys, &[b"frame", &kind, &sender, &[ssap, dsap], &mark.to_be_bytes()], &mut key);
        key
    }
}

impl Direction {
    fn place(&self) -> usize {
        let [.., a] = self.mark.to_be_bytes();
        let [.., b] = self.sender;
        let [dsap, ssap] = self.saps;
        usize::from(a ^ b ^ dsap.rotate_left(3) ^ ssap >> 2) % RECENT
    }
}

fn nonce(counter: u64) -> [u8; 16] {
    (u128::from(counter) << 64).to_be_bytes()
}

fn joined(counter: u64, tag: [u8; TAG]) -> [u8; SEAL_BYTES] {
    let mut seal = [0; SEAL_BYTES];
    seal[..8].copy_from_slice(&counter.to_be_bytes());
    seal[8..].copy_from_slice(&tag);
    seal
}

/// The MAC of a frame, as far as its information.
#[inline]
fn mac_of(key: &Key, counter: u64, [addresses, llc, extension]: [&[u8]; 3]) -> Aegis128LMac<TAG> {
    let mut mac = Aegis128LMac::new_with_nonce(key, &nonce(counter));
    if ADDRESSES + llc.len() + extension.len() <= HEAD_MAX {
        let (head, bytes) = head(addresses, llc, extension);
        mac.update(&head[..bytes]);
    } else {
        // A TEST PDU, whose information lies before what is added.
        [addresses, llc, extension].into_iter().for_each(|piece| mac.update(piece));
    }
    mac
}

/// What stands in front of the information, in one piece, and how many bytes it has: of PDUs with free-form information, and
/// of all others that are short.
#[inline]
fn head(addresses: &[u8], llc: &[u8], extension: &[u8]) -> ([u8; HEAD_MAX], usize) {
    let mut head = [0; HEAD_MAX];
    let mut end = 0;
    for piece in [addresses, llc, extension] {
        head[end..end + piece.len()].copy_from_slice(piece);
        end += piece.len();
    }
    (head, end)
}
