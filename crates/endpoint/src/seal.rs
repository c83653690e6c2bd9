// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authentication and encryption of frames: keys, counters, and the state kept for them.
//!
//! A key belongs to one sender, two SAPs and one mark, and either to I and S PDUs or to all others. A connection's mark
//! is made of both ends' nonces, so no two connections share a key, and a frame cannot be reflected to its sender. Each
//! frame has its own counter, from which its nonce is made; a retransmitted frame gets a new one.
//!
//! ```text
//! key    HKDF-Expand(secret, "frame" | mode 1 | numbered 1 | sender's MAC 6 | sender's SAP 1 | DSAP 1 | mark 8),
//!        16 bytes; for I and S PDUs without the mark's bits that depend on their numbers
//! nonce  | counter 8 | 0 8 |
//! tag    AEGIS-128L, 16 bytes; message: the information, if it is encrypted;
//!        associated data: addresses 12 | DSAP to control field | extension without seal | information, if it is not
//! ```
//!
//! The associated data is copied into one buffer first, which costs less than a call of the cipher for each piece.
//!
//! For I and S PDUs each end of a connection keeps the key and the counters, and accepts each counter once. The keys of
//! other PDUs are derived for each frame, except for a cache of recent ones: their content has nonces of its own, or
//! may be repeated.
//!
//! A frame that is not authentic changes no state.

use aegis::aegis128l::Aegis128L;
use barewire_llc::Mac;
use barewire_llc::extension::{Guard, Sealed, TAG, is_numbered, saps, sealed, unnumbered_mark};
use hkdf::Hkdf;
use sha2::Sha256;

use crate::check::ADDRESSES;
use crate::framing::Frame;
use crate::replay::ReplayWindow;
use crate::secret::{Authentication, expand};

/// Bytes of the seal, which precedes the rest of an extension.
pub(crate) const SEAL_BYTES: usize = Guard::Seal.bytes();

type Key = [u8; 16];
/// Size of the cache of keys of PDUs other than I and S; an entry takes 48 bytes.
const RECENT_KEYS: usize = 64;

/// Why a frame is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealError {
    /// No seal, or an invalid one.
    Unauthentic,
    /// Authentic, but received before.
    Replayed,
}

/// What a key is derived for.
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

/// Sender state of a connection.
struct Sender {
    mark: u64,
    key: Key,
    next: u64,
}

/// Receiver state of a connection.
struct Receiver {
    mark: u64,
    key: Key,
    window: ReplayWindow,
}

/// A frame to be sealed, except its information.
#[derive(Clone, Copy)]
pub(crate) struct Unsealed<'a> {
    /// Destination and source addresses.
    pub addresses: &'a [u8; ADDRESSES],
    /// DSAP to control field; the whole PDU if its information is not free-form.
    pub llc: &'a [u8],
    /// The extension without the seal.
    pub extension: &'a [u8],
    pub mark: u64,
    /// Index of the connection of an I or S PDU.
    pub connection: Option<usize>,
}

/// Keys and counters of a station.
pub(crate) struct Seal {
    keys: Hkdf<Sha256>,
    encrypts: bool,
    own: Mac,
    /// By the connection's index.
    senders: Box<[Option<Sender>]>,
    receivers: Box<[Option<Box<Receiver>>]>,
    recent: Box<[Recent; RECENT_KEYS]>,
    /// Counter of the next frame that belongs to no connection, for all keys.
    next: u64,
    /// Buffer for the associated data of a frame.
    data: Box<[u8]>,
}

impl Seal {
    /// State for up to `connections` connections, and for frames with at most `longest` bytes of payload. `random` is
    /// the first counter outside connections: a process that reuses the address is unlikely to repeat counters.
    pub fn new(authentication: &Authentication, own: Mac, connections: u16, longest: usize, random: u64) -> Self {
        Self {
            keys: authentication.secret.keys(),
            encrypts: authentication.encrypts,
            own,
            senders: (0..connections).map(|_| None).collect(),
            receivers: (0..connections).map(|_| None).collect(),
            recent: Box::new([Recent::default(); RECENT_KEYS]),
            next: random,
            data: vec![0; ADDRESSES + longest].into_boxed_slice(),
        }
    }

