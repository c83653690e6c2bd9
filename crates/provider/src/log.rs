// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logging through libfabric: `FI_LOG_LEVEL` and `FI_LOG_PROV` select what is shown.

/// Logs at libfabric's level `warn`, for users.
macro_rules! warning {
    ($subsystem:ident, $($text:tt)*) => { $crate::log::log!(FI_LOG_WARN, $subsystem, $($text)*) };
}

/// Logs at libfabric's level `info`.
macro_rules! info {
    ($subsystem:ident, $($text:tt)*) => { $crate::log::log!(FI_LOG_INFO, $subsystem, $($text)*) };
}

/// Formats the message only if the level is enabled.
macro_rules! log {
    ($level:ident, $subsystem:ident, $($text:tt)*) => {{
        use $crate::bindings::{$level, $subsystem};
        if let Some(libfabric) = $crate::libfabric::libfabric()
            && libfabric.is_log_enabled($level, $subsystem)
        {
            libfabric.log($level, $subsystem, c"barewire", line!(), &format!($($text)*));
        }
    }};
}

pub(crate) use {info, log, warning};
