# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Published tables as data: what can be reproduced from them is, and what cannot be is pointed out.

The first line of each file in barewire/study/published names its source.
"""

import csv
from pathlib import Path

import pytest

from barewire.stats.published import difference_flaw, gain_flaw, implied_p, interval_flaw, p_flaw
from barewire.study import tables

FOLDER = Path(tables.__file__).parent / "published"
# Two samples of 50 runs each.
COUNTS = (50, 50)


def _rows(name: str) -> list[dict[str, str]]:
    lines = (FOLDER / name).read_text().splitlines()
    assert lines[0].startswith("#")
    return list(csv.DictReader(lines[1:]))


def test_of_table_a1_all_intervals_agree_with_their_means_but_the_one_that_lacks_a_sign():
    rows = _rows("watter2006_netpipe_time.csv")
    flaws = {
        row["message_bytes"]: flaw
        for row in rows
        if (flaw := interval_flaw(row["llc_mean_s"], row["tcp_mean_s"], row["ci99_low_s"], row["ci99_high_printed_s"]))
    }
    assert len(rows) == 25 and list(flaws) == ["8192"]
    assert flaws["8192"].startswith("the upper end 4.657016e-05 lacks its minus sign")
    # With it, LLC is faster at every size: the verdict of the paper.
    for row in rows:
        assert interval_flaw(row["llc_mean_s"], row["tcp_mean_s"], row["ci99_low_s"], row["ci99_high_s"]) is None
        assert float(row["ci99_high_s"]) < 0


def test_table_a2_agrees_with_itself_and_says_that_llc_has_the_larger_throughput():
    rows = _rows("watter2006_netpipe_throughput.csv")
    for row in rows:
        means = row["llc_mean_mbit_s"], row["tcp_mean_mbit_s"]
        assert interval_flaw(*means, row["ci99_low_mbit_s"], row["ci99_high_mbit_s"]) is None
        assert float(row["ci99_low_mbit_s"]) > 0
        assert (
            implied_p(float(row["ci99_low_mbit_s"]), float(row["ci99_high_mbit_s"]), COUNTS, confidence=0.99)[1] < 1e-9
        )


@pytest.mark.parametrize(
    ("name", "unit", "significant"), [("watter2006_fft.csv", "", True), ("watter2006_radix.csv", "_s", False)]
)
def test_the_p_values_of_tables_a3_and_a4_follow_from_their_intervals(name, unit, significant):
    for row in _rows(name):
        low, high = row[f"ci99_low{unit}"], row[f"ci99_high{unit}"]
        assert interval_flaw(row[f"llc_mean{unit}"], row[f"tcp_mean{unit}"], low, high) is None
        assert p_flaw(low, high, row["p_value"], counts=COUNTS, confidence=0.99) is None
        _, most = implied_p(float(low), float(high), COUNTS, confidence=0.99)
        assert (most < 0.01) == (not float(low) <= 0 <= float(high)) == significant


def test_of_table_5_1_one_gain_does_not_follow_from_its_means():
    flaws = {
        row["processes"]: flaw
        for row in _rows("watter2006_fft.csv")
        if (flaw := gain_flaw(row["llc_mean"], row["tcp_mean"], row["published_gain_percent"]))
    }
    assert flaws == {"4": "793.42 is 3.32 % less than 820.64, not 3.29 %"}


def test_of_table_4_9_one_overhead_is_not_the_difference_of_its_columns():
    flaws = {
        (row["side"], row["library"]): flaw
        for row in _rows("stival2006_overhead.csv")
        if row["hidden_computation_ms"]
        and (flaw := difference_flaw(row["total_ms"], row["hidden_computation_ms"], row["overhead_ms_printed"]))
    }
    assert flaws == {("send", "mpich2_tcp"): "1.2124 − 0.9462 is 0.2662, not 0.662"}


def test_other_flaws_of_intervals_have_their_own_reason():
    assert interval_flaw("2.0", "1.0", "0.5", "1.5") is None
    assert "lower end 0.5 is above the upper one -3" in interval_flaw("2.0", "1.0", "0.5", "-3")
    assert "the middle is 2.5, but 2.0 − 1.0 is 1" in interval_flaw("2.0", "1.0", "2.0", "3.0")
    assert "the lower end -0.5 has a minus sign too many" in interval_flaw("2.0", "1.0", "-0.5", "1.5")
    for text in ("", "nan", "1,5", "inf"):
        with pytest.raises(ValueError, match="number"):
            interval_flaw("2.0", "1.0", text, "1")


def test_a_p_that_its_interval_denies_is_a_flaw():
    for printed in ("0.607", "0.61", "0.6", "<0.7"):
        assert p_flaw("-0.1636501", "0.2436501", printed, counts=COUNTS, confidence=0.99) is None, printed
    for printed in ("0.0607", "0.617", "<0.05"):
        flaw = p_flaw("-0.1636501", "0.2436501", printed, counts=COUNTS, confidence=0.99)
        assert flaw == f"the interval -0.1636501 to 0.2436501 has p between 0.601 and 0.607, not {printed}"


def test_rounding_is_no_flaw():
    assert difference_flaw("0.98", "0.7131", "0.2668") is None
    assert difference_flaw("1.0", "0.3", "0.85") is not None
    assert gain_flaw("354.64", "380.60", "6.81") is None, "6.82, truncated"
    with pytest.raises(ValueError, match="above 0"):
        gain_flaw("0", "1", "100")


def test_implied_p_brackets_the_test_that_made_the_interval():
    import numpy as np
    from scipy import stats

    generator = np.random.default_rng(1)
    for spreads in ((1, 1), (1, 3)):
        a, b = (generator.normal(mean, spread, 50) for mean, spread in zip((10, 10.5), spreads, strict=True))
        test = stats.ttest_ind(a, b, equal_var=False)
        interval = test.confidence_interval(0.99)
        low, high = implied_p(interval.low, interval.high, COUNTS, confidence=0.99)
        assert low <= test.pvalue <= high
    for low, high, counts, confidence in ((1, 0, COUNTS, 0.99), (0, 1, (1, 50), 0.99), (0, 1, COUNTS, 1)):
        with pytest.raises(ValueError, match="need"):
            implied_p(low, high, counts, confidence=confidence)
