# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Studies: plans, steps with a barewire that is not there, and what becomes of claims on runs with known answers."""

import contextlib
import html
import io
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
import typer
from rich.console import Console
from synthetic import run_of, series_of
from synthetic_host import synthetic_host
from synthetic_mpi import LIBRARIES
from synthetic_sdn import synthetic_sdn
from typer.testing import CliRunner

from barewire.account.frame import Layers
from barewire.cli.commands import app
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.measure.programs import expand_sizes
from barewire.results.run import Run, Series
from barewire.results.sdn import summarised
from barewire.results.store import write_run
from barewire.study import claims, network_claims, tables
from barewire.study import steps as steps_module
from barewire.study.claims import judge
from barewire.study.findings import Finding
from barewire.study.flaws import CHECKS, published_flaws
from barewire.study.page import render_study
from barewire.study.plan import Form, Plan, read_plan, shipped
from barewire.study.report import document, headline, left_out, markdown, print_findings, table_of, warnings
from barewire.study.shown import shown
from barewire.study.steps import Done, Record, begin, read_record, run_steps
from barewire.study.tables import read_table

STEP = """
title = "A study"
question = "Which is faster?"
source = "Somebody 1999"

[[step]]
name = "messages"
what = "ping-pongs"
command = ["mpi", "pingpong", "--sizes", "64"]
lab = ["--lab", "pair"]
quick = ["--launches", "6", "--", "--order", "16"]
"""
COMMAND = '"mpi", "pingpong", "--sizes", "64"'
CLAIM = """
[[claim]]
text = "The first is faster."
kind = "faster"
a = {step = "messages", subject = "openmpi/barewire"}
b = {step = "messages", subject = "openmpi/tcp"}
"""


# A claim that needs no step.
NOTHING = """
[[claim]]
text = "A round trip of 1400 B takes 11 µs."
kind = "impossible"
message_bytes = 1400
protocol = "raw"
rate_bit_s = 1e9
published = "paz2010_pingpong.csv"
columns = ["round_trip_us"]
"""


def written(folder: Path, text: str) -> Plan:
    file = folder / "mine.toml"
    file.write_text(text)
    return read_plan(str(file))


@cache
def help_of(*command: str) -> str:
    return CliRunner().invoke(app, [*command, "--help"]).output


def test_every_shipped_plan_is_valid_and_names_what_exists() -> None:
    ours = ["predictions", "speed", "wire"]
    assert shipped() == sorted([*ours, "geromel1998", "oliveira2018", "paz2010", "stival2006", "watter2006"])
    for name in shipped():
        plan = read_plan(name)
        assert plan.steps and plan.claims
        for step in plan.steps:
            words = [word for word in (*step.command, *step.quick, *step.full, *step.lab) if word.startswith("--")]
            help_text = help_of(*_command_words(step.command))
            for option in words[: words.index("--")] if "--" in words else words:
                assert option in help_text, f"{name}, {step.name}: {option}"


