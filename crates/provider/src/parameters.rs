// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters that users set as `FI_BAREWIRE_…` in the environment; `fi_info -e` lists them.

use std::env;
use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use barewire_carriers::INTERFACES_MAX;
use barewire_endpoint::{Authentication, JobToken, Labels, Secret, Waiting};
use barewire_llc::extension::{CHECK as CHECK_BYTES, Guard};

use crate::address::Credentials;
use crate::backoff::CoreSharing;
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
const PORTS: &CStr = c"ports";
const PROGRESS: &CStr = c"progress";
const CHECK: &CStr = c"check";
const AUTH: &CStr = c"auth";
const SECRET: &CStr = c"secret";
const LABELS: &CStr = c"labels";
/// Parameters whose values are never shown.
const SECRETS: [&CStr; 2] = [TOKEN, SECRET];

/// Name and description of each parameter, in the order shown.
const ALL: [(&CStr, &str); 15] = [
    (
        INTERFACE,
        "the interface to use, or several that long messages are spread over, as in eth0,eth1 (default: for frames, \
             the first that is up, preferring one that has a carrier and an address and is no bridge, and up to three \
             more at least a quarter as fast; for UDP, all; lo if there are no others)",
    ),
    (
        MTU,
        "maximum bytes of a frame's payload, if the network carries less than the interface (default: the interface's)",
    ),
    (
        TOKEN,
        "the job's token, 1 to 16 hexadecimal digits, the same for all its processes: frames without it are dropped \
             (default: derived from Open MPI 4's transport key, else none, and peers need the address, which has a \
             random cookie; `barewire run` draws one)",
    ),
    (WAIT, "how blocking calls wait: spin, adaptive (spin, then sleep) or block (default: adaptive)"),
    (
        BROKER,
        "the socket of barewire-broker, which opens the interface (default: open it directly, else through the broker \
             at its default path)",
    ),
    (
        YIELD,
        "1: the core is shared with other processes, so empty polls yield it, and after some hundred of them sleep for \
             at most a millisecond; 0: the core is not shared (default: detected by preemption; `barewire run` sets 1 \
             if there are more ranks than cores)",
    ),
    (
        PATIENCE,
        "seconds after which a peer that does not answer is given up; a peer whose program computes still answers \
             (default: 32)",
    ),
    (PEERS, "maximum number of processes to be connected to at once, 1 to 32768 (default: 1024)"),
    (
        LINK,
        "what reaches peers on other hosts: auto, for each peer frames if they get through, else UDP; packet, frames \
             on a shared interface; xdp, frames, dedicating the interface's first receive queue to one process of the \
             host; udp, which needs no privileges and crosses routers (default: auto)",
    ),
    (
        PORTS,
        "for UDP, the ports to choose from, such as 49152-49407; of these, the ones with an even high \
             byte, one for each endpoint of the host (default: any that the system offers)",
    ),
    (
        PROGRESS,
        "progress while the program computes: auto, by a progress thread, or manual, none (default: as the program \
             requests, usually manual)",
    ),
    (
        CHECK,
        "what the CRC32C of sent frames covers: headers, including short messages, or all, including long messages, \
             which then take 4 to 6 % more time (default: headers)",
    ),
    (
        AUTH,
        "none; job: frames are authenticated, so that nobody without the job's secret can forge, modify or replay \
             them; encrypt: messages are also encrypted. The same for all processes of a job (default: none)",
    ),
    (
        SECRET,
        "the job's secret for authentication, 32 to 128 hexadecimal digits, the same for all its processes (default: \
             Open MPI 4's transport key; `barewire run --auth` draws a random one)",
    ),
    (
        LABELS,
        "VLAN identifiers, each of which selects another path through the network, such as 3840-3843: frames of long \
             messages are tagged with them in turn, and labels whose frames are lost or late are abandoned. Or, for UDP \
             through a network that chooses paths by ports (ECMP), a power of two of source ports, such as ports:8. The \
             same for all processes of a job (default: none; `barewire run --sdn` takes them from the controller)",
    ),
];
const LABELS_EXPECTED: &str = "2 to 64 VLAN identifiers, such as 3840-3843, or UDP's source ports, such as ports:8";
/// Parameters that override a value of the tuning file: name, the value's key, description.
const TUNED: [(&CStr, &str, &str); 9] = [
    (c"eager", "eager_bytes", "maximum bytes of a message that is sent eagerly (default: as tuned)"),
    (
        c"copy",
        "copy_crossover_bytes",
        "maximum bytes of a message that is copied behind its headers (default: as tuned)",
    ),
    (c"ring", "ring_bytes", "bytes of the packet link's receive ring (default: as tuned)"),
    (c"window", "window", "maximum number of unacknowledged frames to a peer (default: as tuned)"),
    (c"acknowledge_every", "acknowledge_every", "maximum number of frames per acknowledgement (default: as tuned)"),
    (
        c"acknowledge_delay",
        "acknowledge_delay_us",
        "maximum microseconds that an acknowledgement is delayed for piggybacking on a frame (default: as tuned)",
    ),
    (c"slots", "slots", "maximum number of frames under way to all peers (default: as tuned)"),
    (c"pipe", "pipe_ring_bytes", "bytes of the shared-memory ring to a local peer, per direction (default: as tuned)"),
    (
        c"fetch",
        "fetched_bytes",
        "minimum bytes of a message that a local peer copies directly from its sender's memory, if the system permits; \
             0: never (default: as tuned)",
    ),
];

