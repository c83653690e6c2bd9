# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified Dask and Spark on hosts of a lab under a controller: their shuffles are announced and withdrawn again,
what they were asked to shuffle crosses the network, and nothing of them is left.
"""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import eventually, stand_up

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec
from barewire.sdn.bench.controlled import controlled
from barewire.sdn.frameworks import FRAMEWORKS
from barewire.sdn.frameworks.cluster import Cluster, FrameworkJob, kinds_of, require
from barewire.sdn.simulate.reference import non_blocking
from barewire.topology import parse

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("lab_allowed", "nothing_left")]
HOSTS = ("h1", "h2", "h3")
RATE = 10_000_000
VOLUME = 6_000_000
# What each host sends of it, and how much more than that crosses its link at most: headers of TCP, IP and Ethernet
# (7 %), acknowledgements of as much from others (5 %), what keeps the cluster together, and what is sent twice because
# two hosts at once fill the link of the third.
SHARE = VOLUME * (len(HOSTS) - 1) / len(HOSTS) ** 2
OVERHEAD_MAX = 1.4
# What the first host sends beside that: tasks, from the program and the scheduler.
TASKS_MAX = 300_000


def came(lab: Lab, host: str) -> int:
    """The bytes that came to the switch's port of a host."""
    end = lab.far_end(host)
    command = lab.command_at(end, ["ip", "-s", "-j", "link", "show", "dev", end.interface])
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(found.stdout)[0]["stats64"]["rx"]["bytes"])


def check_volume(sent: dict[str, int]) -> None:
    """Check that each host sent its share of the volume."""
    print(SHARE, sent)
    for host, size in sent.items():
        assert SHARE < size < OVERHEAD_MAX * SHARE + (TASKS_MAX if host == HOSTS[0] else 0), (SHARE, sent)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_frameworks_shuffle_is_announced_while_it_runs_and_withdrawn(framework: str) -> None:
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
            before = {host: came(lab, host) for host in HOSTS}
            done = cluster.run()
            sent = {host: came(lab, host) - before[host] for host in HOSTS}
            time.sleep(1)
            over.set()
            watcher.join()
            assert not client.get("jobs")["jobs"]
        assert done.duration_s > 8 * SHARE / RATE
        check_volume(sent)
        assert seen and all(name.startswith(framework) for name in seen)
        assert all(one["profile"] == "hadoop" and set(one["hosts"]) == set(HOSTS) for one in seen.values())
        assert all(one["traffic"][0]["protocol"] == "tcp" and one["traffic"][0]["ports"] for one in seen.values())


@pytest.mark.parametrize(
    ("framework", "kind"), [(framework, kind) for framework in FRAMEWORKS for kind in kinds_of(framework)[1:]]
)
def test_each_job_shuffles_its_volume_from_each_host_alike(framework: str, kind: str) -> None:
    """By the counters of the switch's ports, of the second job: the first has loaded all code."""
    try:
        require(framework)
    except MachineCannot as error:
        pytest.skip(str(error))
    network = non_blocking(parse("fat-tree:4"), HOSTS)
    with stand_up(network, LinkSpec(rate_bit_s=10 * RATE)) as lab, controlled(lab, ["default=ecmp"], 10 * RATE):
        with Cluster(lab, list(HOSTS), 1, FrameworkJob(framework, kind, VOLUME)) as cluster:
            cluster.run()
            before = {host: came(lab, host) for host in HOSTS}
            cluster.run()
            sent = {host: came(lab, host) - before[host] for host in HOSTS}
        check_volume(sent)


def test_a_spark_worker_that_dies_in_a_shuffle_leaves_no_job_behind() -> None:
    """Spark shuffles again without it, and announces the hosts that are left."""
    try:
        require("spark")
    except MachineCannot as error:
        pytest.skip(str(error))
    network = non_blocking(parse("fat-tree:4"), HOSTS)
    with stand_up(network, LinkSpec(rate_bit_s=RATE)) as lab, controlled(lab, ["default=ecmp"], RATE) as controller:
        client = controller.client
        job = FrameworkJob("spark", kinds_of("spark")[0], VOLUME, (client.url, client.token_file))

        def announced() -> list[set[str]]:
            return [set(one["hosts"]) for one in client.get("jobs")["jobs"]]

        with Cluster(lab, list(HOSTS), 1, job) as cluster, ThreadPoolExecutor(1) as pool:
            assert eventually(lambda: not announced(), 10)  # those of the warm-up
            running = pool.submit(cluster.run)
            assert eventually(lambda: set(HOSTS) in announced(), 60)
            cluster._processes[f"worker {HOSTS[-1]}"].kill()
            running.result()
            assert eventually(lambda: not announced(), 10)
            running = pool.submit(cluster.run)
            assert eventually(lambda: set(HOSTS[:-1]) in announced(), 60)
            running.result()
            assert eventually(lambda: not announced(), 10)
