# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A certificate authority that lives as long as its folder, by the openssl program, which Open vSwitch needs too."""

import subprocess
from pathlib import Path

from barewire.sdn.tls import TlsFiles


class Authority:
    """An authority in a folder; every file is PEM."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
        _openssl(*new, "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate)
        self.key.chmod(0o600)

    def files(self, name: str, *addresses: str, days: int = 2, purposes: str = "serverAuth,clientAuth") -> TlsFiles:
        """A key and its certificate, for IP addresses; `days` below 0: it has expired."""
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        _openssl("req", *curve, "-noenc", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        alternatives = ",".join(f"IP:{address}" for address in addresses) or f"DNS:{name}"
        extensions.write_text(f"subjectAltName={alternatives}\nextendedKeyUsage={purposes}\n")
        if days < 0:
            self._sign_in_the_past(request, certificate, extensions)
        else:
            signed = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", str(days)]
            _openssl("x509", "-req", "-in", request, *signed, "-extfile", extensions, "-out", certificate)
        key.chmod(0o600)
        return TlsFiles(key, certificate, self.certificate)

    def _sign_in_the_past(self, request: Path, certificate: Path, extensions: Path) -> None:
        """Only `openssl ca` of OpenSSL 3.0 takes dates; it needs a database and a configuration."""
        place = self.folder / f"{certificate.stem}.ca"
        place.mkdir()
        (place / "index.txt").touch()
        (place / "serial").write_text("77\n")
        lines = ["[ca]", "default_ca=here", "[here]", f"new_certs_dir={place}", f"database={place}/index.txt"]
        lines += [f"serial={place}/serial", "default_md=sha256", "policy=any", "[any]", "commonName=supplied"]
        (place / "ca.conf").write_text("\n".join(lines) + "\n")
        signed = ["-cert", self.certificate, "-keyfile", self.key, "-extfile", extensions]
        dates = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
        given = ["-config", place / "ca.conf", "-in", request, "-out", certificate, "-notext"]
        _openssl("ca", "-batch", *given, *signed, *dates)


def _openssl(*arguments: object) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
