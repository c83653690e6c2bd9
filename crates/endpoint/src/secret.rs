// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The secret with which the processes of a job authenticate their frames.

use hkdf::Hkdf;
use sha2::Sha256;

use crate::token::JobToken;

/// A random secret known only to the processes of one job. Neither it nor a key derived from it is ever sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Minimum length in bytes.
    pub const BYTES_MIN: usize = 16;
    /// Maximum length in bytes.
    pub const BYTES_MAX: usize = 64;

    /// A secret from random bytes that the job's processes agreed on; `None` if there are fewer than
    /// [`BYTES_MIN`](Self::BYTES_MIN) or more than [`BYTES_MAX`](Self::BYTES_MAX).
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let fits = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len());
        fits.then(|| Self(Hkdf::<Sha256>::extract(Some(SALT), bytes).0.into()))
    }

    /// Derives the job's token from one that need not be secret. What is sent of the token then reveals nothing about
    /// the secret, even if a launcher used the same value for both.
    #[must_use]
    pub fn token(&self, launcher_token: JobToken) -> JobToken {
        let mut bits = [0; 8];
        expand(&self.keys(), &[b"token", &launcher_token.key().to_be_bytes()], &mut bits);
        JobToken::new(u64::from_be_bytes(bits))
    }

    /// The HKDF from which keys are derived.
    pub(crate) fn keys(&self) -> Hkdf<Sha256> {
        Hkdf::from_prk(&self.0).expect("as long as a hash")
    }
}

/// HKDF-Expand (RFC 5869).
pub(crate) fn expand(keys: &Hkdf<Sha256>, info: &[&[u8]], output: &mut [u8]) {
    keys.expand_multi_info(info, output).expect("not longer than 255 hashes");
}

const SALT: &[u8] = b"Barewire";

/// Does not show the bytes.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How frames are authenticated; the same for all endpoints that communicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// The shared secret.
    pub secret: Secret,
    /// Whether the information of I, UI and AC PDUs, which carries messages and datagrams, is also encrypted.
    pub encrypts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_128_to_512_bits_and_is_not_shown() {
        for (bytes, fits) in [(0, false), (15, false), (16, true), (64, true), (65, false)] {
            assert_eq!(Secret::new(&vec![0xa5; bytes]).is_some(), fits, "{bytes}");
        }
        let secret = Secret::new(&[0xa5; 16]).unwrap();
        let shown = format!("{:?}", Authentication { secret, encrypts: true });
        assert_eq!(shown, "Authentication { secret: Secret(…), encrypts: true }");
    }

    #[test]
    fn a_token_depends_on_the_secret_and_on_the_launchers_token() {
        let (first, second) = (Secret::new(&[1; 16]).unwrap(), Secret::new(&[2; 16]).unwrap());
        let token = first.token(JobToken::new(7));
        assert!(token == first.token(JobToken::new(7)));
        assert!(token != second.token(JobToken::new(7)) && token != first.token(JobToken::new(8)));
        assert!(token != JobToken::new(7));
    }

    /// Test case 1 of RFC 5869.
    #[test]
    fn key_derivation_is_hkdf_with_sha_256() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let (_, keys) = Hkdf::<Sha256>::extract(Some(&salt), &[0x0b; 22]);
        let mut output = [0; 42];
        expand(&keys, &[&[0xf0, 0xf1, 0xf2], &[0xf3, 0xf4], &[0xf5, 0xf6, 0xf7, 0xf8, 0xf9]], &mut output);
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        let shown: String = output.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, expected);
    }
}
