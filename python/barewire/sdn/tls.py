# SPDX-License-Identifier: Apache-2.0 OR MIT
"""TLS with certificates of one's own authority: towards switches, clients of the API and a pair's other controller.

Both ends show certificates, except for clients of the API, which have a token.
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse

# By what OpenSSL calls it: what is wrong, and what to do. Its own words follow.
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate: give the switch one by ovs-vsctl set-ssl",
    "NO_SHARED_CIPHER": "it shares no cipher with this controller",
    "UNSUPPORTED_PROTOCOL": "it offers only versions of TLS before 1.2",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: let it connect to ssl:, or listen at tcp:",
    "HTTP_REQUEST": "it speaks HTTP, not OpenFlow",
    "UNKNOWN_CA": "it does not know the authority that signed our certificate: give it that authority's certificate",
    "BAD_CERTIFICATE": "it refuses our certificate as invalid",
    "CERTIFICATE_EXPIRED": "it refuses our certificate as expired: renew it, and compare both clocks",
    "CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "CERTIFICATE_REQUIRED": "it wants a certificate, and we have none",
}
# By the number of OpenSSL's verification: the same for the other's certificate.
_VERIFY = {
    9: "its certificate is not valid yet: compare both clocks",
    10: "its certificate has expired: renew it, and compare both clocks",
    18: "its certificate is signed by itself, not by an authority in --tls-ca",
    19: "the authority that signed its certificate is not in --tls-ca",
    20: "the authority that signed its certificate is not in --tls-ca",
    21: "the authority that signed its certificate is not in --tls-ca",
    26: "its certificate is not made for this purpose (extendedKeyUsage)",
    62: "its certificate is for another name: it needs a subjectAltName with the address in the URL",
    64: "its certificate is for another address: it needs a subjectAltName with the address in the URL",
}
_UNTRUSTED = (18, 19, 20, 21)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: a private key, its certificate with intermediate ones, and the authorities that are trusted."""

    key: Path
    certificate: Path
    authority: Path


@dataclass(frozen=True)
class Tls:
    """Contexts: for switches, which must show certificates, for the API, and as the client of another controller.

    At the API only the other controller of a pair must show one.
    """

    switches: ssl.SSLContext
    api: ssl.SSLContext
    peer: ssl.SSLContext


def files_of(key: Path | None, certificate: Path | None, authority: Path | None) -> TlsFiles | None:
    """Return the files of the three options, None without any. WrongUse if some are missing."""
    if key is not None and certificate is not None and authority is not None:
        return TlsFiles(key, certificate, authority)
    named = {"--tls-key": key, "--tls-certificate": certificate, "--tls-ca": authority}
    missing = [name for name, file in named.items() if file is None]
    if len(missing) < len(named):
        raise WrongUse(f"TLS needs a key, its certificate and an authority: add {' and '.join(missing)}")
    return None


def load_tls(files: TlsFiles, is_paired: bool = False) -> Tls:
    """Load the files, and let the certificate be accepted as a peer would. WrongUse says which file is wrong, and how.

    In a pair the other controller must accept a certificate of the same authority.
    """
    switches = _context(ssl.PROTOCOL_TLS_SERVER, files)
    switches.verify_mode = ssl.CERT_REQUIRED
    api = _context(ssl.PROTOCOL_TLS_SERVER, files)
    api.verify_mode = ssl.CERT_OPTIONAL
    peer = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    _check_certificate(files, api, is_paired)
    return Tls(switches, api, peer)


def client_context(authority: Path | None) -> ssl.SSLContext:
    """Return a context that trusts an authority's file, or those of the system. WrongUse if the file is invalid."""
    context = ssl.create_default_context()
    if authority is not None:
        _read(authority, "authority's certificate", lambda: context.load_verify_locations(authority))
    return context


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, by its TLS if that is why, for operators."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _VERIFY.get(error.verify_code, f"its certificate is not accepted: {error.verify_message}")
    name = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) and isinstance(name, str):
        known = re.sub(r"^(SSLV3|TLSV1|TLSV13)_ALERT_", "", name)
        return _REASONS.get(known, f"the TLS handshake failed: {known.lower().replace('_', ' ')}")
    return str(error) or type(error).__name__


def handshake_error(error: OSError) -> str:
    """Return why a TLS handshake failed, also if the other end gave no reason."""
    if isinstance(error, ConnectionResetError):
        return "it ended the connection during the TLS handshake: it may not accept our certificate"
    return reason_of(error)


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> str:
        raise WrongUse(f"the key in {files.key} is encrypted, and nobody is here to decrypt it: store it unencrypted")

    for file, what in ((files.key, "private key"), (files.certificate, "certificate")):
        _read(file, what, file.read_bytes)
    if files.key.stat().st_mode & 0o077:
        raise WrongUse(f"other users may read the private key in {files.key}: chmod 600 {files.key}")
    _read(
        files.certificate,
        f"certificate with the key in {files.key}",
        lambda: context.load_cert_chain(files.certificate, files.key, no_password),
    )
    _read(files.authority, "authority's certificate", lambda: context.load_verify_locations(files.authority))
    return context


def _read(file: Path, what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise WrongUse(f"the certificate in {file} is not that of the given key: give both of one pair") from None
        raise WrongUse(f"{file} has no {what} in PEM form ({error.reason or error})") from None
    except OSError as error:
        raise WrongUse(f"cannot read the {what} in {file}: {error.strerror or error}") from None


def _check_certificate(files: TlsFiles, server: ssl.SSLContext, is_paired: bool) -> None:
    """Shake hands with ourselves: peers will find an expired certificate, or one for another purpose, so name it now.

    Whether our authority is the peers' is known only in a pair.
    """
    for authority, is_needed in ((files.certificate, True), (files.authority, is_paired)):
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        client.load_verify_locations(authority)
        try:
            _shake_hands(server, client)
        except ssl.SSLCertVerificationError as error:
            if not is_needed:
                continue
            if error.verify_code in _UNTRUSTED:
                raise WrongUse(
                    f"the other controller would not accept the certificate in {files.certificate}: {authority} lacks "
                    "the authority that signed it; --tls-ca may have several, one after another"
                ) from None
            raise WrongUse(f"{files.certificate}: {reason_of(error)}") from None


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    while waiting:
        for end in ends:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                pass
