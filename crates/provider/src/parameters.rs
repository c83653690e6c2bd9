// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users may set, as `FI_BAREWIRE_…` in the environment; `fi_info -e` lists it.

use std::ffi::CStr;
use std::path::PathBuf;
use std::time::Duration;

use barewire_endpoint::{JobToken, Waiting};

use crate::backoff::Competition;
use crate::bindings::FI_PARAM_STRING;
use crate::job;
use crate::libfabric::Libfabric;

const INTERFACE: &CStr = c"interface";
const MTU: &CStr = c"mtu";
const TOKEN: &CStr = c"token";
const WAIT: &CStr = c"wait";
const BROKER: &CStr = c"broker";
const YIELD: &CStr = c"yield";
const PATIENCE: &CStr = c"patience";
const PEERS: &CStr = c"peers";
const LINK: &CStr = c"link";
const PROGRESS: &CStr = c"progress";
const CHECK: &CStr = c"check";

/// Name and help of each, in the order in which they are shown.
const ALL: [(&CStr, &str); 11] = [
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
             (default: from the launcher's own name for the job; `barewire run` draws one)",
    ),
    (WAIT, "how a call that waits does: spin, adaptive (spin, then sleep) or block (default: adaptive)"),
    (
        BROKER,
        "the socket of barewire-broker to ask for access to the interface (default: open it ourselves, else ask \
              the broker at its default place)",
    ),
    (
        YIELD,
        "1: other processes want this core, so polls that find nothing yield it, and after some hundred of them \
             sleep for a millisecond at most; 0: nobody else wants it (default: found out, by being preempted; \
             `barewire run` says 1 where there are more ranks than cores)",
    ),
    (
        PATIENCE,
        "seconds after which a peer that does not answer is given up; one whose program computes answers (default: 32)",
    ),
    (PEERS, "processes that one can have connections to at once, 1 to 32768 (default: 1024)"),
    (
        LINK,
        "what carries frames: packet, which shares the interface, or xdp, which takes its first receive queue for one \
             process of the host (default: packet)",
    ),
    (
        PROGRESS,
        "who makes progress while the program computes: auto, a progress thread, or manual, nobody (default: what the \
             program asks for, which is mostly manual)",
    ),
    (
        CHECK,
        "what the CRC32C of a frame is over: headers, which includes short messages, or all, also long messages, which \
             cost 4 to 6 % more time then; of who sends (default: headers)",
    ),
];
/// Each with the value of the tuning file that it goes before, and its help.
const TUNED: [(&CStr, &str, &str); 10] = [
    (c"eager", "eager_bytes", "bytes up to which a message is sent before its receive is known (default: as tuned)"),
    (c"copy", "copy_crossover_bytes", "bytes up to which a message is copied behind its headers (default: as tuned)"),
    (c"ring", "ring_bytes", "bytes of the packet link's receive ring (default: as tuned)"),
    (c"window", "window", "frames to a peer that are not acknowledged, at most (default: as tuned)"),
    (c"acknowledge_every", "acknowledge_every", "frames that one acknowledgement covers, at most (default: as tuned)"),
    (
        c"acknowledge_delay",
        "acknowledge_delay_us",
        "microseconds that an acknowledgement waits for a frame to ride on, at most (default: as tuned)",
    ),
    (c"slots", "slots", "frames to all peers that are under way, at most (default: as tuned)"),
    (c"descriptors", "send_descriptors", "messages that are under way, at most (default: as tuned)"),
    (c"pipe", "pipe_ring_bytes", "bytes of the ring to a process of this host, each way (default: as tuned)"),
    (
        c"fetch",
        "fetched_bytes",
        "bytes from which on a process of this host copies a message out of its sender's memory, where the system lets \
             it; 0: never (default: as tuned)",
    ),
];

/// As set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub interface: Option<String>,
    pub mtu: Option<usize>,
    pub token: Option<JobToken>,
    /// Who told the token, for people.
    pub token_source: &'static str,
    pub waiting: Waiting,
    pub broker: Option<PathBuf>,
    pub competition: Competition,
    pub patience: Option<Duration>,
    pub peers: Option<u16>,
    pub link: LinkKind,
    pub progress: Option<Progress>,
    /// Whether the check of frames is over long messages, too.
    pub checks_all: bool,
    /// Values of the tuning file, by their names in it.
    pub tuned: Vec<(&'static str, usize)>,
}

/// What carries frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkKind {
    #[default]
    Packet,
    Xdp,
}

/// Who makes progress while the program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A progress thread.
    Auto,
    /// Nobody; a progress thread only keeps connections alive.
    Manual,
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
    for (name, _, help) in TUNED {
        libfabric.define_parameter(name, FI_PARAM_STRING, help);
    }
}

impl Parameters {
    /// As they are set now.
    pub fn load(libfabric: &Libfabric) -> Result<Self, BadParameter> {
        let mut parameters = Self::of(|name| libfabric.parameter(name))?;
        (parameters.token, parameters.token_source) = match parameters.token {
            Some(token) => (Some(token), "FI_BAREWIRE_TOKEN"),
            None => job::token().map_or((None, "nobody"), |(token, source)| (Some(token), source)),
        };
        Ok(parameters)
    }

