# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified Dask and Spark on the hosts of a lab: a cluster with a worker on each host, and a program that shuffles.

The program runs on the first host, beside the scheduler, and repeats its job for each line of its input; it answers
with {"seconds": …}. Ports are those that the frameworks choose: all random, except the scheduler's.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from barewire.errors import MachineCannot, MeasurementFailed, unknown
from barewire.lab import Lab
from barewire.lab.startup import environment
from barewire.sdn.frameworks import FRAMEWORKS, dask_program, spark_program
from barewire.sdn.replay.repeated import PATIENCE_S, RepeatedJob, Replayed

# What each needs: packages of Python, and programs.
_NEEDS = {"dask": (("distributed", "pandas", "pyarrow"), ()), "spark": (("pyspark",), ("java",))}
_DASK_PORT, _SPARK_PORT = 8786, 7077
_DRIVER = "program"
# A cluster that starts has this time at least: Spark's program alone waits 120 s for executors.
_START_S = 300.0


@dataclass(frozen=True)
class FrameworkJob:
    """A job of a framework: what it does (see the programs), and how much it shuffles in bytes.

    Of that, each of n hosts sends the n-th part, and keeps the n-th part of this.

    `announce_to` is the controller's URL and token file; without it nothing is announced.
    """

    framework: str
    kind: str
    volume_bytes: int
    announce_to: tuple[str, Path] | None = None

    def __post_init__(self) -> None:
        """Validate the job."""
        if self.framework not in FRAMEWORKS:
            raise unknown("framework", self.framework, FRAMEWORKS)
        kinds = kinds_of(self.framework)
        if self.kind not in kinds:
            raise unknown(f"job of {self.framework}", self.kind, kinds)


def kinds_of(framework: str) -> Sequence[str]:
    """Return the jobs of a framework."""
    return dask_program.KINDS if framework == "dask" else spark_program.KINDS


def require(framework: str) -> None:
    """Check that a framework is installed. MachineCannot says what is missing and how to get it."""
    packages, programs = _NEEDS[framework]
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    missing += [name for name in programs if shutil.which(name) is None]
    if missing:
        raise MachineCannot(f"{framework} needs {', '.join(missing)}: run setup/setup.sh bigdata")


