# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Break points get the names of what the run knows, and decisions follow only where intervals support them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import synthetic_run
from synthetic_mpi import EAGER_BYTES, subject, synthetic_mpi

from barewire.models.breakpoints import Break
from barewire.models.causes import cache_limits, explanations, frame_limits
from barewire.report.decisions import decisions
from barewire.results.fits import latency_fits
from barewire.results.limits import eager_limit, limits_of
from barewire.results.run import Run

SIZES = tuple(sorted({*(2**n for n in range(3, 21)), *(3 * 2**n for n in range(3, 19))}))
EAGER_US, EAGER_PER_BYTE_US, RENDEZVOUS_PER_BYTE_US = 4.0, 0.0020, 0.0008


def at(low: int, high: int) -> Break:
    return Break(low, high, low, high, 1.0)


def test_a_break_between_1400_and_1500_bytes_is_the_second_frame_and_one_elsewhere_is_not() -> None:
    limits = [*frame_limits(1500, 52), *cache_limits([("L2", 1 << 20)])]
    assert explanations(at(1400, 1500), limits) == ("a second frame",)
    assert explanations(at(2800, 2900), limits) == ("a third frame",)
    assert explanations(at(1 << 19, 1 << 20), limits) == ("half of the L2 cache",)
    assert explanations(at(5000, 6000), limits) == ()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory: Path = tmp_path_factory.mktemp("run")
    subjects = (subject("openmpi", "tcp", eager=EAGER_BYTES), subject("openmpi", "tcp"))
    return synthetic_mpi(directory, "pingpong", subjects=subjects, sizes=SIZES)


def with_rendezvous(run: Run, handshake_us: float) -> Run:
    """The same run, whose eager messages are copied: their line is the steeper one."""
    generator = np.random.default_rng(1)

    def time_us(size: int) -> float:
        if size <= EAGER_BYTES:
            return EAGER_US + EAGER_PER_BYTE_US * size
        return EAGER_US + handshake_us + RENDEZVOUS_PER_BYTE_US * size

    series = [
        replace(s, launch_medians=tuple(time_us(s.message_bytes) * generator.normal(1, 0.005, 6))) for s in run.series
    ]
    return replace(run, series=tuple(series))


def test_eager_should_end_where_both_lines_meet(run: Run) -> None:
    """30 µs of handshake are made up for by 25 kB."""
    changed = with_rendezvous(run, 30.0)
    found = [sentence for sentence in decisions(changed, latency_fits(changed)) if "eager should end" in sentence]
    assert found and all("not at 64 KiB" in sentence for sentence in found)
    crossings = [f.pieces.crossings[0] for f in latency_fits(changed) if not isinstance(f.pieces, str)]
    for crossing in crossings:
        assert crossing is not None and crossing.value == pytest.approx(30 / 0.0012, rel=0.1)


def test_a_limit_at_the_crossing_is_left_alone(run: Run) -> None:
    changed = with_rendezvous(run, (EAGER_PER_BYTE_US - RENDEZVOUS_PER_BYTE_US) * EAGER_BYTES)
    assert not [sentence for sentence in decisions(changed, latency_fits(changed)) if "eager should" in sentence]


def test_limits_know_the_configured_eager_limit_and_the_default_one(run: Run) -> None:
    assert eager_limit(run, f"openmpi/tcp+eager={EAGER_BYTES}") == EAGER_BYTES
    assert eager_limit(run, "openmpi/tcp+eager=4096") == 4096
    assert eager_limit(run, "mpich-5/tcp") is None
    assert {limit.name for limit in limits_of(run, "openmpi/barewire")} >= {
        "the default eager limit",
        "the inject size",
        "a second frame",
    }


def test_each_quantity_and_number_of_pairs_has_a_sentence_of_its_own(tmp_path: Path) -> None:
    """Otherwise one sentence would call a subject faster and slower at the same size."""
    subjects = (subject("openmpi", "tcp"), subject("openmpi", "barewire"))
    run = synthetic_mpi(tmp_path, "pingpong", "logp", subjects=subjects, sizes=(8, 65536))
    two_pairs = [replace(each, pairs=2) for each in run.series if each.test == "pingpong"]
    found = [each for each in decisions(replace(run, series=(*run.series, *two_pairs)), ()) if " against " in each]
    whats = [each.rsplit(": ", 2)[0] for each in found]
    assert len(whats) == len(set(whats)) and sum("2 pairs at once" in what for what in whats) == 2
    assert sum("end-to-end latency EEL" in what for what in whats) == 1
    assert sum("overhead Os" in what for what in whats) == 1
    ends = [each.rsplit(": ", 2)[-1] for each in found]
    assert all(end.count("8 B") <= 1 and end.count("64 KiB") <= 1 for end in ends)


def test_decisions_are_of_the_runs_own_confidence(tmp_path: Path) -> None:
    """Six launches are enough at 95 %, and too few at 99 %."""
    run = synthetic_mpi(tmp_path, "pingpong", subjects=(subject("openmpi", "tcp"), subject("openmpi", "barewire")))
    assert any(" against " in sentence for sentence in decisions(run, ()))
    assert not any(" against " in sentence for sentence in decisions(replace(run, confidence=0.99), ()))


def test_the_floor_is_no_contestant(tmp_path: Path) -> None:
    found = decisions(synthetic_run(tmp_path, tests=("pingpong",), subjects=("tcp", "raw", "floor")), ())
    assert any("raw Ethernet against TCP" in sentence for sentence in found)
    assert not any("floor" in sentence for sentence in found)
