# SPDX-License-Identifier: Apache-2.0 OR MIT
"""TLS of switches, of the API and of a pair: what is accepted, and what operators are told about the rest."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from os_ken.ofproto import ofproto_v1_3 as of
from throwaway_ca import Authority

from barewire.errors import WrongUse
from barewire.sdn.api.client import AUTHORITY, Client
from barewire.sdn.api.server import Api
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.openflow.channel import Channel, Listener
from barewire.sdn.openflow.codec import HEADER, framed
from barewire.sdn.openflow.messages import FromSwitch
from barewire.sdn.tls import TlsFiles, files_of, load_tls
from barewire.sdn.token import make_token


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.files("controller", "127.0.0.1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_three_options_make_tls_and_none_makes_none(files: TlsFiles) -> None:
    assert files_of(None, None, None) is None
    assert files_of(files.key, files.certificate, files.authority) == files
    with pytest.raises(WrongUse, match="add --tls-certificate and --tls-ca"):
        files_of(files.key, None, None)


def test_files_that_are_wrong_are_named_with_the_remedy(
    authority: Authority, stranger: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    load_tls(files, is_paired=True)
    other = authority.files("other", "127.0.0.1")
    text = tmp_path / "text"
    text.write_text("no certificate\n")
    text.chmod(0o600)
    readable = tmp_path / "readable.key"
    readable.write_bytes(files.key.read_bytes())
    readable.chmod(0o644)
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", files.key, "-out", encrypted], check=True)
    encrypted.chmod(0o600)
    for wrong, said in (
        (replace(files, key=tmp_path / "none"), "cannot read the private key in .*No such file"),
        (replace(files, key=text), "has no certificate with the key in"),
        (replace(files, key=readable), "chmod 600"),
        (replace(files, key=encrypted), "is encrypted"),
        (replace(files, key=other.key), "is not that of the given key"),
        (replace(files, certificate=text), "has no certificate"),
        (replace(files, authority=text), "has no authority's certificate in PEM form"),
        (replace(files, authority=tmp_path / "none"), "cannot read the authority's certificate"),
        (authority.files("late", "127.0.0.1", days=-1), "has expired: renew it"),
    ):
        with pytest.raises(WrongUse, match=said):
            load_tls(wrong)
    foreign = replace(files, authority=stranger.certificate)
    load_tls(foreign)  # switches may have an authority of their own
    with pytest.raises(WrongUse, match="the other controller would not accept"):
        load_tls(foreign, is_paired=True)


def listening(
    tls: TlsFiles, scheme: str, scenario: Callable[[int, list[str], list[FromSwitch]], Awaitable[None]]
) -> None:
    """Run a scenario with a listener's port, the reasons of closed connections, and what was heard."""

    async def run() -> None:
        reasons: list[str] = []
        heard: list[FromSwitch] = []

        def hear(_: Channel, events: list[FromSwitch]) -> None:
            heard.extend(events)

        port = free_port()
        address = f"{scheme}:127.0.0.1:{port}"
        listener = Listener(address, hear, lambda _, why: reasons.append(why), load_tls(tls).switches)
        await listener.open()
        try:
            await scenario(port, reasons, heard)
        finally:
            await listener.close()

    asyncio.run(run())


async def switch_of(port: int, files: TlsFiles | None, authority: Path | None) -> bytes:
    """Connect as a switch would, by its own files; return what the controller says first."""
    context: ssl.SSLContext | None = None
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(authority)
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(framed(of.OFPT_HELLO, 1))
    said = await reader.read(100)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return said


