# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A program of Dask's DataFrame that shuffles, started on a host of a lab; it needs nothing of Barewire.

    dask_program.py SCHEDULER '{"workers": 4, "kind": "shuffle", "volume_bytes": 10000000, "seed": 1, …}'

Its first answer is {"ready": true}; then it runs the job once for each line of its input and answers {"seconds": …}.
"""

import json
import sys
import time
from typing import Any

KINDS = ("shuffle", "groupby", "merge", "rechunk")
_COLUMNS = 12
_ROW_BYTES = 8 * (_COLUMNS + 1)
# Partitions for each worker.
_PARTITIONS = 2
# The part of the volume that the warm-up has.
_WARM_UP = 50


def part(number: int, rows: int, seed: int) -> Any:
    """One partition of random rows: a key and columns that no compression shortens."""
    import numpy
    import pandas

    random = numpy.random.default_rng([seed, number])
    columns = {f"c{column}": random.random(rows) for column in range(_COLUMNS)}
    return pandas.DataFrame({"key": random.integers(0, 1 << 30, rows), **columns})


def job(facts: dict[str, Any], seed: int) -> Any:
    """Build the job's graph."""
    import dask.array
    import dask.dataframe

    partitions = _PARTITIONS * facts["workers"]
    rows = max(1, facts["volume_bytes"] // _ROW_BYTES // partitions)
    if facts["kind"] == "rechunk":
        side = max(partitions, int((facts["volume_bytes"] / 8) ** 0.5))
        array = dask.array.random.default_rng(seed).random((side, side), chunks=(-1, side // partitions + 1))
        return array.rechunk((side // partitions + 1, -1), method="p2p").sum()

    def frame(salt: int, rows: int) -> Any:
        meta = part(0, 0, 0)
        return dask.dataframe.from_map(part, range(partitions), rows=rows, seed=seed + salt, meta=meta)

    if facts["kind"] == "groupby":
        return frame(0, rows).groupby("key").agg(dict.fromkeys(("c0", "c1"), "sum"), split_out=partitions).c0.sum()
    if facts["kind"] == "merge":
        return frame(0, rows // 2).merge(frame(1, rows // 2), on="key", how="outer").c0_x.count()
    return frame(0, rows).shuffle("key").map_partitions(len, meta=("rows", "int64")).sum()


def main(scheduler: str, facts: dict[str, Any]) -> None:
    """Connect, then run jobs."""
    import dask
    import distributed

    dask.config.set({"dataframe.shuffle.method": "p2p"})
    with distributed.Client(scheduler, timeout=60) as client:
        client.wait_for_workers(facts["workers"], timeout=120)
        # The first job loads modules on all workers.
        job({**facts, "volume_bytes": facts["volume_bytes"] // _WARM_UP}, facts["seed"]).compute()
        print(json.dumps({"ready": True}), flush=True)
        for number, _ in enumerate(sys.stdin):
            graph = job(facts, facts["seed"] + number)
            began = time.monotonic()
            result = graph.compute()
            print(json.dumps({"seconds": time.monotonic() - began, "result": float(result)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
