// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The token and the secret of a job whose launcher draws a random key for it: Open MPI 4's, of 128 bits.
//!
//! Other launchers only have names for their jobs, which anyone who knows a host and a process number, or a job number,
//! can guess. An endpoint under these launchers has no token, and its peers need the cookie in its address.

use std::env;

use barewire_endpoint::{JobToken, Secret};

/// The name of that key, for log messages.
pub(crate) const TRANSPORT_KEY: &str = "Open MPI's transport key";
/// Drawn for Omni-Path, which separates jobs with it; spawned jobs inherit it.
const TRANSPORT_KEY_VARIABLE: &str = "OMPI_MCA_orte_precondition_transports";

/// The job's token and its source, if its launcher draws a key.
pub(crate) fn token() -> Option<(JobToken, &'static str)> {
    let key = env::var(TRANSPORT_KEY_VARIABLE).ok()?;
    secret_of(&key).map(|_| (JobToken::new(hash(&key)), TRANSPORT_KEY))
}

/// The job's secret, if its launcher draws a key.
pub(crate) fn transport_key() -> Option<Secret> {
    secret_of(&env::var(TRANSPORT_KEY_VARIABLE).ok()?)
}

fn secret_of(key: &str) -> Option<Secret> {
    let halves = key.split_once('-').filter(|halves| {
        [halves.0, halves.1].iter().all(|half| half.len() == 16 && half.bytes().all(|digit| digit.is_ascii_hexdigit()))
    });
    halves.and_then(|_| Secret::new(key.as_bytes()))
}

/// 64-bit FNV-1a: the same in every build, which the standard library's hashes do not guarantee.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_between_jobs_and_are_the_same_in_every_build() {
        let key = "452c1363a4ea9dcb-9a7e0753b43b2ad9";
        assert_ne!(hash(key), hash("452c1363a4ea9dcb-9a7e0753b43b2ad8"));
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c, "FNV's own test vector");
    }

    #[test]
    fn only_a_complete_transport_key_is_a_secret() {
        let key = "452c1363a4ea9dcb-9a7e0753b43b2ad9";
        assert!(secret_of(key).is_some() && secret_of(key) != secret_of("452c1363a4ea9dcb-9a7e0753b43b2ad8"));
        for other in
            ["", "-", "452c1363a4ea9dcb", "452c1363a4ea9dcb-9a7e0753b43b2ad", "452c1363a4ea9dcb-9a7e0753b43b2adx"]
        {
            assert!(secret_of(other).is_none(), "{other}");
        }
    }
}