def distrusting_switch(port: int, authority: Path) -> None:
    """Connect as a switch that does not accept the controller's certificate. Unlike asyncio, it says so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority)
    with socket.create_connection(("127.0.0.1", port)) as plain, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_switch_with_a_certificate_of_the_authority_is_accepted(authority: Authority, files: TlsFiles) -> None:
    async def scenario(port: int, reasons: list[str], _: list[FromSwitch]) -> None:
        said = await switch_of(port, authority.files("s1"), authority.certificate)
        assert HEADER.unpack_from(said)[1] == of.OFPT_HELLO
        await until(lambda: reasons)
        assert reasons == ["it closed the connection"]

    listening(files, "ssl", scenario)


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("none", "127.0.0.1: it shows no certificate: give the switch one by ovs-vsctl set-ssl"),
        ("stranger", "127.0.0.1: the authority that signed its certificate is not in --tls-ca"),
        ("expired", "127.0.0.1: its certificate has expired: renew it, and compare both clocks"),
        ("purpose", "127.0.0.1: its certificate is not made for this purpose (extendedKeyUsage)"),
        ("distrusts us", "127.0.0.1: it does not know the authority that signed our certificate"),
        ("no TLS", "127.0.0.1: it does not speak TLS: let it connect to ssl:, or listen at tcp:"),
    ],
)
def test_a_switch_without_an_acceptable_certificate_is_refused_and_told_of(
    which: str, said: str, authority: Authority, stranger: Authority, files: TlsFiles
) -> None:
    trusted: Path | None = authority.certificate
    if which == "none":
        own = None
    elif which == "stranger":
        own = stranger.files("s2")
    elif which == "expired":
        own = authority.files("s3", days=-1)
    elif which == "purpose":
        own = authority.files("s4", purposes="serverAuth")
    else:
        own, trusted = None, None

    async def scenario(port: int, reasons: list[str], heard: list[FromSwitch]) -> None:
        if which == "distrusts us":
            await asyncio.to_thread(distrusting_switch, port, stranger.certificate)
        else:
            with contextlib.suppress(OSError):
                assert not await switch_of(port, own, trusted)
        await until(lambda: reasons)
        assert len(reasons) == 1 and reasons[0].startswith(said), reasons
        assert not heard
        assert await switch_of(port, authority.files("s6"), authority.certificate), "others are served"

    listening(files, "ssl", scenario)


def test_tls_to_an_address_without_it_is_told_of(authority: Authority, files: TlsFiles) -> None:
    async def scenario(port: int, reasons: list[str], _: list[FromSwitch]) -> None:
        with contextlib.suppress(OSError):
            await switch_of(port, None, authority.certificate)
        await until(lambda: reasons)
        assert "TLS to an address without TLS" in reasons[0]

    listening(files, "tcp", scenario)


def test_an_address_with_tls_needs_the_files() -> None:
    with pytest.raises(WrongUse, match="needs --tls-key, --tls-certificate and --tls-ca"):
        Listener("ssl:127.0.0.1:6653", lambda *_: None, lambda *_: None)


def test_a_listener_that_closes_ends_handshakes_that_wait(files: TlsFiles) -> None:
    async def scenario(port: int, reasons: list[str], _: list[FromSwitch]) -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
        writer.close()

    listening(files, "ssl", scenario)


def test_the_api_is_served_by_https_to_clients_that_trust_the_authority(
    authority: Authority, stranger: Authority, files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file = tmp_path / "token"
    token = make_token(token_file)

    async def run() -> None:
        port = free_port()
        url = f"https://127.0.0.1:{port}"
        shell = Shell(Settings(), Policy(), Hosts(), [], lambda _: None)
        api = Api(shell, f"127.0.0.1:{port}", token, tls=load_tls(files).api)
        await api.open()
        try:
            monkeypatch.setenv(AUTHORITY, str(authority.certificate))
            assert (await asyncio.to_thread(Client(url, token_file).get, "pair"))["role"] == "single"
            with pytest.raises(WrongUse, match="its certificate is for another"):
                await asyncio.to_thread(Client(f"https://localhost:{port}", token_file).get, "pair")
            monkeypatch.setenv(AUTHORITY, str(stranger.certificate))
            with pytest.raises(WrongUse, match=f"is not in {AUTHORITY} or the system's authorities"):
                await asyncio.to_thread(Client(url, token_file).get, "pair")
            monkeypatch.setenv(AUTHORITY, str(tmp_path / "none"))
            with pytest.raises(WrongUse, match="cannot read the authority's certificate"):
                await asyncio.to_thread(Client(url, token_file).get, "pair")
        finally:
            await api.close()
            await shell.close()

    asyncio.run(run())


def test_connections_whose_handshake_is_not_done_are_counted_and_end_after_a_while(
    authority: Authority, files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them holds a descriptor, which switches may need; one above the limit is refused before a handshake."""
    monkeypatch.setattr("barewire.sdn.api.server.CONNECTIONS_MAX", 3)
    monkeypatch.setattr("barewire.sdn.api.server.IDLE_S", 0.5)
    monkeypatch.setenv(AUTHORITY, str(authority.certificate))
    token = make_token(tmp_path / "token")

    async def run() -> None:
        port = free_port()
        shell = Shell(Settings(), Policy(), Hosts(), [], lambda _: None)
        api = Api(shell, f"127.0.0.1:{port}", token, tls=load_tls(files).api)
        await api.open()
        try:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            await asyncio.sleep(0.05)
            refused, one = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(refused.read(), 0.2) == b""
            for reader, _ in silent:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), 2) == b""
            client = Client(f"https://127.0.0.1:{port}", tmp_path / "token")
            assert (await asyncio.to_thread(client.get, "pair"))["role"] == "single"
            for writer in (one, *(writer for _, writer in silent)):
                writer.close()
            await asyncio.open_connection("127.0.0.1", port)  # its handshake does not keep the API from ending
            await asyncio.sleep(0.05)
        finally:
            await asyncio.wait_for(api.close(), 2)
            await shell.close()

    asyncio.run(run())
