#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records the traffic from which the built-in classifier is trained: real MPI, Dask and Spark jobs in labs.

    tools/learn_traffic.py FOLDER RUN…       writes FOLDER/RUN.csv for each number, the seed of all its choices

Each run is one lab with one controller, in which an MPI program, a framework's job and other traffic run side by side,
each announced with its name. `barewire sdn learn FOLDER/*.csv -o …` trains from them. It needs what
setup/setup.sh bigdata installs.
"""

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import other_traffic

from barewire.errors import BarewireError
from barewire.lab import Lab, LinkSpec
from barewire.mpi import FabricOptions, Family, find_library, start, suite
from barewire.mpi.fabrics import Setting
from barewire.mpi.prepare import prepare
from barewire.sdn.api.client import Announced
from barewire.sdn.bench.controlled import controlled
from barewire.sdn.frameworks.cluster import Cluster, FrameworkJob, kinds_of
from barewire.sdn.simulate.reference import non_blocking
from barewire.topology import parse

SECONDS = 30.0
# One switch mostly: twenty leave the jobs little of two cores.
NETWORKS = (*["one switch"] * 5, "fat-tree")
RATES = {"one switch": (10_000_000, 15_000_000, 25_000_000, 50_000_000), "fat-tree": (2_500_000, 5_000_000)}
# Open MPI 5 the most: its waiting ranks can sleep.
LIBRARIES = ("openmpi-5", "openmpi-5", "openmpi-5", "openmpi", "mpich-5", "mpich")
PROGRAMS = ("alltoall", "exchange", "halo", "collective", "stream", "pingpong", "beff")
PASSIVE = "files"


def warn(text: str) -> None:
    """Print what went wrong without ending the run."""
    print(f"  {text}", flush=True)


def mpi_jobs(lab: Lab, hosts: list[str], rng: random.Random, program: str, over: threading.Event) -> None:
    """Run a program again and again with other sizes, over TCP, under one library."""
    library = find_library(rng.choice(LIBRARIES))
    file = suite.build(library, [program])[program]
    port = rng.choice([None, rng.randint(5000, 60000)])
    while not over.is_set():
        size = int(10 ** rng.uniform(0.5, 5.5))
        options = ["--sizes", str(size), "--output", str(lab.directory / "mpi.jsonl"), "--samples", "100000"]
        if program == "beff":
            options += ["--rings", "5", "--exchanges", "1", "--warmup", "0"]
        shares = [(host, 1) for host in hosts]
        job = prepare(library, FabricOptions("tcp"), shares, [file, *options], lab)
        settings = {}
        if library.family is Family.OPEN_MPI:
            settings = {
                "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
                "OMPI_MCA_threads_pthreads_nanosleep_time": "1000000",
                "OMPI_MCA_mpi_yield_when_idle": "1",
                "OMPI_MCA_btl": "tcp,self",
            }
            if port is not None:
                settings |= {"OMPI_MCA_btl_tcp_port_min_v4": str(port), "OMPI_MCA_btl_tcp_port_range_v4": "64"}
        job = replace(job, settings=(*job.settings, *(Setting(*one, "recording") for one in settings.items())))
        with tempfile.TemporaryFile("w+") as output, start.running(job, lab, output) as process:
            until_s = time.monotonic() + rng.uniform(8, 40)
            while process.poll() is None and time.monotonic() < until_s and not over.wait(0.2):
                pass
            if process.returncode:
                output.seek(0)
                warn(f"{program} under {library} ended with {process.returncode}: {output.read()[-300:]}")
                return


@contextmanager
def other(lab: Lab, hosts: list[str], kinds: list[str], seed: int) -> Iterator[None]:
    """Run other traffic between these hosts during the block."""
    with ExitStack() as stack:
        processes = []
        for host in hosts:
            addresses = [lab.host(one).address for one in (host, *(one for one in hosts if one != host))]
            command = [sys.executable, "-I", "-S", other_traffic.__file__, str(seed), ",".join(kinds), *addresses]
            process = lab.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("begin\n")
            process.stdin.flush()
        yield


def announcement(name: str, profile: str, hosts: list[str], ports: dict[str, list[int]] | None = None) -> dict:
    """Return an announcement for `POST /v1/jobs`."""
    traffic = [{"protocol": protocol, "ports": numbers} for protocol, numbers in (ports or {}).items()]
    return {"name": name, "profile": profile, "hosts": hosts, "traffic": traffic}


def record(seed: int, file: Path) -> None:
    """Record one run."""
    rng = random.Random(seed)
    topology = rng.choice(NETWORKS)
    rate = rng.choice(RATES[topology])
    framework = ("dask", "spark", "dask", "spark", "dask", "none")[seed % 6]
    program = PROGRAMS[seed % len(PROGRAMS)]
    with ExitStack() as stack:
        network = parse("fat-tree:4")
        if topology == "one switch":
            network = non_blocking(network, network.hosts[:12])
        lab = stack.enter_context(Lab.up(network, LinkSpec(rate_bit_s=rate)))
        options = ["--classifier", "none", "--record", str(file)]
        controller = stack.enter_context(controlled(lab, ["default=ecmp"], rate, options))
        hosts = [host.name for host in lab.hosts]
        rng.shuffle(hosts)
        few = rng.randint(3, 4)
        mpi, data, apart = hosts[:4], hosts[4 : 4 + few], hosts[8:12]
        kinds = rng.sample(sorted(other_traffic.KINDS), rng.randint(2, 4))
        if rng.random() < 0.5 and framework != "none":
            # On the hosts of the jobs: told apart by ports, so none at random ports.
            apart = rng.sample(mpi + data, 4)
            kinds = [kind for kind in kinds if kind != PASSIVE]
            datagrams = ("names", "stream")
            ports = {
                "tcp": [port for kind, port in other_traffic.PORTS.items() if kind not in datagrams],
                "udp": [other_traffic.PORTS[kind] for kind in datagrams],
            }
            others = announcement("other traffic, same hosts", "default", apart, ports)
        else:
            others = announcement("other traffic", "default", apart)
        volume = int(rate / 8 * rng.uniform(1, 6) * few)
        kind = rng.choice(kinds_of(framework)) if framework != "none" else ""
        print(
            f"{file.name}: {topology} at {rate / 1e6:g} Mb/s, {framework} {kind}, {program}, {','.join(kinds)}",
            flush=True,
        )
        jobs = [announcement(f"mpi {program}", "mpi", mpi), others]
        if framework != "none":
            jobs.append(announcement(f"{framework} {kind}", "hadoop", data))
        for job in jobs:
            stack.enter_context(Announced(controller.client, job, warn))
        stack.enter_context(other(lab, apart, kinds, seed))
        over = threading.Event()
        ranks = threading.Thread(target=mpi_jobs, args=(lab, mpi, rng, program, over))
        ranks.start()
        stack.callback(ranks.join)
        stack.callback(over.set)
        if framework != "none":
            cluster = Cluster(lab, data, seed, FrameworkJob(framework, kind, volume))
            stack.enter_context(cluster)
            cluster.start()
        time.sleep(SECONDS)
        if framework != "none":
            print(f"  {len(cluster.stop())} jobs of {framework}", flush=True)


def main(folder: Path, runs: list[int]) -> None:
    """Record runs one after another; one that fails is reported and left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in runs:
        file = folder / f"{seed}.csv"
        try:
            record(seed, file)
        except BarewireError as error:
            print(f"{file.name}: {error}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
