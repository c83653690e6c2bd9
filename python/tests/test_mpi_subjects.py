# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI subjects: available combinations, names and settings, and rejections with advice."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_mpi import LIBRARIES, subject
from typer.testing import CliRunner

from barewire import installed
from barewire.cli import mpi as cli_mpi
from barewire.cli.commands import app
from barewire.errors import BarewireError, MachineCannot, WrongUse
from barewire.measure import mpi_subjects
from barewire.measure.mpi_subjects import Choice, exclude_failing, parse_libraries, subjects_of
from barewire.measure.session import launch_file_name, parse_launch_file_name
from barewire.models.naming import baseline_of, read_mpi_subject
from barewire.models.verdict import protocol_of
from barewire.mpi import FabricOptions, Family, Library, profiler, suite
from barewire.mpi.eager import eager_settings
from barewire.mpi.fabrics import PROVIDER_FILE, fabric_settings
from barewire.report.words import subject_name

OPEN_MPI, MPICH_5, INTEL = LIBRARIES["openmpi"], LIBRARIES["mpich-5"], LIBRARIES["intel"]
DEBIAN_MPICH = Library("mpich", Family.MPICH, "4.0.2", Path("/nowhere/lib/libmpich.so.12"), ("ucx",))


@pytest.fixture
def complete(tmp_path, monkeypatch):
    """Libraries with a launcher and a compiler, found in their folders alone."""
    (tmp_path / "bin").mkdir()
    (tmp_path / PROVIDER_FILE).touch()
    monkeypatch.setenv("FI_PROVIDER_PATH", str(tmp_path))
    for name in ("mpirun", "mpicc"):
        (tmp_path / "bin" / name).touch()
        (tmp_path / "bin" / name).chmod(stat.S_IRWXU)

    def at(library: Library) -> Library:
        return replace(library, file=tmp_path / "lib" / library.file.name)

    found = [at(OPEN_MPI), at(DEBIAN_MPICH), at(MPICH_5)]
    monkeypatch.setattr(mpi_subjects, "installed_libraries", lambda: found)
    return {library.name: library for library in found}


@pytest.mark.parametrize(
    ("mpi_subject", "name"),
    [
        (subject("openmpi", "barewire"), "openmpi/barewire"),
        (subject("mpich-5", "tcp", eager=65536), "mpich-5/tcp+eager=65536"),
        (subject("mpich-5", "ofi-tcp", progress="thread"), "mpich-5/ofi-tcp+progress=thread"),
        (subject("intel", "barewire", eager=0, wait="spin"), "intel/barewire+eager=0+wait=spin"),
    ],
)
def test_a_name_parses_to_the_same_subject_and_is_displayed_as_typed(mpi_subject, name):
    assert mpi_subject.name == name and subject_name(name) == name
    read = read_mpi_subject(name)
    assert read is not None and str(read) == name and read.fabric == mpi_subject.requested.fabric
    assert parse_launch_file_name(launch_file_name(7, "pingpong", name)) == (7, "pingpong", name)


@pytest.mark.parametrize("name", ["tcp", "tcp/block", "llc2+xdp/block", "pipe/same", "openmpi/token-ring", "a b/tcp"])
def test_other_names_are_no_mpi_subjects(name):
    assert read_mpi_subject(name) is None


def test_the_baseline_of_a_library_is_its_own_plain_subject_over_that_fabric():
    assert baseline_of("openmpi/barewire+eager=1", "tcp") == "openmpi/tcp"
    assert baseline_of("openmpi/barewire", "mpich-5/tcp") == "mpich-5/tcp"
    assert baseline_of("raw/block", "tcp") == "tcp"


def test_protocols_of_fabrics_are_known_if_unique():
    assert protocol_of("openmpi/barewire+progress=auto") == "raw"
    assert protocol_of("mpich/ucx") == protocol_of("mpich-5/ofi-tcp") == "tcp"
    assert protocol_of("openmpi/udp") == "udp"
    assert protocol_of("openmpi/shm") is None and protocol_of("intel/ofi-psm3") is None


