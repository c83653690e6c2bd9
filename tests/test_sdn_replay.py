# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A shuffle replayed between hosts of a lab with real bytes: all parts, once, at the link's rate, and nothing left."""

import time
from collections import Counter

import pytest
from conftest import eventually, stand_up

from barewire.errors import MeasurementFailed
from barewire.lab import LinkSpec
from barewire.sdn.replay.job import Replay
from barewire.sdn.simulate.shuffle import Shape, Shuffle

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
HOSTS = ("h1", "h2", "h3")
SHAPE = Shape(mappers=12, reducers=3, volume_bytes=3_000_000, copies=2)


def test_every_part_is_fetched_once_in_each_job_and_links_are_the_limit() -> None:
    """What reducers got is what the simulator's shuffle of the same seed asks for; 25 Mb/s cannot be beaten."""
    wanted = Counter(
        (number, size) for number, (_, parts) in enumerate(Shuffle(HOSTS, 1, SHAPE).wanted()) for _, size in parts
    )
    busiest = max(sum(size for _, size in parts) for _, parts in Shuffle(HOSTS, 1, SHAPE).wanted())
    with stand_up("star:3", LinkSpec(rate_bit_s=25_000_000)) as lab, Replay(lab, Shuffle(HOSTS, 1, SHAPE)) as replay:
        for _ in range(2):
            job = replay.run()
            assert Counter((one.reducer, one.size_bytes) for one in job.fetched) == wanted
            assert busiest * 8 / 25e6 < job.duration_s < 5 * busiest * 8 / 25e6
            assert max(one.ended_s for one in job.fetched) == pytest.approx(job.duration_s)
            at_once = Counter(
                sum(
                    other.began_s <= one.began_s < other.ended_s
                    for other in job.fetched
                    if other.reducer == one.reducer
                )
                for one in job.fetched
            )
            assert max(at_once) == SHAPE.copies


def test_jobs_follow_each_other_until_told_to_end_and_a_lost_worker_is_named() -> None:
    with stand_up("star:3") as lab:
        with Replay(lab, Shuffle(HOSTS, 1, SHAPE)) as replay:
            replay.start()
            assert eventually(lambda: len(replay._done) >= 2)
            workers = list(replay._workers.values())
            jobs = replay.stop()
            assert len(jobs) >= 2 and all(process.poll() is not None for process in workers)
        with Replay(lab, Shuffle(HOSTS, 1, SHAPE)) as replay:
            replay._workers["h2"].kill()
            time.sleep(0.1)
            with pytest.raises(MeasurementFailed, match=r"worker in h[123] ended"):
                replay.run()


def test_workers_that_do_not_answer_hang_after_the_patience_and_are_ended() -> None:
    """Their turn never comes, so nothing is fetched."""
    with stand_up("star:3") as lab:
        with Replay(lab, Shuffle(HOSTS, 1, SHAPE), lambda _: False, patience_s=1) as replay:
            workers = list(replay._workers.values())
            with pytest.raises(MeasurementFailed, match=r"worker in h[123] hangs: no answer for 1 s"):
                replay.run()
        assert all(process.poll() is not None for process in workers)
