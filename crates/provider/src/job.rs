// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The default token of a job, derived from an identifier that its launcher gives to all of its ranks on all hosts and
//! to no other job.
//!
//! It separates jobs, as a token drawn by `barewire run` does. Only Open MPI 4's identifier is random; but the token is
//! no secret anyway, since each frame carries it in clear.

use std::env;
use std::fs;
use std::sync::OnceLock;

use barewire_endpoint::{JobToken, Secret};

/// The identifier of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    /// Where it comes from, for log messages.
    source: &'static str,
    text: String,
}

/// The name, for log messages, of the random key that Open MPI 4 gives to a job's processes only.
pub(crate) const TRANSPORT_KEY: &str = "Open MPI's transport key";
const TRANSPORT_KEY_VARIABLE: &str = "OMPI_MCA_orte_precondition_transports";

/// Number of a rank's ancestors that are examined: there may be scripts and wrappers between it and the launcher.
const ANCESTORS_MAX: usize = 16;

/// The job's token and its source; `None` without a known launcher.
pub(crate) fn token() -> Option<(JobToken, &'static str)> {
    // MPI libraries cause the parameters to be read a dozen times.
    static TOKEN: OnceLock<Option<(JobToken, &'static str)>> = OnceLock::new();
    *TOKEN.get_or_init(|| {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let Identity { source, text } = identity(variable, ancestors)?;
        Some((JobToken::new(hash(source, &text)), source))
    })
}

/// The secret of a job whose launcher draws one: Open MPI 4's, of 128 bits. Other launchers provide none.
pub(crate) fn transport_key() -> Option<Secret> {
    secret_of(&env::var(TRANSPORT_KEY_VARIABLE).ok()?)
}

fn secret_of(key: &str) -> Option<Secret> {
    let halves = key.split_once('-').filter(|halves| {
        [halves.0, halves.1].iter().all(|half| half.len() == 16 && half.bytes().all(|digit| digit.is_ascii_hexdigit()))
    });
    halves.and_then(|_| Secret::new(key.as_bytes()))
}

/// Examines first the variables that a launcher sets only for its ranks, then the ancestor processes.
fn identity(
    variable: impl Fn(&str) -> Option<String>,
    ancestors: impl FnOnce() -> Vec<Vec<String>>,
) -> Option<Identity> {
    // Drawn for Omni-Path, which separates jobs with it; spawned jobs inherit it.
    variable(TRANSPORT_KEY_VARIABLE)
        .map(|text| Identity { source: TRANSPORT_KEY, text })
        .or_else(|| {
            // LAUNCHER@JOB: a spawned job has another number.
            let namespace = variable("PMIX_NAMESPACE")?;
            let launcher = namespace.rsplit_once('@').map_or(&*namespace, |(launcher, _)| launcher);
            Some(Identity { source: "PMIx's namespace", text: launcher.to_owned() })
        })
        .or_else(|| {
            // Only the nearest launcher counts, even if it provides no identifier: an outer one, such as the Slurm step
            // in which mpirun has started its proxies, differs between hosts.
            let ancestors = ancestors();
            let launcher = ancestors.iter().find(|command| {
                let program = program_of(command);
                program.starts_with("hydra_") || program.starts_with("mpi") || program.starts_with("slurmstepd")
            })?;
            launcher_identity(launcher, &variable)
        })
}

fn launcher_identity(command: &[String], variable: impl Fn(&str) -> Option<String>) -> Option<Identity> {
    if program_of(command).starts_with("slurmstepd") {
        let text = format!("{} {}", variable("SLURM_JOB_ID")?, variable("SLURM_STEP_ID")?);
        return Some(Identity { source: "Slurm's step", text });
    }
    // The port on which MPICH's mpiexec listens for its proxies: the same for all of them while it runs.
    let option = command.iter().position(|argument| argument == "--control-port")?;
    Some(Identity { source: "Hydra's control port", text: command.get(option + 1)?.clone() })
}

fn program_of(command: &[String]) -> &str {
    command.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default()
}

/// The command lines of this process's ancestors, the nearest first.
fn ancestors() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut process = std::os::unix::process::parent_id();
    while process > 1 && found.len() < ANCESTORS_MAX {
        let Ok(command) = fs::read(format!("/proc/{process}/cmdline")) else { break };
        found.push(command.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect());
        // The name may contain blanks and parentheses; state and parent follow its last parenthesis.
        let Some(parent) = fs::read_to_string(format!("/proc/{process}/stat"))
            .ok()
            .and_then(|stat| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok())
        else {
            break;
        };
        process = parent;
    }
    found
}

/// 64-bit FNV-1a: the same in every build, which the standard library's hashes do not guarantee.
fn hash(source: &str, text: &str) -> u64 {
    let bytes = source.bytes().chain([0]).chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity_of(variables: &[(&str, &str)], ancestors: &[&str]) -> Option<(&'static str, String)> {
        let variable =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        let commands = ancestors.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
        identity(variable, || commands).map(|Identity { source, text }| (source, text))
    }

    #[test]
    fn each_launcher_identifies_its_job() {
        let key = "452c1363a4ea9dcb-9a7e0753b43b2ad9";
        let open_mpi_4 = [("PMIX_NAMESPACE", "2107768833"), ("OMPI_MCA_orte_precondition_transports", key)];
        assert_eq!(identity_of(&open_mpi_4, &[]).unwrap().1, key);
        let spawned = [("PMIX_NAMESPACE", "prterun-vm-4497@2")];
        assert_eq!(identity_of(&spawned, &[]), identity_of(&[("PMIX_NAMESPACE", "prterun-vm-4497@1")], &[]));
        let hydra = "/opt/mpich/bin/hydra_pmi_proxy --control-port h1:46447 --rmk user --proxy-id 1";
        assert_eq!(identity_of(&[], &["sh ./wrapper", hydra]).unwrap().1, "h1:46447");
        let slurm = [("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "3")];
        assert_eq!(identity_of(&slurm, &["slurmstepd: [77.3]"]).unwrap().1, "77 3");
        assert_eq!(identity_of(&slurm, &[hydra, "slurmstepd: [77.4]"]).unwrap().1, "h1:46447");
        // Intel MPI's proxies have no argument in common.
        assert_eq!(
            identity_of(&slurm, &["hydra_pmi_proxy --usize -2", "hydra_bstrap_proxy", "slurmstepd: [77.4]"]),
            None
        );
    }

    #[test]
    fn without_a_launcher_there_is_no_token() {
        assert_eq!(identity_of(&[], &["bash", "sshd"]), None);
        assert_eq!(identity_of(&[("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "3")], &["bash"]), None);
        assert_eq!(identity_of(&[], &["hydra_pmi_proxy --control-port"]), None);
    }

    #[test]
    fn tokens_differ_between_jobs_and_are_the_same_in_every_build() {
        assert_eq!(hash("", ""), hash("", ""));
        assert_ne!(hash("a", "b"), hash("a", "c"));
        assert_ne!(hash("ab", "c"), hash("a", "bc"));
        assert_eq!(hash("PMIx's namespace", "prterun-vm-4497"), 0x5e44_465b_1094_f9c1);
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

    #[test]
    fn ancestor_processes_are_found() {
        let found = ancestors();
        assert!(!found.is_empty() && !found[0][0].is_empty(), "{found:?}");
    }
}