def test_by_default_all_libraries_and_both_fabrics_are_subjects_and_others_are_reported(complete):
    subjects, reasons = subjects_of(Choice(), one_host=False, lab=True)
    assert [mpi_subject.name for mpi_subject in subjects] == [
        "openmpi/barewire", "openmpi/tcp", "mpich/tcp", "mpich-5/barewire", "mpich-5/tcp",
    ]  # fmt: skip
    (reason,) = reasons
    assert reason.startswith("mpich/barewire is left out") and "built for ucx only" in reason


def test_named_impossible_subjects_are_rejected(complete, monkeypatch):
    with pytest.raises(MachineCannot, match="built for ucx only"):
        subjects_of(Choice((complete["mpich"],), ("barewire",)), one_host=False, lab=True)
    # Only one of library and fabric was named: the subject is left out, unless it is the only one.
    _, reasons = subjects_of(Choice(fabrics=("barewire",)), one_host=False, lab=True)
    assert len(reasons) == 1
    monkeypatch.setattr(mpi_subjects, "installed_libraries", lambda: [complete["mpich"]])
    with pytest.raises(MachineCannot, match="nothing is left to measure"):
        subjects_of(Choice(fabrics=("barewire",)), one_host=False, lab=True)


def test_eager_limits_and_progress_modes_are_combined_where_they_apply(complete):
    choice = Choice((complete["openmpi"],), ("barewire", "tcp"), (1024, 65536), ("auto", "manual", "thread"))
    with pytest.raises(MachineCannot, match="own progress thread over tcp only"):
        subjects_of(choice, one_host=False, lab=True)
    choice = replace(choice, progresses=("auto", "manual"))
    subjects, reasons = subjects_of(choice, one_host=False, lab=True)
    assert not reasons and [mpi_subject.name.removeprefix("openmpi/") for mpi_subject in subjects] == [
        "barewire+eager=1024+progress=auto", "barewire+eager=1024+progress=manual",
        "barewire+eager=65536+progress=auto", "barewire+eager=65536+progress=manual",
        "tcp+eager=1024", "tcp+eager=65536",
    ]  # fmt: skip
    with pytest.raises(WrongUse, match=r"--progress auto,manual applies to the fabric barewire"):
        subjects_of(replace(choice, fabrics=("tcp",)), one_host=False, lab=True)


def test_a_library_without_compiler_is_left_out_or_rejected(complete, tmp_path):
    (tmp_path / "bin" / "mpicc").unlink()
    with pytest.raises(MachineCannot, match="has no mpicc: apt install openmpi-bin libopenmpi-dev"):
        subjects_of(Choice((complete["openmpi"],), ("tcp",)), one_host=False, lab=True)
    with pytest.raises(MachineCannot, match="nothing is left"):
        subjects_of(Choice(), one_host=False, lab=True)


def test_without_our_provider_the_other_fabrics_remain(complete, tmp_path):
    (tmp_path / PROVIDER_FILE).unlink()
    subjects, reasons = subjects_of(Choice(), one_host=False, lab=True)
    assert {mpi_subject.requested.fabric for mpi_subject in subjects} == {
        "tcp"
    } and "correct FI_PROVIDER_PATH" in reasons[0]


def test_libraries_that_do_not_build_are_left_out_unless_named():
    subjects = (subject("openmpi", "tcp"), subject("mpich-5", "tcp"))

    def attempt(library: Library) -> None:
        if library.name == "openmpi":
            raise MachineCannot("no FFTW")

    left, reasons = exclude_failing(subjects, attempt, named=False)
    assert [mpi_subject.name for mpi_subject in left] == ["mpich-5/tcp"] and reasons == (
        "openmpi is left out: no FFTW",
    )
    with pytest.raises(MachineCannot, match="no FFTW"):
        exclude_failing(subjects, attempt, named=True)
    with pytest.raises(MachineCannot, match="nothing is left"):
        exclude_failing(subjects[:1], attempt, named=False)


