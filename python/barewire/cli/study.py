# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire study`: runs a published study again, and sets its claims beside what is measured today."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from barewire.cli import complete, options
from barewire.cli.directories import RUNS
from barewire.cli.groups import typer_group
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.cli.report import write_page
from barewire.errors import MeasurementFailed, WrongUse
from barewire.results.store import write_output
from barewire.study.claims import judge
from barewire.study.findings import Finding
from barewire.study.page import render_study
from barewire.study.plan import Form, Plan, read_plan, shipped
from barewire.study.report import document, markdown, print_findings
from barewire.study.shown import Shown, shown
from barewire.study.steps import Record, begin, only_run_of, read_record, run_steps, this_build

app = typer_group("The published studies, run again: each claim beside what is measured today.")

PAGE = "study.html"
_NAME = typer.Argument(metavar="STUDY", help="name of a study, or a plan FILE.toml", autocompletion=complete.studies)


@app.command("list")
def list_studies(as_json: options.AsJson = False) -> None:
    """List the studies with their questions."""
    plans = [read_plan(name) for name in shipped()]
    if as_json:
        print_document(
            "study list",
            {
                "studies": [
                    {
                        "name": plan.name,
                        "title": plan.title,
                        "question": plan.question,
                        "source": plan.source,
                        "steps": len(plan.steps),
                        "claims": len(plan.claims),
                    }
                    for plan in plans
                ]
            },
        )
        return
    console = Console()
    for plan in plans:
        console.print(f"[bold]{plan.name}[/]  {plan.question}")
        console.print(f"[dim]{plan.source}; {len(plan.steps)} steps, {len(plan.claims)} claims[/]")


@app.command()
def run(
    study: Annotated[str, _NAME],
    quick: options.Quick = False,
    confidence: options.ConfidenceOrThePlans = None,
    hosts: Annotated[
        str | None,
        typer.Option(metavar="HOSTS", help="a,b or a:4,b:4: real hosts instead of labs", rich_help_panel=options.HOSTS),
    ] = None,
    interface: options.InterfaceOfHosts = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIRECTORY",
            help="directory of the results; a study that was begun there is continued",
            show_default="runs/STUDY-FORM",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run a study's steps, judge its claims, and write a page.

    Each step is a command of barewire's and leaves its own run in the directory. What was finished is not run again:
    the same command continues an interrupted study. A step that this machine cannot run is left out, and said.
    """
    if interface is not None and hosts is None:
        raise WrongUse("--interface is that of --hosts; labs have their own")
    plan = read_plan(study)
    _at_confidence(plan, confidence)
    form: Form = "quick" if quick else "full"
    directory = output or RUNS / f"{plan.name}-{form}"
    with only_run_of(directory) as lock:
        record = begin(plan, directory, form, hosts, interface)
        typer.echo(f"study {plan.name}, {form} form, in {directory}", err=True)
        if others := [build for build in record.builds if build != this_build()]:
            typer.echo(
                f"barewire: steps were measured by another build: {'; '.join(others)}; this is {this_build()}", err=True
            )
        with progress_bar(f"study {plan.name}") as progress:
            record = run_steps(plan, directory, record, progress, [lock])
        plan = _at_confidence(plan, confidence)
        findings, tables, page = _write(plan, directory, record)
    if as_json:
        print_document("study run", {**document(plan, findings, record, tables), "page": str(page)})
    else:
        _show(plan, findings, record, page)
    failed = [name for name, done in record.steps.items() if done.state == "failed"]
    if failed:
        raise MeasurementFailed(
            f"of the study {plan.name}, {', '.join(failed)} failed; the same command runs what failed again"
        )


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="directory of a study", autocompletion=complete.runs)
    ],
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="the study's plan, if it is not one of those that are listed"),
    ] = None,
    confidence: options.ConfidenceOrThePlans = None,
    to_markdown: Annotated[Path | None, options.MARKDOWN] = None,
    as_json: options.AsJson = False,
) -> None:
    """Judge the claims of a study that was run, and write its page again."""
    record = read_record(directory)
    if plan_file is None and record.plan not in shipped():
        raise WrongUse(f"the study {record.plan} is not one of those that are listed: give its file with --plan")
    plan = read_plan(record.plan if plan_file is None else str(plan_file))
    if plan.digest != record.digest:
        typer.echo(f"the plan {plan.name} has changed since the study was run; its claims are those of today", err=True)
    plan = _at_confidence(plan, confidence)
    findings, tables, page = _write(plan, directory, record)
    if to_markdown is not None:
        write_output(to_markdown, markdown(plan, findings, record, tables).encode())
    if as_json:
        print_document("study report", {**document(plan, findings, record, tables), "page": str(page)})
    else:
        _show(plan, findings, record, page)


def _at_confidence(plan: Plan, percent: float | None) -> Plan:
    """Return the plan with another confidence of its verdicts, if one was given; WrongUse for an impossible one."""
    return plan if percent is None else replace(plan, confidence=options.read_confidence(percent))


def _write(plan: Plan, directory: Path, record: Record) -> tuple[list[Finding], list[Shown], Path]:
    """Judge the claims and write the page; return both, and the tables of the steps."""
    findings, tables = judge(plan, directory, record), shown(plan, directory, record)
    return findings, tables, write_page(directory / PAGE, render_study(plan, findings, record, tables))


def _show(plan: Plan, findings: list[Finding], record: Record, page: Path) -> None:
    print_findings(Console(), plan, findings, record)
    typer.echo(page)