    fn of(value_of: impl Fn(&CStr) -> Option<String>) -> Result<Self, BadParameter> {
        let read = |name: &CStr| value_of(name).filter(|value| !value.is_empty());
        let mut tuned = Vec::new();
        for (name, key, _) in TUNED {
            let value = parse(name, read(name), "a number", |value| value.parse().ok())?;
            tuned.extend(value.map(|value| (key, value)));
        }
        Ok(Self {
            interface: read(INTERFACE),
            mtu: parse(MTU, read(MTU), "a number of bytes", |value| value.parse().ok())?,
            token: parse(TOKEN, read(TOKEN), "1 to 16 hexadecimal digits", token)?,
            token_source: "",
            waiting: parse(WAIT, read(WAIT), "spin, adaptive or block", waiting)?.unwrap_or_default(),
            broker: read(BROKER).map(PathBuf::from),
            competition: parse(YIELD, read(YIELD), "0 or 1", competition)?.unwrap_or_default(),
            patience: parse(PATIENCE, read(PATIENCE), "a number of seconds, 0.001 to 3600", seconds)?,
            peers: parse(PEERS, read(PEERS), "a number from 1 to 32768", peers)?,
            link: parse(LINK, read(LINK), "packet or xdp", link)?.unwrap_or_default(),
            progress: parse(PROGRESS, read(PROGRESS), "auto or manual", progress)?,
            checks_all: parse(CHECK, read(CHECK), "headers or all", checks_all)?.unwrap_or_default(),
            tuned,
        })
    }
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
    let is_hexadecimal = (1..=16).contains(&value.len()) && value.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hexadecimal.then(|| u64::from_str_radix(value, 16).ok().map(JobToken::new)).flatten()
}

fn checks_all(value: &str) -> Option<bool> {
    match value {
        "headers" => Some(false),
        "all" => Some(true),
        _ => None,
    }
}

fn waiting(value: &str) -> Option<Waiting> {
    match value {
        "spin" => Some(Waiting::Spin),
        "adaptive" => Some(Waiting::Adaptive),
        "block" => Some(Waiting::Block),
        _ => None,
    }
}

fn competition(value: &str) -> Option<Competition> {
    match value {
        "0" => Some(Competition::None),
        "1" => Some(Competition::Crowded),
        _ => None,
    }
}

fn link(value: &str) -> Option<LinkKind> {
    match value {
        "packet" => Some(LinkKind::Packet),
        "xdp" => Some(LinkKind::Xdp),
        _ => None,
    }
}

fn progress(value: &str) -> Option<Progress> {
    match value {
        "auto" => Some(Progress::Auto),
        "manual" => Some(Progress::Manual),
        _ => None,
    }
}

fn seconds(value: &str) -> Option<Duration> {
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    Duration::try_from_secs_f64(value.parse().ok()?).ok().filter(|patience| range.contains(patience))
}

fn peers(value: &str) -> Option<u16> {
    value.parse().ok().filter(|peers| (1..=32768).contains(peers))
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
        assert!(one(YIELD, "1").unwrap().competition == Competition::Crowded);
        assert_eq!(one(TOKEN, "ff").unwrap().token, Some(JobToken::new(255)));
        assert_eq!(one(PATIENCE, "0.5").unwrap().patience, Some(Duration::from_millis(500)));
        assert_eq!(one(c"eager", "0").unwrap().tuned, [("eager_bytes", 0)]);
        assert_eq!(one(LINK, "xdp").unwrap().link, LinkKind::Xdp);
        assert_eq!(one(PROGRESS, "manual").unwrap().progress, Some(Progress::Manual));
        for (name, default) in [
            (PATIENCE, barewire_endpoint::Config::NOTICE_THE_DEAD_WITHIN.as_secs()),
            (PEERS, u64::from(barewire_endpoint::Config::CHANNELS)),
        ] {
            let help = ALL.iter().find(|(of, _)| *of == name).unwrap().1;
            assert!(help.ends_with(&format!("(default: {default})")), "{help}");
        }
        assert_eq!(one(PEERS, "4096").unwrap().peers, Some(4096));
        for (name, key, _) in TUNED {
            assert!(barewire_endpoint::Tuning::default().get(key).is_some(), "{name:?}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_meant_is_named_with_what_to_say_and_a_token_is_not_shown() {
        let wrong = [(WAIT, "spni"), (MTU, "-1"), (c"eager", "4k")].into_iter();
        let more =
            [(PATIENCE, "0"), (PATIENCE, "nan"), (PATIENCE, "1e9"), (PEERS, "0"), (LINK, "dpdk"), (PROGRESS, "yes")];
        for (name, value) in wrong.chain(more) {
            let error = one(name, value).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains("say "), "{error}");
        }
        for secret in ["+ff", "0123456789abcdef0", "xyzzy"] {
            assert!(!one(TOKEN, secret).unwrap_err().to_string().contains(secret));
        }
    }
}
