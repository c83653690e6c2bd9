# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn withdraw`: withdraws announcements."""

from typing import Annotated
from urllib.parse import quote

import typer

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.sdn_client import Sdn, SdnToken, client_of


def withdraw(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB…", help="ids of jobs, as `barewire sdn announce` printed them")
    ],
    sdn: Sdn = None,
    sdn_token: SdnToken = None,
    as_json: options.AsJson = False,
) -> None:
    """Withdraw announced jobs."""
    from barewire.sdn.api.client import GoneError  # imported late, as by `client_of`

    client = client_of(sdn, sdn_token)
    gone = []
    for job in jobs:
        try:
            client.withdraw(quote(job, safe=""))
        except GoneError as error:  # the others are withdrawn all the same
            gone.append(error)
            continue
        if not as_json:
            typer.echo(f"job {job} withdrawn")
    if gone:
        raise gone[0]
    if as_json:
        print_document("sdn withdraw", {"withdrawn": jobs})
