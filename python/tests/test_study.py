# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Studies: plans, and steps with a barewire that is not there."""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import pytest
import typer
from study_plans import (
    CLAIM,
    COMMAND,
    LATENCY,
    NOTHING,
    STEP,
    written,
)
from synthetic_mpi import LIBRARIES
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.measure.programs import expand_sizes
from barewire.study import steps as steps_module
from barewire.study.claims import judge
from barewire.study.page import render_study
from barewire.study.plan import Form, read_plan, shipped
from barewire.study.report import left_out, markdown, warnings
from barewire.study.steps import begin, read_record, run_steps


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
            # The transform's variants are named by their calls, too.
            calls = "/sendrecv" if options.get("--transpose") == "sendrecv" else ""
            for variant in each_of(side.get("variant", [])):
                assert variant.endswith(calls), claim.text
                assert variants == "all" or variant.removesuffix(calls) in variants.split(","), claim.text
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
    run_steps(plan, other, begin(plan, other, "full", "a:2,b:2", "eth1"), no_progress)
    on_hosts = ["--hosts", "a:2,b:2", "--interface", "eth1"]
    assert commands[1:] == [["mpi", "pingpong", "--sizes", "64", *on_hosts, "-o", str(other / "messages")]]
    assert read_record(other).interface == "eth1"
    with pytest.raises(WrongUse, match="study mine on a:2,b:2 by eth1: continue it as it was"):
        begin(plan, other, "full", "a:2,b:2")
    lab = CliRunner().invoke(app, ["study", "run", "paz2010", "--interface", "eth1", "-o", str(tmp_path / "lab")])
    assert isinstance(lab.exception, WrongUse) and not (tmp_path / "lab").exists()


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


def test_the_command_lists_runs_and_reports(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["study", "list", "--json"])
    listed = json.loads(done.output)
    assert [each["name"] for each in listed["studies"]] == shipped() and listed["schema"] == "barewire-studies/1"
    runner = CliRunner()
    assert isinstance(runner.invoke(app, ["study", "report", str(tmp_path)]).exception, WrongUse)
    assert isinstance(runner.invoke(app, ["study", "run", "nothing"]).exception, WrongUse)