/// The values set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub interface: Option<String>,
    /// The interfaces that the user has selected, the first of which is the one above; none: whichever suit.
    pub selected: Vec<String>,
    pub mtu: Option<usize>,
    pub token: Option<JobToken>,
    /// Where the token comes from, for log messages.
    pub token_source: &'static str,
    pub waiting: Waiting,
    pub broker: Option<PathBuf>,
    pub core_sharing: CoreSharing,
    pub patience: Option<Duration>,
    pub peers: Option<u16>,
    pub link: LinkKind,
    /// UDP ports to choose from.
    pub ports: Option<RangeInclusive<u16>>,
    pub progress: Option<Progress>,
    /// Whether the CRC of frames also covers long messages.
    pub checks_all: bool,
    pub protection: Protection,
    pub secret: Option<Secret>,
    /// Where the secret comes from, for log messages.
    pub secret_source: &'static str,
    /// Labels of the network's paths.
    pub labels: Option<Labels>,
    /// Overrides of the tuning file, by their keys in it.
    pub tuned: Vec<(&'static str, usize)>,
}

/// What reaches peers on other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// Frames or UDP, for each peer what gets through.
    #[default]
    Auto,
    Packet,
    Xdp,
    Udp,
}

impl LinkKind {
    pub fn may_use_frames(self) -> bool {
        self != Self::Udp
    }

    pub fn may_use_udp(self) -> bool {
        matches!(self, Self::Auto | Self::Udp)
    }
}

/// How progress is made while the program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// By a progress thread.
    Auto,
    /// None; the progress thread only keeps connections alive and sends what was posted before.
    Manual,
}

/// How frames are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Against corruption only.
    #[default]
    None,
    /// Also against forgery by anyone without the job's secret.
    Authenticated,
    /// Also against eavesdropping.
    Encrypted,
}

impl Protection {
    /// All, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::None, Self::Authenticated, Self::Encrypted];

    /// The parameter's value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Authenticated => "job",
            Self::Encrypted => "encrypt",
        }
    }
}

/// An invalid setting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadParameter {
    #[error("FI_BAREWIRE_{name}={value}: expected {expected}")]
    Value { name: String, value: String, expected: &'static str },
    #[error(
        "FI_BAREWIRE_AUTH={0}, and this process has no secret in common with its job: start the job by \
         `barewire run --auth {0}`, or set the same FI_BAREWIRE_SECRET for all its processes, 32 to 128 hexadecimal \
         digits (openssl rand -hex 32)"
    )]
    NoSecret(&'static str),
}

