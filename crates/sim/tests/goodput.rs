// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Performance behaviour is what the committed table says.

use std::{env, fs};

use barewire_llc::ConnectionConfig;
use barewire_sim::goodput::{exchanged, table};
use barewire_sim::link::Link;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/goldens/goodput.txt");

/// Proves that goodput by window and loss has not changed unnoticed, and that the engine is nowhere worse
/// than a textbook's go-back-N by more than the noise of one seed; and that frames sprayed over four paths of unequal
/// delay reach 0.95 of the goodput over one of them.
#[test]
fn goodput_is_as_committed_and_no_worse_than_the_model() {
    let table = table();
    if env::var_os("BAREWIRE_UPDATE_GOLDENS").is_some() {
        fs::write(FILE, &table).unwrap();
    }
    for line in table.lines().skip(5).take_while(|line| !line.is_empty()) {
        let numbers: Vec<f64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let (best, model) = (numbers[2].max(numbers[3]), numbers[5]);
        assert!(best >= 0.97 * model, "{line}");
    }
    let sprayed: Vec<&str> = table.lines().skip_while(|line| !line.starts_with("further")).skip(1).collect();
    assert_eq!(sprayed.len(), 12);
    for line in sprayed {
        let numbers: Vec<f64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert!(numbers[6] >= 0.95 * numbers[7], "{line}");
    }
    let committed = fs::read_to_string(FILE).unwrap_or_default();
    assert!(table == committed, "goodput changed; if on purpose, run again with BAREWIRE_UPDATE_GOLDENS=1\n{table}");
}

/// Proves that a network with deep queues, which loses nothing, is not filled with repetitions, and stays in use: T1 learns
/// that round trips are up to a thousand times what it began with, and an answer to a poll of before is not taken for a
/// sign of loss.
#[test]
fn what_waits_in_queues_is_not_sent_again() {
    for rate_bit_s in [1_000_000, 2_500_000, 10_000_000, 100_000_000, 1_000_000_000] {
        for burst in [5, 34, 63, 500] {
            let link = Link { rate_bit_s, duration_ns: 50_000_000_000_000_000 / rate_bit_s, ..Link::gigabit(0.0) };
            let outcome = exchanged(&link, &ConnectionConfig::default(), burst, 7);
            let share = outcome.delivered.map(|delivered| link.share(delivered));
            assert_eq!(outcome.repeated, 0, "{rate_bit_s} bit/s, bursts of {burst}: {outcome:?}");
            assert!(share[0].min(share[1]) >= 900, "{rate_bit_s} bit/s, bursts of {burst}: {share:?} thousandths");
        }
    }
}
