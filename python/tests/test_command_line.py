# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line as one: every command, its options, errors, documents, completion and manual pages."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from synthetic import synthetic_run
from typer.testing import CliRunner

from barewire import cli, installed
from barewire.cli import output, progress, sdn_flows, sdn_status
from barewire.cli.commands import _COMMANDS, app, summary
from barewire.cli.directories import results_directory
from barewire.cli.jobs import check_limit
from barewire.cli.manual import COMPLETIONS, commands, completion, page, tables, write_all
from barewire.cli.output import SCHEMAS
from barewire.errors import MeasurementFailed, WrongUse, unknown
from barewire.measure import programs
from barewire.measure.launch import Effort
from barewire.measure.mpi import MpiPlan
from barewire.measure.session import StoppingRule, new_run
from barewire.measure.tune import Tuned
from barewire.models import catalogue
from barewire.models.catalogue import Program, names_of_tests
from barewire.mpi import suite
from barewire.report.words import TEST_TITLES
from barewire.results.schema import SAMPLE_SCHEMA
from barewire.results.store import write_run

ROOT = Path(__file__).parents[2]
COMMANDS = {" ".join(words): command for words, command in commands()}
# Options with more than one sentence of help, and why.
SEVERAL_MEANINGS = {
    "--hosts": "two hosts, hosts with numbers of ranks, or a Slurm node list",
    "--output": "a directory or a file",
    "--format": "of a table, a run's export, or the tool of an output",
    "--link": "of the probe, of a provider, of a check",
    "--wait": "of the probe, which has one policy more",
    "--transport": "of the probe, or of a simulation",
    "--fabric": "one, several, or an experiment's",
    "--library": "one or several",
    "--ranks": "one number or several",
    "--rate": "of a lab's links, of a real link, or of a network",
    "--mtu": "of a lab's links, or of a real link",
    "--lab": "a new or running lab, or a running one",
    "--topology": "of a lab, which may be without switches, or of a network",
    "--subject": "chosen, or named",
    "--strategy": "of a profile, or to compare",
    "--launches": "a number, or until precise",
    "--testbeds": "of the scoreboard, or of applications",
    "--workload": "a simulation has one more",
    "--pairs": "one number or several",
    "--message-bytes": "of a program's messages, or of a ring's",
    "--blocks": "of a stream, or of an experiment",
    "--ui": "at the API's address, or, of an experiment, at one of its own",
}


def options() -> Iterator[tuple[str, Any]]:
    for words, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield words, parameter


