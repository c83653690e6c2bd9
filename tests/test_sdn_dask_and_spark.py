# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified Dask and Spark on hosts of a lab under a controller: their shuffles are announced and withdrawn again, and
nothing of them is left.
"""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import stand_up

from barewire.errors import MachineCannot
from barewire.lab import LinkSpec
from barewire.sdn.bench.controlled import controlled
from barewire.sdn.frameworks import FRAMEWORKS
from barewire.sdn.frameworks.cluster import Cluster, FrameworkJob, kinds_of, require
from barewire.sdn.simulate.reference import non_blocking
from barewire.topology import parse

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("lab_allowed", "nothing_left")]
HOSTS = ("h1", "h2", "h3")
RATE = 10_000_000
VOLUME = 6_000_000


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_frameworks_shuffle_is_announced_while_it_runs_and_withdrawn(framework: str, tmp_path: Path) -> None:
    """The controller is asked for its jobs all the time; volumes lie near those that the hosts exchange."""
    try:
        require(framework)
    except MachineCannot as error:
        pytest.skip(str(error))
    network = non_blocking(parse("fat-tree:4"), HOSTS)
    with stand_up(network, LinkSpec(rate_bit_s=RATE)) as lab, controlled(lab, ["default=ecmp"], RATE) as controller:
        client = controller.client
        job = FrameworkJob(framework, kinds_of(framework)[0], VOLUME, (client.url, client.token_file))
        seen: dict[str, dict[str, Any]] = {}
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                seen.update({job["name"]: job for job in client.get("jobs")["jobs"]})

        with Cluster(lab, list(HOSTS), 1, job) as cluster:
            watcher = threading.Thread(target=watch)
            watcher.start()
            done = cluster.run()
            time.sleep(1)
            over.set()
            watcher.join()
            assert not client.get("jobs")["jobs"]
        assert done.duration_s > 1
        assert seen and all(name.startswith(framework) for name in seen)
        assert all(one["profile"] == "hadoop" and set(one["hosts"]) == set(HOSTS) for one in seen.values())
        assert all(one["traffic"][0]["protocol"] == "tcp" and one["traffic"][0]["ports"] for one in seen.values())
