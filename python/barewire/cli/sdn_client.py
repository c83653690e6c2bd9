# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How commands find a running controller: options, environment, default address."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barewire.cli.run_arguments import SDN_URL
from barewire.errors import WrongUse
from barewire.sdn.token import default_token_file

if TYPE_CHECKING:
    from barewire.sdn.api.client import Client

URL, TOKEN_FILE = SDN_URL, "BAREWIRE_SDN_TOKEN"
DEFAULT_API = "127.0.0.1:8181"

Sdn = Annotated[
    str | None,
    typer.Option(
        "--sdn",
        metavar="URL",
        help=f"the network's controller: http://ADDRESS:PORT, https://… or unix:PATH, of a pair URL,URL; else ${URL}",
    ),
]
SdnToken = Annotated[
    Path | None, typer.Option("--sdn-token", metavar="FILE", help=f"its token file; else ${TOKEN_FILE}")
]


def client_of(sdn: str | None, token: Path | None) -> "Client":
    """Return a client of the selected controller."""
    from barewire.sdn.api.client import Client  # imported late: it takes a quarter of a second, and few jobs have one

    url = sdn or os.environ.get(URL) or f"http://{DEFAULT_API}"
    return Client(url, token or Path(os.environ.get(TOKEN_FILE) or default_token_file()))


def optional_client(sdn: str | None, token: Path | None) -> "Client | None":
    """Return a client of the controller in the option or the environment; None without either."""
    if sdn is None and not os.environ.get(URL):
        if token is not None:
            raise WrongUse(f"--sdn-token needs a controller: add --sdn or set {URL}")
        return None
    return client_of(sdn, token)
