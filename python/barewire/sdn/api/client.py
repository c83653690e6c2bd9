# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Client of a controller's API: single requests, and jobs that are announced while a program runs."""

import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from barewire.errors import MeasurementFailed, WrongUse
from barewire.sdn.api import schema
from barewire.sdn.flow import DEFAULT_PROFILE
from barewire.sdn.tls import client_context, reason_of
from barewire.sdn.token import read_token

TIMEOUT_S = 5.0
# Of several controllers one may be gone, or frozen: whether it leads is waited for no longer than this.
FIND_S = 1.0
# A pair without a leader has one again within a second, and a busy machine is slower.
PATIENCE_S = 5.0
AGAIN_S = 0.1
# Labels are there soon after the last change of the network.
LABELS_PATIENCE_S = 5.0
# Answers of a standby: another one leads, or none is known.
_STANDBY = (307, 503)
# The file of the authority that signed the API's certificate; without it those of the system are trusted.
AUTHORITY = "BAREWIRE_SDN_CA"
# Renewals per lease, so that two may fail.
_RENEWALS_PER_LEASE = 3


class GoneError(MeasurementFailed):
    """The controller does not know the job, or has forgotten it."""


class _NoAnswerError(Exception):
    """A controller gave no answer. `was_sent`: it may have executed the request."""

    def __init__(self, error: Exception, was_sent: bool) -> None:
        super().__init__(str(error) or type(error).__name__)
        self.was_sent = was_sent


