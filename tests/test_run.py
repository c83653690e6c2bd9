# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire run` puts ranks where they belong, says which path they really take, and tells apart whose fault it is."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import BAREWIRE, barewire, eventually, processes_with, stand_up
from mpi_libraries import FIXES, USUAL, launched, library, needs, program

from barewire import installed
from barewire.mpi.rights import BROKER_SOCKET

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

IN_PAIR = ("--lab", "pair", "--fabric", "tcp")
NOBODY = 65534


@pytest.mark.parametrize("name", FIXES)
def test_ranks_run_in_their_hosts_on_their_hosts_cores(name: str) -> None:
    """A shell in the place of the program says where it is: its host's name, its interface's address, its core."""
    library(name)
    say = "echo $(hostname) $(cat /sys/class/net/eth0/address) cores $(taskset -cp $$ | cut -d: -f2)"
    done = launched(*IN_PAIR, "-n", "3", "--library", name, "--", "sh", "-c", say)
    assert done.returncode == 0, done.stderr
    # Launchers may join lines of different ranks.
    words = done.stdout.split()
    assert sorted(word for word in words if word in ("h1", "h2")) == ["h1", "h1", "h2"]
    addresses = {words[at + 1] for at, word in enumerate(words) if word == "h1"}
    assert len(addresses) == 1 and len({word for word in words if word.startswith("02:")}) == 2
    if len(os.sched_getaffinity(0)) == 2:
        cores = {(word, words[at + 3]) for at, word in enumerate(words) if word in ("h1", "h2")}
        assert len(cores) == 2 and len({core for _, core in cores}) == 2, "each host has the core of its own"


@pytest.mark.parametrize("name", FIXES)
def test_the_exit_code_is_the_programs(name: str) -> None:
    library(name)
    done = launched(*IN_PAIR, "-n", "2", "--library", name, "--", "sh", "-c", "exit 7")
    assert done.returncode == 7, done.stderr


@contextlib.contextmanager
def busy_cores(programs: int) -> Iterator[None]:
    """So many programs want a core all the time."""
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(programs)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


@pytest.mark.parametrize("name", ["mpich", "mpich-5", "intel"])
def test_programs_that_end_at_once_on_busy_cores_end_the_launcher_rightly(name: str) -> None:
    """Hydra's, which wrote the end of its input to a proxy that was gone. An empty input still ends, on all ranks."""
    library(name)
    with stand_up("pair") as lab, busy_cores(2), ThreadPoolExecutor(4) as at_once:
        command = ("--lab", lab.id, "--fabric", "tcp", "-n", "2", "--library", name, "--", "hostname")
        jobs = list(at_once.map(lambda _: barewire("run", *command), range(8)))
    for done in jobs:
        assert sorted(done.stdout.split()) == ["h1", "h2"], done.stderr
    # Hydra still gives 255 now and then where programs end at once on busy cores; SIGPIPE gave 141.
    codes = [done.returncode for done in jobs]
    assert codes.count(0) >= 5 and set(codes) <= {0, 255}, codes
    alone = ("--fabric", "tcp", "-n", "2", "--library", name)
    done = barewire("run", *alone, "--", "wc", "-c")
    assert (done.returncode, done.stdout.split()) == (0, ["0", "0"]), done.stderr
    # Hydra would replace it by a pipe or a socket whose end it passes on, some time while a program runs or ends.
    done = barewire("run", *alone, "--", "readlink", "/proc/self/fd/0")
    assert (done.returncode, done.stdout.split()) == (0, [os.devnull] * 2), done.stderr