def _command_words(command: tuple[str, ...]) -> list[str]:
    two = " ".join(command[:2])
    return [two] if two == "bench host" else list(command[:2]) if command[0] == "sdn" else [command[0]]


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("form", get_args(Form))
def test_options_of_every_step_are_parsed(
    name: str, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command line refuses would end a study of half an hour in its middle."""
    plan, commands = read_plan(name), replaced(monkeypatch, lambda command: (0, ""))
    monkeypatch.setattr(steps_module, "installed_libraries", lambda: list(LIBRARIES.values()))
    monkeypatch.setattr(steps_module, "find_library", lambda name: LIBRARIES[name])
    with patch("barewire.mpi.suite.build", lambda library, names: {"pingpong": "/nowhere/pingpong"}):
        run_steps(plan, tmp_path, begin(plan, tmp_path, form, None), no_progress)
    for words in commands:
        command: Any = typer.main.get_command(app)
        head = _command_words(tuple(words))
        for first in head:
            command = command.get_command(None, first)
        command.make_context(first, words[len(" ".join(head).split()) :])


@pytest.mark.parametrize("name", shipped())
def test_claims_are_about_subjects_and_variants_that_their_steps_measure(name: str) -> None:
    """A claim about others would never be decided."""
    plan = read_plan(name)
    for claim in plan.claims:
        for side in (claim.a, claim.b):
            if side is None or (step := plan.step(side["step"])).command[0] != "mpi":
                continue
            words = (*step.command, *step.lab, *step.full)
            options = dict(itertools.pairwise(words))
            for subject in each_of(side.get("subject", [])):
                library, _, rest = subject.partition("/")
                fabric, *settings = rest.split("+")
                assert library in options["--library"].split(","), claim.text
                assert fabric in options["--fabric"].split(","), claim.text
                for setting in settings:
                    option, _, value = setting.partition("=")
                    assert value in options[f"--{option}"].replace("16KiB", "16384").split(","), claim.text
            variants = options.get("--variants", "all")
            for variant in each_of(side.get("variant", [])):
                assert variants == "all" or variant in variants.split(","), claim.text
            if ".." not in (sizes := options.get("--sizes", "..")) and "--refine" not in words:
                assert {*each_of(side.get("message_bytes", []))} <= {*expand_sizes(sizes, 0)}, claim.text


def each_of(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("title", "titel"), "there are: claim, confidence, question, source, step, table, title"),
        (('name = "messages"', 'name = "a b"'), "letters, digits and hyphens"),
        (('name = "messages"', 'name = "study"'), "step 1: 'study' is the name of the study's own files"),
        (('what = "ping-pongs"', "what = 3"), "what must be a text"),
        (('"mpi", "pingpong"', '"rm", "-rf"'), "command begins with one of mpi, bench"),
        (('kind = "faster"', 'kind = "fastest"'), "kind is one of faster, no-difference"),
        (('b = {step = "messages", subject = "openmpi/tcp"}', ""), "needs 'b'"),
        (('b = {step = "messages"', 'b = {step = "message"'), "there are: messages"),
        (('b = {step = "messages", ', "b = {"), "need the step that measures them"),
        (("[[claim]]", "[claim]"), "needs tables [[claim]]"),
        (('source = "Somebody 1999"', 'source = "Somebody 1999"\nconfidence = 0.99'), "in percent, from 50"),
        (('text = "The first is faster."', 'text = "x"\npublished = "nothing.csv"'), "there are: geromel1998"),
        (
            ('text = "The first is faster."', 'text = "x"\npublished = "watter2006_fft.csv"\nrows = "ranks"'),
            "has no column ranks; it has processes",
        ),
        (('kind = "faster"', 'kind = "ratio"'), "a claim of kind 'ratio' needs 'low', 'high', or both"),
        (("title =", "title"), "is no TOML file"),
        (('kind = "faster"', 'kind = "faster"\nlow = "0"'), "claim 1: low must be a number, not '0'"),
        (('kind = "faster"', 'kind = "faster"\nlow = nan'), "claim 1: low must be a number, not nan"),
        (('kind = "faster"', f'kind = "faster"\nlow = {"9" * 400}'), "claim 1: low must be a number, not 9"),
        (('kind = "faster"', 'kind = "faster"\nlow = 2\nhigh = 1'), "low is above high"),
        (
            (
                'kind = "faster"',
                'kind = "impossible"\nmessage_bytes = 1\nprotocol = "tcp"\nrate_bit_s = 1e9\n'
                'published = "paz2010_pingpong.csv"\ncolumns = []',
            ),
            "claim 1: columns needs the one of the published times",
        ),
        (('kind = "faster"', 'kind = "faster"\nkey = ["tests"]'), "unknown key 'tests'; there are: confidence, "),
        (('kind = "faster"', 'kind = "faster"\nkey = ["test"]'), "the last key is a number, not 'test'"),
        (('kind = "faster"', 'kind = "faster"\nkey = []'), "unknown key ''"),
        (('kind = "faster"', 'kind = "faster"\nbeside = 1'), "beside must be true or false"),
        (('kind = "faster"', 'kind = "faster"\nof_limit = "yes"'), "of_limit must be true or false"),
        (('kind = "faster"', 'kind = "faster"\nexpected = {x = "1"}'), "expected 'x' must be a number, not '1'"),
        (('kind = "faster"', 'kind = "faster"\nprotocol = "llc"'), "unknown protocol 'llc'; there are: raw, udp, tcp"),
        (('a = {step = "messages",', 'a = {step = "messages", tst = "stream",'), "unknown field of series 'tst'"),
        (('a = {step = "messages",', 'a = {step = "messages", ranks = "4",'), "ranks must be a number, not '4'"),
        (('a = {step = "messages",', 'a = {step = "messages", test = ["x", 1],'), "test must be a text, not 1"),
        (('"--sizes", "64"]', '"--library"]'), "step 1: --library needs the names of libraries behind it"),
        (('"6", "--"', '"6", "--library", "--"'), "step 1: --library needs the names of libraries behind it"),
        (
            ('"mpi", "pingpong", "--sizes", "64"', '"account", "a.pcapng"'),
            "claim 1: a claim of kind 'faster' is about a step of mpi, bench, sdn bench, not 'messages'",
        ),
        (
            ('kind = "faster"', 'kind = "bytes"\nstep = "messages"\nexpected = {x = 1}'),
            "is about a step of account, sdn simulate, sdn learn, not 'messages'",
        ),
        (
            ('text = "The first is faster."', 'text = "x"\npublished = "watter2006_fft.csv"\nonly = {rank = 2}'),
            "has no column rank; it has processes",
        ),
        (
            ('text = "The first is faster."', 'text = "x"\npublished = "watter2006_fft.csv"\nonly = {processes = 3}'),
            "claim 1: watter2006_fft.csv has no row with {'processes': 3}",
        ),
        (
            (
                'kind = "faster"',
                'kind = "faster"\npublished = "watter2006_fft.csv"\nrows = "processes"\ncolumns = ["llc_mean"]',
            ),
            "claim 1: a claim of kind 'faster' has 2 columns, one for each side",
        ),
        (
            (
                'kind = "faster"',
                'kind = "faster"\npublished = "watter2006_fft.csv"\ncolumns = ["llc_mean", "tcp_mean"]',
            ),
            "claim 1: without 'rows', 'only' must leave one row of watter2006_fft.csv, not 4",
        ),
        (
            (
                'kind = "faster"',
                'kind = "faster"\npublished = "stival2006_overhead.csv"\ncolumns = ["overhead_ms", "overhead_ms"]\n'
                'only = [{library = "openmpi_tcp", side = "send"}, {library = "mpich2_tcp"}]',
            ),
            "claim 1: without 'rows', 'only' must leave one row of stival2006_overhead.csv, not 2",
        ),
        (
            (
                'kind = "faster"',
                'kind = "faster"\npublished = "stival2006_fft.csv"\nrows = "log2_points"\n'
                'columns = ["total_ms", "total_ms"]',
            ),
            "claim 1: stival2006_fft.csv has several rows of the same log2_points",
        ),
        (
            ('kind = "faster"', 'kind = "faster"\npublished = "watter2006_fft.csv"\nonly = [{processes = 2}, 3]'),
            "claim 1: only is a table such as",
        ),
        (('kind = "faster"', 'kind = "faster"\nrows = "processes"'), "claim 1: processes: columns of which table?"),
        (
            (
                'kind = "faster"',
                'kind = "break"\nlow = 1\nhigh = 2\npublished = "watter2006_fft.csv"\nrows = "processes"',
            ),
            "claim 1: a break has no key: omit 'rows'",
        ),
        (
            ('kind = "faster"', 'kind = "faster"\npublished = "watter2006_fft.csv"\np = "p_value"'),
            "claim 1: 'interval' and 'p' are of the difference of two sides",
        ),
        (
            (
                'kind = "faster"',
                'kind = "faster"\npublished = "watter2006_fft.csv"\nrows = "processes"\n'
                'columns = ["llc_mean", "tcp_mean"]\ninterval = ["ci99_low"]',
            ),
            "claim 1: interval needs two columns",
        ),
        (
            (
                'kind = "faster"',
                'kind = "faster"\npublished = "watter2006_fft.csv"\nrows = "processes"\n'
                'columns = ["llc_mean", "tcp_mean"]\np = "p"',
            ),
            "claim 1: watter2006_fft.csv has no column p; it has processes",
        ),
        (
            (
                'kind = "faster"',
                'kind = "impossible"\nmessage_bytes = 1\nprotocol = "tcp"\nrate_bit_s = 1e9\n'
                'published = "paz2010_pingpong.csv"\ncolumns = ["message_bytes"]',
            ),
            "claim 1: columns needs the one of the published times, whose name ends in s, ms or us",
        ),
    ],
)
def test_a_mistake_in_a_plan_is_named(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    text = STEP + CLAIM
    assert change[0] in text
    with pytest.raises(WrongUse) as raised:
        written(tmp_path, text.replace(*change))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("better", "worse", "says"),
    [
        ("planned", ["stp", "star"], "claim 1: 'star' is a reference network, not a strategy"),
        ("wide", ["stp"], "claim 1: 'wide' is a reference network, not a strategy"),
        ("planned", ["stp", "planned"], "claim 1: 'planned' is compared with itself"),
        ("planned", [], "claim 1: strategies needs two at least"),
    ],
)
@pytest.mark.parametrize("kind", ["strategy", "alike"])
def test_only_strategies_are_compared_and_with_others(
    tmp_path: Path, kind: str, better: str, worse: list[str], says: str
) -> None:
    """Nothing tells a reference, or a strategy and itself, apart: after the measurement that would be a traceback."""
    names = f"strategies = {[better, *worse]}" if kind == "alike" else f'better = "{better}"\nworse = {worse}'
    claim = f'[[claim]]\ntext = "x"\nkind = "{kind}"\nstep = "messages"\nquantity = "random rings"\n{names}\n'
    with pytest.raises(WrongUse) as raised:
        written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + claim)
    assert str(raised.value).endswith(says)


def test_a_plan_may_be_as_sure_as_a_confidence_can_be(tmp_path: Path) -> None:
    confident = STEP.replace("[[step]]", "confidence = 99.9\n[[step]]", 1)
    assert written(tmp_path, confident + CLAIM).confidence == 0.999
    with pytest.raises(WrongUse, match=r"from 50 to 99\.9, not 99\.91"):
        written(tmp_path, confident.replace("99.9", "99.91") + CLAIM)


def test_an_unknown_study_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="unknown study 'watter'") as raised:
        read_plan("watter")
    assert raised.value.hint == "did you mean 'watter2006'?"
    with pytest.raises(WrongUse, match="cannot read"):
        read_plan(str(tmp_path / "none.toml"))


Ran = Callable[[list[str]], tuple[int, str]]


def replaced(monkeypatch: pytest.MonkeyPatch, answer: Ran, build: str = "1, commit a") -> list[list[str]]:
    """Let `answer` stand for barewire, of this build; return the commands that it is given."""
    commands: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **_: object) -> None:
            assert command[:3] == [sys.executable, "-m", "barewire"]
            commands.append(command[3:])
            self.returncode, self.errors = answer(command[3:])

        def communicate(self) -> tuple[str, str]:
            return "", self.errors

    monkeypatch.setattr("barewire.study.steps.subprocess.Popen", Process)
    # It would start git.
    monkeypatch.setattr(steps_module, "this_build", lambda: build)
    return commands


def no_progress(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total


def test_a_step_s_options_go_before_those_of_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, commands = written(tmp_path, STEP + CLAIM), replaced(monkeypatch, lambda command: (0, ""))
    study = tmp_path / "study"
    record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    results = ["-o", str(study / "messages")]
    assert commands == [
        [*["mpi", "pingpong", "--sizes", "64", "--lab", "pair", "--launches", "6"], *results, "--", "--order", "16"],
    ]
    assert record.steps["messages"].state == "done" == read_record(study).steps["messages"].state
    # On real hosts the lab's options are replaced; and what is done is not done again.
    run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    other = tmp_path / "hosts"
    run_steps(plan, other, begin(plan, other, "full", "a:2,b:2"), no_progress)
    assert commands[1:] == [["mpi", "pingpong", "--sizes", "64", "--hosts", "a:2,b:2", "-o", str(other / "messages")]]


@pytest.mark.parametrize("name", shipped())
def test_on_real_hosts_no_step_has_what_only_a_lab_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Such a command would be wrong, and end the study. Without its losses a step would answer another question."""
    plan, commands = read_plan(name), replaced(monkeypatch, lambda command: (0, ""))
    monkeypatch.setattr(steps_module, "installed_libraries", lambda: list(LIBRARIES.values()))
    monkeypatch.setattr(steps_module, "find_library", lambda name: LIBRARIES[name])
    with patch("barewire.mpi.suite.build", lambda library, names: {"pingpong": "/nowhere/pingpong"}):
        record = run_steps(plan, tmp_path, begin(plan, tmp_path, "full", "a:8,b:8"), no_progress)
    labs = {"--lab", "--broker", "--capture", "--emulated"}
    assert not [command for command in commands if labs & {*command}]
    assert any("--hosts" in command for command in commands) == any(step.lab for step in plan.steps)
    only_in_labs = {"--broker", "--loss", "--mtu", "--offloads", "routed:2"}
    for step in plan.steps:
        if "--capture" in step.command or step.command[:2] == ("sdn", "bench") or only_in_labs & {*step.lab}:
            done = record.steps[step.name]
            assert done.state == "left out" and done.reason.endswith(" in a lab, not real hosts")


@pytest.mark.parametrize("before", ['"--sizes"', '"--launches"'], ids=["command", "form"])
def test_of_the_libraries_those_that_are_here_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    plan = written(tmp_path, STEP.replace(before, f'"--library", "openmpi,mpich-99", {before}') + CLAIM)
    commands, study = replaced(monkeypatch, lambda command: (0, "")), tmp_path / "study"
    monkeypatch.setattr(steps_module, "installed_libraries", lambda: [LIBRARIES["openmpi"]])
    record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    assert commands[0][commands[0].index("--library") + 1] == "openmpi"
    assert left_out(record) == ["Step 'messages' was done without mpich-99, not installed here"]


@pytest.mark.parametrize(
    ("library", "state", "reason"),
    [
        ("mpich-99", "left out", "the MPI library mpich-99 is not installed here"),
        ("openmpi", "failed", "cannot build in /usr: Read-only file system"),
    ],
)
def test_a_program_that_cannot_be_built_ends_its_step_and_not_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, state: str, reason: str
) -> None:
    program = f'"run", "--fabric", "tcp", "--", "{{suite:{library}}}/pingpong"'
    second = STEP[STEP.index("[[step]]") :].replace('"messages"', '"program"').replace(COMMAND, program)
    plan, commands = written(tmp_path, STEP + second + CLAIM), replaced(monkeypatch, lambda command: (0, ""))
    monkeypatch.setattr(steps_module, "installed_libraries", lambda: [LIBRARIES["openmpi"]])
    monkeypatch.setattr(steps_module, "find_library", lambda name: LIBRARIES[name])
    unwritable = MeasurementFailed("cannot build in /usr: Read-only file system")
    with patch("barewire.mpi.suite.build", side_effect=unwritable):
        record = run_steps(plan, tmp_path / "study", begin(plan, tmp_path / "study", "quick", None), no_progress)
    assert (record.steps["program"].state, record.steps["program"].reason) == (state, reason)
    assert len(commands) == 1 and record.steps["messages"].state == "done"


def test_a_study_knows_the_builds_that_measured_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = STEP[STEP.index("[[step]]") :].replace('"messages"', '"others"')
    plan, study = written(tmp_path, STEP + second + CLAIM), tmp_path / "study"
    for build, code in (("1, commit old", 1), ("2, commit new", 0)):
        others = str(study / "others")
        replaced(monkeypatch, lambda command, others=others, code=code: (code if others in command else 0, ""), build)
        record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
        assert read_record(study) == record
    assert record.builds == {"1, commit old": ["messages"], "2, commit new": ["others"]}
    (warning,) = warnings(record)
    assert "messages by 1, commit old; others by 2, commit new" in warning
    assert warning in (text := markdown(plan, [], record, [])) and warning in render_study(plan, [], record, [])
    assert f"Measured on {record.created[:10]} on labs on one machine, in the quick form" in text
    assert f"| others | {plan.step('others').what} | done |" in text
    monkeypatch.setattr("barewire.cli.study.this_build", lambda: "2, commit new")
    monkeypatch.setattr("barewire.cli.study.judge", lambda *_: [])
    monkeypatch.setattr("barewire.cli.study.shown", lambda *_: [])
    runner = CliRunner().invoke(app, ["study", "run", str(tmp_path / "mine.toml"), "--quick", "-o", str(study)])
    assert runner.exit_code == 0
    assert "steps were measured by another build: 1, commit old; this is 2, commit new" in runner.stderr
    nowhere = ["--plan", str(tmp_path / "mine.toml"), "--markdown", str(tmp_path / "mine.toml" / "x.md")]
    refused = CliRunner().invoke(app, ["study", "report", str(study), *nowhere])
    assert isinstance(refused.exception, WrongUse) and "cannot write" in str(refused.exception)


