#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified Dask or Spark beside MPI on one network, nothing announced: what each loses, what is recognised.

    tools/bench_bigdata.py [dask|spark] [RATE [BLOCKS [HOSTS]]]       prints a line of JSON for each policy and block

In each block each policy gets its own lab: the ranks of a ring alone, the framework's job alone, then both. The ranks'
progress is the bytes that their hosts send in a window; the job's is its duration. `sdn bench --workload both
--shuffler dask --no-announce` measures the same with the references, in more time.
"""

import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from barewire.lab import Lab, LinkSpec, load
from barewire.mpi import FabricOptions, Job, find_library, start, suite
from barewire.mpi.fabrics import Setting
from barewire.mpi.prepare import prepare
from barewire.sdn.bench.controlled import controlled
from barewire.sdn.classify.policy import DEFAULT_STRATEGIES
from barewire.sdn.frameworks.cluster import Cluster, FrameworkJob, kinds_of
from barewire.sdn.simulate.placement import halves
from barewire.topology import parse
from barewire.topology.rate import parse_rate

WINDOW_S = 20.0
JOBS = 2
# What each host shuffles, as the time that it takes its link.
_JOB_S = 10
POLICIES = {"stp": dict.fromkeys(DEFAULT_STRATEGIES, "stp"), "default": DEFAULT_STRATEGIES}


def sent_bytes(lab: Lab, hosts: list[str]) -> int:
    """Return the bytes that these hosts have sent."""
    total = 0
    for host in hosts:
        file = f"/sys/class/net/{lab.host(host).interface}/statistics/tx_bytes"
        total += int(lab.run(host, ["cat", file], capture_output=True, text=True, check=True).stdout)
    return total


def rate_of(lab: Lab, hosts: list[str], seconds: float) -> float:
    """Bytes a second that these hosts send during a window."""
    before, began = sent_bytes(lab, hosts), time.monotonic()
    time.sleep(seconds)
    return (sent_bytes(lab, hosts) - before) / (time.monotonic() - began)


def ring(lab: Lab, hosts: list[str], rate_bit_s: int) -> Job:
    """Return the endless rings of these hosts, which wait as `sdn bench` lets them."""
    library = find_library("openmpi-5")
    file = suite.build(library, ["beff"])["beff"]
    program = [file, "--seed", "1", "--sizes", str(round(0.16 * rate_bit_s / 8)), "--rings", "5", "--exchanges", "1"]
    program += ["--warmup", "0", "--samples", "100000", "--output", str(lab.directory / "beff.jsonl")]
    job = prepare(library, FabricOptions("tcp"), [(host, 1) for host in hosts], program, lab)
    settings = {
        "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
        "OMPI_MCA_threads_pthreads_nanosleep_time": str(round(1250e9 / rate_bit_s)),
        "OMPI_MCA_btl": "tcp,self",
    }
    return replace(job, settings=(*job.settings, *(Setting(*one, "experiment") for one in settings.items())))


def recognised(flows: list[dict], hpc: list[str], data: list[str]) -> dict:
    """Flows by the kind of their hosts, and what the controller takes them for."""
    truth = dict.fromkeys(hpc, "mpi") | dict.fromkeys(data, "hadoop")
    said = Counter(f"{truth.get(one['source'], 'none')} as {one['profile']} by {one['known_by']}" for one in flows)
    return dict(sorted(said.items()))


def measure(policy: str, framework: str, rate: int, count: int, seed: int) -> dict:
    """Measure one policy in a new lab."""
    network = parse("fat-tree:4")
    hpc, data = (list(hosts) for hosts in halves(network, count))
    strategies = [f"{profile}={strategy}" for profile, strategy in POLICIES[policy].items()]
    volume = round(rate / 8 * _JOB_S * len(data))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab.up(network, LinkSpec(rate_bit_s=rate)))
        controller = stack.enter_context(controlled(lab, strategies, rate))
        output = stack.enter_context(tempfile.TemporaryFile("w+"))
        job = ring(lab, hpc, rate)
        with start.running(job, lab, output):
            time.sleep(6)
            alone = rate_of(lab, hpc, WINDOW_S)
        cluster = stack.enter_context(Cluster(lab, data, seed, FrameworkJob(framework, kinds_of(framework)[0], volume)))
        jobs_alone = [cluster.run().duration_s for _ in range(JOBS)]
        began = load.moment(tuple(lab.servers.values()))
        with start.running(job, lab, output):
            time.sleep(6)
            before, at = sent_bytes(lab, hpc), time.monotonic()
            jobs_beside = [cluster.run().duration_s for _ in range(JOBS)]
            beside = (sent_bytes(lab, hpc) - before) / (time.monotonic() - at)
            flows = controller.client.get("flows")["flows"]
        used = load.between(began, load.moment(tuple(lab.servers.values())))
    return {
        "policy": policy,
        "mpi_alone_byte_s": round(alone),
        "mpi_beside": round(beside / alone, 3),
        "job_alone_s": round(median(jobs_alone), 2),
        "job_beside": round(median(jobs_alone) / median(jobs_beside), 3),
        "busy_share": round(used.busy_share, 2),
        "flows": recognised(flows, hpc, data),
    }


def main(framework: str = "dask", rate: str = "1500kbit", blocks: str = "1", count: str = "16") -> None:
    """Measure all policies in each block, in random order."""
    rate_bit_s = parse_rate(rate)
    assert rate_bit_s is not None
    generator = random.Random(1)
    for block in range(int(blocks)):
        for policy in generator.sample(sorted(POLICIES), len(POLICIES)):
            found = measure(policy, framework, rate_bit_s, int(count), block)
            print(json.dumps({"block": block, "framework": framework, "rate": rate, **found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
