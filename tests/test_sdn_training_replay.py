# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training jobs replayed between hosts of a lab with real bytes: all iterations, at the links' rate, in turns."""

import time

import pytest
from conftest import stand_up

from barewire.errors import MeasurementFailed
from barewire.lab import Lab, LinkSpec
from barewire.sdn.replay.job import Replay
from barewire.sdn.replay.training import TrainingReplay
from barewire.sdn.simulate import Setup, Shape, Shuffle, TrainingPlan
from barewire.sdn.simulate.experiment import training_job
from barewire.topology import star, with_rate

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
RATE = 25_000_000
HOSTS = ("h1", "h2", "h3")
SETUP = Setup(with_rate(star(3), RATE), training=TrainingPlan(50_000, iterations=2))


def sent_bytes(lab: Lab, host: str) -> int:
    """What a host's interface has sent."""
    counters = lab.run(host, ["cat", "/proc/net/dev"], capture_output=True, text=True, check=True).stdout
    [line] = [line for line in counters.splitlines() if lab.host(host).interface + ":" in line]
    return int(line.partition(":")[2].split()[8])


def test_every_collective_sends_its_bytes_in_every_iteration_and_not_faster_than_the_links() -> None:
    with stand_up("star:3", LinkSpec(rate_bit_s=RATE)) as lab:
        for number, collective in enumerate(("ring", "tree", "moe", "pipeline")):
            job = training_job(SETUP, HOSTS, 1, collective, number)
            wanted = 2 * sum(size for step in job.steps for source, _, size in step if source == 0)
            with TrainingReplay(lab, job, number=number) as replay:
                before = sent_bytes(lab, "h1")
                took_s = replay.run().duration_s
                carried = sent_bytes(lab, "h1") - before
            assert wanted < carried < 1.3 * wanted, collective
            least_s = 2 * (job.compute_s + max(wanted / 2, 1) * 8 / RATE)
            assert 0.98 * least_s < took_s < 5 * least_s, collective


def test_a_held_job_sends_nothing_and_a_lost_rank_is_named() -> None:
    """Refused for 0.4 s, jobs take at least so long; a shuffle that is never granted fetches nothing."""
    began_s = time.monotonic()
    asked: list[bool] = []

    def later(wants: bool) -> bool:
        asked.append(wants)
        return time.monotonic() > began_s + 0.4

    with stand_up("star:3") as lab:
        with TrainingReplay(lab, training_job(SETUP, HOSTS, 1, "ring"), later) as replay:
            began_s = time.monotonic()
            assert replay.run().duration_s > 0.4
            assert asked[0] and not asked[-1] and asked.count(False) == 2, "told at the end of each iteration"
            replay._workers["h2"].kill()
            time.sleep(0.1)
            with pytest.raises(MeasurementFailed, match=r"training-0's worker in h[123] ended"):
                replay.run()
        with Replay(lab, Shuffle(HOSTS, 1, Shape(6, 3, 300_000)), later) as waiting:
            began_s = time.monotonic()
            assert waiting.run().duration_s > 0.35
        with Replay(lab, Shuffle(HOSTS, 1, Shape(6, 3, 300_000)), lambda _: False) as held:
            before = sent_bytes(lab, "h1")
            held.start()
            time.sleep(0.5)
            assert sent_bytes(lab, "h1") - before < 10_000
            assert held.stop() == []
