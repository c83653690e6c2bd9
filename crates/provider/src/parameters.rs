// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users may set, as `FI_BAREWIRE_…` in the environment; `fi_info -e` lists it.

use std::env;
use std::ffi::CStr;
use std::path::PathBuf;
use std::time::Duration;

use barewire_endpoint::{Authentication, JobToken, Secret, Waiting};
use barewire_llc::extension::{CHECK as CHECK_BYTES, Guard};

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
const AUTH: &CStr = c"auth";
const SECRET: &CStr = c"secret";
/// Whose values nobody may see.
const HIDDEN: [&CStr; 2] = [TOKEN, SECRET];

/// Name and help of each, in the order in which they are shown.
const ALL: [(&CStr, &str); 13] = [
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
    (
        AUTH,
        "none; job: each frame is authenticated, so that whoever has not the job's secret can forge, change or replay \
             none; encrypt: messages are also unreadable for others. The same for all processes of a job (default: none)",
    ),
    (
        SECRET,
        "the job's secret for that, 32 to 128 hexadecimal digits, the same for all its processes and known to nobody else \
             (default: Open MPI 4's transport key; `barewire run --auth` draws one)",
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
    pub protection: Protection,
    pub secret: Option<Secret>,
    /// Who told the secret, for people.
    pub secret_source: &'static str,
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

/// What frames are protected from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Mistakes.
    #[default]
    None,
    /// Whoever has not the job's secret and writes.
    Authenticated,
    /// And reads.
    Encrypted,
}

impl Protection {
    /// In the order of their numbers.
    pub const ALL: [Self; 3] = [Self::None, Self::Authenticated, Self::Encrypted];

    /// As it is set.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Authenticated => "job",
            Self::Encrypted => "encrypt",
        }
    }
}

/// What is set cannot be meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadParameter {
    #[error("FI_BAREWIRE_{name}={value}: say {expected}")]
    Value { name: String, value: String, expected: &'static str },
    #[error(
        "FI_BAREWIRE_AUTH={0}, and this process has no secret in common with its job: start the job by \
         `barewire run --auth {0}`, or give all its processes the same FI_BAREWIRE_SECRET, 32 to 128 hexadecimal digits that \
         nobody else knows (openssl rand -hex 32)"
    )]
    NoSecret(&'static str),
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
        // libfabric logs the values that it is asked for.
        let hidden = |name: &CStr| env::var(format!("FI_BAREWIRE_{}", name.to_string_lossy().to_uppercase())).ok();
        let value_of = |name: &CStr| if HIDDEN.contains(&name) { hidden(name) } else { libfabric.parameter(name) };
        let mut parameters = Self::of(value_of)?;
        (parameters.token, parameters.token_source) = match parameters.token {
            Some(token) => (Some(token), "FI_BAREWIRE_TOKEN"),
            None => job::token().map_or((None, "nobody"), |(token, source)| (Some(token), source)),
        };
        parameters.agree(job::transport_key)?;
        Ok(parameters)
    }

    /// Takes a launcher's secret where none is set, and keeps it from who sees what is sent of the token.
    fn agree(&mut self, of_launcher: impl FnOnce() -> Option<Secret>) -> Result<(), BadParameter> {
        if self.protection == Protection::None {
            self.secret = None;
            return Ok(());
        }
        (self.secret, self.secret_source) = match self.secret.take() {
            Some(secret) => (Some(secret), "FI_BAREWIRE_SECRET"),
            None => (of_launcher(), job::TRANSPORT_KEY),
        };
        let secret = self.secret.as_ref().ok_or(BadParameter::NoSecret(self.protection.name()))?;
        self.token = self.token.map(|token| secret.token(token));
        Ok(())
    }

    /// What their frames begin their extension with.
    pub fn guard(&self) -> Guard {
        if self.secret.is_some() { Guard::Seal } else { Guard::Check }
    }

    /// The MTU at which frames without authentication carry as much as these do at `mtu`, in bytes.
    pub fn mtu_without_seal(&self, mtu: usize) -> usize {
        mtu.saturating_sub(self.guard().bytes() - CHECK_BYTES)
    }

    /// How endpoints authenticate their frames.
    pub fn authentication(&self) -> Option<Authentication> {
        let encrypts = self.protection == Protection::Encrypted;
        self.secret.clone().map(|secret| Authentication { secret, encrypts })
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
            protection: parse(AUTH, read(AUTH), "none, job or encrypt", protection)?.unwrap_or_default(),
            secret: parse(SECRET, read(SECRET), "32 to 128 hexadecimal digits, an even number of them", secret)?,
            secret_source: "",
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
        let value = if HIDDEN.contains(&name) { "…".to_owned() } else { value.clone() };
        BadParameter::Value { name: name.to_string_lossy().to_uppercase(), value, expected }
    };
    read(&value).map(Some).ok_or_else(bad)
}

fn token(value: &str) -> Option<JobToken> {
    let is_hexadecimal = (1..=16).contains(&value.len()) && value.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hexadecimal.then(|| u64::from_str_radix(value, 16).ok().map(JobToken::new)).flatten()
}

fn protection(value: &str) -> Option<Protection> {
    Protection::ALL.into_iter().find(|one| one.name() == value)
}

fn secret(value: &str) -> Option<Secret> {
    let digits: Option<Vec<u8>> = value.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, []) = digits.as_ref()?.as_chunks::<2>() else { return None };
    Secret::new(&pairs.iter().map(|[high, low]| high << 4 | low).collect::<Vec<u8>>())
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
        let [short, odd, long] = ["0123456789abcde".repeat(2), "1".repeat(33), "1".repeat(130)];
        for secret in [&*short, &odd, &long, "xyzzy", "+123456789abcdef0123456789abcdef"] {
            let error = one(SECRET, secret).unwrap_err().to_string();
            assert!(!error.contains(secret) && error.contains("32 to 128"), "{error}");
        }
    }

    /// Proves that whoever asks for authentication has a secret or is told what to do, that the one that is set goes before a
    /// launcher's, and that neither is shown, nor the token as the launcher has it.
    #[test]
    fn authentication_takes_a_secret_that_is_set_or_the_launchers_or_is_refused() {
        let digits = "0123456789abcdef".repeat(2);
        let of_launcher = || Secret::new(b"what the launcher drew");
        let values = [(AUTH, "encrypt"), (SECRET, &*digits), (TOKEN, "ff")];
        let value_of =
            |asked: &CStr| values.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
        let mut set = Parameters::of(value_of).unwrap();
        set.agree(of_launcher).unwrap();
        assert_eq!((set.secret_source, set.authentication().unwrap().encrypts), ("FI_BAREWIRE_SECRET", true));
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(2);
        assert!(set.secret == Secret::new(&bytes) && set.token != Some(JobToken::new(255)));
        assert!(!format!("{set:?}").contains("0123456789"));
        let mut told = one(AUTH, "job").unwrap();
        told.agree(of_launcher).unwrap();
        assert!(told.secret == of_launcher() && !told.authentication().unwrap().encrypts);
        let refused = one(AUTH, "job").unwrap().agree(|| None).unwrap_err().to_string();
        assert!(refused.contains("FI_BAREWIRE_SECRET") && refused.contains("barewire run --auth job"), "{refused}");
        let mut without = one(SECRET, &digits).unwrap();
        without.agree(of_launcher).unwrap();
        assert_eq!(without.authentication(), None);
        assert!(one(AUTH, "yes").unwrap_err().to_string().contains("none, job or encrypt"));
    }
}
