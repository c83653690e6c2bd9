// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speed and error counters of an interface, and speed of a core.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;

use barewire_link::MacAddress;
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Counters of a cable's or a port's errors.
const ERRORS: [&str; 5] = ["rx_crc_errors", "rx_errors", "tx_errors", "collisions", "rx_over_errors"];
/// Steps of one unit of work: some 100 µs, much longer than reading the clock takes.
const UNIT_STEPS: u32 = 40_000;

/// Speed, duplex and error counters of an interface; null for those that the system does not report.
pub fn interface(name: &str, address: Option<MacAddress>) -> Value {
    let folder = PathBuf::from("/sys/class/net").join(name);
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    // A container may see the /sys of another network namespace.
    let is_ours = address.is_none_or(|address| read("address") == Some(address.to_string()));
    let number = |file: String| read(&file).filter(|_| is_ours)?.parse::<i64>().ok().filter(|number| *number >= 0);
    let errors: serde_json::Map<String, Value> =
        ERRORS.iter().map(|error| ((*error).to_owned(), json!(number(format!("statistics/{error}"))))).collect();
    json!({
        "speed_mbit_s": number("speed".to_owned()).filter(|speed| *speed > 0),
        "duplex": read("duplex").filter(|duplex| is_ours && duplex != "unknown"),
        "errors": errors,
    })
}

/// The same on all hosts that share a kernel, as those of a lab do; empty if unknown.
pub fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Computes for some time; returns for how much of it this process had a core, and how fast that core is.
pub fn work(duration_ns: u64) -> Result<Value, LaunchError> {
    let (began_ns, began_cpu_ns) = (now_ns(), cpu_ns()?);
    let (mut before_ns, mut best_unit_ns, mut state) = (began_ns, u64::MAX, 1_u64);
    while before_ns - began_ns < duration_ns {
        for _ in 0..UNIT_STEPS {
            // Opaque, or the compiler would merge steps.
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        }
        let after_ns = now_ns();
        // Wall-clock time: a unit is shorter than a time slice, so some are undisturbed, and the clock of a thread is
        // corrected now and then in a virtual machine.
        best_unit_ns = best_unit_ns.min(after_ns - before_ns);
        before_ns = after_ns;
    }
    Ok(json!({
        "wall_ns": before_ns - began_ns,
        "cpu_ns": cpu_ns()? - began_cpu_ns,
        "best_unit_ns": best_unit_ns,
    }))
}

fn cpu_ns() -> Result<u64, LaunchError> {
    let time =
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|error| LaunchError::system("clock_gettime", error))?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_as_long_as_asked_and_no_more_time_on_a_core_than_that() {
        let told = work(20_000_000).unwrap();
        let number = |name: &str| told[name].as_u64().unwrap();
        assert!(number("wall_ns") >= 20_000_000 && number("cpu_ns") <= number("wall_ns") + 1_000_000, "{told}");
        assert!((1..=number("wall_ns")).contains(&number("best_unit_ns")), "{told}");
    }

    #[test]
    fn an_unknown_interface_has_no_speed() {
        assert_eq!(interface("no-such-interface", None)["speed_mbit_s"], Value::Null);
    }
}
