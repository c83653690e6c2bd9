# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One launch of the two sides of a measurement: where they run, and what happens if one fails."""

import socket
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.measure.launch import Order, launch, raise_failure
from barewire.measure.sites import RemoteSite, Station
from barewire.measure.subjects import Subject

FLOOR = """#!/bin/sh
case "$*" in
*passive*) echo '{"record":"ready"}'; echo 'barewire-floor: send: No such device' >&2; exit 1;;
esac
"""


def test_a_floor_whose_passive_side_fails_is_a_failed_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It records a stream's samples, while the active side sends to nobody and does not notice."""
    program = tmp_path / "barewire-floor"
    program.write_text(FLOOR)
    program.chmod(0o755)
    monkeypatch.setenv("BAREWIRE_BIN", str(tmp_path))
    station = Station("localhost", "lo", mac="00:00:00:00:00:00", cpus=(0,))
    site = RemoteSite(station, station)
    order = Order(0, "stream", Subject("floor"), (64,), seed=1)
    with pytest.raises(MeasurementFailed, match="No such device"):
        launch(site, order, tmp_path / "samples.jsonl")


@pytest.mark.parametrize(
    ("hosts", "connected"),
    [
        ("a,b", "b"),
        ("a,user@b", "b"),
        ("localhost,b", "b"),
        ("localhost,localhost", "localhost"),
        ("local,local", "localhost"),
    ],
)
def test_the_first_host_connects_to_the_second_by_a_name_that_it_knows(hosts: str, connected: str) -> None:
    with RemoteSite.parse(hosts, None, None, port=7).listen() as addresses:
        assert addresses == ("0.0.0.0:7", f"{connected}:7")


@pytest.mark.parametrize(("host", "connected"), [("::1", "[::1]:7"), ("six", "six:7")])
def test_a_host_with_ipv6_only_is_listened_for_and_reached_by_it(
    host: str, connected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolved(_host: str, _port: None, family: socket.AddressFamily) -> list[str]:
        if family == socket.AF_INET:
            raise socket.gaierror
        return ["an address"]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with RemoteSite.parse(f"a,{host}", None, None, port=7).listen() as addresses:
        assert addresses == ("[::]:7", connected)


def test_another_host_does_not_connect_to_itself_instead_of_this_one() -> None:
    with pytest.raises(WrongUse, match="write --hosts localhost,b"):
        RemoteSite.parse("b,localhost", None, None)


def test_wrong_arguments_are_told_by_what_is_wrong() -> None:
    text = "error: invalid value 'x=y' for '--tuned': write NAME=NUMBER\n\nFor more information, try '--help'.\n"
    with TemporaryFile("w+") as errors:
        errors.write(text)
        with pytest.raises(WrongUse, match=r"^invalid value 'x=y' for '--tuned': write NAME=NUMBER$"):
            raise_failure(2, errors)


def test_a_program_that_another_machine_does_not_have_is_to_be_installed_there() -> None:
    with TemporaryFile("w+") as errors:
        errors.write("bash: line 1: barewire-probe: command not found\n")
        with pytest.raises(MachineCannot, match="command not found; install barewire-probe in the PATH there"):
            raise_failure(127, errors)