def test_a_home_that_nobody_may_write_to_is_enough(tmp_path: Path) -> None:
    """For a job; and `enable`, which would write there, says in one line what else there is."""
    needs("barewire")
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    if subprocess.run(["unshare", "--mount", *user, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespaces on this machine: see `barewire doctor`")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_C")}

    def at_home(*arguments: str) -> "subprocess.CompletedProcess[str]":
        script = 'mount -t tmpfs -o ro tmpfs "$HOME"; exec "$@"'
        command = ["unshare", "--mount", *user, "sh", "-ec", script, "sh", BAREWIRE, *arguments]
        settings = environment | {"HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=settings)

    done = at_home("run", "-n", "2", "--library", "openmpi", "--", program("openmpi", "messages"), "1")
    assert done.returncode == 0 and '"test": "messages"' in done.stdout, done.stderr
    done = at_home("enable", "--user", "--library", "openmpi")
    assert done.returncode == 3 and "is read-only; " in done.stderr and "modulefile" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ranks_go_to_the_hosts_named() -> None:
    library("mpich")
    where = ("--lab", "star:3", "--hosts", "h3:2,h1")
    done = launched(*where, "--fabric", "tcp", "-n", "3", "--library", "mpich", "--", "hostname")
    assert sorted(done.stdout.split()) == ["h1", "h3", "h3"], done.stderr


@pytest.mark.parametrize("name", USUAL)
def test_the_path_over_barewire_is_known_by_what_ranks_have_open(name: str) -> None:
    needs("barewire")
    built = program(name, "pingpong")
    done = barewire("run", "-n", "2", "--lab", "pair", "--explain", "--json", "--", built, "10", "8")
    assert done.returncode == 0, done.stderr
    path = {row["what"]: row for row in json.loads(done.stderr.splitlines()[0])["path"]}
    assert not any(row["wrong"] for row in path.values())
    assert "libbarewire-fi.so" in path["provider"]["taken"] and "2 of 2" in path["provider"]["seen"]
    assert path["interface"]["taken"] == "eth0, MTU 1500" and path["interface"]["source"] == "lab"
    assert '"bytes": 8' in done.stdout, "then the program runs"


# MPICH 4 over UCX may hang for a minute, by itself.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.matrix] if name == "mpich" else []) for name in FIXES]
)
def test_the_path_over_tcp_shows_its_connections(name: str) -> None:
    built = program(name, "pingpong")
    done = barewire("run", *IN_PAIR, "-n", "2", "--explain", "--json", "--", built, "10", "8")
    assert done.returncode == 0, done.stderr
    path = {row["what"]: row for row in json.loads(done.stderr.splitlines()[0])["path"]}
    assert path["TCP connections"]["taken"] == "to 10.77.0.1, 10.77.0.2"
    assert "barewire" not in json.dumps(path["layer"])


def test_a_provider_that_is_none_is_noticed_before_the_program_runs(tmp_path: Path) -> None:
    """An empty shared object in the provider's place: libfabric passes over it without a word."""
    built = program("openmpi", "pingpong")
    (tmp_path / "none.c").write_text("")
    fake = tmp_path / "libbarewire-fi.so"
    subprocess.run(["gcc", "-shared", "-o", str(fake), str(tmp_path / "none.c")], check=True)
    environment = dict(os.environ) | {"FI_PROVIDER_PATH": str(tmp_path)}
    done = barewire("run", "-n", "2", "--lab", "pair", "--explain", "--", built, "10", "8", env=environment)
    assert done.returncode == 3 and "the path is not the requested one" in done.stderr
    assert "bytes" not in done.stdout


def test_a_dry_run_starts_nothing_and_shows_no_token() -> None:
    needs("barewire")
    built = program("openmpi", "pingpong")
    done = barewire("run", "-n", "2", "--hosts", "localhost", "--dry-run", "--", built)
    assert done.returncode == 0, done.stderr
    assert "FI_BAREWIRE_TOKEN=$(od " in done.stdout and "--host localhost:2" in done.stdout
    assert f"-x FI_PROVIDER {built}" in done.stdout or "-x FI_PROVIDER_PATH" in done.stdout


