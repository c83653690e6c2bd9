# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Selection of a command's lab: created for this run, or already running."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec, Topology, parse_topology
from barewire.lab.spec import topology_of

_ID = re.compile(r"[0-9a-f]{8}")
_ANY_LINK = LinkSpec()
_LINK_OPTIONS = "--rate, --mtu, --loss, --offloads and --receive-on"


@dataclass(frozen=True)
class LabChoice:
    """The lab that `--lab` selects: a topology and its links, and the lab itself if it is running already."""

    topology: Topology
    link: LinkSpec
    running: Lab | None = None

    @contextmanager
    def entered(self) -> Iterator[Lab]:
        """Yield the lab; a lab created for the block ends with it.

        Its switches have no controller, so they learn addresses.
        """
        if self.running is not None:
            yield self.running
            return
        with Lab.up(self.topology, self.link, standalone=True) as lab:
            yield lab


def choose_lab(text: str, link: LinkSpec = _ANY_LINK) -> LabChoice:
    """Parse `--lab`; `link` has the link options, which must be absent for a running lab."""
    if _ID.fullmatch(text) is None:
        return LabChoice(parse_topology(text), link)
    lab = Lab.open(text)
    if lab.status != "running":
        raise WrongUse(f"lab {text} is {lab.status}; `barewire lab list` lists the running ones")
    if link != _ANY_LINK:
        raise WrongUse(f"lab {text} is running already: omit {_LINK_OPTIONS}")
    network = lab.network
    topology = parse_topology(lab.topology) if network is None else topology_of(network, lab.topology)
    return LabChoice(topology, lab.link, lab)


def optional_lab(text: str | None, link: LinkSpec) -> LabChoice | None:
    """Parse an optional `--lab`; link options without a lab are rejected."""
    if text is not None:
        return choose_lab(text, link)
    if link != _ANY_LINK:
        raise WrongUse(f"{_LINK_OPTIONS} apply to a lab: add --lab")
    return None
