# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Announces a framework's shuffles to a controller from a thread of its own: the framework never waits for it.

The controller is that of `BAREWIRE_SDN` and `BAREWIRE_SDN_TOKEN`, as for `barewire run`.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from barewire.errors import BarewireError, WrongUse
from barewire.sdn.api.client import Announced, Client
from barewire.sdn.token import default_token_file

PROFILE = "hadoop"
# Volumes by address or name of the sender's and the receiver's host, in bytes.
Volumes = Mapping[tuple[str, str], float]
_log = logging.getLogger(__name__)


class Announcer:
    """A framework's announcements, each under a key of its own. A controller that is gone is logged, and no error."""

    def __init__(self, client: Client) -> None:
        """`client` is only used in the announcer's thread, and after it has ended."""
        self._client = client
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="barewire-sdn")
        self._announced: dict[str, Announced] = {}
        self._names: dict[str, str] = {}

    @classmethod
    def of_environment(cls) -> "Announcer":
        """Return an announcer to the controller of the environment. WrongUse without one."""
        url = os.environ.get("BAREWIRE_SDN")
        if not url:
            raise WrongUse(
                "no controller to announce to: set BAREWIRE_SDN to its URL, and BAREWIRE_SDN_TOKEN to a file"
            )
        token = os.environ.get("BAREWIRE_SDN_TOKEN")
        return cls(Client(url, Path(token) if token else default_token_file()))

    def announce(self, key: str, volumes: Volumes, ports: Sequence[int]) -> None:
        """Announce a shuffle; `ports` are those at which its hosts serve."""
        self._thread.submit(self._logged, self._announce, key, dict(volumes), sorted(set(ports)))

    def withdraw(self, key: str) -> None:
        """Withdraw a shuffle; one that was not announced is none."""
        self._thread.submit(self._logged, self._withdraw, key)

    def close(self) -> None:
        """End the thread, and withdraw everything."""
        # First: what waits there to be announced is to be withdrawn as well.
        self._thread.shutdown()
        for key in list(self._announced):
            self._logged(self._withdraw, key)

    def _announce(self, key: str, volumes: Volumes, ports: Sequence[int]) -> None:
        self._withdraw(key)
        addresses = {address for pair in volumes for address in pair}
        if addresses - self._names.keys():
            self._names = self._found(addresses)
        if unknown := sorted(addresses - self._names.keys()):
            _log.warning(
                "the controller shows no host with address %s: its flows are not announced", ", ".join(unknown)
            )
        flows = [
            {"from": self._names[source], "to": self._names[destination], "bytes": max(1, round(size))}
            for (source, destination), size in volumes.items()
            if size > 0 and not {source, destination} & set(unknown) and self._names[source] != self._names[destination]
        ]
        if flows:
            announced = Announced(self._client, announcement(key, flows, ports), _log.warning)
            announced.__enter__()
            self._announced[key] = announced

    def _found(self, workers: Set[str]) -> dict[str, str]:
        """Return the controller's names of hosts, by address and by whatever else frameworks call them."""
        known = self._client.get("hosts")["hosts"]
        # An address may exist in several VLANs: that without a tag is meant.
        names = {one["address"]: host["name"] for host in known for one in host["tagged"]}
        names |= {address: host["name"] for host in known for address in host["addresses"]}
        found = names | {host["name"]: host["name"] for host in known}
        for worker in workers - found.keys():
            with contextlib.suppress(OSError, UnicodeError):  # no such name
                own = [names[at[0]] for *_, at in socket.getaddrinfo(worker, None) if at[0] in names]
                if own:
                    found[worker] = own[0]
        return found

    def _withdraw(self, key: str) -> None:
        if (announced := self._announced.pop(key, None)) is not None:
            announced.__exit__(None, None, None)

    def _logged(self, act: Any, *arguments: Any) -> None:
        try:
            act(*arguments)
        except BarewireError as error:
            _log.warning("shuffle %s: %s", arguments[0], error)
        except Exception:  # nobody reads the future of this thread
            _log.exception("shuffle %s", arguments[0])


def announcement(key: str, flows: Sequence[Mapping[str, Any]], ports: Sequence[int]) -> dict[str, Any]:
    """Return the announcement of a shuffle, for `POST /v1/jobs`."""
    hosts = sorted({str(flow[end]) for flow in flows for end in ("from", "to")})
    return {
        "name": key[:200],
        "profile": PROFILE,
        "hosts": hosts,
        "traffic": [{"protocol": "tcp", "ports": list(ports)}] if ports else [],
        "patterns": [list(flows)],
    }
