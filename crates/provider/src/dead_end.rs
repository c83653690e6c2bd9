// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is nothing to offer, or processes of a job cannot hear each other, on standard error: libfabric's log is off
//! unless asked for, and MPI libraries make of an empty `fi_getinfo` an error of their own that names no cause.

use std::env;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A rank's number among those of its host: by Open MPI; by hydra, the launcher of MPICH and Intel MPI; by srun, last,
/// because launchers that run below it inherit its variable.
const LOCAL_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// Ranks of a host come here that much apart, at most.
const APART: Duration = Duration::from_secs(1);

/// Says it, once, if this provider was asked for; of the ranks of a host the first one alone does.
pub(crate) fn tell(reason: &str) {
    /// MPI libraries ask a dozen times.
    static HAS_TOLD: AtomicBool = AtomicBool::new(false);
    let variable = |name: &str| env::var(name).ok();
    if !is_asked_for(variable) || HAS_TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    if is_first_of_host(variable) {
        // In one piece, for launchers mix what several hosts say. Where standard error is closed nobody is told.
        let _ = io::stderr().write_all(format!("barewire: {reason}\n").as_bytes());
    } else {
        // The MPI library ends the job next, and with it the first rank, which may not have come here yet.
        thread::sleep(APART);
    }
}

fn is_asked_for(variable: impl Fn(&str) -> Option<String>) -> bool {
    // Names behind a ^ are those to do without; layers stand behind a semicolon.
    let names_us = |names: String| !names.starts_with('^') && names.split([',', ';']).any(|name| name == "barewire");
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    variable("FI_PROVIDER").is_some_and(names_us) || is_set("FI_BAREWIRE_TOKEN") || is_set("FI_BAREWIRE_AUTH")
}

fn is_first_of_host(variable: impl Fn(&str) -> Option<String>) -> bool {
    LOCAL_RANKS.iter().find_map(|name| variable(name)).is_none_or(|rank| rank == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |asked| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn it_is_said_to_those_who_asked_for_this_provider() {
        for names in ["barewire", "tcp,barewire", "barewire;ofi_rxm"] {
            assert!(is_asked_for(environment(&[("FI_PROVIDER", names)])), "{names}");
        }
        for names in ["", "tcp", "^barewire", "^tcp,barewire", "barewire2"] {
            assert!(!is_asked_for(environment(&[("FI_PROVIDER", names)])), "{names}");
        }
        assert!(is_asked_for(environment(&[("FI_BAREWIRE_TOKEN", "1f")])));
        assert!(!is_asked_for(environment(&[("FI_BAREWIRE_TOKEN", "")])));
        assert!(is_asked_for(environment(&[("FI_BAREWIRE_AUTH", "job")])));
    }

    #[test]
    fn the_first_rank_of_a_host_says_it_and_who_is_no_rank() {
        assert!(is_first_of_host(environment(&[])));
        for name in LOCAL_RANKS {
            assert!(is_first_of_host(environment(&[(name, "0")])), "{name}");
            assert!(!is_first_of_host(environment(&[(name, "1")])), "{name}");
        }
        // mpirun in a shell that srun has started.
        let below = [("SLURM_LOCALID", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
        assert!(!is_first_of_host(environment(&below)));
    }
}
