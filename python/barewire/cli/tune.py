# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire tune`: endpoint values that suit this machine, into the file that endpoints and the provider read."""

import json
import secrets
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec, parse_rate, parse_topology
from barewire.measure import LabSite, RemoteSite
from barewire.measure.programs import read_tuning
from barewire.measure.tune import Findings, Tuned, TunePlan
from barewire.measure.tune import tune as measure_all
from barewire.measure.tune_trials import Trial
from barewire.report.words import message_size
from barewire.results.tuning import tuning_path, write_tuning


def tune(
    lab: Annotated[str | None, typer.Option(help="two emulated hosts for this run alone [default: pair]")] = None,
    rate: Annotated[str, typer.Option(help="the lab's rate, such as 1gbit")] = "unshaped",
    mtu: Annotated[int, typer.Option(help="the lab's MTU in bytes")] = 1500,
    hosts: Annotated[
        str | None, typer.Option(help="two real hosts a,b with barewire-probe installed, instead of a lab")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="of both real hosts")] = None,
    remote_shell: Annotated[str | None, typer.Option(help="to reach real hosts, instead of ssh")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="the two values that matter most: a minute, not six")] = False,
    out: Annotated[Path | None, typer.Option(help="the file to write; this user's tuning file unless given")] = None,
    seed: Annotated[int | None, typer.Option(help="of the order; drawn unless given")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Find values for this machine and link by measuring each beside its default, interleaved.

    Of endpoints over frames: window, acknowledgements, rings, slots, descriptors. Of messages: the eager limit, and
    the ring to a process of the same host. A value is changed only where it is better outside the interval of the
    measurement, worse in no test, and where a second run of the changes agrees. Values that this does not measure stay
    in the file as they are. Nothing else should run meanwhile.
    """
    if hosts is None and interface is not None:
        raise WrongUse("--interface is of two real hosts: give --hosts a,b too; a lab has interfaces of its own")
    if hosts is not None and (lab is not None or rate != "unshaped" or mtu != 1500):
        raise WrongUse("--lab, --rate and --mtu are for emulated hosts: leave them out with --hosts")
    path = out or tuning_path()
    defaults, kept = read_tuning(path)
    plan = TunePlan(secrets.randbits(32) if seed is None else seed, defaults, kept, quick)
    place: AbstractContextManager[Any]
    if hosts is None:
        place = _in_lab(lab or "pair", LinkSpec(parse_rate(rate), mtu))
    else:
        place = nullcontext(RemoteSite.parse(hosts, interface, remote_shell))
    with place as site, progress_bar(quiet=as_json) as progress:
        found = measure_all(site, plan, progress)
    source = f"barewire tune, {datetime.now(UTC):%Y-%m-%d}, {hosts or 'lab'}, seed {plan.seed}"
    write_tuning(found.values, measured=plan.names, source=source, path=path)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "seed": plan.seed, **_document(found)}, allow_nan=False))
    else:
        _print(Console(highlight=False), found, path)


@contextmanager
def _in_lab(topology: str, link: LinkSpec) -> Any:
    with Lab.up(parse_topology(topology), link, standalone=True) as lab:
        yield LabSite(lab)


def _document(found: Tuned) -> dict[str, Any]:
    def trial(one: Trial) -> dict[str, Any]:
        cells = [
            {"test": test, "bytes": size, "ratio": cell.ratio, "ci95": cell.ratio_ci95, "verdict": cell.verdict}
            for (test, size), cell in one.cells.items()
        ]
        return {"values": dict(one.values), "is_better": one.is_better, "cells": cells}

    def finding(one: Findings) -> dict[str, Any]:
        return {
            "group": one.group,
            "values": dict(one.values),
            "trials": [trial(tried) for tried in one.trials],
            "confirmation": None if one.confirmation is None else trial(one.confirmation),
            "crossovers": [asdict(crossing) for crossing in one.crossings],
        }

    return {
        "values": dict(found.values),
        "defaults": dict(found.defaults),
        "findings": [finding(one) for one in found.findings],
    }


def _print(console: Console, found: Tuned, path: Path) -> None:
    for one in found.findings:
        for crossing in one.crossings:
            between = "" if crossing.ci95 is None else f" [{crossing.ci95[0]:.0f}, {crossing.ci95[1]:.0f}]"
            console.print(f"{crossing.test}: eager costs less up to {crossing.bytes:.0f} B{escape(between)}")
        if one.trials:
            console.print(_table(one, found))
    if found.values:
        changed = ", ".join(f"{name} {found.defaults[name]} → {value}" for name, value in found.values.items())
        console.print(f"changed: {changed}; endpoints that follow {path} take it from now on")
    elif any(one.chosen for one in found.findings):
        console.print(f"nothing changed: measured once more, what looked better was not; {path} says so")
    else:
        console.print(f"nothing changed: no value is better than its default outside the interval; {path} says so")


def _table(one: Findings, found: Tuned) -> Table:
    title = f"{one.group}: time of each candidate over that of the default: below 1 is better; * outside the interval"
    table = Table(title=title)
    headings = (f"{test} {message_size(size)}" for test, size in one.trials[0].cells)
    for heading in ("value", "default", "tried", *headings, ""):
        table.add_column(heading, overflow="fold")
    for trial in one.trials:
        ((name, value),) = trial.values.items()
        table.add_row(name, str(found.defaults[name]), str(value), *_ratios(trial), "better" if trial.is_better else "")
    if one.confirmation is not None:
        agreed = "agrees" if one.confirmation.is_better else "does not agree"
        table.add_row("all chosen", "", "again", *_ratios(one.confirmation), agreed)
    return table


def _ratios(trial: Trial) -> list[str]:
    marks = {"A faster": "*", "B faster": "*"}
    return [f"{cell.ratio:.3f}{marks.get(cell.verdict, '')}" for cell in trial.cells.values()]
