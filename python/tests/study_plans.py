# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A plan with one step, and what becomes of its claims on runs with known answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from synthetic import run_of, series_of

from barewire.results.run import Series
from barewire.study import claims
from barewire.study.claims import judge
from barewire.study.findings import Finding
from barewire.study.plan import Plan, read_plan
from barewire.study.steps import Done, Record

STEP = """
title = "A study"
question = "Which is faster?"
source = "Somebody 1999"

[[step]]
name = "messages"
what = "ping-pongs"
command = ["mpi", "pingpong", "--sizes", "64"]
lab = ["--lab", "pair"]
quick = ["--launches", "6", "--", "--order", "16"]
"""
COMMAND = '"mpi", "pingpong", "--sizes", "64"'
CLAIM = """
[[claim]]
text = "The first is faster."
kind = "faster"
a = {step = "messages", subject = "openmpi/barewire"}
b = {step = "messages", subject = "openmpi/tcp"}
"""


# A claim that needs no step.
NOTHING = """
[[claim]]
text = "A round trip of 1400 B takes 11 µs."
kind = "impossible"
message_bytes = 1400
protocol = "raw"
rate_bit_s = 1e9
published = "paz2010_pingpong.csv"
columns = ["round_trip_us"]
"""


def written(folder: Path, text: str) -> Plan:
    file = folder / "mine.toml"
    file.write_text(text)
    return read_plan(str(file))


def record_of(plan: Plan) -> Record:
    done = Done("done", ("mpi", "pingpong"), 61.0)
    return Record(plan.name, plan.digest, "quick", None, "2026-01-01", {step.name: done for step in plan.steps})


def judged(
    folder: Path,
    claim: str,
    times_us: Mapping[str, Mapping[int, float]],
    *,
    noise: float = 0.01,
    launches: int = 10,
    more: Sequence[Series] = (),
) -> Finding:
    """The finding about one claim, of a run whose subjects take these times, and that has `more` series."""
    plan, generator = written(folder, STEP + claim), np.random.default_rng(5)
    series = [
        series_of(list(time * generator.normal(1, noise, launches)), subject=subject, message_bytes=size)
        for subject, of_subject in times_us.items()
        for size, time in of_subject.items()
    ]
    series += more
    with patch.object(claims, "read_run", lambda directory: run_of(directory.name, series)):
        (finding,) = judge(plan, folder, record_of(plan))
    return finding


SIZES = (8, 64, 1024, 8192)
TCP = {size: 20 + size / 500 for size in SIZES}


def times(factors: Mapping[int, float] | float) -> dict[str, Mapping[int, float]]:
    each = factors if isinstance(factors, Mapping) else dict.fromkeys(SIZES, factors)
    return {"openmpi/barewire": {size: TCP[size] * each[size] for size in SIZES}, "openmpi/tcp": TCP}


LATENCY = """
[[claim]]
text = "x"
kind = "alike"
step = "messages"
strategies = ["stp", "isolated"]
quantity = "median latency"
published = "oliveira2018_latency.csv"
rows = "hosts"
columns = ["stp"]
"""


HOST_STEP = """
title = "A machine"
question = "How fast is it?"
source = "this test"

[[step]]
name = "messages"
what = "this machine"
command = ["bench", "host"]
"""
CROSSOVER = """
[[claim]]
text = "Small messages are copied."
kind = "crossover"
step = "messages"
crossover = "copy crossover"
low = 410
high = 800
"""