    /// Whether information is encrypted.
    #[inline]
    pub fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// Makes the seal of a frame without encryption. `random` returns the first counter of a connection.
    #[inline]
    pub fn authenticate(
        &mut self,
        frame: &Unsealed<'_>,
        information: [&[u8]; 2],
        random: impl FnOnce() -> u64,
    ) -> [u8; SEAL_BYTES] {
        let (key, counter) = self.next_of(frame, random);
        let [first, second] = information;
        let data = gather(&mut self.data, [frame.addresses, frame.llc, frame.extension, first, second]);
        let data = data.expect("frames are no longer");
        join(counter, Aegis128L::new(&key, &nonce(counter)).encrypt_in_place(&mut [], data))
    }

    /// Makes the seal of a frame and encrypts its information in place.
    #[inline]
    pub fn encrypt(
        &mut self,
        frame: &Unsealed<'_>,
        information: &mut [u8],
        random: impl FnOnce() -> u64,
    ) -> [u8; SEAL_BYTES] {
        let (key, counter) = self.next_of(frame, random);
        let data = gather(&mut self.data, [frame.addresses, frame.llc, frame.extension]);
        let data = data.expect("frames are no longer");
        join(counter, Aegis128L::new(&key, &nonce(counter)).encrypt_in_place(information, data))
    }

    /// Verifies a frame and returns its PDU, decrypted into `decrypted` if it was encrypted. `connection_with` finds
    /// the connection of an I or S PDU by the sender's address, both SAPs and the mark.
    ///
    /// # Errors
    /// Why the frame is rejected.
    #[inline]
    pub fn open<'a>(
        &mut self,
        frame: &Frame<'a>,
        decrypted: &'a mut [u8],
        connection_with: impl FnOnce(Mac, [u8; 2], u64) -> Option<usize>,
    ) -> Result<&'a [u8], SealError> {
        let sealed = sealed(frame.llc, frame.behind).ok_or(SealError::Unauthentic)?;
        let Sealed { is_numbered, saps, mark, counter, .. } = sealed;
        let direction = Direction::new(is_numbered, frame.source, saps, mark);
        let mark = direction.mark;
        let connection = if is_numbered { connection_with(frame.source, saps, mark) } else { None };
        let Some(connection) = connection else {
            let key = self.recent_key(&direction);
            let is_new = key.is_none();
            let key = key.unwrap_or_else(|| self.derive(&direction));
            let llc = self.verified(&key, frame, &sealed, decrypted)?;
            if is_new {
                self.remember(direction, key);
            }
            return Ok(llc);
        };
        match &self.receivers[connection] {
            Some(receiver) if receiver.mark == mark => {
                let key = receiver.key;
                let llc = self.verified(&key, frame, &sealed, decrypted)?;
                let receiver = self.receivers[connection].as_mut().expect("looked at above");
                if receiver.window.accept(counter) { Ok(llc) } else { Err(SealError::Replayed) }
            }
            _ => {
                let key = self.derive(&direction);
                let llc = self.verified(&key, frame, &sealed, decrypted)?;
                let receiver = Receiver { mark, key, window: ReplayWindow::new(counter) };
                self.receivers[connection] = Some(Box::new(receiver));
                Ok(llc)
            }
        }
    }

    /// Returns the PDU of a frame if its seal is valid.
    #[inline]
    fn verified<'a>(
        &mut self,
        key: &Key,
        frame: &Frame<'a>,
        sealed: &Sealed<'a>,
        decrypted: &'a mut [u8],
    ) -> Result<&'a [u8], SealError> {
        let Sealed { llc, extension, information, has_information, counter, ref tag, .. } = *sealed;
        let is_encrypted = self.encrypts && has_information;
        let clear = if is_encrypted { &[] } else { information };
        let data = gather(&mut self.data, [frame.addresses, llc, extension, clear]).ok_or(SealError::Unauthentic)?;
        let aead = Aegis128L::<TAG>::new(key, &nonce(counter));
        let verified = if is_encrypted {
            let decrypted = decrypted.get_mut(..frame.llc.len()).ok_or(SealError::Unauthentic)?;
            decrypted.copy_from_slice(frame.llc);
            let start = frame.llc.len() - information.len();
            aead.decrypt_in_place(&mut decrypted[start..], tag, data).map(|()| &*decrypted)
        } else {
            aead.decrypt_in_place(&mut [], tag, data).map(|()| frame.llc)
        };
        verified.map_err(|_| SealError::Unauthentic)
    }

    /// Key and counter of the next frame.
    #[inline]
    fn next_of(&mut self, frame: &Unsealed<'_>, random: impl FnOnce() -> u64) -> (Key, u64) {
        let Unsealed { llc, mark, connection, .. } = *frame;
        let is_numbered = is_numbered(llc);
        let direction = Direction::new(is_numbered, self.own, saps(llc), mark);
        let mark = direction.mark;
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
        let recent = &self.recent[direction.cache_index()];
        recent.key.filter(|_| recent.direction == *direction)
    }

    fn remember(&mut self, direction: Direction, key: Key) {
        self.recent[direction.cache_index()] = Recent { direction, key: Some(key) };
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
    /// Of a PDU with this mark.
    #[inline]
    fn new(is_numbered: bool, sender: Mac, saps: [u8; 2], mark: u64) -> Self {
        Self { is_numbered, sender, saps, mark: if is_numbered { unnumbered_mark(mark) } else { mark } }
    }

    fn cache_index(&self) -> usize {
        let [.., a] = self.mark.to_be_bytes();
        let [.., b] = self.sender;
        let [dsap, ssap] = self.saps;
        usize::from(a ^ b ^ dsap.rotate_left(3) ^ ssap >> 2) % RECENT_KEYS
    }
}

