# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The secret that clients of the API need, in a file that only its owner may read."""

import contextlib
import hmac
import os
import secrets
from pathlib import Path
from tempfile import NamedTemporaryFile

from barewire.errors import MachineCannot, WrongUse

CHARACTERS_MIN, CHARACTERS_MAX = 16, 1024
_RANDOM_BYTES = 32


def default_token_file() -> Path:
    """Return the default path of the token file."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(configuration) / "barewire" / "sdn.token"


def read_token(file: Path) -> str:
    """Return the token in a file. WrongUse if other users may read the file, or its contents are not a token."""
    try:
        mode = file.stat().st_mode
        token = file.read_text().strip()
    except OSError as error:
        raise WrongUse(f"no token in {file}: {error.strerror}; `barewire sdn start` creates one") from error
    except UnicodeDecodeError:
        token = ""
    if mode & 0o077:
        raise WrongUse(f"other users may read the token in {file}: chmod 600 {file}, and create a new one if they did")
    if not CHARACTERS_MIN <= len(token) <= CHARACTERS_MAX or not token.isascii() or not token.isprintable():
        raise WrongUse(f"{file} does not contain a token: {CHARACTERS_MIN} to {CHARACTERS_MAX} printable characters")
    return token


def make_token(file: Path) -> str:
    """Return the token in a file, which is created if missing."""
    if file.exists():
        return read_token(file)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Linked when it is complete: another program may read it, or create one at the same moment.
        with NamedTemporaryFile("w", dir=file.parent, prefix=f"{file.name}.") as written:
            written.write(secrets.token_urlsafe(_RANDOM_BYTES) + "\n")
            written.flush()
            with contextlib.suppress(FileExistsError):
                os.link(written.name, file)
    except OSError as error:
        raise MachineCannot(f"cannot create token file {file}: {error.strerror}; choose another by --token") from error
    return read_token(file)


def is_authorised(header: str | None, token: str) -> bool:
    """Return whether an Authorization header has the token; in constant time for wrong tokens."""
    scheme, _, given = (header or "").partition(" ")
    # A header of any bytes: those that are not UTF-8 arrive as surrogates.
    matches = hmac.compare_digest(given.encode(errors="surrogateescape"), token.encode())
    return matches and scheme.lower() == "bearer"
