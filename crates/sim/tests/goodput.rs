// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Performance behaviour is what the committed table says.

use std::{env, fs};

use barewire_sim::goodput::table;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/goldens/goodput.txt");

/// Proves that goodput by window and loss has not changed unnoticed, and that the engine is nowhere worse
/// than a textbook's go-back-N by more than the noise of one seed.
#[test]
fn goodput_is_as_committed_and_no_worse_than_the_model() {
    let table = table();
    if env::var_os("BAREWIRE_UPDATE_GOLDENS").is_some() {
        fs::write(FILE, &table).unwrap();
    }
    for line in table.lines().skip(4) {
        let numbers: Vec<f64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let (best, model) = (numbers[2].max(numbers[3]), numbers[5]);
        assert!(best >= 0.97 * model, "{line}");
    }
    let committed = fs::read_to_string(FILE).unwrap_or_default();
    assert!(table == committed, "goodput changed; if on purpose, run again with BAREWIRE_UPDATE_GOLDENS=1\n{table}");
}
