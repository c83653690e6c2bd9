# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire enable`: the marked blocks, the files they go to, what is in force, and modulefiles."""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from barewire.cli import enable as enable_command
from barewire.cli.commands import app
from barewire.enable import block, changes, files, modulefile
from barewire.enable.changes import (
    also_disabled,
    apply,
    check_provider,
    own_files,
    plan_disable,
    plan_enable,
    possible_files,
    side_effects,
)
from barewire.enable.files import Form, Scope, assignments, target
from barewire.enable.settings import Wanted, open_mpi_parameters, rank_variables, shell_variables
from barewire.enable.state import LibraryState, state_of
from barewire.errors import MachineCannot, WrongUse
from barewire.mpi import Family, Library
from barewire.mpi.fabrics import PROVIDER_FILE

OURS = "pml = cm"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    folder = tmp_path / "provider"
    folder.mkdir()
    (folder / PROVIDER_FILE).touch()
    return Wanted(folder)


def installed(folder: Path, name: str, family: Family, version: str, netmods: tuple[str, ...] = ()) -> Library:
    """An installation with a launcher that names its file of parameters as MPICH's does."""
    prefix = folder / name
    (prefix / "bin").mkdir(parents=True)
    launcher = prefix / "bin" / "mpiexec.hydra"
    launcher.write_bytes(b"\x7fELF\0%s/.mpiexec.hydra.conf\0" + os.fsencode(prefix) + b"/etc/mpiexec.hydra.conf\0")
    launcher.chmod(0o755)
    return Library(name, family, version, prefix / "lib" / "libmpi.so", netmods)


@pytest.fixture
def four(tmp_path: Path) -> Library:
    return installed(tmp_path, "openmpi", Family.OPEN_MPI, "4.1.4")


@pytest.fixture
def five(tmp_path: Path) -> Library:
    return installed(tmp_path, "openmpi-5", Family.OPEN_MPI, "5.0.11")


@pytest.fixture
def mpich(tmp_path: Path) -> Library:
    return installed(tmp_path, "mpich-5", Family.MPICH, "5.0.2", ("ucx", "ofi"))


@pytest.fixture
def intel(tmp_path: Path) -> Library:
    return installed(tmp_path, "intel", Family.INTEL, "2021.18", ("ofi",))


def enable(libraries: list[Library], wanted: Wanted, home: Path, scope: Scope = Scope.USER) -> list[changes.Change]:
    planned, refused = plan_enable(libraries, wanted, scope, home)
    assert not refused
    apply(planned)
    return planned


def disable(libraries: list[Library], home: Path, scope: Scope = Scope.USER) -> list[changes.Change]:
    planned = plan_disable(possible_files(libraries, scope, home), scope)
    apply(planned)
    return planned


def state(library: Library, home: Path, environment: Mapping[str, str] | None = None) -> LibraryState:
    return state_of(library, environment or {}, home, home)


# Blocks


@given(st.text(alphabet="a\n\r#=>< \u2028é"), st.booleans())
def test_what_remains_without_a_block_is_the_text_to_the_letter(text: str, at_top: bool) -> None:
    marked = block.insert(text, [OURS], "user", at_top=at_top)
    found = block.find(marked, "file")
    assert found is not None and OURS in found.body and block.remove(marked, found) == text


