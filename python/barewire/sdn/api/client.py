# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Client of a controller's API: single requests, and jobs that are announced while a program runs."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from barewire.errors import MeasurementFailed, WrongUse
from barewire.sdn.api import schema
from barewire.sdn.api.token import read_token

TIMEOUT_S = 5.0
# Renewals per lease, so that two may fail.
_RENEWALS_PER_LEASE = 3


class GoneError(MeasurementFailed):
    """The controller does not know the job, or has forgotten it."""


class Client:
    """A controller's API at `http://ADDRESS:PORT` or `unix:PATH`, with the token in a file."""

    def __init__(self, url: str, token_file: Path) -> None:
        """Read the token; WrongUse for an invalid file or address."""
        self.url, self.token_file = url, token_file
        self._token = read_token(token_file)
        parts = urlsplit(url)
        if not (parts.scheme == "unix" and parts.path) and not (parts.scheme == "http" and parts.hostname):
            raise WrongUse(f"'{url}' is not the URL of a controller's API: write http://ADDRESS:PORT or unix:PATH")
        self._parts = parts

    def get(self, name: str) -> Any:
        """Return the response of GET /v1/`name`."""
        return self._ask("GET", f"/v1/{name}")

    def announce(self, job: Mapping[str, Any]) -> Any:
        """Announce a job; return the controller's description of it, with its `id`."""
        return self._ask("POST", "/v1/jobs", job)

    def renew(self, job: str) -> Any:
        """Renew a job's lease. GoneError if the controller does not know the job."""
        return self._ask("PUT", f"/v1/jobs/{job}/lease")

    def step(self, job: str, to: int | None = None) -> Any:
        """Step to a job's next pattern, or to pattern number `to`."""
        return self._ask("POST", f"/v1/jobs/{job}/step", schema.Step(to))

    def turn(self, job: str, *, wants: bool) -> bool:
        """Return whether a job that wants to send may do so now; without `wants` say that it has sent."""
        return bool(self._ask("POST", f"/v1/jobs/{job}/turn", schema.Turn(wants))["goes"])

    def append(self, job: str, patterns: list[Any]) -> Any:
        """Announce further patterns of a job."""
        return self._ask("POST", f"/v1/jobs/{job}/patterns", {"patterns": patterns})

    def withdraw(self, job: str) -> None:
        """Withdraw a job."""
        self._ask("DELETE", f"/v1/jobs/{job}")

    def set_strategy(self, profile: str, strategy: str) -> Any:
        """Set the strategy of a profile."""
        return self._ask("PUT", f"/v1/policy/{profile}", schema.ChosenStrategy(strategy))

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection = self._connection()
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            document = json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MeasurementFailed(f"no answer from the controller at {self.url}: {error}; is it running?") from error
        finally:
            connection.close()
        if answer.status < 300:
            return document
        message = document.get("error") if isinstance(document, dict) else f"status {answer.status}"
        if answer.status == 404:
            raise GoneError(f"the controller at {self.url}: {message}")
        raise WrongUse(f"the controller at {self.url} refused: {message}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._parts.scheme == "unix":
            return _UnixConnection(self._parts.path)
        return http.client.HTTPConnection(self._parts.hostname or "", self._parts.port or 80, timeout=TIMEOUT_S)


class Announced:
    """Context manager that keeps a job announced: renews it, announces it again if forgotten, and withdraws it."""

    def __init__(self, client: Client, job: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        """`warn` is called once per outage of the controller."""
        self._client, self._job, self._warn = client, job, warn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="sdn-lease", daemon=True)
        self.id = ""
        # VLAN identifiers by which the job's frames may choose their paths, as in 3840-3843.
        self.labels: str | None = None
        self._lease_s = 0.0

    def __enter__(self) -> "Announced":
        """Announce. WrongUse if the controller refuses, MeasurementFailed if it does not answer."""
        self._announce()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Withdraw; if the controller does not answer, the job's lease expires there."""
        self._over.set()
        self._thread.join()
        try:
            self._client.withdraw(self.id)
        except (MeasurementFailed, WrongUse) as refused:
            self._warn(f"the job was not withdrawn, its lease ends in {self._lease_s:g} s: {refused}")

    def _announce(self) -> None:
        made = self._client.announce(self._job)
        self.id, self._lease_s, self.labels = made["id"], made["lease_s"], made.get("labels")

    def _renew(self) -> None:
        answered = True
        while not self._over.wait(self._lease_s / _RENEWALS_PER_LEASE):
            try:
                try:
                    self._client.renew(self.id)
                except GoneError:  # the controller has restarted
                    self._announce()
                answered = True
            except (MeasurementFailed, WrongUse) as error:
                if answered:
                    self._warn(str(error))
                answered = False


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)
