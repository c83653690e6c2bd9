# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn announce`: announces a job that something else starts."""

import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.sdn_client import Sdn, SdnToken, client_of
from barewire.errors import WrongUse
from barewire.sdn.api.client import Announced


def announce(
    file: Annotated[str, typer.Argument(metavar="FILE", help="the announcement as JSON; - reads standard input")],
    hold: Annotated[bool, typer.Option("--hold", help="renew it until interrupted, then withdraw it")] = False,
    sdn: Sdn = None,
    sdn_token: SdnToken = None,
    as_json: options.AsJson = False,
) -> None:
    """Announce a job: its hosts, ranks, profile, traffic and patterns. Prints the job's id.

    Without --hold it expires after its lease_s, or when `barewire sdn withdraw` withdraws it.
    """
    client = client_of(sdn, sdn_token)
    job = _read(file)
    if not hold:
        created = client.announce(job)
        _print(created, as_json)
        return
    with Announced(client, job, lambda text: typer.echo(f"barewire: {text}", err=True)) as announced:
        _print({"id": announced.id}, as_json)
        sys.stdout.flush()
        threading.Event().wait()


def _print(job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_document("sdn announce", job)
    else:
        typer.echo(job["id"])


def _read(file: str) -> dict[str, object]:
    try:
        document = msgspec.json.decode(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise WrongUse(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise WrongUse(f'{file}: an announcement is a JSON object, such as {{"profile": "mpi", "hosts": ["h1", "h2"]}}')
    return document
