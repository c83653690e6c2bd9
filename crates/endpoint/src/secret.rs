// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the processes of a job authenticate their frames with.

use hkdf::Hkdf;
use sha2::Sha256;

use crate::token::JobToken;

/// A random secret that the processes of one job have and nobody else. Neither it nor a key made of it is ever sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Bytes of the shortest that is accepted.
    pub const BYTES_MIN: usize = 16;
    /// Bytes of the longest.
    pub const BYTES_MAX: usize = 64;

    /// From random bytes that the job's processes agreed on; `None` if they are fewer than [`BYTES_MIN`](Self::BYTES_MIN) or
    /// more than [`BYTES_MAX`](Self::BYTES_MAX).
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let fits = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len());
        fits.then(|| Self(Hkdf::<Sha256>::extract(Some(SALT), bytes).0.into()))
    }

    /// A token for this job, made of one that need not be a secret. What is sent of a token says nothing of the secret then,
    /// also where a launcher gave the same for both.
    #[must_use]
    pub fn token(&self, of_launcher: JobToken) -> JobToken {
        let mut bits = [0; 8];
        expand(&self.keys(), &[b"token", &of_launcher.key().to_be_bytes()], &mut bits);
        JobToken::new(u64::from_be_bytes(bits))
    }

    /// What keys are derived with.
    pub(crate) fn keys(&self) -> Hkdf<Sha256> {
        Hkdf::from_prk(&self.0).expect("as long as a hash")
    }
}

/// HKDF-Expand (RFC 5869).
pub(crate) fn expand(keys: &Hkdf<Sha256>, info: &[&[u8]], output: &mut [u8]) {
    keys.expand_multi_info(info, output).expect("not longer than 255 hashes");
}

const SALT: &[u8] = b"Barewire";

/// Not the bytes.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// That frames are authenticated, and how; of all endpoints that are to hear each other alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// What the peers have in common.
    pub secret: Secret,
    /// Whether the information of I, UI and AC PDUs, which is what messages and datagrams lie in, is encrypted as well.
    pub encrypts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_128_to_512_bits_and_is_never_shown() {
        for (bytes, fits) in [(0, false), (15, false), (16, true), (64, true), (65, false)] {
            assert_eq!(Secret::new(&vec![0xa5; bytes]).is_some(), fits, "{bytes}");
        }
        let secret = Secret::new(&[0xa5; 16]).unwrap();
        let shown = format!("{:?}", Authentication { secret, encrypts: true });
        assert_eq!(shown, "Authentication { secret: Secret(…), encrypts: true }");
    }

    #[test]
    fn a_token_depends_on_the_secret_and_on_the_launchers() {
        let (one, other) = (Secret::new(&[1; 16]).unwrap(), Secret::new(&[2; 16]).unwrap());
        let token = one.token(JobToken::new(7));
        assert!(token == one.token(JobToken::new(7)));
        assert!(token != other.token(JobToken::new(7)) && token != one.token(JobToken::new(8)));
        assert!(token != JobToken::new(7));
    }

    /// Test case 1 of RFC 5869: what the crates compute is HKDF.
    #[test]
    fn it_is_hkdf_with_sha_256() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let (_, keys) = Hkdf::<Sha256>::extract(Some(&salt), &[0x0b; 22]);
        let mut output = [0; 42];
        expand(&keys, &[&[0xf0, 0xf1, 0xf2], &[0xf3, 0xf4], &[0xf5, 0xf6, 0xf7, 0xf8, 0xf9]], &mut output);
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        let shown: String = output.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, expected);
    }
}
