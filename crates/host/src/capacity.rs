// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes of caches and memory.

/// Bytes of a core's data and unified caches, smallest first; empty if the system does not report them.
pub fn caches(cpu: usize) -> Vec<usize> {
    let cache = |index| {
        let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let kind = std::fs::read_to_string(format!("{directory}/type")).ok()?;
        let size = std::fs::read_to_string(format!("{directory}/size")).ok()?;
        (kind.trim() != "Instruction").then_some(())?;
        size.trim().strip_suffix('K')?.parse::<usize>().ok().map(|kib| kib << 10)
    };
    let mut sizes: Vec<usize> = (0..8).filter_map(cache).collect();
    sizes.sort_unstable();
    sizes
}

/// Bytes of memory available without swapping; 0 if the system does not report it.
pub fn available_memory() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()).map_or(0, |kib| kib << 10)
}

/// Bytes of this process's memory in huge pages, if the system reports it.
pub fn huge_page_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use barewire_recorder::cpu::allowed;

    use super::*;

    #[test]
    fn cache_sizes_are_sorted_and_memory_is_reported() {
        assert!(caches(allowed()[0]).is_sorted());
        assert!(available_memory() > 0);
    }
}