def test_a_study_is_continued_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, study = written(tmp_path, STEP + CLAIM), tmp_path / "study"

    def interrupted(command: list[str]) -> tuple[int, str]:
        (study / "messages").mkdir()
        (study / "messages" / "half").touch()
        return 130, "interrupted"

    replaced(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_steps(plan, study, begin(plan, study, "full", None), no_progress)
    for form, hosts, says in [("quick", None, "the full study mine on labs"), ("full", "a,b", "continue it as it was")]:
        with pytest.raises(WrongUse, match=says):
            begin(plan, study, form, hosts)  # type: ignore[arg-type]
    with pytest.raises(WrongUse, match=r"has changed since .* study report .* --plan FILE"):
        begin(written(tmp_path, STEP + CLAIM + "# changed"), study, "full", None)
    # A half-measured step is measured anew.
    replaced(monkeypatch, lambda command: (0, ""))
    run_steps(plan, study, begin(plan, study, "full", None), no_progress)
    assert not (study / "messages" / "half").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(WrongUse, match="is not empty and contains no study"):
        begin(plan, tmp_path / "other", "full", None)
    (study / "study.json").write_text("{}")
    with pytest.raises(WrongUse, match="damaged"):
        read_record(study)


def test_what_this_machine_lacks_is_left_out_and_what_fails_does_not_stop_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = STEP[STEP.index("[[step]]") :].replace('"messages"', '"others"')
    plan, study = written(tmp_path, STEP + second + CLAIM), tmp_path / "study"
    lacking = (3, "a warning\nbarewire: no MPI library is installed")
    replaced(
        monkeypatch,
        lambda command: (
            lacking
            if "messages" in command[-5] + command[-4]
            else (1, "barewire: ring: 1 of 3 done in 9 s, 2 left\nbarewire: died")
        ),
    )
    record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    assert [(done.state, done.reason) for done in record.steps.values()] == [
        ("left out", "no MPI library is installed"),
        ("failed", "barewire: died"),
    ]
    (finding,) = judge(plan, study, record)
    assert finding.verdict == "cannot be decided" and "left out: no MPI library" in finding.why
    # Both are tried again; with nothing left the machine is unsupported.
    replaced(monkeypatch, lambda command: lacking)
    with pytest.raises(MachineCannot, match="can run no step of the study mine: no MPI library"):
        run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    # A wrong command is the plan's mistake.
    replaced(monkeypatch, lambda command: (2, "barewire: unknown test"))
    with pytest.raises(WrongUse, match="step 'messages' of the plan"):
        run_steps(plan, study, begin(plan, study, "quick", None), no_progress)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -9 $$", "killed by signal 9"),
        ("exit 1", "ended with code 1"),
        ("printf 'not \\377 text' >&2; exit 1", "not \ufffd text"),
    ],
)
def test_a_step_that_fails_without_words_or_with_strange_ones_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setattr(steps_module.sys, "executable", str(program))
    monkeypatch.setattr(steps_module, "this_build", lambda: "1, commit a")
    plan, study = written(tmp_path, STEP + CLAIM), tmp_path / "study"
    record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    assert left_out(record) == [f"Step 'messages' failed: {reason}"]


READS = """
[[step]]
name = "account"
what = "where its bytes went"
command = ["account", "{study}/a.pcapng", "--message-bytes", "64"]
"""


def test_a_prediction_waits_for_the_runs_that_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = READS.replace('["account", "{study}/a.pcapng",', '["predict", "{study}/messages",')
    plan, study = written(tmp_path, STEP + reads + CLAIM), tmp_path / "study"
    replaced(monkeypatch, lambda command: (1, "barewire: died"))
    record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    assert record.steps["account"].reason == "it needs results of step 'messages', which failed"


@pytest.mark.parametrize(("code", "outcome"), [(1, "failed"), (3, "was left out")])
def test_a_step_that_reads_a_file_waits_for_the_step_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, outcome: str
) -> None:
    """Otherwise it would read what an earlier attempt left, or name the missing file as the plan's mistake."""
    makes = STEP.replace(COMMAND, '"run", "--capture", "{study}/a.pcapng", "--", "program"')
    plan, study = written(tmp_path, makes + READS + NOTHING), tmp_path / "study"
    commands = replaced(monkeypatch, lambda command: (code, "barewire: no") if command[0] == "run" else (0, ""))
    for _ in range(2):
        with contextlib.suppress(MachineCannot):
            run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
        record = read_record(study)
        assert record.steps["account"].state == "left out"
        assert record.steps["account"].reason == f"it needs results of step 'messages', which {outcome}"
    assert [command[0] for command in commands] == ["run", "run"]
    replaced(monkeypatch, lambda command: (0, ""))
    record = run_steps(plan, study, begin(plan, study, "quick", None), no_progress)
    assert {done.state for done in record.steps.values()} == {"done"}


def record_of(plan: Plan) -> Record:
    done = Done("done", ("mpi", "pingpong"), 61.0)
    return Record(plan.name, plan.digest, "quick", None, "2026-01-01", {step.name: done for step in plan.steps})


def judged(
    folder: Path,
    claim: str,
    times_us: Mapping[str, Mapping[int, float]],
    *,
    noise: float = 0.01,
    launches: int = 10,
    more: Sequence[Series] = (),
) -> Finding:
    """The finding about one claim, of a run whose subjects take these times, and that has `more` series."""
    plan, generator = written(folder, STEP + claim), np.random.default_rng(5)
    series = [
        series_of(list(time * generator.normal(1, noise, launches)), subject=subject, message_bytes=size)
        for subject, of_subject in times_us.items()
        for size, time in of_subject.items()
    ]
    series += more
    with patch.object(claims, "read_run", lambda directory: run_of(directory.name, series)):
        (finding,) = judge(plan, folder, record_of(plan))
    return finding


SIZES = (8, 64, 1024, 8192)
TCP = {size: 20 + size / 500 for size in SIZES}


def times(factors: Mapping[int, float] | float) -> dict[str, Mapping[int, float]]:
    each = factors if isinstance(factors, Mapping) else dict.fromkeys(SIZES, factors)
    return {"openmpi/barewire": {size: TCP[size] * each[size] for size in SIZES}, "openmpi/tcp": TCP}


@pytest.mark.parametrize(
    ("factors", "verdict", "says"),
    [
        (0.8, "held", "Better in all 4 rows"),
        (1.2, "did not hold", "Better in 0 of 4"),
        ({8: 0.8, 64: 0.8, 1024: 1.0, 8192: 0.8}, "did not hold", "Better in 3 of 4, not at 1 KiB"),
    ],
)
def test_faster_at_every_size(tmp_path: Path, factors: Mapping[int, float] | float, verdict: str, says: str) -> None:
    finding = judged(tmp_path, CLAIM, times(factors), noise=0.002)
    assert finding.verdict == verdict and says in finding.why, finding.why
    assert [row.label for row in finding.rows] == ["8 B", "64 B", "1 KiB", "8 KiB"]


def test_sides_of_one_subject_are_told_apart_by_what_they_select(tmp_path: Path) -> None:
    claim = CLAIM.replace("openmpi/tcp", "openmpi/barewire").replace(
        '"openmpi/barewire"}\nb', '"openmpi/barewire", message_bytes = 8}\nb'
    )
    finding = judged(tmp_path, f'{claim}key = ["ranks"]', {"openmpi/barewire": {8: 1.0, 64: 2.0}})
    assert finding.names == ("openmpi/barewire (message bytes 8)", "openmpi/barewire (any message bytes)")
    same = judged(tmp_path, CLAIM.replace("openmpi/tcp", "openmpi/barewire"), {"openmpi/barewire": {8: 1.0}})
    assert same.names == ("openmpi/barewire", "openmpi/barewire")


def test_sides_without_values_are_named(tmp_path: Path) -> None:
    """A library or a size that was not measured, such as one of the other form, is no damaged run."""

    def of(kind: str, subject: str, more: str = "") -> Finding:
        side = f'a = {{step = "messages", subject = "{subject}"{more}}}\n'
        other = 'b = {step = "messages", subject = "openmpi/tcp"}\n' if kind == "faster" else "low = 1\nhigh = 9\n"
        return judged(tmp_path, f'[[claim]]\ntext = "x"\nkind = "{kind}"\n{side}{other}', times(1.0))

    for kind in ("faster", "within", "break"):
        finding = of(kind, "mpich-5/tcp", ', variant = ["a", "b"]')
        assert finding.verdict == "cannot be decided" and not finding.rows
        assert finding.why == "step 'messages' has no values of subject mpich-5/tcp, variant a, b", finding.why
    assert of("break", "openmpi/tcp").why == "break points need 8 message sizes or more"
    apart = CLAIM.replace('"openmpi/barewire"', '"openmpi/barewire", message_bytes = 8').replace(
        '"openmpi/tcp"', '"openmpi/tcp", message_bytes = 64'
    )
    assert judged(tmp_path, apart, times(1.0)).why == "the runs have no values of both sides with the same key"
    negative = [
        series_of([-0.5, *[1.0] * 9], subject=name, message_bytes=8) for name in ("openmpi/barewire", "openmpi/tcp")
    ]
    assert judged(tmp_path, CLAIM, {}, more=negative).why == "no usable values at 8 B"
    limit = '[[claim]]\ntext = "x"\nkind = "within"\na = {step = "messages"}\nlow = 0\nhigh = 1\nof_limit = true\n'
    assert judged(tmp_path, limit, times(1.0)).why == "the link has no rate, so no limit of its wire is known"


