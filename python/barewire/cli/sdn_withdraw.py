# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn withdraw`: withdraws announcements."""

from typing import Annotated

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
    client = client_of(sdn, sdn_token)
    for job in jobs:
        client.withdraw(job)
        if not as_json:
            typer.echo(f"job {job} withdrawn")
    if as_json:
        print_document("sdn withdraw", {"withdrawn": jobs})
