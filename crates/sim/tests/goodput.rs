// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goodput matches the golden table.

use std::{env, fs};

use barewire_llc::ConnectionConfig;
use barewire_sim::goodput::{exchange_bursts, table};
use barewire_sim::link::Link;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/goldens/goodput.txt");

/// Proves that goodput by window and loss is unchanged; that the engine is nowhere worse than textbook go-back-N by
/// more than the noise of one seed; and that frames sprayed over four paths of unequal delay reach 0.95 of the goodput
/// over the slowest.
#[test]
fn goodput_matches_the_golden_table_and_is_no_worse_than_the_model() {
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

/// Proves that a lossless network with deep queues causes no retransmissions and stays utilised: T1 adapts to round
/// trips up to a thousand times its initial value, and a late answer to an earlier poll is not taken for a sign of
/// loss.
#[test]
fn queueing_delay_causes_no_retransmission() {
    for rate_bit_s in [1_000_000, 2_500_000, 10_000_000, 100_000_000, 1_000_000_000] {
        for burst in [5, 34, 63, 500] {
            let link = Link { rate_bit_s, duration_ns: 50_000_000_000_000_000 / rate_bit_s, ..Link::gigabit(0.0) };
            let outcome = exchange_bursts(&link, &ConnectionConfig::default(), burst, 7);
            let share = outcome.delivered.map(|delivered| link.share(delivered));
            assert_eq!(outcome.repeated, 0, "{rate_bit_s} bit/s, bursts of {burst}: {outcome:?}");
            assert!(share[0].min(share[1]) >= 900, "{rate_bit_s} bit/s, bursts of {burst}: {share:?} thousandths");
        }
    }
}
