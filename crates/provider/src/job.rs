// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The token of a job that was given none: from what its launcher tells all of its ranks, on all hosts, and no other job.
//!
//! It keeps jobs apart, as a token that `barewire run` draws does. Only Open MPI 4's is random; but a token is no secret
//! to whoever hears the job's frames, since each carries it.

use std::env;
use std::fs;
use std::sync::OnceLock;

use barewire_endpoint::{JobToken, Secret};

/// What identifies a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    /// Who tells it, for people.
    source: &'static str,
    text: String,
}

/// Who draws what is random and known to nobody but a job's processes, for people.
pub(crate) const TRANSPORT_KEY: &str = "Open MPI's transport key";
const TRANSPORT_KEY_VARIABLE: &str = "OMPI_MCA_orte_precondition_transports";

/// Processes above a rank that are looked at: scripts and wrappers may stand between it and its launcher's.
const ANCESTORS_MAX: usize = 16;

/// The job's token and who told what it is made of; `None` without a launcher that is known.
pub(crate) fn token() -> Option<(JobToken, &'static str)> {
    // MPI libraries ask for the parameters a dozen times.
    static TOKEN: OnceLock<Option<(JobToken, &'static str)>> = OnceLock::new();
    *TOKEN.get_or_init(|| {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let Identity { source, text } = identity(variable, ancestors)?;
        Some((JobToken::new(hash(source, &text)), source))
    })
}

/// The secret of a job whose launcher draws one: Open MPI 4's, of 128 bits. What other launchers say is none.
pub(crate) fn transport_key() -> Option<Secret> {
    secret_of(&env::var(TRANSPORT_KEY_VARIABLE).ok()?)
}

fn secret_of(key: &str) -> Option<Secret> {
    let halves = key.split_once('-').filter(|halves| {
        [halves.0, halves.1].iter().all(|half| half.len() == 16 && half.bytes().all(|digit| digit.is_ascii_hexdigit()))
    });
    halves.and_then(|_| Secret::new(key.as_bytes()))
}

/// Variables that a launcher sets for its ranks alone come first, then the processes above.
fn identity(
    variable: impl Fn(&str) -> Option<String>,
    ancestors: impl FnOnce() -> Vec<Vec<String>>,
) -> Option<Identity> {
    let of = |source, text: Option<String>| text.map(|text| Identity { source, text });
    // Drawn for Omni-Path, which keeps jobs apart with it; jobs that this one spawns have it as well.
    of(TRANSPORT_KEY, variable(TRANSPORT_KEY_VARIABLE))
        .or_else(|| {
            // The launcher, and behind the sign the job's number under it: one that was spawned has another.
            let namespace = variable("PMIX_NAMESPACE")?;
            let launcher = namespace.rsplit_once('@').map_or(&*namespace, |(launcher, _)| launcher);
            of("PMIx's namespace", Some(launcher.to_owned()))
        })
        .or_else(|| {
            // The nearest launcher decides, also if it tells nothing: what is above it, such as a step of Slurm's that
            // mpirun has started its proxies in, is another one on each host.
            let ancestors = ancestors();
            let launcher = ancestors.iter().find(|command| {
                let program = program_of(command);
                program.starts_with("hydra_") || program.starts_with("mpi") || program.starts_with("slurmstepd")
            })?;
            of_launcher(launcher, &variable)
        })
}

fn of_launcher(command: &[String], variable: impl Fn(&str) -> Option<String>) -> Option<Identity> {
    if program_of(command).starts_with("slurmstepd") {
        let text = format!("{} {}", variable("SLURM_JOB_ID")?, variable("SLURM_STEP_ID")?);
        return Some(Identity { source: "Slurm's step", text });
    }
    // Where MPICH's mpiexec listens for its proxies: the same for all of them, as long as it runs.
    let place = command.iter().position(|argument| argument == "--control-port")?;
    Some(Identity { source: "Hydra's control port", text: command.get(place + 1)?.clone() })
}

fn program_of(command: &[String]) -> &str {
    command.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default()
}

/// The commands of the processes above this one, the nearest first.
fn ancestors() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut process = std::os::unix::process::parent_id();
    while process > 1 && found.len() < ANCESTORS_MAX {
        let Ok(command) = fs::read(format!("/proc/{process}/cmdline")) else { break };
        found.push(command.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect());
        // The name may have blanks and parentheses; behind its last one follow state and parent.
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

/// FNV-1a of 64 bits: the same in every build, which the standard library's hashes do not promise.
fn hash(source: &str, text: &str) -> u64 {
    let bytes = source.bytes().chain([0]).chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], ancestors: &[&str]) -> Option<(&'static str, String)> {
        let variable =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        let commands = ancestors.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
        identity(variable, || commands).map(|Identity { source, text }| (source, text))
    }

    #[test]
    fn each_launcher_tells_its_ranks_whose_they_are() {
        let key = "452c1363a4ea9dcb-9a7e0753b43b2ad9";
        let open_mpi_4 = [("PMIX_NAMESPACE", "2107768833"), ("OMPI_MCA_orte_precondition_transports", key)];
        assert_eq!(of(&open_mpi_4, &[]).unwrap().1, key);
        let spawned = [("PMIX_NAMESPACE", "prterun-vm-4497@2")];
        assert_eq!(of(&spawned, &[]), of(&[("PMIX_NAMESPACE", "prterun-vm-4497@1")], &[]));
        let hydra = "/opt/mpich/bin/hydra_pmi_proxy --control-port h1:46447 --rmk user --proxy-id 1";
        assert_eq!(of(&[], &["sh ./wrapper", hydra]).unwrap().1, "h1:46447");
        let slurm = [("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "3")];
        assert_eq!(of(&slurm, &["slurmstepd: [77.3]"]).unwrap().1, "77 3");
        assert_eq!(of(&slurm, &[hydra, "slurmstepd: [77.4]"]).unwrap().1, "h1:46447");
        // Intel's says nothing that all of its proxies have.
        assert_eq!(of(&slurm, &["hydra_pmi_proxy --usize -2", "hydra_bstrap_proxy", "slurmstepd: [77.4]"]), None);
    }

    #[test]
    fn without_a_launcher_there_is_no_token() {
        assert_eq!(of(&[], &["bash", "sshd"]), None);
        assert_eq!(of(&[("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "3")], &["bash"]), None);
        assert_eq!(of(&[], &["hydra_pmi_proxy --control-port"]), None);
    }

    #[test]
    fn jobs_have_different_tokens_and_the_same_in_every_build() {
        assert_eq!(hash("", ""), hash("", ""));
        assert_ne!(hash("a", "b"), hash("a", "c"));
        assert_ne!(hash("ab", "c"), hash("a", "bc"));
        assert_eq!(hash("PMIx's namespace", "prterun-vm-4497"), 0x5e44_465b_1094_f9c1);
    }

    #[test]
    fn only_a_whole_transport_key_is_a_secret() {
        let key = "452c1363a4ea9dcb-9a7e0753b43b2ad9";
        assert!(secret_of(key).is_some() && secret_of(key) != secret_of("452c1363a4ea9dcb-9a7e0753b43b2ad8"));
        for other in
            ["", "-", "452c1363a4ea9dcb", "452c1363a4ea9dcb-9a7e0753b43b2ad", "452c1363a4ea9dcb-9a7e0753b43b2adx"]
        {
            assert!(secret_of(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_processes_above_this_one_are_found() {
        let found = ancestors();
        assert!(!found.is_empty() && !found[0][0].is_empty(), "{found:?}");
    }
}
