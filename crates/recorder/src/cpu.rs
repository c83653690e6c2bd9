// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Core pinning.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::LaunchError;

/// The cores that this process may use, in ascending order.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Pins the calling thread to one core.
pub fn pin(cpu: usize) -> Result<(), LaunchError> {
    let mut set = CpuSet::new();
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|error| {
        LaunchError::WrongUse(format!("cannot run on core {cpu} ({error}); allowed are {:?}", allowed()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_an_allowed_core_only() {
        let cpu = allowed()[0];
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
        })
        .join()
        .unwrap();
        assert!(matches!(pin(CpuSet::count() + 1), Err(LaunchError::WrongUse(_))));
    }
}
