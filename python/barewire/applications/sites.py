# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sites for launches: hosts, links, ranks, and the fabric that Barewire is compared with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barewire.lab import Lab, LinkSpec
from barewire.mpi import HostSlots, spread
from barewire.mpi.fabrics import PROVIDER, FabricOptions
from barewire.mpi.placement import LOCAL_HOST

_GIGABIT = 1_000_000_000
_PLAIN = LinkSpec()


@dataclass(frozen=True)
class Site:
    """Ranks on a lab's hosts, or on this host if `topology` is None; `rival` is the fabric to compare with."""

    name: str
    what: str
    ranks: int
    topology: str | None = None
    link: LinkSpec = _PLAIN
    rival: str = "tcp"

    @property
    def fabrics(self) -> tuple[str, str]:
        """Barewire's fabric and the rival."""
        return PROVIDER, self.rival

    @contextmanager
    def running(self) -> Iterator[Lab | None]:
        """Yield a lab that is created for the block; None on this host."""
        if self.topology is None:
            yield None
            return
        with Lab.up(self.topology, self.link) as lab:
            yield lab

    def shares(self, lab: Lab | None) -> list[tuple[str, int]]:
        """Return each host's number of ranks."""
        hosts = [HostSlots(LOCAL_HOST)] if lab is None else [HostSlots(host.name) for host in lab.hosts]
        return spread(self.ranks, hosts)

    def requested(self, fabric: str) -> FabricOptions:
        """Return the options of a fabric; on one host Barewire uses the loopback interface, which every machine has."""
        return FabricOptions(fabric, interface="lo" if self.topology is None and fabric == PROVIDER else None)


SITES = {
    site.name: site
    for site in (
        Site("pair", "two hosts", 2, "pair"),
        Site("pair-offloads", "two hosts, offloads on", 2, "pair", LinkSpec(offloads=True)),
        Site("star4", "four hosts at 1 Gb/s", 4, "star:4", LinkSpec(rate_bit_s=_GIGABIT)),
        Site("crowded", "four hosts at 1 Gb/s, eight ranks", 8, "star:4", LinkSpec(rate_bit_s=_GIGABIT)),
        Site("one-host", "one host, against shared memory", 2, rival="shm"),
    )
}
