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
# A row as Dask sends it: the key and the columns, the index of pandas, and the number of its output partition.
_ROW_BYTES = 8 * (_COLUMNS + 2) + 1
# Partitions for each worker.
PARTITIONS = 2
# The part of the volume that the warm-up has.
_WARM_UP = 50


def part(number: int, rows: int, seed: int) -> Any:
    """One partition of random rows: a key and columns that no compression shortens."""
    import numpy
    import pandas

    random = numpy.random.default_rng([seed, number])
    columns = {f"c{column}": random.random(rows) for column in range(_COLUMNS)}
    return pandas.DataFrame({"key": random.integers(0, 1 << 30, rows), **columns})


def stripe(number: int, rows: int, columns: int, seed: int) -> Any:
    """One chunk of a random array."""
    import numpy

    return numpy.random.default_rng([seed, number]).random((rows, columns))


class Inputs:
    """Creates inputs in the workers' memory, equally many in each, before a job begins.

    So each worker sends its share of the volume to all others: left to the scheduler, a worker that is ready sooner
    creates more partitions, and what it creates does not leave it.
    """

    def __init__(self, client: Any) -> None:
        """Use all workers of the client's cluster."""
        self._client = client
        self._workers = sorted(client.nthreads())

    def frame(self, rows: int, seed: int) -> Any:
        """Return a frame with that many rows in each partition."""
        import dask.dataframe

        parts = self._in_memory(part, rows, seed)
        return dask.dataframe.from_delayed(parts, meta=part(0, 0, 0), verify_meta=False)

    def array(self, side: int, seed: int) -> Any:
        """Return a square array, its columns in as many chunks as there are partitions; these divide `side`."""
        import dask.array

        width = side // (PARTITIONS * len(self._workers))
        chunks = self._in_memory(stripe, side, width, seed)
        return dask.array.concatenate([dask.array.from_delayed(one, (side, width), float) for one in chunks], axis=1)

    def _in_memory(self, make: Any, *arguments: Any) -> list[Any]:
        import distributed

        numbers = range(PARTITIONS * len(self._workers))
        found = [
            self._client.submit(make, number, *arguments, workers=[self._workers[number // PARTITIONS]], pure=False)
            for number in numbers
        ]
        distributed.wait(found)
        return found


def job(inputs: Inputs, facts: dict[str, Any], seed: int) -> Any:
    """Create a job's inputs, and return the job, which shuffles `volume_bytes`.

    Functions that Dask does not know need all columns, so it cannot leave any out of the shuffle.
    """
    partitions = PARTITIONS * facts["workers"]
    rows = max(1, facts["volume_bytes"] // _ROW_BYTES // partitions)
    rows_of = {"meta": ("rows", "int64")}
    if facts["kind"] == "rechunk":
        height = max(1, round((facts["volume_bytes"] / 8) ** 0.5 / partitions))
        side = height * partitions
        # Without a limit Dask first merges small chunks, at one worker, and shuffles the whole from there.
        return inputs.array(side, seed).rechunk((height, -1), method="p2p", block_size_limit=8 * height * side).sum()
    if facts["kind"] == "groupby":
        sums = dict.fromkeys((f"c{column}" for column in range(_COLUMNS)), "sum")
        return (
            inputs.frame(rows, seed).groupby("key").agg(sums, split_out=partitions).map_partitions(len, **rows_of).sum()
        )
    if facts["kind"] == "merge":
        half = max(1, rows // 2)
        both = inputs.frame(half, seed).merge(inputs.frame(half, seed + 1), on="key", how="outer")
        return both.map_partitions(len, **rows_of).sum()
    return inputs.frame(rows, seed).shuffle("key").map_partitions(len, **rows_of).sum()


def main(scheduler: str, facts: dict[str, Any]) -> None:
    """Connect, then run jobs."""
    import dask
    import distributed

    dask.config.set({"dataframe.shuffle.method": "p2p"})
    with distributed.Client(scheduler, timeout=60) as client:
        client.wait_for_workers(facts["workers"], timeout=120)
        inputs = Inputs(client)
        # The first job loads modules on all workers.
        job(inputs, {**facts, "volume_bytes": facts["volume_bytes"] // _WARM_UP}, facts["seed"]).compute()
        print(json.dumps({"ready": True}), flush=True)
        for number, _ in enumerate(sys.stdin):
            graph = job(inputs, facts, 1000 * facts["seed"] + 2 * number)
            began = time.monotonic()
            result = graph.compute()
            print(json.dumps({"seconds": time.monotonic() - began, "result": float(result)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