@pytest.mark.parametrize(
    ("library", "fabric", "name"),
    [
        (OPEN_MPI, "barewire", "FI_BAREWIRE_EAGER"),
        (MPICH_5, "barewire", "FI_BAREWIRE_EAGER"),
        (INTEL, "barewire", "FI_BAREWIRE_EAGER"),
        (OPEN_MPI, "tcp", "OMPI_MCA_btl_tcp_eager_limit"),
        (OPEN_MPI, "shm", "OMPI_MCA_btl_vader_eager_limit"),
        (replace(OPEN_MPI, version="5.0.11"), "shm", "OMPI_MCA_btl_sm_eager_limit"),
        (OPEN_MPI, "ucx", "UCX_RNDV_THRESH"),
        (DEBIAN_MPICH, "tcp", "UCX_RNDV_THRESH"),
        (MPICH_5, "ucx", "UCX_RNDV_THRESH"),
        (MPICH_5, "tcp", "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD"),
        (MPICH_5, "ofi-tcp", "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD"),
    ],
)
def test_each_librarys_eager_limit_has_its_own_variable(library, fabric, name):
    assert eager_settings(library, fabric, 4096)[name] == "4096"
    requested = FabricOptions(fabric, eager=4096)
    variables = {
        setting.name: setting.value
        for setting in fabric_settings(library, requested, one_host=fabric == "shm", lab=True)
    }
    assert variables[name] == "4096"


@pytest.mark.parametrize(
    ("library", "fabric"), [(OPEN_MPI, "ofi-tcp"), (OPEN_MPI, "udp"), (MPICH_5, "shm"), (INTEL, "tcp")]
)
def test_a_library_without_eager_limit_is_rejected(library, fabric):
    with pytest.raises(MachineCannot, match=f"no eager limit over {fabric}: omit --eager"):
        eager_settings(library, fabric, 4096)


def test_barewires_eager_limit_has_a_bound():
    with pytest.raises(WrongUse, match="--eager 2097152: over barewire the limit is at most"):
        eager_settings(OPEN_MPI, "barewire", 1 << 21)


def test_within_one_host_mpich_opens_a_provider_whose_addresses_have_one_length():
    """With shm, MPI_Init ended the job if one rank had process ID 9999 and the other 10000."""
    settings = fabric_settings(MPICH_5, FabricOptions("shm"), one_host=True, lab=True)
    assert {setting.name: setting.value for setting in settings}["FI_PROVIDER"] == "tcp"


@pytest.mark.parametrize(
    ("library", "fabric", "name"),
    [
        (MPICH_5, "barewire", "MPIR_CVAR_ASYNC_PROGRESS"),
        (INTEL, "tcp", "I_MPI_ASYNC_PROGRESS"),
        (OPEN_MPI, "tcp", "OMPI_MCA_btl_tcp_progress_thread"),
    ],
)
def test_a_librarys_own_progress_thread_is_enabled(library, fabric, name):
    settings = fabric_settings(library, FabricOptions(fabric, progress="thread"), one_host=False, lab=True)
    assert {setting.name: setting.value for setting in settings}[name] == "1"


def test_a_folders_library_is_named_after_the_folder(monkeypatch, tmp_path):
    folder = tmp_path / "mpich-6"
    (folder / "lib").mkdir(parents=True)
    library = replace(MPICH_5, name="libmpi.so.12", file=folder / "lib" / "libmpi.so.12")
    monkeypatch.setattr(mpi_subjects, "find_library", lambda text: library)
    assert [library.name for library in parse_libraries(str(folder)) or ()] == ["mpich-6"]
    (tmp_path / "again").mkdir()
    with pytest.raises(WrongUse, match="have the same name: mpich-6, mpich-6"):
        parse_libraries(f"{folder},{tmp_path / 'again'}")


