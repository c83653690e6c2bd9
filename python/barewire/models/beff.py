# SPDX-License-Identifier: Apache-2.0 OR MIT
"""b_eff's ring values from each rank's times, computed as in HPC Challenge.

Source: Rabenseifner and Koniges 2001; HPC Challenge's latency and bandwidth part. Times come from `mpi/beff`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

METHODS = ("sendrecv", "nonblocking")


def ring_latency_ns(*exchange_ns: ArrayLike) -> float:
    """Latency of one ring: half of an exchange with both neighbours, in ns.

    Each argument is one method's times in ns, of shape (measurements, ranks), all of one shape. The faster method of
    each rank counts, the slowest rank of each measurement, and the fastest measurement. ValueError for no method,
    differing shapes, or times that are not above 0.
    """
    if not exchange_ns:
        raise ValueError("no method was measured; run beff with at least one of " + ", ".join(METHODS))
    methods = [np.asarray(times, dtype=np.float64) for times in exchange_ns]
    shape = methods[0].shape
    if len(shape) != 2 or 0 in shape or any(method.shape != shape for method in methods):
        raise ValueError("each method needs one time for each measurement and rank")
    times = np.stack(methods)
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("times must be finite and above 0; measure again")
    return float(times.min(axis=0).max(axis=1).min() / 2)


def mean_latency_ns(ring_latencies_ns: Sequence[float]) -> float:
    """Geometric mean over random rings, in ns. ValueError for none, or one that is not above 0."""
    latencies = np.asarray(ring_latencies_ns, dtype=np.float64)
    if latencies.size == 0 or not (latencies > 0).all():
        raise ValueError("need the latency of at least one ring, each above 0; run beff with --rings 1 or more")
    return float(np.exp(np.log(latencies).mean()))


def bandwidth_byte_s(message_bytes: int, latency_ns: float) -> float:
    """Return the bytes per second sent by each process: length / latency. ValueError unless both are above 0."""
    if not (message_bytes > 0 and latency_ns > 0):
        raise ValueError(f"a bandwidth needs a message and a latency above 0, not {message_bytes} and {latency_ns}")
    return message_bytes * 1e9 / latency_ns
