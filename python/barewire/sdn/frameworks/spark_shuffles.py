# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Spark's shuffles announced to a controller by a listener of the driver.

    from barewire.sdn.frameworks.spark_shuffles import announce
    announce(spark)         with BAREWIRE_SDN=http://… BAREWIRE_SDN_TOKEN=… in the driver's environment

A stage's tasks report how much they have written for the next stage. When a stage that reads this begins, it is
announced from the hosts that wrote to all executors' hosts, and withdrawn when that stage has ended.
"""

from collections import Counter
from typing import Any

from barewire.sdn.frameworks.announcer import Announcer


class ShuffleListener:
    """A SparkListener in Python: Spark calls its methods, by py4j, from the thread of its listeners."""

    class Java:
        """Interfaces that py4j implements with this class."""

        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)

    def __init__(self, announcer: Announcer) -> None:
        """Begin without executors."""
        self._announcer = announcer
        # Hosts and ports of executors' blocks; bytes written by stage and host.
        self._executors: set[tuple[str, int]] = set()
        self._written: dict[int, Counter[str]] = {}

    def executor(self, host: str, port: int) -> None:
        """Add an executor, which serves its blocks at this port."""
        self._executors.add((host, port))

    def executor_lost(self, host: str, port: int) -> None:
        """Remove an executor."""
        self._executors.discard((host, port))

    def wrote(self, stage: int, host: str, size_bytes: int) -> None:
        """Add what a task wrote for later stages."""
        if size_bytes > 0:
            self._written.setdefault(stage, Counter())[host] += size_bytes

    def began(self, stage: int, parents: list[int]) -> None:
        """Announce what a stage will read."""
        readers = Counter(host for host, _ in self._executors)
        volumes: Counter[tuple[str, str]] = Counter()
        for parent in parents:
            for source, size in self._written.get(parent, {}).items():
                for destination, number in readers.items():
                    share = size * number // len(self._executors)
                    volumes[source, destination] += share if source != destination else 0
        if any(volumes.values()):
            self._announcer.announce(f"spark stage {stage}", volumes, [port for _, port in self._executors])

    def ended(self, stage: int) -> None:
        """Withdraw a stage."""
        self._announcer.withdraw(f"spark stage {stage}")

    def onBlockManagerAdded(self, event: Any) -> None:
        """Spark's."""
        manager = event.blockManagerId()
        if not manager.isDriver():
            self.executor(manager.host(), manager.port())

    def onBlockManagerRemoved(self, event: Any) -> None:
        """Spark's."""
        self.executor_lost(event.blockManagerId().host(), event.blockManagerId().port())

    def onTaskEnd(self, event: Any) -> None:
        """Spark's. A task that failed may have no metrics."""
        if (metrics := event.taskMetrics()) is not None:
            self.wrote(event.stageId(), event.taskInfo().host(), metrics.shuffleWriteMetrics().bytesWritten())

    def onStageSubmitted(self, event: Any) -> None:
        """Spark's."""
        parents = event.stageInfo().parentIds()
        self.began(event.stageInfo().stageId(), [parents.apply(number) for number in range(parents.size())])

    def onStageCompleted(self, event: Any) -> None:
        """Spark's: also of stages that failed."""
        self.ended(event.stageInfo().stageId())

    def onApplicationEnd(self, _event: Any) -> None:
        """Spark's."""
        self._announcer.close()

    def __getattr__(self, name: str) -> Any:
        """Ignore all other events."""
        if name.startswith("on"):
            return lambda _event: None
        raise AttributeError(name)


def announce(session: Any) -> ShuffleListener:
    """Announce a session's shuffles. WrongUse without a controller in the environment."""
    from pyspark.java_gateway import ensure_callback_server_started

    listener = ShuffleListener(Announcer.of_environment())
    context = session.sparkContext
    ensure_callback_server_started(context._gateway)
    spark = context._jsc.sc()
    spark.addSparkListener(listener)
    # Executors that had registered before; the driver is among them.
    driver = spark.env().blockManager().blockManagerId()
    managers = spark.getExecutorMemoryStatus().keys().toSeq()
    for number in range(managers.size()):
        host, _, port = managers.apply(number).rpartition(":")
        if (host, int(port)) != (driver.host(), driver.port()):
            listener.executor(host, int(port))
    return listener