def test_authentication_is_shown_and_no_secret() -> None:
    needs("barewire")
    built = program("openmpi", "pingpong")
    secret = "0123456789abcdef" * 2
    environment = dict(os.environ) | {"FI_BAREWIRE_SECRET": secret}
    asked = ("run", "-n", "2", "--lab", "pair", "--auth", "encrypt", "--explain", "--json")
    done = barewire(*asked, "--", built, "10", "8", env=environment)
    assert done.returncode == 0, done.stderr
    row = {row["what"]: row for row in json.loads(done.stderr.splitlines()[0])["path"]}["authentication"]
    assert (row["taken"], row["wrong"]) == ("encrypt, secret environment, not shown", "")
    assert row["seen"] == "environment: 2 of 2 ranks" and '"bytes": 8' in done.stdout
    shown = (
        done.stdout
        + done.stderr
        + "".join(barewire(*asked[:-2], *more, "--dry-run", "--", built).stdout for more in ((), ("--json",)))
    )
    assert secret not in shown and "encrypt" in shown
    wrong = barewire("run", "-n", "2", "--fabric", "tcp", "--auth", "job", "--", built)
    assert wrong.returncode == 2 and "--auth applies to" in wrong.stderr


def test_in_a_slurm_allocation_srun_starts_the_program(tmp_path: Path) -> None:
    """A stand-in for srun tells what it was given."""
    built = program("openmpi", "pingpong")
    srun = tmp_path / "srun"
    srun.write_text("""#!/bin/sh
printf '%s\\n' "$*"
echo pml $OMPI_MCA_pml btl $OMPI_MCA_btl
exit 5
""")
    srun.chmod(0o755)
    environment = dict(os.environ) | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"}
    done = barewire("run", "-n", "4", "--fabric", "tcp", "--", built, "10", env=environment)
    assert done.returncode == 5
    assert done.stdout.splitlines() == [f"-n 4 --export=ALL --mpi=pmix {built} 10", "pml ob1 btl tcp,vader,self"]


def test_a_program_is_no_option_of_the_launcher(tmp_path: Path) -> None:
    library("openmpi")
    program = tmp_path / "-V"
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    command = ("run", "-n", "1", "--library", "openmpi", "--fabric", "tcp", "--")
    on_path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    wrong = barewire(*command, "-V", env=on_path)
    assert wrong.returncode == 2 and "'-V' would be an option of the launcher: give the program's path" in wrong.stderr
    done = barewire(*command, "./-V", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "it runs\n"), done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_run_leaves_nothing(number: signal.Signals) -> None:
    library("openmpi")
    command = [BAREWIRE, "run", *IN_PAIR, "-n", "2", "--library", "openmpi", "--", "sleep", "1000"]
    marker = os.environ["XDG_RUNTIME_DIR"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert eventually(lambda: len(processes_with(marker)) > 8, 20), "launcher, daemon and both ranks run"
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(30) == 130
    assert eventually(lambda: processes_with(marker) == [])


@pytest.mark.parametrize("name", ["openmpi", "mpich-5"])
def test_a_killed_run_takes_its_job_along(name: str) -> None:
    """Without a lab nothing else would end the launcher and its ranks."""
    library(name)
    command = [BAREWIRE, "run", "-n", "2", "--library", name, "--fabric", "tcp", "--", "sleep", "1000"]
    marker = f"KILLED={os.getpid()}-{name}"
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | dict([marker.split("=")])
    ) as process:
        assert eventually(lambda: len(processes_with(marker)) >= 4, 20), "the command, its launcher and both ranks run"
        time.sleep(0.2)
        process.kill()
    assert eventually(lambda: processes_with(marker) == [])


@dataclass(frozen=True)
class Ordinary:
    """A user without any right, and a folder that all users can read."""

    folder: Path
    # What root does before.
    before: tuple[str, ...] = ()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """What the user runs; without a broker."""
        own = {name: str(self.folder / "own") for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR")}
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("FI_", "XDG_", "COLUMNS"))
        }
        return subprocess.run(
            [*self.before, *_as_nobody(), *command],
            cwd=self.folder,
            env=inherited | own,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )

    def program(self, name: str) -> str:
        """A ping-pong of a library's, where the user can read it."""
        return shutil.copy(program(name, "pingpong"), self.folder)


def _as_nobody() -> list[str]:
    number = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all"]
    return ["setpriv", *number]


