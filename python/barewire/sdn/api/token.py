# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The secret that whoever uses the API must have, in a file that only its owner may read."""

import hmac
import os
import secrets
from pathlib import Path

from barewire.errors import MachineCannot, WrongUse

CHARACTERS_MIN, CHARACTERS_MAX = 16, 1024
_RANDOM_BYTES = 32


def default_token_file() -> Path:
    """Return where the token is unless somebody says otherwise."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(configuration) / "barewire" / "sdn.token"


def read_token(file: Path) -> str:
    """Return the token in a file. WrongUse if others may read the file, or what is in it is no token."""
    try:
        mode = file.stat().st_mode
        token = file.read_text().strip()
    except OSError as error:
        raise WrongUse(f"no token in {file}: {error.strerror}; `barewire sdn start` makes one") from error
    except UnicodeDecodeError:
        token = ""
    if mode & 0o077:
        raise WrongUse(f"others may read the token in {file}: chmod 600 {file}, and make a new one if they did")
    if not CHARACTERS_MIN <= len(token) <= CHARACTERS_MAX or not token.isascii() or not token.isprintable():
        raise WrongUse(f"what is in {file} is no token: {CHARACTERS_MIN} to {CHARACTERS_MAX} printable characters")
    return token


def make_token(file: Path) -> str:
    """Return the token in a file, made if there is none."""
    if file.exists():
        return read_token(file)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise MachineCannot(f"cannot make the token file {file}: {error.strerror}; name another by --token") from error
    with os.fdopen(descriptor, "w") as written:
        written.write(secrets.token_urlsafe(_RANDOM_BYTES) + "\n")
    return read_token(file)


def is_authorised(header: str | None, token: str) -> bool:
    """Return whether an Authorization header has the token; takes the same time for every wrong one."""
    scheme, _, given = (header or "").partition(" ")
    return hmac.compare_digest(given.encode(), token.encode()) and scheme.lower() == "bearer"
