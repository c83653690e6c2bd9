# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn start`: runs a controller until terminated; the switches keep their rules."""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from barewire.cli import complete, options
from barewire.cli.sdn_client import DEFAULT_API
from barewire.cli.sdn_events import EventPrinter
from barewire.sdn.token import default_token_file, read_token
from barewire.topology.rate import check_rate, parse_rate

DEFAULT_LISTEN = "tcp:127.0.0.1:6653"
TLS_LISTEN = "ssl:127.0.0.1:6653"
_NETWORK, _FLOWS, _API, _PAIR, _TLS = "The network", "Flows", "The API", "A pair", "TLS"


def start(
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="tcp:ADDRESS:PORT, ssl:ADDRESS:PORT for TLS, or unix:PATH; may be repeated",
            show_default=DEFAULT_LISTEN,
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    lab: Annotated[
        str | None,
        typer.Option(
            metavar="LAB",
            help="control this lab; its hosts are known",
            rich_help_panel=_NETWORK,
            autocompletion=complete.labs,
        ),
    ] = None,
    hosts_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="hosts: lines name MAC interface", rich_help_panel=_NETWORK)
    ] = None,
    addresses: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="their IP addresses: lines address name", rich_help_panel=_NETWORK),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", help="links' rate, if switches do not report it: 25mbit", rich_help_panel=_NETWORK
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="policy file, TOML", rich_help_panel=_FLOWS)
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE=STRATEGY",
            help="overrides the policy file; may be repeated",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    tenants: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="tenants and their shares of links, TOML", rich_help_panel=_FLOWS),
    ] = None,
    idle: Annotated[
        int,
        typer.Option(
            metavar="SECONDS", help="time until an idle flow's rules expire; 0: never", rich_help_panel=_FLOWS
        ),
    ] = 20,
    hard: Annotated[
        int,
        typer.Option(metavar="SECONDS", help="time until a flow is placed again; 0: never", rich_help_panel=_FLOWS),
    ] = 0,
    statistics: Annotated[
        float, typer.Option(metavar="SECONDS", help="time between polls of port counters", rich_help_panel=_FLOWS)
    ] = 1.0,
    classifier: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="classifier that `sdn learn` trained; none: recognise by the policy alone",
            show_default="built in",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="record how announced jobs' flows behave, for `sdn learn`; a name ending in .gz is compressed",
            rich_help_panel=_FLOWS,
        ),
    ] = None,
    api: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="ADDRESS:PORT of the management network, or unix:PATH", rich_help_panel=_API
        ),
    ] = DEFAULT_API,
    token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="token file; created if missing", rich_help_panel=_API)
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="serve a live page of the network at /ui", rich_help_panel=_API)
    ] = False,
    peer: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="API of the other controller of a pair, https://ADDRESS:PORT or unix:PATH: one leads, one stands by",
            rich_help_panel=_PAIR,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="private key, PEM, for ssl: addresses and the API", rich_help_panel=_TLS),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="its certificate, PEM", rich_help_panel=_TLS)
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="authorities whose certificates switches, and the peer, must have, PEM",
            rich_help_panel=_TLS,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Control a network of OpenFlow 1.3 switches, until interrupted or terminated.

    With --json each event is a document of one line. On a terminal --ui also prints a link that contains the token.
    """
    # Imported here: loading the controller takes half a second, which other commands need not wait for.
    from barewire.sdn import daemon
    from barewire.sdn.controller.outbox import Event
    from barewire.sdn.controller.settings import Settings
    from barewire.sdn.tls import files_of
    from barewire.sdn.ui.server import PAGE

    rate_bit_s = None if rate is None else parse_rate(rate)
    check_rate(rate_bit_s)
    settings = Settings(
        idle_s=idle,
        hard_s=hard,
        port_statistics_s=statistics,
        flow_statistics_s=2 * statistics,
        link_rate_bit_s=rate_bit_s,
    )
    tls = files_of(tls_key, tls_certificate, tls_ca)
    listeners = listen or ([] if lab is not None else [DEFAULT_LISTEN if tls is None else TLS_LISTEN])
    secret = token or default_token_file()
    options = daemon.Options(
        listeners,
        api,
        secret,
        settings,
        lab,
        hosts_file,
        addresses,
        policy,
        strategy or [],
        ui,
        tenants,
        classifier,
        record,
        peer,
        tls,
    )

    printer = EventPrinter(sys.stdout, as_json=as_json)

    def tell(event: Event) -> None:
        printer.event(event.kind, event.text)
        if event.kind == "page" and not (as_json or api.startswith("unix:")) and sys.stdout.isatty():
            # Only here: a log would keep the token. The fragment is never sent, and the page removes it.
            scheme = "http" if tls is None else "https"
            printer.text(f"open {scheme}://{api}{PAGE}#token={quote(read_token(secret), safe='')}")

    try:
        daemon.run(options, tell)
    finally:
        printer.close()
