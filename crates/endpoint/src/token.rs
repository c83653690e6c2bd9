// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The job token: 64 random bits that the processes of a job know. It is not sent itself: the first frames of a
//! connection, and datagrams, carry a hash of it ([`barewire_llc::extension`]).

use barewire_llc::extension::key_check;

/// A number known only to the processes of one job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobToken(u64);

impl JobToken {
    /// A token from 64 random bits that the job's processes agreed on.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// 16 bits by which processes with different tokens recognise that they cannot communicate; never 0.
    #[must_use]
    pub fn check(self) -> u16 {
        key_check(self.0)
    }

    /// The key of the job's endpoints.
    pub(crate) const fn key(self) -> u64 {
        self.0
    }
}

/// Does not show the bits, so that logs do not reveal them.
impl std::fmt::Debug for JobToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobToken(…)")
    }
}