@pytest.mark.parametrize("kind", ["faster", "no-difference"])
def test_one_launch_is_on_the_page_and_decides_nothing(tmp_path: Path, kind: str) -> None:
    claim = CLAIM.replace('"faster"', f'"{kind}"')
    finding = judged(tmp_path, claim, times(0.8), launches=1)
    assert finding.verdict == "cannot be decided" and "With 1 launch there is no interval" in finding.why, finding.why
    assert "significant" not in finding.why, "nothing was tested"
    plan = written(tmp_path, STEP + claim)
    assert "With 1 launch" in markdown(plan, [finding], record_of(plan), [])
    assert "With 1 launch" in render_study(plan, [finding], record_of(plan), [])


def test_too_few_launches_decide_nothing(tmp_path: Path) -> None:
    finding = judged(tmp_path, CLAIM, times(0.8), launches=2)
    assert finding.verdict == "cannot be decided" and "With 2 launches there is no interval at 95 %" in finding.why


@pytest.mark.parametrize(
    ("factors", "noise", "verdict", "says"),
    [
        (1.0, 0.001, "held", "No difference beyond 2 %"),
        (1.0056, 0.0001, "held", "No difference beyond 2 %"),
        (1.1, 0.001, "did not hold", "The sides differ at 8 B"),
        (1.0, 0.1, "cannot be decided", "is not excluded"),
    ],
)
def test_no_difference_needs_intervals_that_exclude_one(
    tmp_path: Path, factors: float, noise: float, verdict: str, says: str
) -> None:
    finding = judged(tmp_path, CLAIM.replace('"faster"', '"no-difference"'), times(factors), noise=noise)
    assert finding.verdict == verdict and says in finding.why, finding.why


@pytest.mark.parametrize("lost", [[], [-0.5, *[1.0] * 9]])
@pytest.mark.parametrize(("factor", "verdict"), [(0.8, "cannot be decided"), (1.2, "did not hold")])
def test_a_size_without_usable_values_is_named_and_nothing_holds_there(
    tmp_path: Path, lost: list[float], factor: float, verdict: str
) -> None:
    """Every message was lost, or a derived time is below the noise: no ratio, and so no better row."""
    more = [
        series_of(lost, subject="openmpi/barewire", message_bytes=65536),
        series_of([30.0] * 10, subject="openmpi/tcp", message_bytes=65536),
        series_of([30.0] * 10, subject="openmpi/tcp", message_bytes=131072),
    ]
    finding = judged(tmp_path, CLAIM, times(factor), more=more)
    assert finding.verdict == verdict and finding.why.endswith(" No usable values at 64 KiB."), finding.why
    assert len(finding.rows) == 4
    if not lost:
        side = 'a = {step = "messages", subject = "openmpi/barewire"}'
        within = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 1\nhigh = 1000\n'
        finding = judged(tmp_path, within, times(factor), more=more)
        assert finding.verdict == "cannot be decided" and finding.why.endswith("No usable values at 64 KiB.")


def test_values_in_several_units_are_not_held_against_the_same_bounds(tmp_path: Path) -> None:
    stream = series_of([900.0] * 10, subject="openmpi/tcp", test="stream", message_bytes=8, unit="Mbit/s")
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 1\nhigh = 1000\n'
    with pytest.raises(WrongUse, match="'x' compares values in Mbit/s and us"):
        judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}}, more=[stream])


@pytest.mark.parametrize(
    ("first", "last", "verdict"), [(0.9, 0.7, "held"), (0.7, 0.9, "did not hold"), (0.8, 0.8, "cannot be decided")]
)
def test_a_gain_that_grows(tmp_path: Path, first: float, last: float, verdict: str) -> None:
    claim = CLAIM.replace('"faster"', '"grows"\nkey = ["message_bytes"]')
    finding = judged(tmp_path, claim, times({8: first, 64: 0.8, 1024: 0.8, 8192: last}), noise=0.01)
    assert finding.verdict == verdict, finding.why


def test_a_gain_grows_from_one_number_to_another(tmp_path: Path) -> None:
    """Two series of the same number are no growth, however they differ."""
    sides = CLAIM.replace('"faster"', '"grows"\nkey = ["message_bytes"]').replace(
        'subject = "openmpi/barewire"', 'subject = ["one/barewire", "two/barewire"]'
    )
    fabrics = {"one/barewire": {8: 10.0}, "two/barewire": {8: 5.0}, "openmpi/tcp": {8: 20.0}}
    finding = judged(tmp_path, sides, fabrics)
    assert finding.verdict == "cannot be decided" and "an interval at two numbers" in finding.why, finding.why


def test_series_without_a_claims_key_are_rows_that_say_so(tmp_path: Path) -> None:
    claim = CLAIM.replace('kind = "faster"', 'kind = "faster"\nkey = ["parameter_value"]')
    finding = judged(tmp_path, claim, {"openmpi/barewire": {8: 10.0}, "openmpi/tcp": {8: 20.0}})
    assert finding.verdict == "held" and [row.label for row in finding.rows] == ["no parameter value"]


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(15, 25, "held"), (50, 60, "did not hold"), (20, 25, "cannot be decided")]
)
def test_a_value_within_bounds(tmp_path: Path, low: float, high: float, verdict: str) -> None:
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = {low}\nhigh = {high}\n'
    finding = judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}}, noise=0.01)
    assert finding.verdict == verdict, finding.why


def test_nothing_hidden_is_a_small_share(tmp_path: Path) -> None:
    """A share may be 0 in every launch, where a ratio has no usable values."""
    side = 'a = {step = "messages", quantity = "hidden_share"}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 0\nhigh = 50\n'
    share = replace(series_of([0.0] * 6, subject="openmpi/tcp", test="overlap", unit="%"), quantity="hidden_share")
    finding = judged(tmp_path, claim, {}, more=[share])
    assert finding.verdict == "held" and finding.why == "0; expected at most 50.0.", finding.why


@pytest.mark.parametrize(
    ("bound", "verdict", "says"),
    [
        ("high = 0.55", "held", "expected at most 0.55"),
        ("high = 0.45", "did not hold", "0.49"),
        ("low = 0.4", "held", "expected at least 0.4"),
        ("low = 0.4\nhigh = 0.6", "held", "expected 0.400 to 0.600."),
        ("high = 0.5", "cannot be decided", "expected at most 0.500."),
    ],
)
def test_a_ratio_within_bounds_is_that_of_the_best_on_each_side(
    tmp_path: Path, bound: str, verdict: str, says: str
) -> None:
    side = 'step = "messages", subject = ["{}", "{}"]'
    sides = f"a = {{{side.format('one/barewire', 'two/barewire')}}}\nb = {{{side.format('one/tcp', 'two/tcp')}}}"
    fabrics = {"one/barewire": 11.0, "two/barewire": 10.0, "one/tcp": 20.0, "two/tcp": 30.0}
    finding = judged(
        tmp_path,
        f'[[claim]]\ntext = "x"\nkind = "ratio"\n{sides}\n{bound}\n',
        {subject: {8: time} for subject, time in fabrics.items()},
        noise=0.01,
    )
    assert finding.verdict == verdict and says in finding.why, finding.why
    assert finding.names == ("two/barewire", "one/tcp") and len(finding.rows) == 1
    # Of rates the higher one is the best.
    with patch.object(claims.Series, "lower_is_better", False):
        finding = judged(
            tmp_path,
            f'[[claim]]\ntext = "x"\nkind = "ratio"\n{sides}\nlow = 0.3\n',
            {subject: {8: time} for subject, time in fabrics.items()},
        )
    assert finding.names == ("one/barewire", "two/tcp")


@pytest.mark.parametrize(("extra_us", "verdict"), [(0.0, "held"), (3.0, "did not hold")])
def test_a_wire_takes_its_time_besides_what_a_link_without_a_rate_takes(
    tmp_path: Path, extra_us: float, verdict: str
) -> None:
    """Of each transport, which is a row of its own: 10 µs and 20 µs without a rate, and 12 µs of the wire."""
    second = STEP[STEP.index("[[step]]") :].replace('"messages"', '"shaped"')
    claim = (
        '[[claim]]\ntext = "x"\nkind = "ratio"\nkey = ["subject", "message_bytes"]\na = {step = "shaped"}\n'
        'b = {step = "messages"}\nbeyond_limit = true\nhigh = 1.03\n'
    )
    plan, generator = written(tmp_path, STEP + second + claim), np.random.default_rng(5)

    def run(directory: Path) -> Run:
        wire = 12.0 if directory.name == "shaped" else 0.0
        late = extra_us if wire else 0.0
        return run_of(
            directory.name,
            [
                replace(
                    series_of(list((time + wire + late) * generator.normal(1, 0.002, 10)), subject=subject),
                    limit=wire or None,
                )
                for subject, time in {"raw": 10.0, "tcp": 20.0}.items()
            ],
        )

    with patch.object(claims, "read_run", run):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    assert [row.label for row in finding.rows] == ["raw, 64 B", "tcp, 64 B"]
    assert finding.rows[0].ratio == pytest.approx((22 + extra_us) / 22, rel=0.01)


@pytest.mark.parametrize(("rate", "verdict"), [(123.0, "held"), (110.0, "did not hold")])
def test_a_stream_carries_a_share_of_its_wire_s_rate(tmp_path: Path, rate: float, verdict: str) -> None:
    claim = (
        '[[claim]]\ntext = "x"\nkind = "within"\na = {step = "messages"}\nof_limit = true\nlow = 0.95\nhigh = 1.01\n'
    )
    plan = written(tmp_path, STEP + claim)
    values = [rate + 0.01 * number for number in range(10)]
    series = [replace(series_of(values, test="stream", unit="MB/s"), limit=125.0)]
    with patch.object(claims, "read_run", lambda directory: run_of(directory.name, series)):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    assert finding.rows[0].ratio == pytest.approx(rate / 125, abs=0.001) and finding.rows[0].unit == "of the limit"