class Client:
    """A controller's API at `http://ADDRESS:PORT`, `https://ADDRESS:PORT` or `unix:PATH`, with the token in a file.

    Of a pair there are two URLs, separated by a comma: the client finds the one that leads, and waits while none does.
    """

    def __init__(self, url: str, token_file: Path) -> None:
        """Read the token; WrongUse for an invalid file or address."""
        self.url, self.token_file = url, token_file
        self._token = read_token(token_file)
        self._urls = [one.strip().rstrip("/") for one in url.split(",")]
        for one in self._urls:
            if not is_api_url(one):
                raise WrongUse(
                    f"'{one}' is not the URL of a controller's API: write http://ADDRESS:PORT or unix:PATH, of a pair "
                    "both with a comma between"
                )
        self._is_paired = len(self._urls) > 1
        # The one that answered last.
        self._leader: str | None = None
        self._tls: ssl.SSLContext | None = None

    def get(self, name: str) -> Any:
        """Return the response of GET /v1/`name`."""
        return self._ask("GET", f"/v1/{name}")

    def labels(self, profile: str, report: Callable[[str], None]) -> str | None:
        """Return the VLAN identifiers by which a profile's frames may choose their paths, as in 3840-3843.

        Waits until their rules are installed; if that takes too long, says so by `report`.
        """
        deadline_s = time.monotonic() + LABELS_PATIENCE_S
        while (policy := self.get("policy"))["labels_pending"]:
            if time.monotonic() >= deadline_s:
                report(f"labels were still being installed after {LABELS_PATIENCE_S:g} s: frames may take one path")
                break
            time.sleep(AGAIN_S)
        found: str | None = policy["labels"].get(profile if profile in policy["strategies"] else DEFAULT_PROFILE)
        return found

    def announce(self, job: Mapping[str, Any]) -> Any:
        """Announce a job; return the controller's description of it, with its `id`."""
        # If it was executed and the answer was lost, a second job stays for the time of a lease.
        return self._ask("POST", "/v1/jobs", job)

    def renew(self, job: str) -> Any:
        """Renew a job's lease. GoneError if the controller does not know the job."""
        return self._ask("PUT", f"/v1/jobs/{job}/lease")

    def step(self, job: str, to: int | None = None) -> Any:
        """Step to a job's next pattern, or to pattern number `to`."""
        return self._ask("POST", f"/v1/jobs/{job}/step", schema.Step(to), is_repeatable=to is not None)

    def turn(self, job: str, *, wants: bool) -> bool:
        """Return whether a job that wants to send may do so now; without `wants` say that it has sent."""
        return bool(self._ask("POST", f"/v1/jobs/{job}/turn", schema.Turn(wants))["goes"])

    def append(self, job: str, patterns: list[Any]) -> Any:
        """Announce further patterns of a job."""
        return self._ask("POST", f"/v1/jobs/{job}/patterns", {"patterns": patterns}, is_repeatable=False)

    def withdraw(self, job: str) -> None:
        """Withdraw a job."""
        self._ask("DELETE", f"/v1/jobs/{job}")

    def set_strategy(self, profile: str, strategy: str) -> Any:
        """Set the strategy of a profile."""
        return self._ask("PUT", f"/v1/policy/{profile}", schema.ChosenStrategy(strategy))

    def _ask(self, method: str, path: str, body: object = None, is_repeatable: bool = True) -> Any:
        """Ask the controller that leads; while none of a pair does, wait."""
        content = None if body is None else msgspec.json.encode(body)
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            reasons: dict[str, object] = {}
            is_over = time.monotonic() > deadline_s
            url = self._leader or self._find(reasons)
            if url is not None:
                try:
                    status, document, named = self._send(url, method, path, content, TIMEOUT_S)
                except _NoAnswerError as error:
                    reasons[url] = error
                    is_over = is_over or not self._is_paired or (error.was_sent and not is_repeatable)
                    self._leader = None
                else:
                    if status not in _STANDBY:
                        self._leader = url
                        return self._read(url, status, document)
                    reasons[url] = _message(status, document)
                    self._is_paired, self._leader = True, named
            if is_over:
                said = "; ".join(f"{one}: {reason}" for one, reason in reasons.items())
                raise MeasurementFailed(f"no answer from the controller at {said}; is it running?")
            time.sleep(AGAIN_S)

    def _find(self, reasons: dict[str, object]) -> str | None:
        """Return the URL of the controller that leads; of several, none may keep us waiting for long."""
        if len(self._urls) == 1:
            return self._urls[0]
        for url in self._urls:
            try:
                status, document, _ = self._send(url, "GET", "/v1/pair", None, FIND_S)
            except _NoAnswerError as error:
                reasons[url] = error
                continue
            pair = self._read(url, status, document)
            if pair["role"] != "standby":
                return url
            reasons[url] = "it is the standby"
        return None

    def _send(
        self, url: str, method: str, path: str, content: bytes | None, seconds: float
    ) -> tuple[int, Any, str | None]:
        """Send a request to one controller; return status, document, and the leader that it names."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection = self._connection(url, seconds)
        was_sent = False
        try:
            connection.connect()
            was_sent = True
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None, answer.headers.get(schema.LEADER_HEADER)
        except ssl.SSLCertVerificationError as error:
            reason = reason_of(error).replace("--tls-ca", f"{AUTHORITY} or the system's authorities")
            raise WrongUse(f"the controller at {url}: {reason}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _NoAnswerError(error, was_sent) from error
        finally:
            connection.close()

    def _read(self, url: str, status: int, document: Any) -> Any:
        if status < 300:
            return document
        if status == 404:
            raise GoneError(f"the controller at {url}: {_message(status, document)}")
        raise WrongUse(f"the controller at {url} refused: {_message(status, document)}")

    def _connection(self, url: str, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, seconds)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port or 80, timeout=seconds)
        if self._tls is None:
            authority = os.environ.get(AUTHORITY)
            self._tls = client_context(Path(authority) if authority else None)
        return http.client.HTTPSConnection(host, parts.port or 443, timeout=seconds, context=self._tls)


def is_api_url(text: str) -> bool:
    """Return whether this may be the URL of a controller's API: http, https or unix."""
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0  # reading the port checks it
    except ValueError:  # a port that is no number, or half an IPv6 address
        return False
    return parts.path != "" if parts.scheme == "unix" else parts.scheme in ("http", "https") and has_host


def _message(status: int, document: object) -> str:
    return str(document.get("error")) if isinstance(document, dict) else f"status {status}"


class Announced:
    """Context manager that keeps a job announced: renews it, announces it again if forgotten, and withdraws it."""

    def __init__(self, client: Client, job: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        """`warn` is called once per outage of the controller."""
        self._client, self._job, self._warn = client, job, warn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="sdn-lease", daemon=True)
        self.id = ""
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
        except GoneError:  # the controller has restarted, and knows no job to withdraw
            pass
        except (MeasurementFailed, WrongUse) as refused:
            self._warn(f"the job was not withdrawn, its lease ends in {self._lease_s:g} s: {refused}")

    def _announce(self) -> None:
        made = self._client.announce(self._job)
        self.id, self._lease_s = made["id"], made["lease_s"]

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

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
