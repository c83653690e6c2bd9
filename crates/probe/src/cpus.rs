// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of cores on the command line.

use nix::sched::CpuSet;

/// Parses `0,2-3`.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse().ok().filter(|number: &usize| *number < CpuSet::count());
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!("'{part}' is not a core; write 0,2-3"));
        };
        cpus.extend(first..=last);
    }
    if cpus.is_empty() { Err(format!("'{text}' names no core; write 0,2-3")) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_parsed() {
        assert_eq!(parse_list("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for wrong in ["", "x", "1-", "3-1", "0-99999999999", "1024"] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }
}