@pytest.mark.parametrize(
    ("more", "errors", "with_interval", "verdict"),
    [
        ("", [0.05, -0.1, 0.01, 0.02], True, "held"),
        ("", [0.05, -0.2, 0.01, 0.02], True, "did not hold"),
        ("", [0.05, -0.1, 0.01, 0.02], False, "cannot be decided"),
        ("mean = true\n", [0.05, -0.06, 0.04, 0.05, 0.06, -0.2], False, "held"),
        ("mean = true\n", [0.35, -0.36, 0.34, 0.35, 0.36, -0.3], False, "did not hold"),
        ("mean = true\n", [], False, "cannot be decided"),
    ],
)
def test_predictions_are_judged_by_their_errors(
    tmp_path: Path, more: str, errors: list[float], with_interval: bool, verdict: str
) -> None:
    """Each by the interval of the measured time, or all by that of their mean."""
    claim = f'[[claim]]\ntext = "x"\nkind = "predicted"\nstep = "messages"\nhigh = 0.15\n{more}'
    plan = written(tmp_path, STEP.replace(COMMAND, '"predict", "runs/a", "--against", "runs/b"') + claim)
    predictions = [
        {
            "measured_as": "fft original",
            "ranks": 4,
            "message_bytes": 0,
            "time_us": {"value": 100 * (1 + error)},
            "measured_us": {"value": 100.0, "ci95": [99.0, 101.0] if with_interval else None},
            "error": error,
        }
        for error in errors
    ]
    document = {"predictions": predictions, "cannot_say": [] if errors else ["fft: cannot say: no model"]}
    (tmp_path / "messages.json").write_text(json.dumps(document))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    if not errors:
        assert finding.why == "fft: cannot say: no model"
    elif not more and with_interval:
        (low, high), error = finding.rows[1].interval or (0, 0), abs(errors[1])
        assert low < error < high
    else:
        assert "|  | today | verdict |" in markdown(plan, [finding], record_of(plan), [])


def test_a_break_is_found_where_it_was_published_or_not(tmp_path: Path) -> None:
    """The row has the break's place with its interval, and beside it the published one."""
    sizes = [2**power for power in range(4, 18)]
    curve = {"openmpi/tcp": {size: 10 + size / 1000 + (30 if size > 4096 else 0) for size in sizes}}
    for low, high, verdict in [(4096, 8192, "held"), (64, 256, "did not hold")]:
        side = 'a = {step = "messages", subject = "openmpi/tcp"}'
        claim = f'[[claim]]\ntext = "x"\nkind = "break"\n{side}\nlow = {low}\nhigh = {high}\n'
        finding = judged(tmp_path, claim, curve, noise=0.005)
        assert finding.verdict == verdict, finding.why
        any_of_them = claim.replace('subject = "openmpi/tcp"', 'subject = ["mpich/tcp", "openmpi/tcp"]')
        found = judged(tmp_path, any_of_them, curve, noise=0.005)
        assert found.verdict == verdict
        (row,) = found.rows
        assert row.unit == "B" and row.measured == (4096.0,) and row.interval == (4096.0, 8192.0)
        assert row.label.startswith("a step of 3") and row.label.endswith(" µs above"), row.label
        published = 'published = "geromel1998_unet.csv"\ncolumns = ["value"]\n'
        beside = judged(tmp_path, claim + published + 'only = {quantity = "pio_dma_crossover_card_to_host"}', curve)
        assert beside.rows[0].published == (128.0,)
        assert table_of(beside).headings == ("", "published: value", "today, B", "verdict")
    two = {**curve, "mpich/tcp": curve["openmpi/tcp"]}
    labels = [row.label for row in judged(tmp_path, any_of_them, two, noise=0.005).rows]
    assert [label.partition(":")[0] for label in labels] == ["openmpi/tcp", "mpich/tcp"]


def test_a_break_is_that_of_the_selected_curve_and_needs_launches(tmp_path: Path) -> None:
    """Pairs of processes may have a break that one pair does not have."""
    sizes = [2**power for power in range(4, 18)]
    curve = {"openmpi/tcp": {size: 10 + size / 1000 + (30 if size > 4096 else 0) for size in sizes}}
    side = 'step = "messages", subject = "openmpi/tcp"'
    claim = f'[[claim]]\ntext = "x"\nkind = "break"\na = {{{side}}}\nlow = 4096\nhigh = 8192\n'
    few = judged(tmp_path, claim, curve, noise=0.005, launches=5)
    assert few.verdict == "cannot be decided" and "With 5 launches nothing is sure at 95 %" in few.why
    for pairs, verdict in ((1, "held"), (4, "cannot be decided")):
        of_pairs = claim.replace(side, f"{side}, pairs = {pairs}")
        assert judged(tmp_path, of_pairs, curve, noise=0.005).verdict == verdict


def test_a_value_of_few_launches_is_within_nothing(tmp_path: Path) -> None:
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 1\nhigh = 100\n'
    finding = judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}}, launches=1)
    assert finding.verdict == "cannot be decided" and "there is no interval" in finding.why


@pytest.mark.parametrize(
    ("isolated_ms", "blocks", "busy", "verdict", "says"),
    [
        (20.0, 6, 0.5, "held", "Better in the only row"),
        (60.0, 6, 0.5, "did not hold", "Better in 0 of 1"),
        (20.0, 2, 0.5, "cannot be decided", "Only 2 blocks, and at least 6 are needed."),
        (20.0, 6, 0.9, "cannot be decided", "The machine was saturated"),
    ],
)
def test_strategies_are_judged_by_tests_like_those_of_their_experiment(
    tmp_path: Path, isolated_ms: float, blocks: int, busy: float, verdict: str, says: str
) -> None:
    """Also where ratios look good: with few blocks, or on a saturated machine, nothing can be said."""
    claim = (
        '[[claim]]\ntext = "x"\nkind = "strategy"\nstep = "messages"\nbetter = "isolated"\nworse = ["stp"]\n'
        'quantity = "random rings"\npublished = "oliveira2018_throughput.csv"\nrows = "hosts"\n'
        'columns = ["isolated", "stp"]\n'
    )
    run, frame, _ = synthetic_sdn({"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": isolated_ms}, blocks, busy=busy)
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + claim)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and says in finding.why, finding.why
    (row,) = finding.rows
    assert row.published == (67.99, 63.17) and row.published_ratio == pytest.approx(1.0763, abs=1e-4)


def test_a_claim_about_strategies_is_corrected_over_its_own_rows(tmp_path: Path) -> None:
    """A difference that is decided alone, but not in the run's own report, among all pairs of its strategies."""
    ms = {"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": 38.0} | dict.fromkeys(
        ("ecmp", "lanes", "dmodk", "spray"), 40.0
    )
    run, frame, _ = synthetic_sdn(ms, 6)
    spread = pl.Series(np.random.default_rng(3).normal(1, 0.06, frame.height))
    frame = frame.with_columns((pl.col("value") * spread).alias("value"))
    claim = (
        '[[claim]]\ntext = "x"\nkind = "strategy"\nstep = "messages"\nbetter = "isolated"\nworse = ["stp"]\n'
        'quantity = "random rings"\n'
    )
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + claim)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    summary = summarised(run, frame)
    ratio = summary.ratio("random rings", 4, "isolated", "stp")
    assert ratio is not None and ratio.p is not None and 0.05 / 15 < ratio.p < 0.05, ratio
    assert str(summary.verdict("random rings", 4, "isolated", "stp")).startswith("cannot say")
    assert finding.verdict == "held" and finding.rows[0].says == "better", finding


LATENCY = """
[[claim]]
text = "x"
kind = "alike"
step = "messages"
strategies = ["stp", "isolated"]
quantity = "median latency"
published = "oliveira2018_latency.csv"
rows = "hosts"
columns = ["stp"]
"""


@pytest.mark.parametrize(
    ("factor", "blocks", "busy", "verdict", "says"),
    [
        (1.0, 8, 0.5, "held", "No difference beyond 2 % in the only row"),
        (1.3, 8, 0.5, "did not hold", "The sides differ at 4 hosts, against isolated"),
        (1.0, 3, 0.5, "cannot be decided", "Not tested, because only 3 blocks, and at least 6 are needed: "),
        (1.3, 8, 0.9, "cannot be decided", "Not tested, because the machine was saturated in 16 of 16 launches: "),
    ],
)
def test_strategies_are_alike_if_their_intervals_say_so(
    tmp_path: Path, factor: float, blocks: int, busy: float, verdict: str, says: str
) -> None:
    """Latencies of 8 bytes that are part of each launch of rings; published ones are equal, so their ratio is 1."""
    run, frame, _ = synthetic_sdn({"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": 20.0}, blocks, busy=busy)
    is_short = (pl.col("message_bytes") == 8) & (pl.col("subject").cast(pl.String) == "isolated")
    noise = pl.Series(np.random.default_rng(1).normal(1, 0.001, frame.height))
    value = pl.when(is_short).then(pl.col("value") * factor).otherwise(pl.col("value")) * noise
    frame = frame.with_columns(value.alias("value"))
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + LATENCY)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and says in finding.why, finding.why
    (row,) = finding.rows
    assert row.published == (0.37, 0.37) and row.published_ratio == 1
    table = table_of(finding)
    assert table.headings[1:3] == ("published: stp", "published: isolated")
    assert len(table.rows[0]) == len(table.headings)
    assert row.unit == "ms" and row.ratio == pytest.approx(factor, abs=0.02), "above 1: stp, the first, is shorter"


SIMULATED = """
[[step]]
name = "simulation"
what = "simulated"
command = ["sdn", "simulate"]

[[claim]]
text = "x"
kind = "strategy"
step = "simulation"
better = "planned"
worse = ["stp"]
quantity = "job"
"""