fn nonce(counter: u64) -> [u8; 16] {
    (u128::from(counter) << 64).to_be_bytes()
}

fn join(counter: u64, tag: [u8; TAG]) -> [u8; SEAL_BYTES] {
    let mut seal = [0; SEAL_BYTES];
    seal[..8].copy_from_slice(&counter.to_be_bytes());
    seal[8..].copy_from_slice(&tag);
    seal
}

/// Copies the pieces into `buffer`; `None` if it is too small, as for a frame longer than the link's MTU.
#[inline]
fn gather<'a, const N: usize>(buffer: &'a mut [u8], pieces: [&[u8]; N]) -> Option<&'a [u8]> {
    let mut end = 0;
    for piece in pieces {
        buffer.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    Some(&buffer[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::parse;
    use crate::secret::Secret;

    fn hex(digits: &str) -> Vec<u8> {
        (0..digits.len()).step_by(2).map(|index| u8::from_str_radix(&digits[index..index + 2], 16).unwrap()).collect()
    }

    /// Key and nonce of the test vectors for AEGIS-128L in draft-irtf-cfrg-aegis-aead.
    const KEY: &str = "10010000000000000000000000000000";
    const NONCE: &str = "10000200000000000000000000000000";
    /// Test vectors 1 to 5: associated data, message, ciphertext, tag of 128 bits.
    const VECTORS: [[&str; 4]; 5] = [
        [
            "",
            "00000000000000000000000000000000",
            "c1c0e58bd913006feba00f4b3cc3594e",
            "abe0ece80c24868a226a35d16bdae37a",
        ],
        ["", "", "", "c2b879a67def9d74e6c14f708bbcc9b4"],
        [
            "0001020304050607",
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "79d94593d8c2119d7e8fd9b8fc77845c5c077a05b2528b6ac54b563aed8efe84",
            "cc6f3372f6aa1bb82388d695c3962d9a",
        ],
        [
            "0001020304050607",
            "000102030405060708090a0b0c0d",
            "79d94593d8c2119d7e8fd9b8fc77",
            "5c04b3dba849b2701effbe32c7f0fab7",
        ],
        [
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223242526272829",
            "101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
            "b31052ad1cca4e291abcf2df3502e6bdb1bfd6db36798be3607b1f94d34478aa7ede7f7a990fec10",
            "7542a745733014f9474417b337399507",
        ],
    ];
    /// Test vectors 6 to 9, which must not verify: key, nonce, associated data, ciphertext, tag.
    const INVALID: [[&str; 5]; 4] = [
        [NONCE, KEY, "0001020304050607", "79d94593d8c2119d7e8fd9b8fc77", "5c04b3dba849b2701effbe32c7f0fab7"],
        [KEY, NONCE, "0001020304050607", "79d94593d8c2119d7e8fd9b8fc78", "5c04b3dba849b2701effbe32c7f0fab7"],
        [KEY, NONCE, "0001020304050608", "79d94593d8c2119d7e8fd9b8fc77", "5c04b3dba849b2701effbe32c7f0fab7"],
        [KEY, NONCE, "0001020304050607", "79d94593d8c2119d7e8fd9b8fc77", "6c04b3dba849b2701effbe32c7f0fab8"],
    ];

    #[test]
    fn the_cipher_agrees_with_the_test_vectors_of_the_draft() {
        let key = |digits| <[u8; 16]>::try_from(hex(digits)).unwrap();
        for [data, message, ciphertext, tag] in VECTORS {
            let mut bytes = hex(message);
            let aead = Aegis128L::<TAG>::new(&key(KEY), &key(NONCE));
            assert_eq!((aead.encrypt_in_place(&mut bytes, &hex(data)).to_vec(), &bytes), (hex(tag), &hex(ciphertext)));
            aead.decrypt_in_place(&mut bytes, &key(tag), &hex(data)).unwrap();
            assert_eq!(bytes, hex(message));
        }
        for [key_hex, nonce_hex, data, ciphertext, tag] in INVALID {
            let aead = Aegis128L::<TAG>::new(&key(key_hex), &key(nonce_hex));
            assert!(aead.decrypt_in_place(&mut hex(ciphertext), &key(tag), &hex(data)).is_err());
        }
    }

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    fn seal(own: Mac, encrypts: bool) -> Seal {
        let secret = Secret::new(&[7; 32]).unwrap();
        Seal::new(&Authentication { secret, encrypts }, own, 4, 100, 1)
    }

    /// A frame with an I PDU that is not encrypted, as the port makes it.
    fn frame(seal: &mut Seal, mark: u64, start: u64) -> Vec<u8> {
        let header = [&B[..], &A, &[0x88, 0x70]].concat();
        let (llc, extension) = ([0x24, 0x20, 0, 0], [&mark.to_be_bytes()[..], &[0, 0]].concat());
        let unsealed = Unsealed {
            addresses: header.first_chunk().unwrap(),
            llc: &llc,
            extension: &extension,
            mark,
            connection: Some(1),
        };
        let seal_bytes = seal.authenticate(&unsealed, [b"he", b"llo"], || start);
        [&header[..], &llc, &seal_bytes, &extension, b"hello"].concat()
    }

    fn open(seal: &mut Seal, bytes: &[u8], connection: Option<usize>) -> Result<(), SealError> {
        seal.open(&parse(bytes).unwrap(), &mut [], |_, _, _| connection).map(|llc| assert!(llc.ends_with(b"hello")))
    }

    /// Proves that a connection's counters are consecutive, that each is accepted once, and that another mark on the
    /// same connection has another key and starts a new window.
    #[test]
    fn each_frame_of_a_connection_has_its_own_counter_and_is_accepted_once() {
        let (mut a, mut b) = (seal(A, false), seal(B, false));
        let frames: Vec<Vec<u8>> = (0..5).map(|_| frame(&mut a, 77, u64::MAX - 1)).collect();
        let counters: Vec<_> = frames.iter().map(|frame| frame[18..26].to_vec()).collect();
        let expected = [u64::MAX - 1, u64::MAX, 0, 1, 2].map(|counter| counter.to_be_bytes().to_vec());
        assert_eq!(counters, expected);
        for index in [1, 4, 0, 2, 3] {
            assert_eq!(open(&mut b, &frames[index], Some(3)), Ok(()));
            assert_eq!(open(&mut b, &frames[index], Some(3)), Err(SealError::Replayed));
        }
        let other = frame(&mut a, 78, 5);
        assert_eq!(open(&mut b, &other, Some(3)), Ok(()));
        assert_eq!(open(&mut b, &other, Some(3)), Err(SealError::Replayed));
        // A changed mark selects another key.
        let mut changed = frame(&mut a, 78, 5);
        changed[49] ^= 1;
        assert_eq!(open(&mut b, &changed, Some(3)), Err(SealError::Unauthentic));
    }

    /// Proves that unauthentic frames leave no state, on a connection or without one, and that authentic frames do.
    #[test]
    fn unauthentic_frames_leave_no_state() {
        let mut b = seal(B, false);
        let forger = Secret::new(&[8; 32]).unwrap();
        let mut forger = Seal::new(&Authentication { secret: forger, encrypts: false }, A, 4, 100, 1);
        let state_of = |seal: &Seal| {
            (seal.receivers.iter().flatten().count(), seal.recent.iter().filter(|entry| entry.key.is_some()).count())
        };
        for mark in 0..1000 {
            let forged = frame(&mut forger, mark, 0);
            for connection in [None, Some(1)] {
                assert_eq!(open(&mut b, &forged, connection), Err(SealError::Unauthentic));
            }
        }
        assert_eq!(state_of(&b), (0, 0));
        let mut a = seal(A, false);
        assert_eq!(open(&mut b, &frame(&mut a, 1, 0), Some(1)), Ok(()));
        assert_eq!(open(&mut b, &frame(&mut a, 2, 0), None), Ok(()));
        assert_eq!(state_of(&b), (1, 1));
    }
}