class Cluster(RepeatedJob):
    """A framework's cluster with a repeatable job; as a context manager it ends all processes at the block's end."""

    def __init__(
        self, lab: Lab, hosts: Sequence[str], seed: int, job: FrameworkJob, patience_s: float = PATIENCE_S
    ) -> None:
        """Initialise without starting. MachineCannot if the framework is not installed."""
        super().__init__(patience_s)
        require(job.framework)
        self._lab, self._hosts, self._seed, self._job = lab, list(hosts), seed, job
        self._folder = lab.directory / f"{job.framework}-{hosts[0]}"
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._said: dict[str, IO[str]] = {}
        self._resources = ExitStack()

    def run(self) -> Replayed:
        """Run one job to completion. MeasurementFailed if a process is lost."""
        stdin = self._processes[_DRIVER].stdin
        assert stdin is not None
        try:
            stdin.write("run\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._lost(_DRIVER) from None
        return Replayed(float(self._answer(self._patience_s)["seconds"]))

    def _begin(self) -> None:
        self._folder.mkdir()
        address = self._lab.host(self._hosts[0]).address
        begin = self._begin_dask if self._job.framework == "dask" else self._begin_spark
        program = begin(address)
        facts = {
            "workers": len(self._hosts),
            "kind": self._job.kind,
            "volume_bytes": self._job.volume_bytes,
            "seed": self._seed,
            "announce": self._job.announce_to is not None,
            "folder": str(self._folder),
            "address": address,
        }
        self._start(_DRIVER, self._hosts[0], [*program, json.dumps(facts)])
        if not self._answer(max(self._patience_s, _START_S)).get("ready"):
            raise self._lost(_DRIVER)

    def _begin_dask(self, address: str) -> list[str]:
        options = ["--no-dashboard", "--host", address, "--port", str(_DASK_PORT)]
        if self._job.announce_to is not None:
            options += ["--preload", "barewire.sdn.frameworks.dask_shuffles"]
        self._start("scheduler", self._hosts[0], [*_module("distributed.cli.dask_scheduler"), *options])
        for host in self._hosts:
            own = ["--host", self._lab.host(host).address, "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
            own += ["--local-directory", str(self._folder / host), f"tcp://{address}:{_DASK_PORT}"]
            self._start(f"worker {host}", host, [*_module("distributed.cli.dask_worker"), *own])
        return [sys.executable, str(Path(dask_program.__file__)), f"tcp://{address}:{_DASK_PORT}"]

    def _begin_spark(self, address: str) -> list[str]:
        home = Path(str(importlib.util.find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
        java = ["java", "-cp", f"{home}/jars/*", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        deploy = "org.apache.spark.deploy"
        master = ["--host", address, "--port", str(_SPARK_PORT), "--webui-port", "0"]
        self._start("master", self._hosts[0], [*java, f"{deploy}.master.Master", *master])
        for host in self._hosts:
            own = ["--host", self._lab.host(host).address, "--memory", "600m", "--webui-port", "0"]
            own += [
                "--cores",
                str(spark_program.PARTITIONS),
                "--work-dir",
                str(self._folder / host),
                f"spark://{address}:{_SPARK_PORT}",
            ]
            # What Spark's own scripts set; the worker's launcher of executors asks for both.
            variables = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": _scala_version(home)}
            self._start(f"worker {host}", host, [*java, f"{deploy}.worker.Worker", *own], **variables)
        return [sys.executable, str(Path(spark_program.__file__)), f"spark://{address}:{_SPARK_PORT}"]

    def _start(self, name: str, host: str, command: Sequence[str], **variables: str) -> None:
        said = self._resources.enter_context((self._folder / f"{name}.log".replace(" ", "-")).open("w+"))
        address = self._lab.host(host).address
        self._said[name] = said
        self._processes[name] = self._lab.popen(
            host,
            command,
            env=self._environment(address) | variables,
            stdin=subprocess.PIPE if name == _DRIVER else subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == _DRIVER else said,
            stderr=said,
            text=True,
        )

    def _environment(self, address: str) -> dict[str, str]:
        variables = {**environment(), "SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}
        variables["SPARK_LOCAL_DIRS"] = str(self._folder)
        variables["DASK_DISTRIBUTED__WORKER__DAEMON"] = "False"
        # A stolen task would take its partition along, so more than the volume would cross the network.
        variables["DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING"] = "False"
        if self._job.announce_to is not None:
            url, token = self._job.announce_to
            variables |= {"BAREWIRE_SDN": url, "BAREWIRE_SDN_TOKEN": str(token)}
        return variables

    def _answer(self, patience_s: float) -> Mapping[str, Any]:
        line = self._line(self._processes[_DRIVER], f"{self._job.framework}'s {_DRIVER}", patience_s)
        if not line:
            raise self._lost(_DRIVER)
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def _lost(self, name: str) -> MeasurementFailed:
        """The error of a process that ended; of the program, because another one ended, if so."""
        ended = [other for other, process in self._processes.items() if other != name and process.poll() is not None]
        name = ended[0] if ended else name
        said = self._said[name]
        said.flush()
        lines = [line for line in Path(said.name).read_text(errors="replace").splitlines() if line.strip()]
        return MeasurementFailed(f"{self._job.framework}'s {name} ended: {lines[-1] if lines else 'no output'}")

    def _end(self) -> None:
        self._end_processes(self._processes)
        self._processes.clear()
        self._resources.close()


def _scala_version(home: Path) -> str:
    library = next((home / "jars").glob("scala-library-*.jar"))
    return ".".join(library.stem.rsplit("-", 1)[-1].split(".")[:2])


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]
