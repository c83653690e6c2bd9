# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The message sizes at which a run knows that something changes: causes of break points."""

from barewire.models.causes import Limit, cache_limits, frame_limits
from barewire.models.naming import LIBFABRIC, OWN_PROVIDER, mtu_of, read_mpi_subject, read_subject
from barewire.models.verdict import protocol_of
from barewire.models.wire import IPV4_HEADER_BYTES, TCP_HEADER_BYTES, UDP_HEADER_BYTES
from barewire.results.run import Run

_HEADERS = {"raw": 0, "udp": IPV4_HEADER_BYTES + UDP_HEADER_BYTES, "tcp": IPV4_HEADER_BYTES + TCP_HEADER_BYTES}
_ENVELOPE_BYTES = 100
# crates/endpoint/src/tuning.rs and crates/messages/src/config.rs.
_OWN_EAGER_BYTES = 128 << 10
_OWN_INJECT_BYTES = 8 << 10
# btl_tcp_eager_limit, and FI_OFI_RXM_BUFFER_SIZE.
_OPEN_MPI_TCP_EAGER_BYTES = 64 << 10
_RXM_BUFFER_BYTES = 16 << 10


def limits_of(run: Run, subject: str) -> list[Limit]:
    """Return the sizes known for a subject: its frames, its inject size, its eager limit, the caches of the machine."""
    limits = [*_eager(run, subject), *_frames(run, subject)]
    caches = run.environment.get("caches")
    if isinstance(caches, dict):
        limits += cache_limits((str(name), int(size)) for name, size in caches.items())
    return limits


def eager_limit(run: Run, subject: str) -> int | None:
    """Return the eager limit of a subject in bytes, configured or by default; None if it is not known."""
    return next((limit.message_bytes for limit in _eager(run, subject) if "eager" in limit.name), None)


def link_mtu(run: Run, subject: str) -> int | None:
    """Return the MTU of a subject's link: that in its name if the run has several; None if it is not known."""
    mtu = run.parameters.get("mtu")
    return mtu_of(subject) or (mtu if isinstance(mtu, int) else None)


def _frames(run: Run, subject: str) -> list[Limit]:
    mtu, protocol = link_mtu(run, subject), protocol_of(subject)
    if mtu is None or protocol is None:
        return []
    return frame_limits(mtu, _HEADERS[protocol])


def _eager(run: Run, subject: str) -> list[Limit]:
    mpi, (transport, _, _, settings) = read_mpi_subject(subject), read_subject(subject)
    is_own = mpi.fabric == OWN_PROVIDER if mpi is not None else transport in ("messages", LIBFABRIC)
    tuned = {**(run.parameters.get("tuned") or {}), **dict(settings)}
    configured = dict(mpi.settings).get("eager") if mpi is not None else tuned.get("eager_bytes")
    inject = [Limit("the inject size", _OWN_INJECT_BYTES, _ENVELOPE_BYTES)] if is_own else []
    if configured is not None:
        return [Limit("the configured eager limit", int(configured), _ENVELOPE_BYTES), *inject]
    if is_own:
        return [Limit("the default eager limit", _OWN_EAGER_BYTES, _ENVELOPE_BYTES), *inject]
    if mpi is not None and mpi.fabric == "tcp" and mpi.library.startswith("openmpi"):
        return [Limit("the default eager limit", _OPEN_MPI_TCP_EAGER_BYTES, _ENVELOPE_BYTES)]
    if transport == f"{LIBFABRIC}-tcp":
        return [Limit("the default eager limit", _RXM_BUFFER_BYTES, _ENVELOPE_BYTES)]
    return []