/// Defines all parameters in libfabric.
pub(crate) fn define(libfabric: &Libfabric) {
    for (name, help) in ALL {
        libfabric.define_parameter(name, FI_PARAM_STRING, help);
    }
    for (name, _, help) in TUNED {
        libfabric.define_parameter(name, FI_PARAM_STRING, help);
    }
}

impl Parameters {
    /// Reads the current settings.
    pub fn load(libfabric: &Libfabric) -> Result<Self, BadParameter> {
        // libfabric logs the values that it returns.
        let secret = |name: &CStr| env::var(format!("FI_BAREWIRE_{}", name.to_string_lossy().to_uppercase())).ok();
        let value_of = |name: &CStr| if SECRETS.contains(&name) { secret(name) } else { libfabric.parameter(name) };
        let mut parameters = Self::from_values(value_of)?;
        (parameters.token, parameters.token_source) = match parameters.token {
            Some(token) => (Some(token), "FI_BAREWIRE_TOKEN"),
            None => {
                job::token().map_or((None, "nowhere: peers need this address"), |(token, source)| (Some(token), source))
            }
        };
        parameters.resolve_secret(job::transport_key)?;
        Ok(parameters)
    }

    /// Takes the launcher's secret if none is set, and derives the token from it, since frames carry the token in
    /// clear.
    fn resolve_secret(&mut self, launcher_secret: impl FnOnce() -> Option<Secret>) -> Result<(), BadParameter> {
        if self.protection == Protection::None {
            self.secret = None;
            return Ok(());
        }
        (self.secret, self.secret_source) = match self.secret.take() {
            Some(secret) => (Some(secret), "FI_BAREWIRE_SECRET"),
            None => (launcher_secret(), job::TRANSPORT_KEY),
        };
        let secret = self.secret.as_ref().ok_or(BadParameter::NoSecret(self.protection.name()))?;
        self.token = self.token.map(|token| secret.token(token));
        Ok(())
    }

    /// The guard of frames under these parameters.
    pub fn guard(&self) -> Guard {
        if self.secret.is_some() { Guard::Seal } else { Guard::Check }
    }

    /// The MTU at which unauthenticated frames carry as many bytes as frames under these parameters do at `mtu`.
    pub fn mtu_without_seal(&self, mtu: usize) -> usize {
        mtu.saturating_sub(self.guard().bytes() - CHECK_BYTES)
    }

    /// What peers must have in common with endpoints under these parameters.
    pub fn credentials(&self) -> Credentials {
        let token = self.token.or_else(|| self.secret.as_ref().map(|secret| secret.token(JobToken::new(0))));
        Credentials { protection: self.protection, check: token.map_or(0, JobToken::check) }
    }

    /// How endpoints authenticate their frames.
    pub fn authentication(&self) -> Option<Authentication> {
        let encrypts = self.protection == Protection::Encrypted;
        self.secret.clone().map(|secret| Authentication { secret, encrypts })
    }

