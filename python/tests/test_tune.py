# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The conclusions of `barewire tune` from its measurements."""

import json
import random
from pathlib import Path
from typing import Any, cast

import pytest

from barewire.errors import MeasurementFailed, WrongUse
from barewire.measure.launch import Effort, Order
from barewire.measure.programs import read_tuning
from barewire.measure.sites import Site
from barewire.measure.tune import FRAMES, PIPE, Findings, Tuned, TunePlan, choose
from barewire.measure.tune_eager import EAGER_BYTES, SIZES, Crossing, crossing_of, eager_cells, eager_variants
from barewire.measure.tune_trials import Bench, Launcher, Trial
from barewire.stats.comparison import compare_over_sizes

LAUNCHES = 8
DEFAULTS = {"window": 63, "acknowledge_every": 31, "slots": 1024, "ring_bytes": 2 << 20}


def trial(name: str, value: int, *ratios: float) -> Trial:
    """Return a candidate's trial: its launches take `ratios` of the default's time in each cell, ± half a percent."""
    spread = [1 + 0.005 * (number % 3 - 1) + number * 1e-6 for number in range(LAUNCHES)]
    pairs = [([ratio * launch_time for launch_time in spread], spread[::-1]) for ratio in ratios]
    compared = compare_over_sizes(pairs, lower_is_better=True, margin=0.01)
    return Trial({name: value}, {("stream", 64 << index): comparison for index, comparison in enumerate(compared)})


def test_only_candidates_that_are_better_outside_the_interval_and_nowhere_worse_are_chosen() -> None:
    assert choose([trial("slots", 512, 1.0, 1.0), trial("window", 32, 0.999, 1.001)]) == {}
    assert choose([trial("slots", 512, 0.9, 1.0)]) == {"slots": 512}
    assert choose([trial("slots", 512, 0.9, 1.05)]) == {}, "a gain that something else pays for"


def test_the_best_candidate_of_each_value_is_chosen() -> None:
    trials = [trial("slots", 128, 0.95, 1.0), trial("slots", 512, 0.9, 1.0), trial("ring_bytes", 1 << 20, 0.9, 0.9)]
    assert choose(trials) == {"slots": 512, "ring_bytes": 1 << 20}


def test_values_that_a_second_run_does_not_confirm_are_not_written() -> None:
    """Each group is confirmed separately."""
    denied = Findings("a", (), {"slots": 512}, trial("slots", 512, 1.0, 1.0))
    agreed = Findings("b", (), {EAGER_BYTES: 8192}, trial(EAGER_BYTES, 8192, 0.9, 1.0))
    assert Tuned(DEFAULTS, (denied, agreed)).values == {EAGER_BYTES: 8192}
    assert Findings("c", (), {}, None).values == {}


@pytest.fixture
def plan(tmp_path: Path) -> TunePlan:
    return TunePlan(1, *read_tuning(tmp_path / "none"))


def test_defaults_are_those_of_the_endpoints_and_are_not_candidates(plan: TunePlan) -> None:
    """Defaults are defined by the endpoints only; each one is among the candidates, or within their range."""
    candidates = {**FRAMES.candidates, **PIPE.candidates}
    assert {*candidates, EAGER_BYTES, "copy_crossover_bytes"} == {*plan.defaults}, "every value is tuned by a group"
    for name, values in candidates.items():
        assert plan.defaults[name] in values, name
    for group in plan.groups:
        assert all(plan.defaults[name] not in values and values for name, values in group.candidates.items())
    assert set(plan.names) == {*candidates, EAGER_BYTES}


def test_values_that_are_not_tuned_stay_as_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tuning.toml"
    file.write_text("window = 40\nacknowledge_every = 3\ncopy_crossover_bytes = 4000\n")
    plan = TunePlan(1, *read_tuning(file), quick=True)
    assert plan.base["window"] == 40 and plan.base["copy_crossover_bytes"] == 4000
    assert plan.base["acknowledge_every"] == plan.defaults["acknowledge_every"], "tuned, so it starts at its default"


def test_messages_with_wrong_contents_end_the_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    def launched(site: Any, order: Order, samples: Path) -> None:
        record = {"record": "samples", "message_bytes": 64, "phase": "measure", "block": 0, "pair": 0, "lost": 0}
        record |= {"quantity": "round_trip", "values": [9000], "corrupt": 1}
        samples.write_text(json.dumps(record) + "\n")

    monkeypatch.setattr("barewire.measure.tune_trials.launch", launched)
    bench = Bench(cast(Site, None), "endpoint", (("pingpong", (64,)),), Effort(), launches=1)
    with pytest.raises(MeasurementFailed, match="endpoint: 1 messages arrived with wrong contents"):
        Launcher(random.Random(1)).medians(bench, [{}])


def test_an_invalid_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "tuning.toml"
    file.write_text("window = 64\n")
    with pytest.raises(WrongUse, match="window must be 2 to 63"):
        read_tuning(file)


def curves(alpha_us: float, per_byte_us: float) -> dict[tuple[str, int], list[float]]:
    return {("stream", size): [alpha_us + per_byte_us * size + 0.001 * n for n in range(LAUNCHES)] for size in SIZES}


def test_the_eager_limit_is_where_a_copy_costs_as_much_as_a_round_trip() -> None:
    """A copy of 50 ns per KiB against 2 µs: equal at 40 KiB, rounded down to whole pages."""
    crossing = crossing_of("stream", curves(1.0, 0.3e-3 + 0.05 / 1024), curves(3.0, 0.3e-3))
    assert crossing.bytes == pytest.approx(40 * 1024, rel=0.01)
    assert crossing.limit == 36 << 10 or crossing.limit == 40 << 10
    assert crossing.interval is not None and crossing.interval[0] <= crossing.bytes <= crossing.interval[1]


def test_if_one_protocol_is_always_faster_the_end_of_the_sizes_is_the_limit() -> None:
    fast, slow = curves(1.0, 0.3e-3), curves(3.0, 0.3e-3)
    assert crossing_of("stream", fast, slow).limit == SIZES[-1]
    assert crossing_of("stream", slow, fast).limit == 4 << 10, "a page at least"
    assert Crossing("stream", 12345.6, None).limit == 12 << 10


def test_two_limits_are_compared_where_they_differ() -> None:
    assert eager_cells(16 << 10, 16 << 10) == ()
    sizes = (32 << 10, 40 << 10)
    assert eager_cells(16 << 10, 40 << 10) == (("pingpong", sizes), ("stream", sizes))
    assert eager_cells(16 << 10, 8 << 10)[0] == ("pingpong", (16 << 10,))
    eagerly, announced = eager_variants()
    assert eagerly[EAGER_BYTES] >= SIZES[-1] and announced[EAGER_BYTES] == 0