@pytest.mark.parametrize(
    ("planned_s", "verdict", "says"),
    [([5.0, 5.1, 5.2, 5.0, 5.1, 5.2], "held", "Better in the only row"),
     ([11.0, 11.1, 11.2, 11.0, 11.1, 11.2], "did not hold", "Better in 0 of 1"),
     ([9.0, 11.1, 9.2, 11.0, 9.1, 11.2], "cannot be decided", "The tests do not tell them apart."),
     ([5.0, 5.1], "cannot be decided", "Only 2 seeds, and at least 6 are needed.")],
)  # fmt: skip
def test_simulated_strategies_are_compared_seed_by_seed(
    tmp_path: Path, planned_s: list[float], verdict: str, says: str
) -> None:
    """A claim about a document and one about a run stand side by side: each is judged from its own."""
    plan = written(tmp_path, STEP + SIMULATED)
    same = {"quantity": "job", "unit": "s", "hosts": 16}
    stp = [10.0, 10.2, 10.1, 10.3, 10.0, 10.1][: len(planned_s)]
    series = [
        {**same, "strategy": "stp", "mean": float(np.mean(stp)), "values": stp},
        {**same, "strategy": "planned", "mean": float(np.mean(planned_s)), "values": planned_s},
        {**same, "quantity": "random rings", "unit": "MB/s", "strategy": "planned", "mean": 1.0, "values": [1.0]},
    ]
    (tmp_path / "simulation.json").write_text(json.dumps({"series": series}))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and finding.why.startswith("Simulated. "), finding.why
    assert says in finding.why, finding.why
    (row,) = finding.rows
    assert row.published_ratio is None
    published = 'published = "oliveira2018_throughput.csv"\nrows = "hosts"\n'
    beside = written(tmp_path, STEP + SIMULATED.replace("planned", "isolated") + published)
    renamed = json.dumps({"series": series}).replace("planned", "isolated")
    (tmp_path / "simulation.json").write_text(renamed)
    (with_published,) = judge(beside, tmp_path, record_of(beside))
    assert with_published.rows[0].published_ratio == pytest.approx(27.31 / 38.07), "of times, in A's favour"
    assert table_of(with_published).headings[-2] == "ratio (above 1 is better)"
    assert "ratio (above 1 is better)" in render_study(beside, [with_published], record_of(beside), [])
    assert row.measured == (pytest.approx(np.mean(planned_s)), pytest.approx(np.mean(stp))) and row.unit == "s"


def test_simulated_strategies_are_corrected_over_the_rows_of_a_claim(tmp_path: Path) -> None:
    """Six seeds that would contradict the claim alone, beside two numbers of hosts without a difference."""
    plan = written(tmp_path, STEP + SIMULATED)
    even = [10.0, 10.2, 9.8, 10.1, 9.9, 10.0]
    worse = [10.8, 10.4, 10.2, 9.9, 10.3, 10.5]
    series = [
        {"quantity": "job", "unit": "s", "hosts": hosts, "strategy": name, "mean": float(np.mean(values))}
        | {"values": values}
        for hosts in (4, 8, 16)
        for name, values in (("stp", even), ("planned", worse if hosts == 16 else even[1:] + even[:1]))
    ]
    (tmp_path / "simulation.json").write_text(json.dumps({"series": series}))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == "cannot be decided" and len(finding.rows) == 3, finding.why
    high = finding.rows[2].interval
    assert high is not None and high[1] < 1, "alone it would be worse"


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [(700, 3, "held"), (600, 100, "did not hold"), (30, 1, "cannot be decided"), (0, 0, "cannot be decided")],
)
def test_recognition_is_judged_by_an_exact_interval_of_the_share(
    tmp_path: Path, right: int, wrong: int, verdict: str
) -> None:
    claim = '[[claim]]\ntext = "x"\nkind = "recognised"\nstep = "messages"\nlow = 0.95\n'
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "learn", "--evaluate", "model.json"') + claim)
    confusion = {"hadoop": {"default": wrong, "hadoop": right, "mpi": 0, "unsure": 0}}
    (tmp_path / "messages.json").write_text(json.dumps({"confusion": confusion}))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    if right:
        (row,) = finding.rows
        assert row.interval is not None and row.interval[0] < right / (right + wrong) <= row.interval[1]
        assert f"hadoop, {right} of {right + wrong}" in markdown(plan, [finding], record_of(plan), [])


@pytest.mark.parametrize(
    ("kind", "step", "isolated", "verdict"),
    [
        ("strategy", "messages", 20.0, "cannot be decided"),
        ("strategy", "messages", 60.0, "did not hold"),
        ("strategy", "simulation", 20.0, "cannot be decided"),
        ("strategy", "simulation", 60.0, "did not hold"),
        ("alike", "messages", 40.0, "cannot be decided"),
        ("alike", "messages", 20.0, "did not hold"),
    ],
)
def test_a_claim_about_strategies_that_were_not_measured_does_not_hold(
    tmp_path: Path, kind: str, step: str, isolated: float, verdict: str
) -> None:
    """But what was measured can contradict it."""
    names = 'better = "isolated"\nworse = ["stp", "ecmp", "trafic"]'
    if kind == "alike":
        names = 'strategies = ["isolated", "stp", "ecmp", "trafic"]'
    claim = f'[[claim]]\ntext = "x"\nkind = "{kind}"\nstep = "{step}"\nquantity = "random rings"\n{names}\n'
    steps = STEP.replace(COMMAND, '"sdn", "bench"') + SIMULATED[: SIMULATED.index("[[claim]]")]
    plan = written(tmp_path, steps + claim)
    same = {"quantity": "random rings", "unit": "MB/s", "hosts": 4}
    series = [
        {**same, "strategy": name, "mean": 1 / time, "values": [1 / time] * 6}
        for name, time in (("stp", 40.0), ("isolated", isolated))
    ]
    (tmp_path / "simulation.json").write_text(json.dumps({"series": series}))
    run, frame, _ = synthetic_sdn({"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": isolated}, 6)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and finding.why.endswith(" Not measured: ecmp, trafic."), finding.why
    assert len(finding.rows) == 1


def test_a_step_of_the_other_form_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = (
        STEP[STEP.index("[[step]]") :]
        .replace('"messages"', '"others"')
        .replace('quick = ["', 'forms = ["full"]\nfull = ["')
    )
    plan, commands = written(tmp_path, STEP + second + CLAIM), replaced(monkeypatch, lambda command: (0, ""))
    record = run_steps(plan, tmp_path / "study", begin(plan, tmp_path / "study", "quick", None), no_progress)
    assert len(commands) == 1 and record.steps["others"].state == "left out"
    assert left_out(record) == ["Step 'others' was left out: it belongs to the full form"]
    with pytest.raises(WrongUse, match="unknown form 'fast'"):
        written(tmp_path, STEP.replace("quick =", 'forms = ["fast"]\nquick =') + CLAIM)
    with pytest.raises(WrongUse, match="strategies needs two at least"):
        written(tmp_path, STEP + LATENCY.replace('["stp", "isolated"]\nquantity', '["stp"]\nquantity'))


HOST_STEP = """
title = "A machine"
question = "How fast is it?"
source = "this test"

[[step]]
name = "messages"
what = "this machine"
command = ["bench", "host"]
"""
CROSSOVER = """
[[claim]]
text = "Small messages are copied."
kind = "crossover"
step = "messages"
crossover = "copy crossover"
low = 410
high = 800
"""


