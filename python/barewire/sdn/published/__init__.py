# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Published measurements for comparison."""

import csv
from functools import cache
from importlib.resources import files

# Our names of strategies with other names in Oliveira et al.
_COLUMNS = {"stp": "stp", "traffic": "traffic", "ecmp-published": "ecmp", "isolated": "isolated"}


def ring_mbyte_s(strategy: str, hosts: int) -> float | None:
    """Return the published mean b_eff throughput in MB/s; None if not published. Source: Oliveira et al. 2018."""
    return _figure_3().get((_COLUMNS.get(strategy, ""), hosts))


@cache
def _figure_3() -> dict[tuple[str, int], float]:
    text = files(__package__).joinpath("oliveira2018_throughput.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(column, int(row["hosts"])): float(row[column]) for row in rows for column in row if column != "hosts"}
