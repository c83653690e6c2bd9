// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which core a thread runs on.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::ProbeError;

/// The cores that this process may use, in ascending order.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Binds the calling thread to one core.
pub fn pin(cpu: usize) -> Result<(), ProbeError> {
    let mut set = CpuSet::new();
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|error| {
        ProbeError::WrongUse(format!("cannot run on core {cpu} ({error}); allowed are {:?}", allowed()))
    })
}

/// Reads `0,2-3`.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("'{part}' is no core; write 0,2-3"));
        cpus.extend(number(first)?..=number(last)?);
    }
    if cpus.is_empty() { Err(format!("'{text}' names no core; write 0,2-3")) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_read() {
        assert_eq!(parse_list("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for wrong in ["", "x", "1-", "3-1"] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_thread_can_be_pinned_to_a_core_that_is_allowed() {
        let cpu = allowed()[0];
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
        })
        .join()
        .unwrap();
        assert!(matches!(pin(CpuSet::count() + 1), Err(ProbeError::WrongUse(_))));
    }
}
