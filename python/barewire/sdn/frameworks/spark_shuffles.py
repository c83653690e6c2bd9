# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Spark's shuffles announced to a controller by a listener of the driver.

    from barewire.sdn.frameworks.spark_shuffles import announce
    announce(spark)         with BAREWIRE_SDN=http://… BAREWIRE_SDN_TOKEN=… in the driver's environment

A stage's tasks report how much they have written for a shuffle. When a stage that reads this begins, it is announced
from the hosts that wrote to all executors' hosts, and withdrawn when that stage has ended. A later job that reads the
shuffle again has a stage of another number for it, which Spark skips.
"""

from collections import Counter
from typing import Any

from barewire.sdn.frameworks.announcer import Announcer

# Shuffles are remembered as long as they have no more partitions than this, and the shuffles of so many stages.
_PARTITIONS_MAX, _STAGES_MAX = 200_000, 10_000


class ShuffleListener:
    """A SparkListener in Python: Spark calls its methods, by py4j, from the thread of its listeners."""

    class Java:
        """Interfaces that py4j implements with this class."""

        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)

    def __init__(self, announcer: Announcer) -> None:
        """Begin without executors."""
        self._announcer = announcer
        # Hosts and ports of executors' blocks.
        self._executors: set[tuple[str, int]] = set()
        # By stage: the shuffle that it writes. By shuffle and partition: host and bytes; the last shuffle read is last.
        self._shuffles: dict[int, int] = {}
        self._written: dict[int, dict[int, tuple[str, int]]] = {}

    def executor(self, host: str, port: int) -> None:
        """Add an executor, which serves its blocks at this port."""
        self._executors.add((host, port))

    def executor_lost(self, host: str, port: int) -> None:
        """Remove an executor."""
        self._executors.discard((host, port))

    def writes(self, stage: int, shuffle: int) -> None:
        """Note which shuffle a stage writes, or would write if it were not skipped."""
        self._shuffles[stage] = shuffle
        while len(self._shuffles) > _STAGES_MAX:
            del self._shuffles[next(iter(self._shuffles))]

    def wrote(self, stage: int, partition: int, host: str, size_bytes: int) -> None:
        """Note what a task wrote for later stages, instead of an earlier task's of the same partition."""
        if stage in self._shuffles:
            self._written.setdefault(self._shuffles[stage], {})[partition] = host, size_bytes

    def began(self, stage: int, parents: list[int]) -> None:
        """Announce what a stage will read."""
        readers = Counter(host for host, _ in self._executors)
        volumes: Counter[tuple[str, str]] = Counter()
        for shuffle in {
            self._shuffles[parent] for parent in parents if parent in self._shuffles
        } & self._written.keys():
            self._written[shuffle] = written = self._written.pop(shuffle)
            sizes: Counter[str] = Counter()
            for source, size in written.values():
                sizes[source] += size
            for source, size in sizes.items():
                for destination, number in readers.items():
                    share = size * number // len(self._executors)
                    volumes[source, destination] += share if source != destination else 0
        if any(volumes.values()):
            self._announcer.announce(f"spark stage {stage}", volumes, [port for _, port in self._executors])
        self._forget()

    def ended(self, stage: int) -> None:
        """Withdraw a stage."""
        self._announcer.withdraw(f"spark stage {stage}")

    def _forget(self) -> None:
        """Forget the shuffles that were not read for longest."""
        partitions = 0
        for shuffle, written in reversed(list(self._written.items())):
            partitions += len(written)
            if partitions > _PARTITIONS_MAX:
                del self._written[shuffle]

    def onBlockManagerAdded(self, event: Any) -> None:
        """Spark's."""
        manager = event.blockManagerId()
        if not manager.isDriver():
            self.executor(manager.host(), manager.port())

    def onBlockManagerRemoved(self, event: Any) -> None:
        """Spark's."""
        self.executor_lost(event.blockManagerId().host(), event.blockManagerId().port())

    def onJobStart(self, event: Any) -> None:
        """Spark's: with the stages that it will skip, because their shuffle is there."""
        stages = event.stageInfos()
        for number in range(stages.size()):
            info = stages.apply(number)
            if info.shuffleDepId().isDefined():
                self.writes(info.stageId(), info.shuffleDepId().get())

    def onTaskEnd(self, event: Any) -> None:
        """Spark's. What a task wrote that failed or lost to its copy is not read."""
        if (task := event.taskInfo()).successful() and (metrics := event.taskMetrics()) is not None:
            written = metrics.shuffleWriteMetrics().bytesWritten()
            self.wrote(event.stageId(), task.partitionId(), task.host(), written)

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
