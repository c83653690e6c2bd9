// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The job token: 64 random bits that the processes of a job know. It is not sent: a connection's first frames, and
//! datagrams, carry a hash of it ([`barewire_llc::extension`]).

/// What the processes of one job have in common and nobody else knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobToken(u64);

impl JobToken {
    /// From 64 random bits that the job's processes agreed on.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// The key of the job's endpoints.
    pub(crate) const fn key(self) -> u64 {
        self.0
    }
}

/// Not the bits: a token in a log is known to whoever reads it.
impl std::fmt::Debug for JobToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobToken(…)")
    }
}
