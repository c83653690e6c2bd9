// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Further interfaces of this host that may carry frames besides the best one. `barewire-carriers` probes which peers
//! they reach.

use std::fs;
use std::path::{Path, PathBuf};

use barewire_carriers::{INTERFACES_MAX, is_fast_enough};
use barewire_link::{Interface, MacAddress, interface_speed};

/// The names of the interfaces that may share the frames of `best`, which has this MTU: those at least a quarter as fast
/// that have a carrier and are neither wireless, nor stacked on others (bridges, bonds, VLANs), nor part of a bridge or
/// bond.
pub(crate) fn companions(best: &str, mtu: usize) -> Vec<String> {
    let all = Interface::all().unwrap_or_default();
    let fast = interface_speed(best);
    let is_companion = |other: &Interface| {
        let speed = interface_speed(&other.name);
        other.name != best
            && other.address != MacAddress::default()
            && other.mtu >= mtu
            && (speed == 0 || fast == 0 || is_fast_enough(speed, fast))
            && is_independent(&about(&other.name))
    };
    let names = all.into_iter().filter(is_companion).map(|other| other.name);
    names.take(INTERFACES_MAX - 1).collect()
}

fn about(name: &str) -> PathBuf {
    Path::new("/sys/class/net").join(name)
}

fn is_independent(about: &Path) -> bool {
    let has_carrier = fs::read(about.join("carrier")).is_ok_and(|carrier| carrier.starts_with(b"1"));
    let is_excluded =
        ["bridge", "bonding", "master", "wireless", "phy80211"].iter().any(|name| about.join(name).exists());
    has_carrier && !is_excluded && !is_stacked(about)
}

/// Whether an interface has others below it: /sys has symbolic links to them `about` it.
pub(crate) fn is_stacked(about: &Path) -> bool {
    fs::read_dir(about).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"lower_")))
    })
}
