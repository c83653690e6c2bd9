# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A program of Spark's DataFrame that shuffles, started on a host of a lab.

    spark_program.py MASTER '{"workers": 4, "kind": "sort", "volume_bytes": 10000000, "seed": 1, "announce": false, …}'

Its first answer is {"ready": true}; then it runs the job once for each line of its input and answers {"seconds": …}.
Only to announce its shuffles does it need Barewire.
"""

import json
import sys
import time
from typing import Any

# `sort` is TeraSort's: a key and a payload, sampled, partitioned by range, sorted.
KINDS = ("sort", "groupby", "join")
_COLUMNS = 12
# A row as Spark sends it: its length, a bitmap of nulls, the key and the columns.
_ROW_BYTES = 4 + 8 * (_COLUMNS + 2)
# Partitions for each worker, all at once: with fewer cores, an executor that is ready sooner would get more of them.
PARTITIONS = 2
_MEMORY = "512m"
# The part of the volume that the warm-up has.
_WARM_UP = 50


def job(session: Any, facts: dict[str, Any], seed: int) -> Any:
    """Build the job's frame, which shuffles `volume_bytes`."""
    from pyspark.sql import functions

    partitions = PARTITIONS * facts["workers"]
    rows = max(partitions, facts["volume_bytes"] // _ROW_BYTES)

    def frame(salt: int, rows: int) -> Any:
        columns = [functions.rand(seed * 1000 + salt * 100 + column).alias(f"c{column}") for column in range(_COLUMNS)]
        key = (functions.rand(seed * 1000 + salt * 100 + 99) * (1 << 30)).cast("long").alias("key")
        return session.range(0, rows, 1, partitions).select(key, *columns)

    if facts["kind"] == "groupby":
        sums = [functions.collect_list(f"c{column}").alias(f"l{column}") for column in range(_COLUMNS)]
        # Grouped after the shuffle: partial groups of single rows would be several times as long.
        return frame(0, rows).repartition(partitions, "key").groupBy("key").agg(*sums)
    if facts["kind"] == "join":
        return frame(0, rows // 2).hint("merge").join(frame(1, rows // 2), on="key", how="outer")
    return frame(0, rows).sort("key")


def main(master: str, facts: dict[str, Any]) -> None:
    """Connect, then run jobs."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": facts["address"],
        "spark.driver.memory": _MEMORY,
        "spark.executor.memory": _MEMORY,
        "spark.executor.cores": str(PARTITIONS),
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": str(PARTITIONS * facts["workers"]),
        # Rows cross the network as they are, and each executor reads its share.
        "spark.shuffle.compress": "false",
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.local.dir": facts["folder"],
    }
    builder = SparkSession.builder.master(master).appName("shuffle")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if facts["announce"]:
        from barewire.sdn.frameworks.spark_shuffles import announce

        announce(session)
    # Executors register one after another.
    deadline = time.monotonic() + 120
    while session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= facts["workers"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"fewer than {facts['workers']} executors after 120 s")
        time.sleep(0.1)
    # The first job loads and compiles classes on all workers.
    warm_up = {**facts, "volume_bytes": facts["volume_bytes"] // _WARM_UP}
    job(session, warm_up, facts["seed"]).write.format("noop").mode("overwrite").save()
    print(json.dumps({"ready": True}), flush=True)
    for number, _ in enumerate(sys.stdin):
        frame = job(session, facts, facts["seed"] + number)
        began = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        print(json.dumps({"seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