def test_lines_added_below_a_block_stay_lines_of_their_own() -> None:
    marked = block.insert("a = 1", [OURS], "user", at_top=False) + "b = 2\n"
    found = block.find(marked, "file")
    assert found is not None and block.remove(marked, found) == "a = 1\nb = 2\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("cm", "ob1"), "lines 2 to 5, was changed by hand"),
        (lambda text: text.replace("user", "me and you"), "was changed by hand"),
        (lambda text: text + text, "lines 2, 5, 7, 10, do not make one block"),
        (lambda text: text.replace("# <<< barewire\n", ""), "lines 2, do not make one block"),
    ],
)
def test_a_block_that_somebody_changed_is_left_alone(change: Any, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        block.find(change(block.insert("theirs\n", [OURS], "user", at_top=False)), "file")


# Files


def test_each_library_has_its_own_file(
    home: Path, four: Library, five: Library, mpich: Library, intel: Library
) -> None:
    def chosen(scope: Scope) -> list[Path]:
        return [target(library, scope, home, [library]).file for library in (four, five, mpich, intel)]

    mca = home / ".openmpi" / "mca-params.conf"
    assert chosen(Scope.USER) == [mca, mca, home / ".mpiexec.hydra.conf", home / ".mpiexec.conf"]
    assert [str(file.relative_to(home.parent)) for file in chosen(Scope.SYSTEM)] == [
        "openmpi/etc/openmpi-mca-params.conf",
        "openmpi-5/etc/openmpi-mca-params.conf",
        "mpich-5/etc/mpiexec.hydra.conf",
        "intel/intel64/etc/mpiexec.conf",
    ]
    assert files.system_parameters(replace(four, file=Path("/usr/lib/x86_64-linux-gnu/libmpi.so.40"))) == Path(
        "/etc/openmpi/openmpi-mca-params.conf"
    )


def test_open_mpis_file_for_all_users_is_where_it_was_configured_to_look(tmp_path: Path) -> None:
    """Fedora's is not below its prefix; a wheel's was configured for a prefix that it does not have."""
    for built_for, expected in (("openmpi", "/etc/openmpi-x86_64"), ("elsewhere", f"{tmp_path}/moved/etc")):
        library = installed(tmp_path, built_for if built_for == "openmpi" else "moved", Family.OPEN_MPI, "4.1.4")
        info = library.prefix / "bin" / "ompi_info"
        paths = (f"prefix:{tmp_path / built_for}", "sysconfdir:/etc/openmpi-x86_64")
        info.write_text("#!/bin/sh\n" + "".join(f"echo path:{path}\n" for path in paths))
        info.chmod(0o755)
        assert files.system_parameters(library) == Path(expected) / "openmpi-mca-params.conf"


def test_existing_files_keep_their_lines_mode_and_links(
    home: Path, wanted: Wanted, four: Library, mpich: Library
) -> None:
    """Open MPI takes the last line, so ours are at the end; to MPICH a further line would be another program."""
    real, file = home / "dotfiles", files.home_parameters(home)
    real.write_bytes(b"btl = tcp\r\npml = ob1 \xff")
    real.chmod(0o600)
    file.parent.mkdir()
    file.symlink_to(real)
    hydra = home / ".mpiexec.hydra.conf"
    hydra.write_text("# mine\n-launcher ssh\n")
    before = {path: path.read_bytes() for path in (real, hydra)}
    enable([four, mpich], wanted, home)
    assert real.read_bytes().startswith(before[real] + b"\n# >>> barewire user ")
    assert file.is_symlink() and real.stat().st_mode & 0o777 == 0o600
    lines = [line for line in hydra.read_text().splitlines() if not line.startswith("#")]
    assert lines[0].startswith("-genv ") and lines[0].endswith(" \\") and lines[1:] == ["-launcher ssh"]
    assert {change.action for change in enable([four, mpich], wanted, home)} == {"unchanged"}
    assert {change.action for change in disable([], home)} == {"changed"}
    assert {path: path.read_bytes() for path in (real, hydra)} == before
    assert sorted(path.name for path in home.rglob("*")) == [".mpiexec.hydra.conf", ".openmpi", "dotfiles", file.name]


def test_files_and_folders_that_were_created_are_removed_if_empty(
    home: Path, wanted: Wanted, four: Library, mpich: Library, intel: Library
) -> None:
    everything = [four, mpich, intel]
    for scope in Scope:
        assert {change.action for change in enable(everything, wanted, home, scope)} == {"created"}
    assert disable(everything, home) and disable(everything, home, Scope.SYSTEM)
    assert not list(home.iterdir()) and not (intel.prefix / "intel64").exists()
    enable([four, mpich], wanted, home)
    (home / ".openmpi" / "theirs").touch()
    with (home / ".mpiexec.hydra.conf").open("a") as file:
        file.write("-v\n")
    disable([], home)
    assert [path.name for path in (home / ".openmpi").iterdir()] == ["theirs"]
    assert (home / ".mpiexec.hydra.conf").read_text() == "-v\n"


def test_folders_for_all_users_are_open_to_them_whatever_the_umask_is(
    home: Path, wanted: Wanted, four: Library, mpich: Library
) -> None:
    """Nobody else could read the file, and nothing would say so."""
    before = os.umask(0o077)
    try:
        for scope in Scope:
            enable([four, mpich], wanted, home, scope)
    finally:
        os.umask(before)
    made = [files.target(each, Scope.SYSTEM, home, ()).file for each in (four, mpich)]
    assert [file.parent.stat().st_mode & 0o777 for file in made] == [0o755] * 2
    assert [file.stat().st_mode & 0o777 for file in made] == [0o644] * 2
    assert (home / ".openmpi").stat().st_mode & 0o777 == 0o700, "a user's own is as the umask says"


def test_another_provider_replaces_the_first(home: Path, wanted: Wanted, four: Library, tmp_path: Path) -> None:
    enable([four], wanted, home)
    other = tmp_path / "other"
    (change,) = enable([four], replace(wanted, provider=other), home)
    text = files.home_parameters(home).read_text()
    assert change.action == "changed" and text.count(">>> barewire") == 1
    assert str(other) in text and str(wanted.provider) not in text
    (problem,) = state(four, home).problems
    assert f"no {PROVIDER_FILE} in {other}" in problem


def test_open_mpi_4_and_5_share_a_users_file_where_each_gets_its_variables(
    home: Path, wanted: Wanted, four: Library, five: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    enable([four, five], wanted, home)
    shared, own = files.home_parameters(home).read_text(), files.system_parameters(five).read_text()
    assert f"-x FI_PROVIDER_PATH={wanted.provider}\n" in shared and files.ENV_LIST not in shared
    assert f"{files.ENV_LIST} = FI_PROVIDER_PATH={wanted.provider};FI_PROVIDER=barewire\n" in own
    assert state(four, home).in_force and state(five, home).in_force
    disable([four, five], home)
    assert not files.system_parameters(five).exists()
    monkeypatch.setattr(files, "owner", lambda _file: os.geteuid() + 1)
    planned, refused = plan_enable([four, five], wanted, Scope.USER, home)
    assert [change.libraries for change in planned] == [(four,)] and "--library openmpi-5 alone" in refused["openmpi-5"]
    planned, refused = plan_enable([four, five], replace(wanted, fallback="none"), Scope.USER, home)
    assert not planned and "openmpi-5 would also read" in refused["openmpi"], "its jobs would end"


def test_an_open_mpi_that_was_not_named_and_reads_the_same_file_is_noted(
    home: Path, wanted: Wanted, four: Library, five: Library
) -> None:
    def notes(named: Library, fallback: str) -> list[str]:
        each = replace(wanted, fallback=fallback)
        planned = plan_enable([named], each, Scope.USER, home)[0]
        return side_effects(planned, [four, five], each, home)

    assert "finds no provider, so its jobs end: add --library openmpi-5" in notes(four, "none")[0]
    assert notes(four, "tcp") == []
    assert all("ends jobs that are started with -x" in notes(five, fallback)[0] for fallback in ("none", "tcp"))


def test_variables_that_a_user_lists_for_open_mpi_are_kept(
    home: Path, wanted: Wanted, four: Library, five: Library
) -> None:
    """The last list counts, and Open MPI 4 ends jobs that have -x lines beside a list."""
    for library in (four, five):
        file = files.home_parameters(home)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{files.ENV_LIST} = A=1;B\n")
        enable([library], wanted, home)
        text = file.read_text()
        assert f"{files.ENV_LIST} = A=1;B;FI_PROVIDER_PATH={wanted.provider};" in text and "-x " not in text
        assert state(library, home).in_force
        disable([], home)


@pytest.mark.parametrize("step", ["write", "rename"])
def test_an_interrupted_write_leaves_the_old_file_alone(
    step: str, home: Path, wanted: Wanted, four: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.home_parameters(home)
    file.parent.mkdir()
    file.write_text("btl = tcp\n")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*((os, "fsync") if step == "write" else (Path, "replace")), interrupted)
    with pytest.raises(KeyboardInterrupt):
        enable([four], wanted, home)
    assert file.read_text() == "btl = tcp\n" and list(file.parent.iterdir()) == [file]


def test_one_bad_file_stops_the_command_before_any_is_written(
    home: Path, wanted: Wanted, four: Library, mpich: Library
) -> None:
    enable([mpich], wanted, home)
    hydra = home / ".mpiexec.hydra.conf"
    hydra.write_text(hydra.read_text().replace("barewire,tcp", "tcp"))
    with pytest.raises(WrongUse, match=r"\.mpiexec\.hydra\.conf: barewire's block, lines 1 to 4, was changed by hand"):
        enable([four, mpich], wanted, home)
    with pytest.raises(WrongUse, match="restore or delete these lines"):
        disable([four, mpich], home)
    assert not files.home_parameters(home).exists()
    assert not state(mpich, home).in_force and "changed by hand" in state(mpich, home).problems[0]


def test_files_that_cannot_be_read_or_written_say_so(home: Path, wanted: Wanted, four: Library) -> None:
    files.home_parameters(home).mkdir(parents=True)
    _, refused = plan_enable([four], wanted, Scope.USER, home)
    assert re.search(r"cannot read .*mca-params.conf: Is a directory", refused[four.name])
    with pytest.raises(MachineCannot, match=r"cannot write /proc/self/none/.openmpi/mca-params.conf: .*modulefile"):
        enable([four], wanted, Path("/proc/self/none"))


def test_nothing_is_written_if_one_file_cannot_be(home: Path, wanted: Wanted, four: Library, five: Library) -> None:
    (five.prefix / "etc").touch()
    with pytest.raises(
        MachineCannot, match=r"cannot write .*openmpi-5/etc/.*: .*/openmpi-5/etc is not a folder; --system"
    ):
        enable([four, five], wanted, home, Scope.SYSTEM)
    assert not files.system_parameters(four).exists()


def test_what_was_written_before_a_failure_is_named(
    home: Path, wanted: Wanted, four: Library, five: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk shows only when it is written to."""
    replace_file = changes._replace

    def full(file: Path, text: str, **options: Any) -> None:
        if file == files.system_parameters(five):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(file, text, **options)

    monkeypatch.setattr(changes, "_replace", full)
    done = f"No space left on device; .*Already done: created {files.system_parameters(four)}$"
    with pytest.raises(MachineCannot, match=done):
        enable([four, five], wanted, home, Scope.SYSTEM)


def test_only_named_libraries_are_disabled(
    home: Path, wanted: Wanted, four: Library, five: Library, mpich: Library, intel: Library
) -> None:
    everything = [four, five, mpich, intel]
    for scope in Scope:
        for library, other in ((mpich, intel), (five, four), (intel, mpich)):
            enable(everything, wanted, home, scope)
            planned = plan_disable(own_files([library], scope, home), scope)
            assert len(planned) == 1 and also_disabled(planned, [library], everything, scope, home) == []
            apply(planned)
            assert own_files([library], scope, home) == []
            assert len(own_files([other], scope, home)) == 1
            assert len(disable(everything, home, scope)) == 3
    enable([four], wanted, home)
    planned = plan_disable(own_files([four], Scope.USER, home), Scope.USER)
    shared = files.home_parameters(home)
    note = f"openmpi-5 also reads {shared}, so it is disabled too"
    assert also_disabled(planned, [four], everything, Scope.USER, home) == [note]
    assert own_files([mpich], Scope.USER, home) == []


def test_a_file_has_one_owner(home: Path, wanted: Wanted, five: Library, four: Library) -> None:
    enable([five], wanted, home, Scope.SYSTEM)
    with pytest.raises(WrongUse, match="line 1: already enabled by --system: barewire disable --system"):
        enable([four, five], wanted, home)
    assert disable([five], home) == []


def test_libraries_that_cannot_use_a_file_are_named(home: Path, wanted: Wanted, mpich: Library, intel: Library) -> None:
    old = replace(mpich, netmods=("ucx",))
    _, refused = plan_enable([old], wanted, Scope.USER, home)
    assert "without libfabric" in refused[mpich.name]
    spaced = replace(intel, file=intel.prefix / "with space" / "lib" / "libmpi.so")
    planned, refused = plan_enable([spaced, mpich], wanted, Scope.USER, home)
    assert "mpiexec.conf cannot hold I_MPI_ROOT=" in refused[intel.name] and "modulefile" in refused[intel.name]
    assert [change.libraries for change in planned] == [(mpich,)], "the others are enabled"
    (mpich.prefix / "bin" / "mpiexec.hydra").write_bytes(b"\x7fELF")
    _, refused = plan_enable([mpich], wanted, Scope.SYSTEM, home)
    assert "reads no file for all users" in refused[mpich.name]
    (intel.prefix / "lib").mkdir()
    (intel.prefix / "lib" / "libfabric.so.1").touch()
    other = replace(intel, name="older", file=intel.prefix.parent / "older" / "lib" / "libmpi.so")
    with pytest.raises(WrongUse, match=r"intel, older all read .* choose one with --library"):
        plan_enable([intel, other], wanted, Scope.USER, home)


def test_a_named_library_that_cannot_be_enabled_fails_the_command_and_names_are_taken_once(
    home: Path, wanted: Wanted, four: Library, mpich: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --library the others are enabled, and it is reported."""
    libraries = {"openmpi": four, "mpich": replace(mpich, name="mpich", netmods=("ucx",))}
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(enable_command, "find_library", libraries.__getitem__)
    monkeypatch.setattr(enable_command, "installed_libraries", lambda: list(libraries.values()))
    words = ["enable", "--user", "--provider", str(wanted.provider)]
    refused = CliRunner().invoke(app, [*words, "--library", "openmpi,mpich"])
    assert isinstance(refused.exception, MachineCannot) and "mpich: MPICH 5" in str(refused.exception)
    assert not list(home.iterdir())
    done = CliRunner().invoke(app, [*words, "--library", "openmpi, openmpi"])
    assert done.exit_code == 0 and done.stdout.count("(openmpi)") == 1
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "not enabled: mpich: MPICH 5" in done.stdout


def test_a_provider_that_others_cannot_read_is_not_for_all_users(wanted: Wanted, tmp_path: Path) -> None:
    check_provider(wanted, Scope.USER)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / PROVIDER_FILE).touch()
    check_provider(Wanted(closed), Scope.USER)
    with pytest.raises(MachineCannot, match="other users cannot read"):
        check_provider(Wanted(closed), Scope.SYSTEM)
    with pytest.raises(MachineCannot, match=r"no libbarewire-fi\.so"):
        check_provider(Wanted(tmp_path), Scope.USER)
    for wrong in ({"fallback": "udp"}, {"provider": Path("/a b")}, {"provider": Path("a")}, {"interface": "eth 0"}):
        with pytest.raises(WrongUse):
            replace(wanted, **wrong)


# What is in force


def test_a_job_ends_or_falls_back_as_chosen(wanted: Wanted, mpich: Library, intel: Library) -> None:
    ending = replace(wanted, fallback="none")
    assert [open_mpi_parameters(each)["pml"] for each in (ending, wanted)] == ["cm", "^ucx"]
    assert [rank_variables(mpich, each)["FI_PROVIDER"] for each in (ending, wanted)] == ["barewire", "barewire,tcp"]
    assert rank_variables(intel, wanted)["FI_PROVIDER"] == "barewire", "it reads one folder of providers"


def test_what_overrides_the_files_is_named(
    home: Path, wanted: Wanted, four: Library, five: Library, mpich: Library, intel: Library
) -> None:
    assert state(four, home) == LibraryState(four, in_force=False)
    for library in (four, mpich, intel):
        enable([library], wanted, home)
        assert state(library, home).in_force and state(library, home).provider == str(wanted.provider)

    def problems(library: Library, **environment: str) -> tuple[str, ...]:
        found = state(library, home, environment)
        assert found.in_force == (not found.problems)
        return found.problems

    assert problems(four, OMPI_MCA_mtl="^ofi") == ("environment: OMPI_MCA_mtl=^ofi",)
    assert "Open MPI 4 ends jobs" in problems(four, OMPI_MCA_mca_base_env_list="A=1")[0]
    assert problems(five, OMPI_MCA_btl="self") == ("nothing sets FI_PROVIDER_PATH",), "it does not read -x lines"
    excluded = problems(four, OMPI_MCA_mtl_ofi_provider_exclude="sockets")
    assert excluded == (
        "environment: OMPI_MCA_mtl_ofi_provider_exclude beside mtl_ofi_provider_include: Open MPI uses no provider",
    )
    nowhere = home / "hydra.conf"
    nowhere.touch()
    instead = problems(mpich, HYDRA_CONFIG_FILE=str(nowhere))
    assert instead == (f"{nowhere} is read instead of user: {home}/.mpiexec.hydra.conf, line 1",)
    assert not state(replace(mpich, netmods=("ucx",)), home).in_force
    (home / ".mpiexec.hydra.conf").open("a").write("-v\n")
    assert "another program: repeat barewire enable" in problems(mpich)[0]
    planned, refused = plan_enable([replace(mpich, version="4.2"), four], wanted, Scope.USER, home)
    assert "already has other lines, and MPICH 4.2 reads only one line: use the modulefile" in refused[mpich.name]
    assert [change.libraries for change in planned] == [(four,)], "the others are enabled"
    enable([mpich], wanted, home)
    assert problems(mpich) == ()
    (home / ".mpiexec.conf").open("a").write("-genv FI_PROVIDER tcp\n")
    assert problems(intel) == (f"{home}/.mpiexec.conf, line 5: FI_PROVIDER=tcp",)
    # Nothing in the shell changes what mpiexec passes on by its file.
    (note,) = state(mpich, home, {"FI_PROVIDER": "tcp"}).notes
    assert (
        note.startswith("environment: FI_PROVIDER=tcp is overridden by ") and problems(mpich, FI_PROVIDER="tcp") == ()
    )


def test_intel_mpis_file_for_all_users_needs_its_root(home: Path, wanted: Wanted, intel: Library) -> None:
    enable([intel], wanted, home, Scope.SYSTEM)
    assert state(intel, home, {"I_MPI_ROOT": str(intel.prefix)}).in_force
    assert not state(intel, home).in_force and "I_MPI_ROOT is not set" in state(intel, home).problems[0]
    enable([intel], wanted, home)
    assert state(intel, home).in_force and state(intel, home).by[0].startswith("user: ")


def test_a_users_lines_override_those_of_all_users(home: Path, wanted: Wanted, four: Library, mpich: Library) -> None:
    enable([four, mpich], wanted, home, Scope.SYSTEM)
    assert state(four, home).by == (f"system: {files.system_parameters(four)}, line 1",)
    file = files.home_parameters(home)
    file.parent.mkdir()
    file.write_text("# mine\npml = ob1\n")
    assert state(four, home).problems == (f"{file}, line 2: OMPI_MCA_pml=ob1",)
    (home / ".mpiexec.hydra.conf").write_text("-v\n")
    assert "is read instead of" in state(mpich, home).problems[0] and not state(mpich, home).in_force


# Modulefiles


def test_a_shells_variables_are_those_of_the_files(wanted: Wanted, mpich: Library) -> None:
    for each in (replace(wanted, interface="eth1"), replace(wanted, fallback="none")):
        shell = {variable.name: variable.value for variable in shell_variables(each)}
        parameters = {f"OMPI_MCA_{name}": value for name, value in open_mpi_parameters(each).items()}
        forwarding = {"OMPI_MCA_mca_base_env_list_internal", "PMIX_MCA_pmdl_ompi_include_envars"}
        assert {name: shell[name] for name in shell if name not in forwarding} == rank_variables(
            mpich, each
        ) | parameters
        assert not [variable for variable in shell_variables(each) if not variable.joined and ":" in variable.value]


def test_a_shells_variables_are_enough_for_each_library(
    home: Path, wanted: Wanted, four: Library, five: Library, mpich: Library, intel: Library
) -> None:
    environment = {variable.name: variable.value for variable in shell_variables(wanted)}
    for library in (four, five, mpich, intel):
        assert state(library, home, environment).by == ("shell: environment",)


# What environment-modules and Lmod give a modulefile, without their shells.
_TCL = """
proc module-whatis args {}
proc conflict args {}
set stack {}
proc pushenv {name value} {
    if {$::mode eq "load"} {
        if {[info exists ::env($name)]} {lappend ::stack $name $::env($name)}
        set ::env($name) $value
    } elseif {[dict exists $::stack $name]} {set ::env($name) [dict get $::stack $name]} else {unset ::env($name)}
}
proc prepend-path {name value} {
    set before [expr {[info exists ::env($name)] ? [split $::env($name) :] : {}}]
    set rest [lsearch -all -inline -not -exact $before $value]
    set after [expr {$::mode eq "load" ? [linsert $before 0 $value] : $rest}]
    if {[llength $after]} {set ::env($name) [join $after :]} else {unset ::env($name)}
}
foreach mode {load unload} {
    source [lindex $argv 0]
    puts $mode
    foreach name [lsort [array names env]] {puts $name=$env($name)}
}
"""
_LUA = """
local load, environment, before = true, {FI_PROVIDER = "verbs", FI_PROVIDER_PATH = "/theirs"}, {}
function whatis() end
function family() end
function pushenv(name, value)
    if load then before[name] = environment[name]; environment[name] = value
    else environment[name] = before[name] end
end
function prepend_path(name, value)
    local old = environment[name]
    if load then environment[name] = old and value .. ":" .. old or value
    else environment[name] = old ~= value and old:sub(#value + 2) or nil end
end
for _, mode in ipairs({"load", "unload"}) do
    load = mode == "load"
    dofile(arg[1])
    print(mode)
    for name, value in pairs(environment) do print(name .. "=" .. value) end
end
"""
_BEFORE = {"FI_PROVIDER": "verbs", "FI_PROVIDER_PATH": "/theirs"}


def loaded_and_unloaded(command: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    done = subprocess.run(command, capture_output=True, text=True, env=_BEFORE, check=False)
    assert done.returncode == 0, done.stderr
    load, unload = done.stdout.removeprefix("load\n").split("unload\n")
    read = [dict(line.split("=", 1) for line in part.splitlines()) for part in (load, unload)]
    return read[0], read[1]


@pytest.mark.parametrize(
    ("interpreters", "driver", "text", "packages"),
    [
        (("tclsh",), _TCL, modulefile.tcl, "tcl"),
        (("lua", "lua5.4", "lua5.3", "lua5.1", "luajit", "texlua"), _LUA, modulefile.lua, "lua5.4"),
    ],
    ids=["tcl", "lua"],
)
def test_unloading_takes_everything_back(
    interpreters: tuple[str, ...], driver: str, text: Any, packages: str, wanted: Wanted, tmp_path: Path
) -> None:
    interpreter = next(filter(None, map(shutil.which, interpreters)), None)
    if interpreter is None:
        pytest.skip(f"no interpreter for {packages} is installed: apt install {packages}")
    (tmp_path / "driver").write_text(driver)
    (tmp_path / "module").write_text(text(wanted))
    loaded, unloaded = loaded_and_unloaded([interpreter, str(tmp_path / "driver"), str(tmp_path / "module")])
    expected = {variable.name: variable.value for variable in shell_variables(wanted)}
    expected["FI_PROVIDER_PATH"] += ":/theirs"
    assert loaded == _BEFORE | expected and unloaded == _BEFORE


def test_slurms_prolog_prints_exports_and_leaves_the_jobs_own(wanted: Wanted, tmp_path: Path) -> None:
    prolog = tmp_path / "prolog"
    prolog.write_text(modulefile.slurm(wanted))

    def printed(environment: dict[str, str]) -> dict[str, str]:
        done = subprocess.run(["sh", str(prolog)], capture_output=True, text=True, check=True, env=environment)
        return dict(line.removeprefix("export ").split("=", 1) for line in done.stdout.splitlines())

    expected = {variable.name: variable.value for variable in shell_variables(wanted)}
    assert printed({}) == expected
    assert printed({"FI_PROVIDER_PATH": "/theirs"})["FI_PROVIDER_PATH"] == f"{wanted.provider}:/theirs"
    left = expected.keys() - printed({"FI_PROVIDER": "verbs", "OMPI_MCA_mtl": "^ofi"}).keys()
    assert left == {"FI_PROVIDER", "FI_PROVIDER_PATH", "OMPI_MCA_mtl"}


def test_lines_are_read_as_launchers_read_them() -> None:
    mca = "# pml = x\n pml=ob1\n-x A = 1\nbtl = tcp , self\n"
    assert assignments(mca, Form.MCA) == [("OMPI_MCA_pml", "ob1", 2), ("A", "1", 3), ("OMPI_MCA_btl", "tcp , self", 4)]
    assert assignments("-v -genv A 1 -genv B=2 \\\n# -genv C 3\n-genv D\n", Form.HYDRA) == [
        ("A", "1", 1),
        ("B", "2", 1),
    ]


def test_a_user_without_a_home_or_a_folder_or_a_library_gets_a_message(
    home: Path, four: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(enable_command, "installed_libraries", lambda: [four])
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = CliRunner().invoke(app, ["status"])
    assert done.exit_code == 0 and done.stdout.startswith("openmpi (Open MPI 4.1.4): not enabled"), done.exception
    monkeypatch.setattr(enable_command, "installed_libraries", list)
    assert CliRunner().invoke(app, ["status"]).stdout.startswith("no MPI library is installed: ")

    def unknown(_: object = None) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    for command in ("status", "enable --user", "disable --user"):
        refused = CliRunner().invoke(app, command.split())
        assert isinstance(refused.exception, MachineCannot) and "set HOME" in str(refused.exception), command