def main(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the whole command line in this process, as the installed program does."""
    monkeypatch.setattr(sys, "argv", ["barewire", *arguments])
    monkeypatch.setattr(output, "_printed", False)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_every_command_has_the_version_and_help_by_either_name() -> None:
    assert all(any("--version" in parameter.opts for parameter in command.params) for command in COMMANDS.values())
    for words in ("", "bench", "bench host", "lab", "lab up", "run"):
        short, long = (CliRunner().invoke(app, [*words.split(), name]) for name in ("-h", "--help"))
        assert short.exit_code == long.exit_code == 0 and short.output == long.output, words
        told = CliRunner().invoke(app, [*words.split(), "--version"])
        assert told.exit_code == 0 and told.output.startswith("barewire 0"), words


def test_no_command_waits_for_libraries_that_only_some_need() -> None:
    """They take a second together, and every command loads every other."""
    program = (
        "import importlib, pkgutil, sys, barewire.cli\n"
        "for one in pkgutil.walk_packages(barewire.cli.__path__, 'barewire.cli.'): importlib.import_module(one.name)\n"
        "print(*sorted({'scipy', 'networkx', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "python", capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("\n", "")


def test_commands_are_listed_without_being_loaded() -> None:
    """All together take a second, which the first command that anybody types would wait for."""
    for name, (module, attribute, *_) in _COMMANDS.items():
        assert summary(module, attribute) == COMMANDS[name].help.partition("\n\n")[0]
    program = (
        "import sys, barewire.cli\n"
        "sys.argv = ['barewire', '--help']\n"
        "try: barewire.cli.main()\n"
        "except SystemExit: print(*{'polars', 'numpy', 'barewire.cli.bench'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "python", capture_output=True, text=True, check=False
    )
    assert "trajectory" in done.stdout and done.stderr == "\n", done


def test_one_thing_has_one_name_metavar_and_sentence() -> None:
    """Every option of several commands is the same in all, or has a reason in SEVERAL_MEANINGS."""
    found: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, option in options():
        name = max(option.opts, key=len)
        found[name][option.metavar, option.help, tuple(option.opts)].append(words)
    different = {name: dict(forms) for name, forms in found.items() if len(forms) > 1}
    assert not {name: forms for name, forms in different.items() if name not in SEVERAL_MEANINGS}
    assert set(SEVERAL_MEANINGS) == set(different), "a reason that is no longer needed, or an option that needs one"


def test_help_is_written_in_one_way() -> None:
    for words, option in options():
        assert option.help, f"{words} {option.opts}"
        assert not re.search(r"default[: ]", option.help), f"{words} {option.opts}: use show_default"
        if option.name not in ("install_completion", "show_completion"):
            assert option.help[-1] not in ".:", f"{words} {option.opts}"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("bnech pingpong", "did you mean 'bench'?"),
        ("lab lst", "did you mean 'list'?"),
        ("bench pingpong --transprot tcp", "did you mean --transport?"),
        (
            "bench pingpong --delay 50us",
            "--delay is an option of `barewire lab up`: create the lab there, and name it with --lab ID",
        ),
        ("bench pingpong --transport tpc", "did you mean 'tcp'?"),
        ("bench pingpnog", "did you mean 'pingpong'?"),
        ("bench pingpong --cache onn", "did you mean on?"),
        ("bench pingpong --lab str:4", "did you mean 'star:N'?"),
        ("bench host memroy", "did you mean 'memory'?"),
        ("mpi pingpong --fabric barwire", "did you mean 'barewire'?"),
        ("mpi colective", "did you mean 'collective'?"),
        ("mpi scoreboard --testbeds pair-gbit", "did you mean 'pair-1gbit'?"),
        ("sdn simulate --strategy isolate", "did you mean 'isolated'?"),
        ("sdn simulate --topology fattree:4", "did you mean 'fat-tree:K'?"),
        ("modulefile lau", "did you mean 'lua'?"),
        ("mpi pingpong --on a,b", "did you mean --hosts or --hostfile or --slurm?"),
        ("bench budget --time 5", "did you mean --budget?"),
        ("tune --out x", "did you mean --output?"),
        ("try --against tcp -- true", "did you mean --baseline?"),
        ("compare run --tests", "did you mean --p-values?"),
        ("bench host --only memory", "did you mean [TEST,TEST]?"),
        ("sdn bench --strategies stp", "did you mean --strategy?"),
        ("sdn simulate --hosts 4", "did you mean --host-counts?"),
        ("sdn simulate --message 4", "did you mean --message-bytes?"),
        ("doctor --try-xdp loo", "did you mean 'lo'?"),
        ("report", "`barewire report --help` lists what it takes"),
    ],
)
def test_a_mistake_names_what_was_meant(
    arguments: str, hint: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(*arguments.split(), monkeypatch=monkeypatch) == 2
    told = capfd.readouterr()
    assert hint in told.err.splitlines() and not told.out


def test_a_name_that_resembles_none_is_no_guess() -> None:
    assert unknown("transport", "carrier-pigeon", ("tcp", "udp")).hint is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("bench pingpong --transport tpc --json", 2),
        ("bench pingpong --transprot tcp --json", 2),
        ("bench --json", 2),
        ("report /no/such/run --json", 2),
        ("lab down --json", 2),
        ("run -n 1 --hosts a --hostfile b --dry-run --json -- true", 2),
        ("run -n 0 --json -- true", 2),
    ],
)
def test_errors_are_objects_with_json(
    arguments: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(*arguments.split(), monkeypatch=monkeypatch) == code
    told = capfd.readouterr()
    error = json.loads(told.out)
    assert error["schema"] == "barewire-error/1" and error["exit_code"] == code
    assert told.err.startswith(f"barewire: {error['message']}\n")
    assert set(error) == {"schema", "message", "hint", "exit_code"}


def test_the_json_of_a_program_is_not_ours(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert main("run", "-n", "1", "--library", "lam", "--", "true", "--json", monkeypatch=monkeypatch) == 2
    assert main("run", "-n", "1", "--nosuch", "--", "true", "--json", monkeypatch=monkeypatch) == 2
    assert not capfd.readouterr().out


def test_an_error_after_the_document_is_not_a_second_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_printed", False)
    output.print_document("report", {"report": "x"})
    output.print_error("worse", None, 1, as_json=True)
    told = capfd.readouterr()
    assert json.loads(told.out) == {"schema": "barewire-report/1", "report": "x"} and "worse" in told.err


def test_every_json_has_a_schema_in_the_table() -> None:
    assert {words for words, option in options() if "--json" in option.opts} == set(SCHEMAS)
    sources = [file.read_text() for file in (ROOT / "python/barewire/cli").glob("*.py") if file.name != "output.py"]
    printed = {name for text in sources for name in re.findall(r'print_document\(\s*"([a-z ]+)"', text)}
    # Those that share a function with another command.
    shared = {name for text in sources for name in re.findall(r'print_result\(\s*"([a-z ]+)"', text)}
    assert printed | shared | {"disable"} == set(SCHEMAS)
    assert all(re.fullmatch(r"barewire-[a-z-]+/[1-9]", schema) for schema in SCHEMAS.values())
    with pytest.raises(ValueError, match="prints barewire-report/1"):
        output.print_document("report", {"schema": "barewire-compare/3"})


@pytest.mark.parametrize(
    "arguments",
    [
        "lab list",
        "lab show star:4",
        "status",
        "modulefile lua",
        "sdn simulate --seeds 1 --strategy stp --host-counts 4",
    ],
)
def test_documents_begin_with_their_schema(arguments: str) -> None:
    done = CliRunner().invoke(app, [*arguments.split(), "--json"])
    words = arguments.split()
    command = next(name for name in (" ".join(words[:2]), words[0]) if name in SCHEMAS)
    document = json.loads(done.stdout)
    assert next(iter(document.items())) == ("schema", SCHEMAS[command])


def documented_commands() -> Iterator[tuple[str, str]]:
    """Every `barewire …` in code of README, docs and scripts, without what follows a program's --."""
    pages = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "tools").glob("*.sh"), *(ROOT / "docs/ci").glob("*.yml")]
    pages += [file for folder in ("", "classroom", "studies") for file in (ROOT / "docs" / folder).glob("*.md")]
    for file in pages:
        text = file.read_text().replace("\\\n", " ")
        for line in re.findall(r"(?:^|[`/ ])barewire ((?:[a-z]+ )[^`\n]*)", text, re.MULTILINE):
            yield file.name, re.split(r" -- | {2,}|[|;&#]", line)[0]