@pytest.mark.parametrize(
    ("sizes", "verdict", "says"),
    [
        ((64, 1024, 4096, 8192), "held", "copied is cheaper up to"),
        ((64, 1024), "did not hold", "at all sizes up to 1 KiB"),
        ((), "cannot be decided", "has no copy crossover"),
    ],
)
def test_a_crossover_lies_between_the_sizes_or_not(
    tmp_path: Path, sizes: tuple[int, ...], verdict: str, says: str
) -> None:
    plan = written(tmp_path, HOST_STEP + CROSSOVER)
    run, frame = synthetic_host(tmp_path)
    frame = frame.filter((pl.col("test") == "send") & pl.col("message_bytes").is_in(sizes))
    with patch.object(claims, "read_run", lambda _: run), patch.object(claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and says in finding.why, finding
    if verdict == "held":
        with patch.object(claims, "read_run", lambda _: run), patch.object(claims, "samples", lambda _: frame):
            (sure,) = judge(replace(plan, confidence=0.5), tmp_path, record_of(plan))
        assert "; 95 % interval" in finding.why and "; 50 % interval" in sure.why
        (low, high), (inner_low, inner_high) = finding.rows[0].interval, sure.rows[0].interval
        assert low < inner_low < inner_high < high
    if finding.rows:
        assert finding.rows[0].label == "copied or gathered, published 410 to 800 B"


def test_what_was_measured_of_a_machine_is_shown_in_full(tmp_path: Path) -> None:
    plan = written(tmp_path, HOST_STEP + CROSSOVER)
    run, frame = synthetic_host(tmp_path)
    write_run(tmp_path / "study" / "messages", run, frame)
    record = record_of(plan)
    (host,) = shown(plan, tmp_path / "study", record)
    assert host.step == "messages" and len(host.measures) == len(run.series)
    text, page = markdown(plan, [], record, [host]), render_study(plan, [], record, [host])
    for what in ("This machine", "Context switch, ns", "16 KiB", "processes-8"):
        assert what in text and what in page, what
    less_sure = replace(plan, confidence=0.5)
    (narrower,) = shown(less_sure, tmp_path / "study", record)
    widths = [
        [measure.interval[1] - measure.interval[0] for measure in each.measures if measure.interval is not None]
        for each in (host, narrower)
    ]
    assert len(widths[0]) == len(widths[1]) and sum(widths[1]) < sum(widths[0])
    assert "with its 50 % interval" in render_study(less_sure, [], record, [narrower])
    found = document(plan, [], record, [host])
    assert found["tables"] == []
    assert json.loads(json.dumps(found["hosts"]["messages"], allow_nan=False))[0]["name"].startswith("memory/")


PARAMETERS = """
[[table]]
kind = "parameters"
a = {step = "messages", subject = "openmpi/tcp"}
published = "watter2006_netpipe_time.csv"
rows = "message_bytes"
columns = {"openmpi/tcp" = "tcp_mean_s"}
note = "As printed."
"""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('kind = "parameters"', 'kind = "hockney"'), "kind is one of parameters, speed-ups, account, not 'hockney'"),
        (('a = {step = "messages", subject = "openmpi/tcp"}', ""), "a table needs 'a', with the step that it shows"),
        (('a = {step = "messages", ', "a = {"), "need the step that measures them"),
        (('step = "messages"', 'step = "message"'), "unknown step 'message'; there are: messages"),
        (('subject = "openmpi/tcp"}', 'subjects = "openmpi/tcp"}'), "unknown field of series 'subjects'"),
        (('note = "As printed."', "note = 3"), "note must be a text"),
        (('note = "As printed."', "title = 3"), "unknown entry 'title'"),
        (('kind = "parameters"', 'kind = "account"'), "an account has no series and no published table"),
        (('rows = "message_bytes"', ""), "a published table needs 'published', 'rows' and 'columns'"),
        (('rows = "message_bytes"', 'rows = "size"'), "watter2006_netpipe_time.csv has no column size; it has"),
        (('"tcp_mean_s"', '"udp_mean_s"'), "watter2006_netpipe_time.csv has no column udp_mean_s; it has"),
        (('"tcp_mean_s"', "3"), "columns has the name of a column for each subject, not 3 for 'openmpi/tcp'"),
        (('{"openmpi/tcp" = "tcp_mean_s"}', '["tcp_mean_s"]'), "columns is a table such as"),
        (('note = "As printed."', "only = {message_bytes = 5}"), "has no row with {'message_bytes': 5}"),
        (
            (
                'watter2006_netpipe_time.csv"\nrows = "message_bytes"\ncolumns = {"openmpi/tcp" = "tcp_mean_s"}',
                'stival2006_fft.csv"\nrows = "processes"\ncolumns = {"openmpi/tcp" = "total_ms"}',
            ),
            "stival2006_fft.csv has several rows of the same processes",
        ),
        (("[[table]]", "[table]"), "needs tables [[table]], at least one"),
    ],
)
def test_a_mistake_in_a_table_is_named(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in PARAMETERS
    with pytest.raises(WrongUse) as raised:
        written(tmp_path, STEP + CLAIM + PARAMETERS.replace(*change))
    assert says in str(raised.value)
    assert ", table 1" in str(raised.value) or change[1] == "[table]"


def test_a_table_shows_steps_of_its_kind_only(tmp_path: Path) -> None:
    account = '[[table]]\nkind = "account"\na = {step = "messages"}\n'
    with pytest.raises(WrongUse, match="a table of kind 'account' is about a step of account, not 'messages'"):
        written(tmp_path, STEP + CLAIM + account)


def on_disk(study: Path, series: Sequence[Series]) -> None:
    """Write the run of the step 'messages'."""
    write_run(study / "messages", run_of("messages", series))


def test_parameters_of_today_stand_beside_the_line_through_published_times(tmp_path: Path) -> None:
    """10 µs and 1 µs for each 100 B, with a step of 30 µs above 4096 B; published are about 77 µs and 64 Mbit/s."""
    generator = np.random.default_rng(5)

    def series(subject: str, step_us: float) -> list[Series]:
        times = {size: 10 + size / 100 + step_us * (size > 4096) for size in (2**power for power in range(4, 18))}
        return [
            replace(
                series_of(list(time * generator.normal(1, 0.003, 10)), subject=subject, message_bytes=size),
                launch_numbers=tuple(range(10)),
            )
            for size, time in times.items()
        ]

    plan = written(tmp_path, STEP + CLAIM + PARAMETERS)
    study, record = tmp_path / "study", record_of(plan)
    on_disk(study, [*series("openmpi/tcp", 30.0), *series("openmpi/barewire", 0.0)])
    (each,) = shown(plan, study, record)
    hockney, pieces = each.tables
    assert [row[0] for row in hockney.rows] == ["openmpi/tcp", "published: tcp_mean, µs"], "the one that 'a' selects"
    today, published = ([float(cell.split()[0]) for cell in row[1:3]] for row in hockney.rows)
    assert published == pytest.approx([76.5, 64.0], rel=0.02) and today[1] == pytest.approx(800, rel=0.1)
    assert "[" in hockney.rows[0][1] and "[" not in hockney.rows[1][1], "printed means have no interval"
    assert pieces.rows[0][4].startswith("4 KiB [") and each.explanation.startswith("As printed. Published: Watter")
    text, page = markdown(plan, [], record, [each]), render_study(plan, [], record, [each])
    for what in ("Parameters: ping-pongs", "published: tcp_mean, µs", "break above"):
        assert what in text and what in page, what
    (found,) = document(plan, [], record, [each])["tables"]
    assert found["kind"] == "parameters" and json.loads(json.dumps(found))["tables"][0]["rows"][0][0] == "openmpi/tcp"

    few = PARAMETERS.replace("watter2006_netpipe_time", "paz2010_pingpong").replace("tcp_mean_s", "round_trip_us")
    plan = written(tmp_path, STEP + CLAIM + few.replace("note =", 'only = {program = "mpi_tcp"}\nnote ='))
    hockney = shown(plan, study, record)[0].tables[0]
    assert hockney.headings[-1] == "µs at 1400 B" and hockney.rows[1][-1] == "87.00"
    line = today[0] + 1400 * 8 / today[1]
    assert float(hockney.rows[0][-1]) == pytest.approx(line, rel=0.01)

    other = written(tmp_path, STEP + CLAIM + PARAMETERS.replace('"openmpi/tcp" =', '"mpich/tcp" ='))
    assert "Not measured: mpich/tcp." in shown(other, study, record)[0].explanation
    whole = written(tmp_path, STEP + CLAIM + PARAMETERS.replace("openmpi/tcp", "openmpi/barewire"))
    assert "Without a break: openmpi/barewire." in shown(whole, study, record)[0].explanation
    none = written(tmp_path, STEP + CLAIM + PARAMETERS.replace("openmpi/tcp", "raw"))
    assert not shown(none, study, record)[0].tables and "There are none: " in shown(none, study, record)[0].explanation
    left = replace(record, steps={"messages": Done("failed", (), 1.0)})
    assert shown(plan, study, left) == []


@pytest.mark.parametrize(
    ("test", "table", "columns", "published"),
    [
        ("fft", "watter2006_fft.csv", "llc_mean", 910.68 / 503.64),
        ("radix", "watter2006_radix.csv", "llc_mean_s", 12.20 / 12.26 * 4),
    ],
)
def test_speed_ups_of_today_stand_beside_the_published(
    tmp_path: Path, test: str, table: str, columns: str, published: float
) -> None:
    """Of one problem for all ranks, and of keys on each rank, whose equal times are perfect."""
    claim = (
        f'[[table]]\nkind = "speed-ups"\na = {{step = "messages"}}\npublished = "{table}"\nrows = "processes"\n'
        f'columns = {{"openmpi/barewire" = "{columns}"}}\n'
    )
    plan = written(tmp_path, STEP + CLAIM + claim)
    times = {2: 40.0, 8: 20.0, 32: 10.0}
    on_disk(
        tmp_path / "study",
        [
            replace(
                series_of([time] * 10, subject="openmpi/barewire", test=test, unit="ms"),
                **{"ranks": ranks, "quantity": "total", "parameter": "keys", "parameter_value": 16.0},
            )
            for ranks, time in times.items()
        ],
    )
    (each,) = shown(plan, tmp_path / "study", record_of(plan))
    (found,) = each.tables
    assert found.headings[2] == f"published: {columns}"
    weak = 4 if test == "radix" else 1
    assert [row[0] for row in found.rows] == ["8: speed-up", "efficiency", "32: speed-up", "efficiency"]
    assert found.rows[0][1].startswith(f"{2 * weak:.2f}") and float(found.rows[0][2]) == pytest.approx(published, 0.01)
    assert float(found.rows[1][2]) == pytest.approx(published / 4, 0.01)
    assert found.rows[2][2] == "–" == found.rows[3][2], "nothing was published of 32"
    assert each.explanation.startswith("Published: Watter 2006")


def test_an_account_is_shown_by_layer_and_phase(tmp_path: Path) -> None:
    table = '[[table]]\nkind = "account"\na = {step = "messages"}\n'
    account = STEP.replace(COMMAND, '"account", "a.pcapng"')
    plan = written(tmp_path, account + NOTHING + table)

    def total(frames: int, **layers: int) -> dict[str, object]:
        sizes = dict.fromkeys(Layers._fields, 0) | layers
        return {"frames": frames, "wire_bytes": sum(sizes.values()), "efficiency": 0.5, "layers_bytes": sizes}

    phases = {"launch": total(21, ip=420, launcher=4159), "data": total(87, ip=1740, payload=65596)}
    everything = total(108, ip=2160, launcher=4159, payload=65596)
    (tmp_path / "messages.json").write_text(json.dumps({"phases": phases, "total": everything}))
    ((found,),) = [each.tables for each in shown(plan, tmp_path, record_of(plan))]
    assert found.headings == ("layer", "launch", "data", "total")
    assert found.rows == (
        ("IP", "420", "1740", "2160"),
        ("payload", "0", "65596", "65596"),
        ("launcher", "4159", "0", "4159"),
        ("on the wire", "4579", "67336", "71915"),
        ("frames", "21", "87", "108"),
        ("efficiency", "50.0%", "50.0%", "50.0%"),
    )
    (tmp_path / "messages.json").write_text('{"phases": {}}')
    with pytest.raises(WrongUse, match=r"messages\.json is damaged: it is no account"):
        shown(plan, tmp_path, record_of(plan))


def test_the_impossible_round_trip_is_pointed_out() -> None:
    plan = read_plan("paz2010")
    record = Record("paz2010", plan.digest, "quick", None, "2026-01-01", {})
    findings = judge(plan, Path("none"), record)
    (finding,) = (each for each in findings if each.claim.kind == "impossible")
    assert finding.verdict == "did not hold" and "cannot be" in finding.why
    (row,) = finding.rows
    assert row.says == "impossible" and row.published == (5.5,) and row.measured[0] == pytest.approx(11.46, abs=0.1)
    assert all(other.verdict == "cannot be decided" for other in findings if other is not finding)


@pytest.mark.parametrize(
    ("table", "column", "only", "verdict", "one_way_us"),
    [
        ("watter2006_netpipe_time.csv", "llc_mean_s", "message_bytes = 1", "held", 64.1824),
        ("stival2006_overlap.csv", "value_ms", 'where = "figures 4.32 and 4.34a"', "did not hold", 0.0),
        ("stival2006_fft_phase1.csv", "compute_ms", 'variant = "nonblocking"', "cannot be decided", None),
    ],
)
def test_a_printed_time_is_held_against_the_wire_in_its_own_unit(
    tmp_path: Path, table: str, column: str, only: str, verdict: str, one_way_us: float | None
) -> None:
    """64 µs are printed as 6.4e-05 s. No number says nothing."""
    claim = NOTHING.replace("1400\n", "1\n").replace("1e9", "1e8").replace("paz2010_pingpong.csv", table)
    plan = written(tmp_path, STEP + claim.replace("round_trip_us", column) + f"only = {{{only}}}\n")
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    if one_way_us is None:
        assert not finding.rows and "has no number in compute_ms" in finding.why
        return
    (row,) = finding.rows
    assert row.published == (pytest.approx(one_way_us),)
    assert "published: one way, as it was printed" in table_of(finding).headings


def test_bytes_of_an_account_are_compared_with_the_published(tmp_path: Path) -> None:
    plan, study = read_plan("paz2010"), tmp_path
    record = Record(plan.name, plan.digest, "quick", None, "now", {"account": Done("done", ("account",), 1.0)})
    for mpi, verdict in [(22, "held"), (24, "did not hold")]:
        layers = {"mpi": mpi, "tcp": 32, "ip": 20, "payload": 1426}
        (study / "account.json").write_text(json.dumps({"typical_frames": [{"layers_bytes": layers}]}))
        assert judge(plan, study, record)[-1].verdict == verdict
    (study / "account.json").write_text(json.dumps({"typical_frames": []}))
    assert judge(plan, study, record)[-1].verdict == "cannot be decided"
    for text in ("{", "[]", "3"):
        (study / "account.json").write_text(text)
        with pytest.raises(WrongUse, match="damaged"):
            judge(plan, study, record)


def test_published_values_stand_beside_todays_everywhere(tmp_path: Path) -> None:
    columns = (
        'published = "watter2006_netpipe_time.csv"\nrows = "message_bytes"\ncolumns = ["llc_mean_s", "tcp_mean_s"]'
    )
    finding = judged(tmp_path, CLAIM + columns, times(0.8))
    assert finding.rows[0].published == pytest.approx((64.164, 74.256)), "in µs, as today's"
    assert finding.rows[0].published_ratio == pytest.approx(0.8641, abs=1e-4)
    assert "published 0.859 to 0.953" in finding.why
    plan = written(tmp_path, STEP + CLAIM + columns)
    record = record_of(plan)
    table = table_of(finding)
    assert table.headings[1:4] == ("published: llc_mean, µs", "published: tcp_mean, µs", "published ratio")
    assert all(len(row) == len(table.headings) for row in table.rows)
    text, page = markdown(plan, [finding], record, []), render_study(plan, [finding], record, [])
    for what in ("Of 1 claim 1 held.", "The first is faster.", "0.864"):
        assert what in text and what in page, what
    found = document(plan, [finding], record, [])
    assert found["claims"][0]["verdict"] == "held" and len(found["claims"][0]["rows"]) == 4
    json.dumps(found, allow_nan=False)
    assert headline([finding]) == "Of 1 claim 1 held."


def test_published_values_without_a_key_stand_in_every_row(tmp_path: Path) -> None:
    """Also those of two rows of one table, one for each side; printed round trips are halved."""
    published = 'published = "paz2010_pingpong.csv"\ncolumns = ["round_trip_us", "round_trip_us"]\n'
    published += 'only = [{program = "raw_socket"}, {program = "mpi_tcp"}]\n'
    finding = judged(tmp_path, CLAIM + published, times(0.8))
    assert [row.published for row in finding.rows] == [(5.5, 87.0)] * 4
    assert finding.rows[0].published_ratio == pytest.approx(11 / 174)
    assert table_of(finding).headings[1:3] == (
        "published: raw_socket, half of round_trip, µs",
        "published: mpi_tcp, half of round_trip, µs",
    )
    keyed = judged(tmp_path, CLAIM + published + 'rows = "message_bytes"\n', {**times(0.8), "x": {}})
    assert [row.published for row in keyed.rows] == [(None, None)] * 4, "of 1400 B"
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = (
        f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 15\nhigh = 25\npublished = "stival2006_overlap.csv"\n'
        'columns = ["value_ms"]\nonly = {test = "overlap-pingpong"}\n'
    )
    within = judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}})
    assert within.rows[0].published == (960.0,) and table_of(within).headings[1] == "published: value, µs"


