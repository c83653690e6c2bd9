# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What does not add up in published tables: which columns follow from others, and the rows where they do not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from barewire.stats.published import difference_flaw, gain_flaw, interval_flaw, p_flaw
from barewire.study.plan import Plan
from barewire.study.tables import Table, read_table


@dataclass(frozen=True)
class Check:
    """`flaw` takes a row's texts in `columns` and returns why they contradict each other, or None."""

    flaw: Callable[..., str | None]
    columns: tuple[str, ...]


def _welch_p(low: str, high: str, printed: str) -> str | None:
    """Watter's tests: two samples of 50 runs, intervals of 99 %."""
    return p_flaw(low, high, printed, counts=(50, 50), confidence=0.99)


# By table; no column of the others follows from its neighbours.
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "stival2006_fft_phase1.csv": (Check(difference_flaw, ("phase1_ms", "transpose_ms", "compute_ms")),),
    "stival2006_overhead.csv": (Check(difference_flaw, ("total_ms", "hidden_computation_ms", "overhead_ms_printed")),),
    "watter2006_fft.csv": (
        Check(interval_flaw, ("llc_mean", "tcp_mean", "ci99_low", "ci99_high")),
        Check(_welch_p, ("ci99_low", "ci99_high", "p_value")),
        Check(gain_flaw, ("llc_mean", "tcp_mean", "published_gain_percent")),
    ),
    "watter2006_netpipe_throughput.csv": (
        Check(interval_flaw, ("llc_mean_mbit_s", "tcp_mean_mbit_s", "ci99_low_mbit_s", "ci99_high_mbit_s")),
    ),
    "watter2006_netpipe_time.csv": (
        Check(interval_flaw, ("llc_mean_s", "tcp_mean_s", "ci99_low_s", "ci99_high_printed_s")),
    ),
    "watter2006_radix.csv": (
        Check(interval_flaw, ("llc_mean_s", "tcp_mean_s", "ci99_low_s", "ci99_high_s")),
        Check(_welch_p, ("ci99_low_s", "ci99_high_s", "p_value")),
    ),
}


def published_flaws(plan: Plan) -> list[str]:
    """Return a sentence for each contradiction within the published tables that the plan names."""
    named = [*(claim.published for claim in plan.claims), *(table.published for table in plan.tables)]
    return [flaw for name in dict.fromkeys(named) if name is not None for flaw in table_flaws(read_table(name))]


def table_flaws(table: Table) -> Iterator[str]:
    """Yield a sentence for each contradiction within a table's rows; rows with an empty field are not checked."""
    checks = CHECKS.get(table.name, ())
    # The columns before the first that is checked name a row.
    first = min((table.columns.index(column) for check in checks for column in check.columns), default=0)
    for check in checks:
        for row in table.rows:
            texts = [row[column] for column in check.columns]
            flaw = check.flaw(*texts) if all(texts) else None
            if flaw is not None:
                where = (f"{key.replace('_', ' ')} {row[key]}" for key in table.columns[:first])
                yield f"{', '.join((table.source.partition(':')[0], *where))}: {flaw}."