def test_the_suites_programs_are_the_tests():
    assert {"pingpong", "logp", "alltoall"} <= {*suite.tests()}
    assert suite.parse_tests("pingpong, logp,pingpong") == ("pingpong", "logp")
    with pytest.raises(WrongUse, match="unknown test 'nosuch'; there are: alltoall"):
        suite.parse_tests("nosuch")
    assert suite.variants_of(("pingpong", "halo"), None) == {"pingpong": "blocking-standard"}
    assert suite.variants_of(("pingpong", "logp"), "all") == {}
    assert suite.variants_of(("logp",), "gap") == {"logp": "gap"}


def test_programs_are_built_once_and_again_for_another_library_of_the_same_name(tmp_path, monkeypatch):
    """The compiler writes its name into its output."""
    sources, built = tmp_path / "mpi", tmp_path / "built"
    sources.mkdir()
    (sources / "Makefile").write_text("$(OUT)/%: %.c\n\t$(MPICC) $< $@\n")
    (sources / "one.c").write_text("")
    for version in ("a", "b"):
        (tmp_path / version / "bin").mkdir(parents=True)
        mpicc = tmp_path / version / "bin" / "mpicc"
        mpicc.write_text(
            f'#!/bin/sh\ntest "$1" != bad.c || {{ echo fftw3.h: No such file >&2; exit 1; }}\necho {version} >>"$2"\n'
        )
        mpicc.chmod(stat.S_IRWXU)
    monkeypatch.setattr(suite, "SOURCES", sources)
    monkeypatch.setattr(suite, "BUILT", built)
    first, other = (replace(OPEN_MPI, file=tmp_path / version / "lib" / "libmpi.so.40") for version in ("a", "b"))
    for _ in range(2):
        path = suite.build(first, ["one"])["one"]
    assert Path(path).read_text() == "a\n"
    assert Path(suite.build(other, ["one"])["one"]).read_text() == "b\n"
    # Another package's sources may be older than what the last one's built.
    Path(path).write_text("older package\n")
    assert Path(suite.build(other, ["one"])["one"]).read_text() == "older package\n"
    monkeypatch.setattr(installed, "sources_version", lambda: "0123456789ab")
    assert Path(suite.build(other, ["one"])["one"]).read_text() == "b\n"
    (sources / "bad.c").write_text("")
    with pytest.raises(MachineCannot, match="apt install libfftw3-dev"):
        suite.build(other, ["bad"])
    with pytest.raises(MachineCannot, match="No rule to make target"):
        suite.build(other, ["absent"])


