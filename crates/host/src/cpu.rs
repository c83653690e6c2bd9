// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which cores there are, and what their caches hold.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::HostError;

/// The cores that this process may use, in ascending order.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Binds the calling thread to one core.
pub fn pin(cpu: usize) -> Result<(), HostError> {
    let mut set = CpuSet::new();
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|error| {
        HostError::WrongUse(format!("cannot run on core {cpu} ({error}); allowed are {:?}", allowed()))
    })
}

/// Bytes of a core's data and unified caches as the system describes them, smallest first; empty if it does not.
pub fn caches(cpu: usize) -> Vec<usize> {
    let of_index = |index| {
        let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let kind = std::fs::read_to_string(format!("{directory}/type")).ok()?;
        let size = std::fs::read_to_string(format!("{directory}/size")).ok()?;
        (kind.trim() != "Instruction").then_some(())?;
        size.trim().strip_suffix('K')?.parse::<usize>().ok().map(|kib| kib << 10)
    };
    let mut sizes: Vec<usize> = (0..8).filter_map(of_index).collect();
    sizes.sort_unstable();
    sizes
}

/// Bytes of memory that can be had without swapping; 0 if the system does not tell.
pub fn available_memory() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()).map_or(0, |kib| kib << 10)
}

/// Bytes of this process's memory that lie in huge pages, if the system tells.
pub fn huge_page_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_a_core_that_is_allowed_and_to_no_other() {
        let cpu = allowed()[0];
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
        })
        .join()
        .unwrap();
        assert!(matches!(pin(CpuSet::count() + 1), Err(HostError::WrongUse(_))));
    }

    #[test]
    fn caches_grow_and_memory_is_known() {
        assert!(caches(allowed()[0]).is_sorted());
        assert!(available_memory() > 0);
    }
}
