// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports on standard error why `fi_getinfo` finds nothing, or why processes of a job cannot communicate: libfabric's
//! log is off by default, and MPI libraries turn an empty `fi_getinfo` into an error that names no cause.

use std::env;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Variables with a rank's number on its host: of Open MPI; of Hydra, the launcher of MPICH and Intel MPI; of srun,
/// last, because launchers that run under it inherit its variable.
const LOCAL_RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// The longest time between the first and the last rank of a host to arrive here.
const RANK_SKEW_MAX: Duration = Duration::from_secs(1);

/// Reports why `fi_getinfo` finds nothing, if this provider was selected, and only from the first rank of a host.
pub(crate) fn report(reason: &str) {
    let variable = |name: &str| env::var(name).ok();
    if !is_selected(variable) || !is_first_report() {
        return;
    }
    if is_first_local_rank(variable) {
        write(reason);
    } else {
        // The MPI library aborts the job next, and with it the first rank, which may not have reported yet.
        thread::sleep(RANK_SKEW_MAX);
    }
}

/// Reports why a peer's address is refused. The first rank of a host does so at once. The others, one of which may be
/// the only rank that has the address, do so if they still run a second later.
pub(crate) fn report_refusal(reason: &str) {
    if is_first_report() {
        if !is_first_local_rank(|name| env::var(name).ok()) {
            thread::sleep(RANK_SKEW_MAX);
        }
        write(reason);
    }
}

/// Reports that a peer cannot be reached, or why the channel to it ended.
pub(crate) fn report_loss(reason: &str) {
    if is_first_report() {
        write(reason);
    }
}

/// Whether the process has reported nothing before: MPI libraries call `fi_getinfo` a dozen times, and meet many peers.
fn is_first_report() -> bool {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    !IS_REPORTED.swap(true, Ordering::Relaxed)
}

/// In one write, since launchers interleave the output of several hosts.
fn write(reason: &str) {
    // Fails if standard error is closed.
    let _ = io::stderr().write_all(format!("barewire: {reason}\n").as_bytes());
}

fn is_selected(variable: impl Fn(&str) -> Option<String>) -> bool {
    // A leading ^ excludes the names; a semicolon separates layers.
    let names_us = |names: String| !names.starts_with('^') && names.split([',', ';']).any(|name| name == "barewire");
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    variable("FI_PROVIDER").is_some_and(names_us) || is_set("FI_BAREWIRE_TOKEN") || is_set("FI_BAREWIRE_AUTH")
}

fn is_first_local_rank(variable: impl Fn(&str) -> Option<String>) -> bool {
    LOCAL_RANK_VARIABLES.iter().find_map(|name| variable(name)).is_none_or(|rank| rank == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |variable| set.iter().find(|(name, _)| *name == variable).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn reasons_are_reported_if_this_provider_is_selected() {
        for names in ["barewire", "tcp,barewire", "barewire;ofi_rxm"] {
            assert!(is_selected(environment(&[("FI_PROVIDER", names)])), "{names}");
        }
        for names in ["", "tcp", "^barewire", "^tcp,barewire", "barewire2"] {
            assert!(!is_selected(environment(&[("FI_PROVIDER", names)])), "{names}");
        }
        assert!(is_selected(environment(&[("FI_BAREWIRE_TOKEN", "1f")])));
        assert!(!is_selected(environment(&[("FI_BAREWIRE_TOKEN", "")])));
        assert!(is_selected(environment(&[("FI_BAREWIRE_AUTH", "job")])));
    }

    #[test]
    fn the_first_rank_of_a_host_reports_and_so_does_a_program_without_ranks() {
        assert!(is_first_local_rank(environment(&[])));
        for name in LOCAL_RANK_VARIABLES {
            assert!(is_first_local_rank(environment(&[(name, "0")])), "{name}");
            assert!(!is_first_local_rank(environment(&[(name, "1")])), "{name}");
        }
        // mpirun under srun.
        let below = [("SLURM_LOCALID", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
        assert!(!is_first_local_rank(environment(&below)));
    }
}