def test_commands_in_the_documentation_exist_with_their_options() -> None:
    checked = 0
    for file, line in documented_commands():
        words = line.split()
        known = [" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in COMMANDS]
        if not known:
            continue
        opts = {name for one in COMMANDS[known[0]].params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        used = re.findall(r"(?<!\S)--[a-z][a-z-]*", line)
        assert set(used) <= opts, f"{file}: barewire {line}"
        checked += len(used)
    assert checked > 100


def test_the_tables_of_the_reference_are_those_of_the_program() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    for name, table in tables().items():
        assert f"<!-- {name} -->\n\n{table}" in text, f"docs/reference.md, {name}: paste\n{table}"


def test_the_tables_are_those_of_the_programs() -> None:
    """Foreign sources: the probe's own lists, the C suite's files, the provider's parameters."""
    folder = suite.SOURCES
    assert set(names_of_tests(Program.mpi)) == {file.stem for file in folder.glob("*.c")}
    assert set(names_of_tests(Program.kernel)) == {file.stem for file in (folder / "kernels").glob("*.c")}
    parameters = (ROOT / "crates/provider/src/parameters.rs").read_text()
    overridden = {name.upper(): value for name, value in re.findall(r'\(\s*c"([a-z_]+)",\s*"([a-z_]+)",', parameters)}
    expected = {one.parameter: one.name for one in catalogue.TUNING_VALUES if one.parameter is not None}
    assert expected.items() <= overridden.items()
    described = (ROOT / "docs/provider.md").read_text()
    for one in catalogue.TUNING_VALUES:
        row = re.search(rf"^\| `{one.name}`: .*$", described, re.MULTILINE)
        assert row is not None, f"docs/provider.md has no row of {one.name}"
        cells = [cell.strip().replace("`", "") for cell in row[0].strip("|").split("|")]
        assert cells[1] == (one.parameter or "none") and cells[3] == one.measured_by, row[0]
    assert all(test.name in TEST_TITLES for test in catalogue.TESTS), "the report has no title for a test"
    probe = installed.PROGRAMS / "barewire-probe"
    if not os.access(probe, os.X_OK):
        pytest.skip("barewire-probe is not built: make build")

    def told(*arguments: str) -> str:
        return subprocess.run([probe, *arguments], capture_output=True, text=True, check=False).stdout

    assert set(json.loads(told("tuning"))) == {one.name for one in catalogue.TUNING_VALUES}
    values = re.search(r"--transport.*?possible values: (.*?)\]", told("pingpong", "-h"), re.DOTALL)
    assert values is not None
    # A provider is an option there, and part of the name here.
    assert {*values[1].split(", ")} == {
        one.name for one in catalogue.TRANSPORTS if not one.name.startswith("libfabric-")
    }
    assert all(re.search(rf"^  {test} ", told("-h"), re.MULTILINE) for test in names_of_tests(Program.probe))


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_progress_says_what_is_done_what_is_left_and_until_when() -> None:
    clock = Clock()
    estimate = progress.Estimate(clock)
    noon = datetime(2026, 1, 1, 12)
    estimate.update(0, 40, "pingpong, tcp")
    assert estimate.line(noon) == "barewire: pingpong, tcp: 0 of 40 done in 0 s, 40 left"
    clock.now_s = 30.0
    estimate.update(10, 40, "pingpong, raw")
    assert estimate.line(noon) == "barewire: pingpong, raw: 10 of 40 done in 30 s, 30 left, until about 12:01:30"
    # More steps than planned, as with a budget.
    estimate.update(10, 80, "pingpong, raw")
    assert estimate.left(noon) == "70 left, until about 12:03:30"
    # A step that lasts longer does not move the end, until it is past.
    clock.now_s = 40.0
    assert estimate.left(noon) == "70 left, until about 12:03:20"
    clock.now_s = 300.0
    assert estimate.left(noon) == "70 left, until about 12:00:00"
    assert progress.Estimate(clock, label="fitting").line(noon) == "barewire: fitting, 0 s so far"


def test_a_log_gets_a_line_at_each_interval_and_none_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.lines("starting", interval_s=0.05) as show:
        show(1, 4, "one")
        for _ in range(100):
            if "1 of 4 done" in (text := capfd.readouterr().err):
                break
            typer.echo("", nl=False)
            subprocess.run(["sleep", "0.05"], check=True)
    assert text.startswith("barewire: one: 1 of 4 done")
    capfd.readouterr()
    subprocess.run(["sleep", "0.2"], check=True)
    assert not capfd.readouterr().err


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.progress_bar() as show:
        show(3, 4, "pingpong")
        drawn = capfd.readouterr().err
        assert "pingpong" in drawn and "3/4" in drawn and "1 left" in drawn
        show(3, 4, "reading runs[/x]/a[b]")
        assert "runs[/x]/a[b]" in capfd.readouterr().err, "a folder's name is no markup"


def test_a_command_that_breaks_leaves_no_empty_directory_either(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), results_directory(tmp_path / "run", "x"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_is_damaged_is_kept_and_does_not_hide_the_error(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed), results_directory(tmp_path / "run", "x") as directory:
        (directory / "run.json").write_text("{")
        raise MeasurementFailed("the error that ended it")
    assert (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("existed", [False, True])
def test_a_failed_run_leaves_no_empty_directory(existed: bool, tmp_path: Path) -> None:
    wanted = tmp_path / "runs" / "first"
    if existed:
        wanted.mkdir(parents=True)
    with pytest.raises(WrongUse), results_directory(wanted, "x") as directory:
        (directory / "launches").mkdir(parents=True)
        (directory / "launches/0001.jsonl").touch()
        (directory / "plan.json").write_text("{}")
        write_run(directory, new_run(command=[], seed=1, parameters={}, environment={}), samples_of_nothing())
        raise WrongUse("nothing was measured")
    if existed:
        assert list(wanted.iterdir()) == []
    else:
        assert list(tmp_path.iterdir()) == []


def test_a_failed_run_keeps_what_it_has_and_what_is_not_its_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.touch()
    with pytest.raises(WrongUse), results_directory(tmp_path, "x"):
        raise WrongUse(f"{tmp_path} is not empty")
    assert mine.exists()
    with pytest.raises(MeasurementFailed), results_directory(tmp_path / "run", "x") as directory:
        (directory / "launches").mkdir(parents=True)
        (directory / "launches/0001.jsonl").write_text("{}\n")
        raise MeasurementFailed("the peer is gone")
    assert (tmp_path / "run/launches/0001.jsonl").exists()


def test_commands_of_the_same_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noon(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Noon":
            return cls(2026, 11, 26, 12)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("barewire.cli.directories.datetime", Noon)
    with results_directory(None, "x") as first:
        with pytest.raises(WrongUse), results_directory(None, "x") as second:
            assert second != first and second.is_dir()
            (first / "samples").touch()
            raise WrongUse("nothing was measured")
        assert not second.exists() and (first / "samples").exists()
        with results_directory(None, "x") as third:
            assert third == second
    assert [first.name, third.name] == ["20261126-120000-x", "20261126-120000-x-2"]


def test_a_results_directory_that_cannot_be_created_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    with pytest.raises(WrongUse, match="cannot be created"), results_directory(tmp_path / "nowhere/a/b", "x"):
        pytest.fail("the command began")
    assert [path.name for path in tmp_path.iterdir()] == ["nowhere"]


def test_wrong_use_of_a_measurement_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAREWIRE_BIN", str(tmp_path / "nowhere"))
    wrong = (
        "bench pingpong --transport tpc",
        "bench host nosuch",
        "try --library nosuch -- true",
        "bench host memory --seconds -1",
    )
    for arguments in wrong:
        assert main(*arguments.split(), monkeypatch=monkeypatch) in (2, 3), arguments
        assert not (tmp_path / "runs").exists(), arguments
    capfd.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("tune --output file/tuning.toml", "file/tuning.toml cannot be written"),
        ("tune --output .", ". is a directory"),
        ("bench host send --tune", "file/tuning.toml cannot be written"),
        ("bench host memory --tune", "--tune writes the copy crossover, which the test `send` measures"),
        ("cluster check --lab pair -o full", "full is not empty"),
        ("cluster check --lab pair -o file", "file cannot be created"),
    ],
)
def test_a_target_that_cannot_be_written_is_told_before_anything_is_measured(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAREWIRE_TUNING", "file/tuning.toml")
    for measuring in ("host.measure_host", "tune.measure_all", "cluster.check"):
        monkeypatch.setattr(f"barewire.cli.{measuring}", lambda *_, **__: pytest.fail("it is measured"))
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "run.json").touch()
    assert main(*arguments.split(), monkeypatch=monkeypatch) == 2
    assert said in capfd.readouterr().err


def test_what_was_found_is_printed_if_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object) -> Tuned:
        (tmp_path / "folder").rmdir()
        (tmp_path / "folder").touch()
        return Tuned({"window": 63}, ())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("barewire.cli.tune.measure_all", measured)
    monkeypatch.setattr("barewire.cli.tune.read_tuning", lambda _: (defaultdict(int), defaultdict(int)))
    assert main("tune", "--hosts", "a,b", "--output", "folder/tuning.toml", monkeypatch=monkeypatch) == 2
    captured = capfd.readouterr()
    assert "nothing changed: no value is better" in captured.out and "folder/tuning.toml" in captured.err


def test_manual_pages_are_correct_troff(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is missing: apt install groff")
    write_all(tmp_path)
    pages = sorted((tmp_path / "man/man1").iterdir())
    assert len(pages) == len(COMMANDS)
    checked = subprocess.run(
        [groff, "-man", "-ww", "-z", "-k", "-Tutf8", *pages], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_manual_page_has_every_option_with_its_default() -> None:
    text = page(("bench",), COMMANDS["bench"]).replace("\\-", "-")
    for option in (parameter for words, parameter in options() if words == "bench"):
        assert all(name in text for name in option.opts), option.opts
    assert "[default: (runs/…)]" in text and ".SH SYNOPSIS" in text and ".SH EXIT STATUS" in text


def samples_of_nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=SAMPLE_SCHEMA)


def path_with_command(tmp_path: Path) -> str:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "barewire"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/python exec {sys.executable} -m barewire "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


COMPLETED = [
    ("barewire ben", {"bench"}),
    ("barewire bench pingpong --trans", {"--transport"}),
    ("barewire bench pingpong --transport tcp,ll", {"tcp,llc1", "tcp,llc2", "tcp,llc3"}),
    ("barewire bench ho", {"host"}),
    ("barewire report runs/fi", {"runs/first"}),
]


def in_bash(line: str, folder: Path) -> list[str]:
    words = line.split(" ")
    script = (
        f"source {folder / COMPLETIONS['bash']}\nCOMP_WORDS=({' '.join(words)})\nCOMP_CWORD={len(words) - 1}\n"
        '_barewire_completion barewire\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    return ["bash", "--norc", "-c", script]


def in_fish(line: str, folder: Path) -> list[str]:
    return ["fish", "--no-config", "-c", f"source {folder / COMPLETIONS['fish']}; complete -C '{line}'"]


def in_zsh(line: str, folder: Path, last: str = "llc3") -> list[str]:
    """What is on the line after TAB in an interactive shell of its own; a list of several is shown below it."""
    script = f"""
        zmodload zsh/zpty
        zpty shell 'TERM=dumb PS1= zsh -f -i'
        zpty -w shell 'fpath=({(folder / COMPLETIONS["zsh"]).parent} $fpath); autoload -Uz compinit; compinit -u -D'
        zpty -w shell "zstyle ':completion:*' list-prompt ''; LISTMAX=1000; echo re''ady"
        zpty -r shell seen '*ready*'
        zpty -n -w shell $'{line}\\t\\t'
        for attempt in {{1..300}}; do
            zpty -r -t shell more && seen+=$more
            [[ $seen == *{last}* ]] && break
            sleep 0.1
        done
        print -r -- $seen
    """
    return ["zsh", "-f", "-c", script]


@pytest.mark.parametrize("shell", [in_bash, in_zsh, in_fish], ids=["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_values(shell: Any, tmp_path: Path) -> None:
    """Real shells read the scripts as packages install them, and ask the real program."""
    write_all(tmp_path / "share")
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/run.json").write_text("{}")
    environment = {**os.environ, "PATH": path_with_command(tmp_path), "HOME": str(tmp_path)}
    lines = COMPLETED if shell is in_bash else COMPLETED[2:3]
    for line, expected in lines:
        command = shell(line, tmp_path / "share")
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is missing: apt install {command[0]}")
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=60
        )
        found = {word.split("\t")[0] for word in done.stdout.splitlines()}
        if shell is in_zsh:
            assert all(name in done.stdout for name in expected), done.stdout + done.stderr
        else:
            assert found == expected, done.stdout + done.stderr


def test_completion_offers_what_the_tables_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each value that is offered is accepted by the check of the same option."""
    from barewire.cli import complete
    from barewire.measure.subjects import parse_subjects, parse_tests

    for name, what in complete.transports(""):
        assert what and parse_subjects(name, "spin")
    offered = {name for name, _ in complete.bench_tests("")}
    assert offered - {"host", "budget"} == set(parse_tests(",".join(offered - {"host", "budget"})))
    assert {name for name, _ in complete.mpi_tests("")} - {"scoreboard", "applications"} == {
        *suite.tests(),
        *suite.kernels(),
    }
    assert complete.tuned("eager") == [("eager_bytes=", "largest message that is sent without a handshake")]
    further = [text for text, _ in complete.transports("tcp,")]
    assert "tcp,udp" in further and all(text.startswith("tcp,") and text != "tcp,tcp" for text in further)
    monkeypatch.chdir(tmp_path)
    assert complete.runs("") == []


def test_scripts_for_all_shells_name_the_program() -> None:
    assert all("_BAREWIRE_COMPLETE=complete_" + shell in completion(shell) for shell in COMPLETIONS)


def _run(arguments: str, *, script: str = "{}", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command by a shell, in a line that `script` may add to."""
    line = script.format(f"{sys.executable} -m barewire {arguments}")
    variables = os.environ | {"PYTHONPATH": str(ROOT / "python"), **environment}
    return subprocess.run(["bash", "-c", line], env=variables, capture_output=True, text=True, encoding="latin-1")


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    synthetic_run(directory, launches=6, samples_per_launch=5, tests=("pingpong",))
    return directory


def test_a_name_that_the_system_refuses_is_wrong_use() -> None:
    done = _run(f"compare {'x' * 5000} --json")
    assert done.returncode == 2 and "File name too long" in done.stderr and "Traceback" not in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 2 and len(done.stderr) < 300


def test_a_full_output_is_a_message(run_directory: Path) -> None:
    for options in ("", "--json"):
        done = _run(f"compare {run_directory} {options}", script="{} > /dev/full")
        assert (done.returncode, done.stderr) == (1, "barewire: cannot write the output: No space left on device\n")


def test_an_output_that_lacks_signs_replaces_or_escapes_them(run_directory: Path) -> None:
    done = _run(f"compare {run_directory}", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "") and "within ±2 %" in done.stdout
    done = _run(f"compare {run_directory}", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "") and "within ?2 %" in done.stdout
    done = _run("compare µ’ --json", PYTHONIOENCODING="ascii")
    assert "µ’" in json.loads(done.stdout)["message"]


def test_a_closed_pipe_is_no_failed_measurement(run_directory: Path) -> None:
    for options in ("", "--fail-if-slower 900%", "--json"):
        line = f"compare {run_directory} {options}"
        done = _run(line, script="{} | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (141, ""), options


def test_an_error_that_cannot_be_printed_is_no_traceback() -> None:
    done = _run("compare /no/such/run --json", script="{} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (141, "barewire: there is no directory /no/such/run\n")
    done = _run("compare /no/such/run --json", script="{} > /dev/full")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.endswith("barewire: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_the_checkouts_command_runs_without_standard_streams(closed: str) -> None:
    command = f"{ROOT / 'bin' / 'barewire'} bench nosuch --json {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and json.loads(done.stdout)["exit_code"] == 2


def test_of_an_option_given_twice_the_last_counts(run_directory: Path) -> None:
    """Scripts append their own options to those of a default."""
    line = ["compare", str(run_directory), "--confidence", "150", "--confidence", "99", "--json"]
    assert CliRunner().invoke(app, line).exit_code == 0


def test_a_size_that_looks_like_an_option_is_passed_as_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def refuse(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 2, "", "barewire-probe: a size")

    monkeypatch.setattr(programs, "find_program", lambda name: name)
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(WrongUse):
        programs.expand_sizes("-5", 0)
    assert "--sizes=-5" in commands[0]


def test_a_page_is_not_written_over_a_directory(run_directory: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(run_directory), "-o", str(tmp_path)])
    assert isinstance(done.exception, WrongUse) and "is a directory" in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [
        "report RUN -o FILE",
        "export RUN -o FILE",
        "export RUN --format svg -o FILE",
        "compare RUN RUN --fail-if-slower 5% --junit FILE",
        "compare RUN RUN --fail-if-slower 5% --markdown FILE",
        "lab show pair --svg FILE",
    ],
)
def test_an_output_that_cannot_be_written_is_wrong_use(words: str, run_directory: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = {"RUN": str(run_directory), "FILE": str(tmp_path / "file" / "x")}
    done = CliRunner().invoke(app, [places.get(word, word) for word in words.split()])
    assert isinstance(done.exception, WrongUse), done.exception
    assert re.search(r"cannot (be written|write)", str(done.exception)) and str(tmp_path / "file") in str(
        done.exception
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.0, -1.0])
def test_times_and_shares_are_finite_and_above_0(value: float) -> None:
    """What is not cannot be written as JSON, and a launch would have begun before."""
    makers: dict[str, Callable[[], object]] = {
        "--precision": lambda: StoppingRule(precision=value),
        "--budget": lambda: StoppingRule(budget_s=value),
        "--seconds": lambda: Effort(seconds=value),
        "--limit": lambda: check_limit(value),
        "--patience": lambda: MpiPlan((), (), (), 1, patience_s=value),
    }
    for option, make in makers.items():
        with pytest.raises(WrongUse, match=f"^{option} must be .* above 0, not {value:g}$"):
            make()
    with pytest.raises(WrongUse, match="--seconds must be"):
        MpiPlan((), (), (), 1, seconds=value)
    for option in ("--budget", "--precision"):
        done = CliRunner().invoke(app, ["try", f"{option}={value}", "--", "/bin/true"])
        assert isinstance(done.exception, WrongUse) and str(done.exception).startswith(f"{option} must be")


@pytest.mark.parametrize("option", ["--samples", "--warmup", "--blocks"])
def test_counts_are_no_more_than_programs_take(option: str) -> None:
    done = CliRunner().invoke(app, ["bench", "pingpong", option, "9" * 20])
    said = " ".join(done.output.replace("│", " ").split())
    assert done.exit_code == 2 and "is not in the range 1<=x<=1000000" in said


@pytest.mark.parametrize(
    "arguments",
    [
        "bench pingpong --seed -1",
        "bench host --seed -1",
        "mpi pingpong --seed -1",
        "try --seed -1 -- true",
        "bench pingpong --hosts a,b --port 0",
        "bench pingpong --hosts a,b --port 65536",
        f"bench pingpong --mtu {'9' * 5000}",
        f"bench pingpong --transport messages --tuned eager_bytes={'9' * 5000}",
        f"mpi pingpong --eager {'9' * 5000}",
    ],
)
def test_a_number_that_nothing_takes_is_wrong_use_before_anything_is_measured(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A seed below 0 failed after the measurement, and Python reads no number of 5000 digits."""
    assert main(*arguments.split(), monkeypatch=monkeypatch) == 2
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("bench pingpong --interface eth9", "--interface, --remote-shell and --port apply to real hosts"),
        ("bench pingpong --remote-shell rsh --emulated", "--interface, --remote-shell and --port apply to real hosts"),
        ("bench budget --port 5000", "--interface, --remote-shell and --port apply to real hosts"),
        ("tune --remote-shell rsh", "--interface, --remote-shell and --port apply to real hosts"),
        ("bench pingpong --hosts a,b --loss 1%", "apply to a lab: omit them for real hosts"),
        ("bench pingpong --hosts a,b --offloads on", "apply to a lab: omit them for real hosts"),
        ("bench budget --hosts a,b --receive-on receiver", "apply to a lab: omit them for real hosts"),
        ("bench pingpong --hosts a,b --mtu 5", "MTU 5 is outside 68 to 65535 bytes"),
        ("model RUN --mtu 9000", "--rate and --mtu describe the link of a table"),
        ("import x --add -o RUN --mtu 9000", "--rate, --mtu and --environment belong to the whole run"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    arguments: str,
    said: str,
    run_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Else something else than was asked for is measured: a lab instead of an interface, a link without its loss."""
    assert main(*arguments.replace("RUN", str(run_directory)).split(), monkeypatch=monkeypatch) == 2
    assert said in capfd.readouterr().err


def test_names_that_jobs_chose_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A tenant's job of this name made the operator's command a traceback, and addresses of version 6 disappeared."""
    job = {"id": "j1", "name": "[/x] [red]job", "profile": "mpi", "hosts": ["h1"], "patterns": 0, "ends_in_s": 3}
    status = dict.fromkeys(("connected", "switches", "links", "hosts", "flows", "being_installed"), 1) | {"counts": {}}
    address = "http://[fd00::1]:8181"
    flow = {"protocol": "tcp6", "source": "[fd00::1]", "source_port": 1, "destination": "h2", "destination_port": 2}
    flow |= {
        "profile": "mpi",
        "known_by": "policy",
        "path": [],
        "installed": True,
        "why": "[/x]",
        "rate_byte_s": 0,
        "age_s": 1,
    }
    documents: dict[str, dict[str, Any]] = {
        "status": status,
        "jobs": {"jobs": [job]},
        "tenants": {"tenants": []},
        "policy": {"strategies": {"mpi": "planned"}},
        "pair": {"role": "leader", "leader": address, "peer": address, "since_s": 1, "peer_answers": True},
        "flows": {"flows": [flow]},
    }

    class Told:
        def get(self, name: str) -> dict[str, Any]:
            return documents[name]

    monkeypatch.setenv("COLUMNS", "200")
    for module in (sdn_flows, sdn_status):
        monkeypatch.setattr(module, "client_of", lambda *_: Told())
    sdn_status.status()
    assert "[/x] [red]job" in (told := capfd.readouterr().out) and f"{address} leads" in told
    sdn_flows.flows()
    assert "[fd00::1]:1" in (told := capfd.readouterr().out) and "[/x]" in told
