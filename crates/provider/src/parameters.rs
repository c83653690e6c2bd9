// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users may set, as `FI_BAREWIRE_…` in the environment; `fi_info -e` lists it.

use std::ffi::CStr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use barewire_endpoint::{JobToken, Waiting};

use crate::bindings::FI_PARAM_STRING;
use crate::libfabric::Libfabric;

const INTERFACE: &CStr = c"interface";
const MTU: &CStr = c"mtu";
const TOKEN: &CStr = c"token";
const WAIT: &CStr = c"wait";
const BROKER: &CStr = c"broker";
const EAGER: &CStr = c"eager";
const YIELD: &CStr = c"yield";
const PATIENCE: &CStr = c"patience";

/// Name and help of each, in the order in which they are shown.
const ALL: [(&CStr, &str); 8] = [
    (
        INTERFACE,
        "the Ethernet interface to use (default: each that is up, in the order of their numbers; without any, lo)",
    ),
    (
        MTU,
        "bytes of a frame's payload at most, where the network takes less than the interface (default: the interface's)",
    ),
    (
        TOKEN,
        "the job's token, 1 to 16 hexadecimal digits, the same for all its processes: frames without it are dropped \
             (default: none; `barewire run` makes a random one)",
    ),
    (WAIT, "how a call that waits does: spin, adaptive (spin, then sleep) or block (default: adaptive)"),
    (
        BROKER,
        "the socket of barewire-broker to ask for access to the interface (default: open it ourselves, else ask \
              the broker at its default place)",
    ),
    (EAGER, "bytes up to which a message is sent before its receive is known (default: as tuned, or 16384)"),
    (
        YIELD,
        "1: other processes want this core, so a question that finds nothing gives it away (default: 0; `barewire run` \
             sets it where ranks share cores)",
    ),
    (PATIENCE, "seconds after which a peer that does not answer is given up (default: 10)"),
];

/// As set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub interface: Option<String>,
    pub mtu: Option<usize>,
    pub token: Option<JobToken>,
    pub waiting: Waiting,
    pub broker: Option<PathBuf>,
    pub eager_bytes: Option<usize>,
    pub gives_way: bool,
    pub patience: Option<Duration>,
}

/// A value that cannot be meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("FI_BAREWIRE_{name}={value}: say {expected}")]
pub(crate) struct BadParameter {
    name: String,
    value: String,
    expected: &'static str,
}

/// Tells libfabric which parameters there are.
pub(crate) fn define(libfabric: &Libfabric) {
    for (name, help) in ALL {
        libfabric.define_parameter(name, FI_PARAM_STRING, help);
    }
}

impl Parameters {
    /// As they are set now.
    pub fn load(libfabric: &Libfabric) -> Result<Self, BadParameter> {
        Self::of(|name| libfabric.parameter(name))
    }

    fn of(value_of: impl Fn(&CStr) -> Option<String>) -> Result<Self, BadParameter> {
        let read = |name: &CStr| value_of(name).filter(|value| !value.is_empty());
        let bytes = "a number of bytes";
        Ok(Self {
            interface: read(INTERFACE),
            mtu: number(MTU, read(MTU), bytes)?,
            token: parse(TOKEN, read(TOKEN), "1 to 16 hexadecimal digits", token)?,
            waiting: parse(WAIT, read(WAIT), "spin, adaptive or block", waiting)?.unwrap_or_default(),
            broker: read(BROKER).map(PathBuf::from),
            eager_bytes: number(EAGER, read(EAGER), bytes)?,
            gives_way: parse(YIELD, read(YIELD), "0 or 1", flag)?.unwrap_or_default(),
            patience: parse(PATIENCE, read(PATIENCE), "a number of seconds above 0", seconds)?,
        })
    }
}

fn number<T: FromStr>(name: &CStr, value: Option<String>, expected: &'static str) -> Result<Option<T>, BadParameter> {
    parse(name, value, expected, |value| value.parse().ok())
}

fn parse<T>(
    name: &CStr,
    value: Option<String>,
    expected: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, BadParameter> {
    let Some(value) = value else { return Ok(None) };
    let bad = || {
        let value = if name == TOKEN { "…".to_owned() } else { value.clone() };
        BadParameter { name: name.to_string_lossy().to_uppercase(), value, expected }
    };
    read(&value).map(Some).ok_or_else(bad)
}

fn token(value: &str) -> Option<JobToken> {
    let is_hexadecimal = !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hexadecimal.then(|| u64::from_str_radix(value, 16).ok().map(JobToken::new)).flatten()
}

fn waiting(value: &str) -> Option<Waiting> {
    match value {
        "spin" => Some(Waiting::Spin),
        "adaptive" => Some(Waiting::Adaptive),
        "block" => Some(Waiting::Block),
        _ => None,
    }
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse().ok()?).ok().filter(|patience| !patience.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &CStr, value: &str) -> Result<Parameters, BadParameter> {
        Parameters::of(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn nothing_set_is_the_default_and_values_are_read() {
        assert_eq!(Parameters::of(|_| None).unwrap(), Parameters::default());
        assert_eq!(one(WAIT, "block").unwrap().waiting, Waiting::Block);
        assert!(one(YIELD, "1").unwrap().gives_way);
        assert_eq!(one(TOKEN, "ff").unwrap().token, Some(JobToken::new(255)));
        assert_eq!(one(PATIENCE, "0.5").unwrap().patience, Some(Duration::from_millis(500)));
        assert_eq!(one(EAGER, "0").unwrap().eager_bytes, Some(0));
    }

    #[test]
    fn a_value_that_cannot_be_meant_is_named_with_what_to_say_and_a_token_is_not_shown() {
        for (name, value) in [(WAIT, "spni"), (MTU, "-1"), (EAGER, "4k"), (PATIENCE, "0"), (PATIENCE, "nan")] {
            let error = one(name, value).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains("say "), "{error}");
        }
        for secret in ["+ff", "0123456789abcdef0", "g"] {
            assert!(!one(TOKEN, secret).unwrap_err().to_string().contains(secret));
        }
    }
}
