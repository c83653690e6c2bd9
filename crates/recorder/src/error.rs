// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launch errors, sorted by whose fault they are; each kind is an exit code.

use barewire_link::LinkError;
use thiserror::Error;

/// Why a launch failed; the text says what to do.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The measured operation failed.
    #[error("{0}")]
    Failed(String),
    /// The caller's parameters are wrong.
    #[error("{0}")]
    WrongUse(String),
    /// This machine lacks something.
    #[error("{0}")]
    MachineCannot(String),
    /// Ended by a signal.
    #[error("interrupted")]
    Interrupted,
}

impl LaunchError {
    /// The program's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::WrongUse(_) => 2,
            Self::MachineCannot(_) => 3,
            Self::Interrupted => 130,
        }
    }

    /// The error in errno, of a failed system call.
    #[must_use]
    pub fn last(operation: &str) -> Self {
        Self::system(operation, std::io::Error::last_os_error())
    }

    /// The error of a failed system call.
    pub fn system(operation: &str, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{operation}: {error}"))
    }
}

impl From<LinkError> for LaunchError {
    fn from(error: LinkError) -> Self {
        let text = error.to_string();
        match error {
            LinkError::NotPermitted
            | LinkError::XdpNotPermitted
            | LinkError::NoXdp
            | LinkError::XdpTaken(_)
            | LinkError::XdpMode { .. }
            | LinkError::MemoryNotLocked { .. } => Self::MachineCannot(text),
            LinkError::NoSuchInterface(_)
            | LinkError::NotEthernet { .. }
            | LinkError::NoIpAddress(_)
            | LinkError::NoPort { .. }
            | LinkError::NoSuchQueue { .. }
            | LinkError::MtuTooLarge { .. } => Self::WrongUse(text),
            LinkError::InterfaceDown(_)
            | LinkError::InterfaceGone(_)
            | LinkError::FrameTooLong { .. }
            | LinkError::ForeignSocket { .. }
            | LinkError::System { .. } => Self::Failed(text),
        }
    }
}