@pytest.fixture
def ordinary() -> Iterator[Ordinary]:
    needs("barewire")
    if os.geteuid() != 0:
        pytest.skip("a user of another number needs root: run as root")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv(1) is missing: apt install util-linux")
    if Path(BROKER_SOCKET).exists():
        pytest.skip(f"this host has a broker at {BROKER_SOCKET}, which these tests must do without")
    readable = ["test", "-x", BAREWIRE, "-a", "-r", str(installed.PROVIDER / "libbarewire-fi.so")]
    if subprocess.run([*_as_nobody(), *readable], cwd="/", check=False).returncode != 0:
        pytest.skip("nobody cannot read this checkout: clone it below a directory that all users may enter")
    folder = Path(tempfile.mkdtemp(prefix="barewire-ordinary-"))
    try:
        folder.chmod(0o755)
        (folder / "own").mkdir()
        shutil.chown(folder / "own", NOBODY, NOBODY)
        yield Ordinary(folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("options", [(), ("--explain",)], ids=["run", "explain"])
@pytest.mark.parametrize("name", ["openmpi", "openmpi-5", "mpich-5"])
def test_who_may_not_send_frames_is_told_before_the_launcher_starts(
    ordinary: Ordinary, name: str, options: tuple[str, ...]
) -> None:
    built = ordinary.program(name)
    demanded = ("--library", name, "--link", "packet")
    done = ordinary.run(BAREWIRE, "run", "-n", "2", *demanded, *options, "--", built, "10", "8")
    assert done.returncode == 3, done.stderr
    for word in ("CAP_NET_RAW", f"no barewire-broker answers at {BROKER_SOCKET}", "--link udp"):
        assert word in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and not done.stdout, "nothing else is said"


@pytest.mark.parametrize("name", ["openmpi", "openmpi-5", "mpich-5"])
def test_without_barewire_run_the_provider_says_it_once_for_all_ranks_of_the_host(
    ordinary: Ordinary, name: str
) -> None:
    built = ordinary.program(name)
    demanded = ("--library", name, "--link", "packet")
    line = ordinary.run(BAREWIRE, "run", "-n", "2", *demanded, "--dry-run", "--", built, "10", "8")
    assert line.returncode == 0, line.stderr
    # MPICH's launcher may end by SIGPIPE, without what ranks have said, if these end while it still sends to them.
    attempts = (ordinary.run("sh", "-c", line.stdout) for _ in range(5))
    done = next(one for one in attempts if one.returncode != 128 + signal.SIGPIPE)
    said = [text for text in done.stderr.splitlines() if "no right to raw Ethernet frames" in text]
    assert done.returncode != 0 and len(said) == 1, done.stderr
    assert "CAP_NET_RAW" in said[0] and "barewire-broker" in said[0], said


@pytest.mark.parametrize("name", ["openmpi", "openmpi-5", "mpich-5"])
def test_who_may_not_send_frames_uses_udp(ordinary: Ordinary, name: str) -> None:
    """To two ranks of a host memory, so nothing more than the sockets of UDP is needed."""
    built = ordinary.program(name)
    done = ordinary.run(BAREWIRE, "run", "-n", "2", "--library", name, "--explain", "--", built, "10", "8")
    assert done.returncode == 0 and '"bytes": 8' in done.stdout, done.stderr
    provider = next(line for line in done.stderr.splitlines() if "libbarewire-fi.so" in line)
    assert provider.count("│") == 5, "a row that goes to a file is not broken, however long its path is"


# A socket that a killed broker has left, and a broker whose policy allows nobody anything.
NO_HELP = {
    "gone": "$0 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/barewire/broker.sock\")'",
    "forbids": "$1 serve --policy $2 & trap 'kill $!' EXIT; "
    "until [ -S /run/barewire/broker.sock ]; do sleep 0.05; done",
}


@pytest.mark.parametrize("broker", NO_HELP)
def test_who_gets_nothing_from_the_broker_uses_udp(ordinary: Ordinary, broker: str) -> None:
    """In a mount namespace of its own, where the broker's place is."""
    built, root = ordinary.program("openmpi"), Path(__file__).parent.parent
    policy = shutil.copy(root / "setup" / "packages" / "debian" / "broker.toml", ordinary.folder)
    place = "mount -t tmpfs none /run; mkdir /run/barewire"
    there = ["unshare", "--mount", "sh", "-ec", f'{place}; {NO_HELP[broker]}; chmod 777 /run/barewire/*; shift 2; "$@"']
    names = [sys.executable, str(installed.PROGRAMS / "barewire-broker"), str(policy)]
    ran = replace(ordinary, before=(*there, *names)).run(
        *(BAREWIRE, "run", "-n", "2", "--library", "openmpi", "--", built, "10", "8")
    )
    assert ran.returncode == 0 and '"bytes": 8' in ran.stdout, ran.stderr


@pytest.mark.parametrize("given", ["itself", "to a shell"])
def test_a_program_that_has_the_right_by_its_file_is_run(ordinary: Ordinary, given: str) -> None:
    """Though its user has none."""
    built = ordinary.program("openmpi")
    if os.statvfs(built).f_flag & os.ST_NOSUID:
        pytest.skip(f"{built} is on a file system whose files give no rights (nosuid): set TMPDIR")
    if shutil.which("setcap") is None:
        pytest.skip("setcap(8) is missing: apt install libcap2-bin")
    subprocess.run(["setcap", "cap_net_raw+ep", built], check=True)
    command = [built, "10", "8"]
    words = command if given == "itself" else ["sh", "-c", shlex.join(command)]
    done = ordinary.run(BAREWIRE, "run", "-n", "2", "--library", "openmpi", "--link", "packet", "--", *words)
    assert done.returncode == 0 and '"bytes": 8' in done.stdout, done.stderr


def test_an_ordinary_users_lab_and_tcp_need_no_right(ordinary: Ordinary) -> None:
    built = ordinary.program("openmpi")
    for where in (("--lab", "pair"), ("--fabric", "tcp")):
        done = ordinary.run(BAREWIRE, "run", "-n", "2", *where, "--", built, "10", "8")
        if "--lab" in where and done.returncode == 3:
            pytest.skip(f"no lab for ordinary users on this machine: {done.stderr}")
        assert done.returncode == 0 and '"bytes": 8' in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-n", "2", "--library", "lam", "--", "true"), 2, "unknown MPI library 'lam'"),
        (("-n", "2", "--", "no-such-program"), 2, "no program 'no-such-program'"),
        (("-n", "2", "--", "true"), 2, "is not linked to an MPI library"),
        (("-n", "2", "--fabric", "token-ring", "--", "true"), 2, "unknown fabric"),
        (("-n", "2", "--hosts", "no-such-host.invalid", "--library", "mpich", "--", "true"), 2, "is unknown"),
        (("-n", "2", "--lab", "pair", "--hosts", "h7", "--library", "mpich", "--", "true"), 2, "there are: h1, h2"),
        (("-n", "2", "--hostfile", "/nonexistent", "--library", "mpich", "--", "true"), 2, "cannot be read"),
        (("-n", "2", "--lab", "ring", "--library", "mpich", "--", "true"), 2, "unknown topology"),
        (("-n", "2", "--rate", "1gbit", "--library", "mpich", "--", "true"), 2, "add --lab"),
        (("-n", "2", "--library", "mpich", "--", "true"), 3, "built for ucx only"),
        (("-n", "0", "--", "true"), 2, "not in the range"),
    ],
)
def test_bad_input_says_what_to_do(arguments: tuple[str, ...], code: int, said: str) -> None:
    library("mpich")
    done = barewire("run", *arguments)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split()).replace("│ ", ""), done.stderr


def test_a_library_without_its_launcher_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpich.so.12").symlink_to(library("mpich").file.resolve())
    done = barewire("run", "-n", "2", "--fabric", "tcp", "--library", str(tmp_path), "--", "true")
    assert done.returncode == 3 and "apt install mpich" in done.stderr, done.stderr