@pytest.mark.parametrize(("unit", "published"), [("us", 12.2e6), ("ms", 12200.0), ("Mbit/s", 12.2)])
def test_published_times_are_shown_in_the_unit_of_today_s(tmp_path: Path, unit: str, published: float) -> None:
    columns = (
        'published = "watter2006_radix.csv"\nrows = "processes"\ncolumns = ["llc_mean_s", "tcp_mean_s"]\n'
        'interval = ["ci99_low_s", "ci99_high_s"]\np = "p_value"\n'
    )
    claim = CLAIM.replace('kind = "faster"', 'kind = "faster"\nkey = ["ranks"]') + columns
    more = [
        replace(series_of([time] * 10, subject=subject, unit=unit), ranks=ranks)
        for subject, time in (("openmpi/barewire", 10.0), ("openmpi/tcp", 20.0))
        for ranks in (2, 32)
    ]
    rows = judged(tmp_path, claim, {}, more=more).rows
    factor = published / 12.2
    assert rows[0].published == pytest.approx((published, 12.16 * factor))
    assert rows[0].published_difference == pytest.approx(0.04 * factor)
    assert rows[0].published_interval == pytest.approx((-0.1636501 * factor, 0.2436501 * factor))
    assert rows[0].published_p == "0.607"
    assert rows[1].published_difference is None and rows[1].published_interval is None and rows[1].published_p is None
    table = table_of(judged(tmp_path, claim, {}, more=more))
    assert table.headings[4:6] == ("published difference", "published p") and table.rows[1][1:6] == ("–",) * 5
    assert table.rows[0][5] == "0.607" and all(len(row) == len(table.headings) for row in table.rows)


def test_rows_of_several_variants_or_subjects_say_which(tmp_path: Path) -> None:
    sides = CLAIM.replace('kind = "faster"', 'kind = "faster"\nkey = ["ranks"]')
    several = sides.replace('subject = "openmpi/tcp"', 'subject = ["openmpi/tcp", "mpich-5/tcp"]')

    def on_eight_ranks(subject: str, variant: str, time: float) -> Series:
        return replace(series_of([time] * 10, subject=subject), ranks=8, variant=variant)

    more = [
        on_eight_ranks("openmpi/barewire", "original", 10.0),
        on_eight_ranks("openmpi/tcp", "original", 20.0),
        on_eight_ranks("mpich-5/tcp", "original", 30.0),
    ]
    rows = judged(tmp_path, several, {}, more=more).rows
    assert [row.label for row in rows] == ["ranks 8, against openmpi/tcp", "ranks 8, against mpich-5/tcp"]
    more.append(on_eight_ranks("openmpi/barewire", "non-blocking", 9.0))
    rows = judged(tmp_path, several, {}, more=more).rows
    assert [row.label for row in rows] == [
        f"ranks 8, {variant}, against {subject}"
        for variant in ("original", "non-blocking")
        for subject in ("openmpi/tcp", "mpich-5/tcp")
    ]
    assert [row.label for row in judged(tmp_path, sides, {}, more=more[:2]).rows] == ["ranks 8"]
    side = 'a = {step = "messages", subject = "openmpi/barewire"}'
    within = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 5\nhigh = 15\n'
    labels = [row.label for row in judged(tmp_path, within, {}, more=more).rows]
    assert labels == ["64 B, original", "64 B, non-blocking"]


def test_what_does_not_add_up_in_a_published_table_is_listed() -> None:
    """Of the shipped plans; on the page, in Markdown, in JSON and on the terminal."""
    flaws = {name: found for name in shipped() if (found := published_flaws(read_plan(name)))}
    assert flaws == {
        "stival2006": [
            "Stival 2006, Tables 4.9 and 4.10, side send, library mpich2_tcp: 1.2124 − 0.9462 is 0.2662, not 0.662."
        ],
        "watter2006": [
            "Watter 2006, Table A.1, message bytes 8192: the upper end 4.657016e-05 lacks its minus sign: "
            "the middle must be 0.0008625420 − 9.095682e-04 = -4.70262e-05.",
            "Watter 2006, Table A.3 and Table 5.1, processes 4: 793.42 is 3.32 % less than 820.64, not 3.29 %.",
        ],
    }
    for name in ("watter2006", "paz2010"):
        plan = read_plan(name)
        record = record_of(plan)
        console = Console(record=True, width=300, file=io.StringIO())
        print_findings(console, plan, [], record)
        texts = [
            markdown(plan, [], record, []),
            html.unescape(render_study(plan, [], record, [])),
            console.export_text(),
        ]
        for text in texts:
            assert all(flaw in text for flaw in flaws.get(name, []))
        for text in texts[:2]:
            assert ("does not add up" in text) == (name in flaws)
        assert document(plan, [], record, [])["published_flaws"] == flaws.get(name, [])


def test_every_published_interval_p_and_gain_is_checked() -> None:
    """A column with such a name in a table that no check uses would never be pointed out."""
    for path in sorted((Path(tables.__file__).parent / "published").glob("*.csv")):
        table = read_table(path.name)
        checked = {column for check in CHECKS.get(path.name, ()) for column in check.columns}
        assert checked <= set(table.columns), path.name
        unchecked = {
            column
            for column in table.columns
            if column.startswith(("ci", "p_value", "published_gain")) or "_printed" in column
        } - checked
        # Table A.1 with the sign that it lacks.
        assert unchecked <= {"ci99_high_s"}, path.name


def test_published_tables_are_whole() -> None:
    table = read_table("watter2006_radix.csv")
    assert table.value("llc_mean_s", "processes", 8) == 12.26 and table.value("llc_mean_s", "processes", 3) is None
    assert table.source.startswith("Watter 2006, Table A.4")
    with pytest.raises(WrongUse, match="unknown published table"):
        read_table("watter2006_radix")


def test_the_command_lists_runs_and_reports(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["study", "list", "--json"])
    listed = json.loads(done.output)
    assert [each["name"] for each in listed["studies"]] == shipped() and listed["schema"] == "barewire-studies/1"
    runner = CliRunner()
    assert isinstance(runner.invoke(app, ["study", "report", str(tmp_path)]).exception, WrongUse)
    assert isinstance(runner.invoke(app, ["study", "run", "nothing"]).exception, WrongUse)