@pytest.fixture
def profiler_sources(tmp_path, monkeypatch):
    """A profiler that any compiler builds."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "Makefile").write_text(f"$(OUT)/{profiler.PROFILER_FILE}:\n\techo $(LIBRARY) > $@\n")
    monkeypatch.setattr(profiler, "SOURCES", sources)
    monkeypatch.setattr(profiler, "BUILT", tmp_path / "built")


@pytest.mark.usefixtures("profiler_sources")
def test_each_package_has_its_own_profiler(monkeypatch):
    first = profiler.build_profiler(OPEN_MPI)
    assert first.is_file() and profiler.build_profiler(OPEN_MPI) == first
    monkeypatch.setattr(installed, "sources_version", lambda: "0123456789ab")
    second = profiler.build_profiler(OPEN_MPI)
    assert second.is_file() and second != first


def test_a_checkouts_sources_have_no_version_so_that_a_commit_rebuilds_nothing():
    assert installed.sources_version() == "" and not installed.IS_PACKAGE


@pytest.mark.usefixtures("profiler_sources")
@pytest.mark.parametrize("name", ["a b", "a:b", "a\tb"])
def test_paths_that_cannot_be_preloaded_are_named_with_a_way_out(tmp_path, monkeypatch, name):
    """LD_PRELOAD is split at white space and colons, and so are make's rules."""
    with pytest.raises(MachineCannot, match=rf"{name}/libmpi\.so.*--no-profile"):
        profiler.build_profiler(replace(OPEN_MPI, file=tmp_path / name / "libmpi.so.40"))
    monkeypatch.setattr(profiler, "BUILT", tmp_path / name)
    with pytest.raises(MachineCannot, match=rf"{name}/{OPEN_MPI.name}.*--no-profile"):
        profiler.build_profiler(OPEN_MPI)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "unknown test 'nosuch'"),
        (("pingpong", "stream"), "separate tests with commas"),
        (("pingpong", "--library", "lam"), "unknown MPI library 'lam'"),
        (("pingpong", "--fabric", "token-ring"), "unknown fabric 'token-ring'"),
        (("pingpong", "-n", "0"), "-n takes comma-separated numbers from 1"),
        (("pingpong", "-n", "two"), "-n takes comma-separated numbers from 1"),
        (("pingpong", "--eager", "-4"), "--eager takes numbers from 0 and sizes, such as default,4096,64KiB, not '-4'"),
        (("pingpong", "--pairs", "x"), "--pairs takes comma-separated numbers from 0"),
        (("pingpong", "--patience", "0"), "--patience"),
        (("pingpong", "--launches", "many"), "not a number of launches"),
        (("pingpong", "--lab", "ring"), "unknown topology"),
        (("pingpong", "--lab", "pair", "--hosts", "localhost"), "unknown host of the lab 'localhost'"),
        (("pingpong", "--hosts", "localhost", "--loss", "1%"), "omit them for real hosts"),
        (("pingpong", "--hostfile", "/no/such/hosts"), "hostfile /no/such/hosts cannot be read"),
        (("pingpong", "--hosts", "no-such-host.invalid"), "is unknown"),
        (("pingpong", "--slurm"), "needs an allocation"),
        (("pingpong", "--fabric", "tcp", "--wait", "spin"), "--wait spin applies to the fabric barewire"),
    ],
)
def test_bad_input_is_rejected_with_advice(arguments, message, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    done = CliRunner().invoke(app, ["mpi", *arguments])
    assert isinstance(done.exception, BarewireError) and done.exception.exit_code == 2, done.exception
    assert message in str(done.exception)


def test_more_ranks_than_slots_are_rejected_before_anything_runs(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_mpi.suite, "build", lambda library, tests: dict.fromkeys(tests, "/nowhere"))
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    arguments = [
        "mpi",
        "pingpong",
        "--hostfile",
        str(hosts),
        "-n",
        "2,4",
        "--fabric",
        "tcp",
        "-o",
        str(tmp_path / "run"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, WrongUse) and "4 ranks, but the hosts take 2" in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_hosts_and_slots_come_from_the_slurm_allocation(complete, monkeypatch, tmp_path):
    monkeypatch.setattr(cli_mpi.shutil, "which", lambda name: "/usr/bin/srun")
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_NTASKS": "6"}.items():
        monkeypatch.setenv(name, value)
    where = cli_mpi._allocation(None, None, None, [cli_mpi.LinkSpec()])
    with where.entered() as ([site], lab):
        assert site.hosts == 3 and lab is None and site.shares(6) == [("localhost", 6)]
    for name, value in (("SLURM_NTASKS", "six"), ("SLURM_JOB_NUM_NODES", "0")):
        monkeypatch.setenv(name, value)
        with pytest.raises(WrongUse, match=f"{name} is '{value}', not a number"):
            cli_mpi._allocation(None, None, None, [cli_mpi.LinkSpec()])
        monkeypatch.delenv(name)
        with pytest.raises(WrongUse, match="7 ranks, but the hosts take 6"):
            site.shares(7)
    assert "must be the same on all hosts" in where.notes(tmp_path)[0]