    fn from_values(value_of: impl Fn(&CStr) -> Option<String>) -> Result<Self, BadParameter> {
        let read = |name: &CStr| value_of(name).filter(|value| !value.is_empty());
        let mut tuned = Vec::new();
        for (name, key, _) in TUNED {
            let value = parse(name, read(name), "a number", |value| value.parse().ok())?;
            tuned.extend(value.map(|value| (key, value)));
        }
        let selected = parse(INTERFACE, read(INTERFACE), "1 to 4 names of interfaces, as in eth0,eth1", names)?;
        let selected = selected.unwrap_or_default();
        Ok(Self {
            interface: selected.first().cloned(),
            selected,
            mtu: parse(MTU, read(MTU), "a number of bytes", |value| value.parse().ok())?,
            token: parse(TOKEN, read(TOKEN), "1 to 16 hexadecimal digits", token)?,
            token_source: "",
            waiting: parse(WAIT, read(WAIT), "spin, adaptive or block", waiting)?.unwrap_or_default(),
            broker: read(BROKER).map(PathBuf::from),
            core_sharing: parse(YIELD, read(YIELD), "0 or 1", core_sharing)?.unwrap_or_default(),
            patience: parse(PATIENCE, read(PATIENCE), "a number of seconds, 0.001 to 3600", seconds)?,
            peers: parse(PEERS, read(PEERS), "a number from 1 to 32768", peers)?,
            link: parse(LINK, read(LINK), "auto, packet, xdp or udp", link)?.unwrap_or_default(),
            ports: parse(PORTS, read(PORTS), "two ports, such as 49152-49407", ports)?,
            progress: parse(PROGRESS, read(PROGRESS), "auto or manual", progress)?,
            checks_all: parse(CHECK, read(CHECK), "headers or all", checks_all)?.unwrap_or_default(),
            protection: parse(AUTH, read(AUTH), "none, job or encrypt", protection)?.unwrap_or_default(),
            secret: parse(SECRET, read(SECRET), "32 to 128 hexadecimal digits, an even number of them", secret)?,
            secret_source: "",
            labels: parse(LABELS, read(LABELS), LABELS_EXPECTED, |value| value.parse().ok())?,
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
        let value = if SECRETS.contains(&name) { "…".to_owned() } else { value.clone() };
        BadParameter::Value { name: name.to_string_lossy().to_uppercase(), value, expected }
    };
    read(&value).map(Some).ok_or_else(bad)
}

fn token(value: &str) -> Option<JobToken> {
    let is_hexadecimal = (1..=16).contains(&value.len()) && value.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hexadecimal.then(|| u64::from_str_radix(value, 16).ok().map(JobToken::new)).flatten()
}

fn protection(value: &str) -> Option<Protection> {
    Protection::ALL.into_iter().find(|protection| protection.name() == value)
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

fn core_sharing(value: &str) -> Option<CoreSharing> {
    match value {
        "0" => Some(CoreSharing::Exclusive),
        "1" => Some(CoreSharing::Oversubscribed),
        _ => None,
    }
}

fn link(value: &str) -> Option<LinkKind> {
    match value {
        "auto" => Some(LinkKind::Auto),
        "packet" => Some(LinkKind::Packet),
        "xdp" => Some(LinkKind::Xdp),
        "udp" => Some(LinkKind::Udp),
        _ => None,
    }
}

fn names(value: &str) -> Option<Vec<String>> {
    let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
    let is_new = |(number, name): (usize, &String)| !name.is_empty() && !names[..number].contains(name);
    (names.len() <= INTERFACES_MAX && names.iter().enumerate().all(is_new)).then_some(names)
}

fn ports(value: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = value.split_once('-')?;
    let ports = first.trim().parse().ok()?..=last.trim().parse().ok()?;
    (!ports.is_empty() && *ports.start() > 0).then_some(ports)
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

    fn with(name: &CStr, value: &str) -> Result<Parameters, BadParameter> {
        Parameters::from_values(|parameter| (parameter == name).then(|| value.to_owned()))
    }

    #[test]
    fn unset_parameters_have_defaults_and_set_ones_are_parsed() {
        assert_eq!(Parameters::from_values(|_| None).unwrap(), Parameters::default());
        assert_eq!(with(WAIT, "block").unwrap().waiting, Waiting::Block);
        assert!(with(YIELD, "1").unwrap().core_sharing == CoreSharing::Oversubscribed);
        assert_eq!(with(TOKEN, "ff").unwrap().token, Some(JobToken::new(255)));
        assert_eq!(with(PATIENCE, "0.5").unwrap().patience, Some(Duration::from_millis(500)));
        assert_eq!(with(c"eager", "0").unwrap().tuned, [("eager_bytes", 0)]);
        assert_eq!(with(LINK, "xdp").unwrap().link, LinkKind::Xdp);
        assert_eq!(with(LINK, "udp").unwrap().link, LinkKind::Udp);
        assert_eq!(with(LABELS, "3840-3843").unwrap().labels.map(Labels::count), Some(4));
        assert_eq!(with(LABELS, "ports:16").unwrap().labels.map(Labels::ports), Some(16));
        let two = with(INTERFACE, "eth0, eth1").unwrap();
        assert_eq!(
            (two.interface.as_deref(), two.selected),
            (Some("eth0"), vec!["eth0".to_owned(), "eth1".to_owned()])
        );
        assert_eq!(with(PORTS, "49152-49407").unwrap().ports, Some(49_152..=49_407));
        assert_eq!(with(PROGRESS, "manual").unwrap().progress, Some(Progress::Manual));
        for (name, default) in [
            (PATIENCE, barewire_endpoint::Config::DEAD_PEER_TIMEOUT.as_secs()),
            (PEERS, u64::from(barewire_endpoint::Config::CHANNELS)),
        ] {
            let help = ALL.iter().find(|(known, _)| *known == name).unwrap().1;
            assert!(help.ends_with(&format!("(default: {default})")), "{help}");
        }
        assert_eq!(with(PEERS, "4096").unwrap().peers, Some(4096));
        for (name, key, _) in TUNED {
            assert!(barewire_endpoint::Tuning::default().get(key).is_some(), "{name:?}");
        }
    }

    #[test]
    fn an_invalid_value_is_reported_with_what_is_expected_but_secrets_are_not_shown() {
        let wrong = [(WAIT, "spni"), (MTU, "-1"), (c"eager", "4k")].into_iter();
        let more =
            [(PATIENCE, "0"), (PATIENCE, "nan"), (PATIENCE, "1e9"), (PEERS, "0"), (LINK, "dpdk"), (PROGRESS, "yes")];
        let names = [(INTERFACE, "eth0,eth0"), (INTERFACE, "eth0,"), (INTERFACE, "a,b,c,d,e")];
        let ports = [(PORTS, "0-9"), (PORTS, "9-8"), (PORTS, "49152"), (PORTS, "1-65536")];
        for (name, value) in wrong.chain(more).chain(names).chain(ports) {
            let error = with(name, value).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains("expected "), "{error}");
        }
        for secret in ["+ff", "0123456789abcdef0", "xyzzy"] {
            assert!(!with(TOKEN, secret).unwrap_err().to_string().contains(secret));
        }
        let [short, odd, long] = ["0123456789abcde".repeat(2), "1".repeat(33), "1".repeat(130)];
        for secret in [&*short, &odd, &long, "xyzzy", "+123456789abcdef0123456789abcdef"] {
            let error = with(SECRET, secret).unwrap_err().to_string();
            assert!(!error.contains(secret) && error.contains("32 to 128"), "{error}");
        }
    }

    /// Proves that authentication without a secret is refused with a remedy, that a secret that is set takes precedence
    /// over the launcher's, and that neither it nor the launcher's token is shown.
    #[test]
    fn authentication_needs_a_secret_from_the_user_or_the_launcher() {
        let digits = "0123456789abcdef".repeat(2);
        let launcher_secret = || Secret::new(b"what the launcher drew");
        let values = [(AUTH, "encrypt"), (SECRET, &*digits), (TOKEN, "ff")];
        let value_of =
            |parameter: &CStr| values.iter().find(|(name, _)| *name == parameter).map(|(_, value)| (*value).to_owned());
        let mut set = Parameters::from_values(value_of).unwrap();
        set.resolve_secret(launcher_secret).unwrap();
        assert_eq!((set.secret_source, set.authentication().unwrap().encrypts), ("FI_BAREWIRE_SECRET", true));
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(2);
        assert!(set.secret == Secret::new(&bytes) && set.token != Some(JobToken::new(255)));
        assert!(!format!("{set:?}").contains("0123456789"));
        let mut unset = with(AUTH, "job").unwrap();
        unset.resolve_secret(launcher_secret).unwrap();
        assert!(unset.secret == launcher_secret() && !unset.authentication().unwrap().encrypts);
        let refused = with(AUTH, "job").unwrap().resolve_secret(|| None).unwrap_err().to_string();
        assert!(refused.contains("FI_BAREWIRE_SECRET") && refused.contains("barewire run --auth job"), "{refused}");
        let mut disabled = with(SECRET, &digits).unwrap();
        disabled.resolve_secret(launcher_secret).unwrap();
        assert_eq!(disabled.authentication(), None);
        assert!(with(AUTH, "yes").unwrap_err().to_string().contains("none, job or encrypt"));
    }
}
