# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab and the commands in it begin and end as one: whatever dies, and how, nothing stays and nobody else is hurt.

Processes of a lab are recognised by the process namespace of its keeper, or by a variable of their environment that
only the test's own lab has; never by name.
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_lab_network import python, stand_up
from typer.testing import CliRunner

from barewire.cli.lab import app
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import Lab, LinkSpec
from barewire.lab.kernel import Process
from barewire.lab.startup import environment

SLEEPING = "sleep\0" + "60\0"  # in /proc/PID/cmdline
UP_AND_WAIT = """
import sys, time
from barewire.lab import Lab
print("ready", flush=True)
with Lab.up("pair") as lab:
    print(lab.id, lab._state.keeper.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep these tests' labs apart from the user's, and check that each test leaves no process behind."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield
    eventually(lambda: processes_with(str(tmp_path)) == [])


@pytest.fixture
def pair() -> Iterator[Lab]:
    with stand_up("pair") as lab:
        yield lab


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["no-such-command-anywhere"], 127),
        (["/etc/hosts"], 126),
        (["sh", "-c", "kill -9 $$"], -9),
        (["sh", "-c", "kill -TERM $$"], -15),
    ],
)
def test_a_command_ends_as_it_would_outside(pair: Lab, command: list[str], code: int) -> None:
    assert pair.run("h1", command, stderr=subprocess.DEVNULL).returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_handle_ends_the_command(pair: Lab, number: signal.Signals) -> None:
    before = set(processes_of(pair))  # those of the test before may still be going
    process = pair.popen("h2", ["sleep", "60"])
    eventually(lambda: SLEEPING in map(command_line, processes_of(pair)))
    process.send_signal(number)
    assert process.wait(timeout=5) == -number
    eventually(lambda: before.issuperset(processes_of(pair)))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_command_stopped_and_continued_with_all_its_processes_ends(pair: Lab, order: tuple[int, ...]) -> None:
    """As a batch system suspends a job, in any order: the handle stayed stopped if it was continued too early."""
    with pair.popen("h1", ["env", "STOPPED=1", "sleep", "1"]) as handle:
        try:
            eventually(lambda: processes_with("STOPPED=1") != [])
            (command,) = processes_with("STOPPED=1")
            status = Path(f"/proc/{command}/status").read_text()
            supervisor = int(status.split("PPid:")[1].split()[0])
            # The supervisor first: it hears only afterwards that the command was stopped.
            processes = (supervisor, command, handle.pid)
            for process in processes:
                os.kill(process, signal.SIGSTOP)
            eventually(lambda: all(state_of(process) == "T" for process in processes))
            for at in order:
                os.kill(processes[at], signal.SIGCONT)
                time.sleep(0.1)
            assert handle.wait(10) == 0
        finally:
            handle.kill()


def test_a_handle_stops_with_its_command_and_continues_it(pair: Lab) -> None:
    with pair.popen("h1", ["sh", "-c", "kill -STOP $$; exit 7"]) as handle:
        try:
            eventually(lambda: state_of(handle.pid) == "T")
            handle.send_signal(signal.SIGCONT)
            assert handle.wait(10) == 7
        finally:
            handle.kill()


def state_of(process: int) -> str:
    """A process's state, in the kernel's letters."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_command_may_handle_a_signal_itself(pair: Lab) -> None:
    program = (
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(42)); print('ready', flush=True); signal.pause()"
    )
    with pair.popen("h1", python(program), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(timeout=5) == 42


def test_a_command_sees_its_readers_and_writers_go(pair: Lab) -> None:
    """What stands between must not hold the command's pipes open."""
    with pair.popen("h1", ["sh", "-c", "exec >&-; sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.read() == b""
        assert process.poll() is None
        process.kill()


def test_a_command_keeps_its_input_directory_and_environment(pair: Lab, tmp_path: Path) -> None:
    done = pair.run(
        "h1", ["sh", "-c", "cat; pwd; echo $WORD"], input="in\n", capture_output=True, text=True, cwd=tmp_path,
        env=dict(os.environ) | {"WORD": "word"},
    )  # fmt: skip
    assert done.stdout.split() == ["in", str(tmp_path), "word"]


def test_a_command_runs_on_its_hosts_cores() -> None:
    with stand_up("star:3") as lab:
        for host in lab.hosts:
            seen = lab.run(
                host.name, python("import os; print(*os.sched_getaffinity(0))"), capture_output=True, text=True
            )
            assert tuple(sorted(map(int, seen.stdout.split()))) == host.cpus
        assert lab.oversubscribed == (len(os.sched_getaffinity(0)) < 3)


def test_hosts_reach_the_scratch_directory_which_goes_with_the_lab() -> None:
    with stand_up("pair") as lab:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(lab.directory / "socket"))
        server.listen()
        program = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        assert lab.run("h2", python(program, str(lab.directory / "socket"))).returncode == 0
        directory = lab.directory
    server.close()
    assert not directory.exists()
    assert list(directory.parent.iterdir()) == []


def test_the_end_leaves_no_process_no_interface_and_no_mount(pair: Lab) -> None:
    interfaces, mounts = socket.if_nameindex(), Path("/proc/self/mountinfo").read_text()
    namespaces = network_namespaces(pair)
    assert len(namespaces) == 3, "two hosts and the switch"
    pair.popen("h1", ["sleep", "60"])
    pair.down()
    assert pair.status == "gone"
    eventually(lambda: not namespaces & all_network_namespaces())
    assert socket.if_nameindex() == interfaces
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_a_lab_whose_keeper_was_killed_is_gone_and_the_other_lab_is_not(pair: Lab) -> None:
    with stand_up("pair") as crashed:
        namespaces = network_namespaces(crashed)
        command = crashed.popen("h1", ["sleep", "60"])
        eventually(lambda: SLEEPING in map(command_line, processes_of(crashed)))
        kill_keeper(crashed)
        assert command.wait(timeout=5) == -signal.SIGKILL
        eventually(lambda: not namespaces & all_network_namespaces())
        assert (crashed.status, pair.status) == ("gone", "running")
        assert {lab.id: lab.status for lab in Lab.list()} == {crashed.id: "gone", pair.id: "running"}
        with pytest.raises(MeasurementFailed, match="gone"):
            crashed.popen("h1", ["true"])
        Lab.open(crashed.id).down()
        assert [lab.id for lab in Lab.list()] == [pair.id]
        assert pair.run("h1", ["true"]).returncode == 0


def test_a_lab_ends_with_the_process_that_made_it() -> None:
    stand_up("pair").down()
    with python_process(UP_AND_WAIT) as creator:
        assert creator.stdout is not None and creator.stdout.readline() == "ready\n"
        lab_id, keeper = creator.stdout.readline().split()
        namespaces = network_namespaces(Lab.open(lab_id))
        creator.kill()
    eventually(lambda: not Path(f"/proc/{keeper}").exists() and not namespaces & all_network_namespaces())
    assert [(lab.id, lab.status) for lab in Lab.list()] == [(lab_id, "gone")]
    Lab.open(lab_id).down()
    assert Lab.list() == []


@pytest.mark.parametrize(
    ("delay_ms", "number"),
    [
        pytest.param(delay_ms, number, marks=pytest.mark.matrix if (row + column) % 2 else ())
        for row, delay_ms in enumerate((0, 30, 90, 150, 250))
        for column, number in enumerate((signal.SIGINT, signal.SIGKILL))
    ],
)
def test_an_interrupt_at_any_moment_leaves_nothing(delay_ms: int, number: signal.Signals, tmp_path: Path) -> None:
    """The fixture checks for processes; an interrupt also forgets the lab, a kill leaves its file for `down`."""
    stand_up_once()
    with python_process(UP_AND_WAIT) as creator:
        assert creator.stdout is not None and creator.stdout.readline() == "ready\n"
        time.sleep(delay_ms / 1000)
        creator.send_signal(number)
        assert creator.wait(timeout=10) != 0
    eventually(lambda: processes_with(str(tmp_path)) == [])
    assert all(lab.status == "gone" for lab in Lab.list())
    if number == signal.SIGINT:
        assert Lab.list() == []
    for lab in Lab.list():
        lab.down()
    assert [file for file in (tmp_path / "barewire").rglob("*") if file.is_file()] == []


WRITE_HALF = """
import dataclasses, os, signal, sys
from pathlib import Path
from barewire.lab import state
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
state.save(dataclasses.replace(state.load(sys.argv[1]), id="half"))
"""


def test_a_process_killed_while_it_writes_a_lab_leaves_nothing(pair: Lab, tmp_path: Path) -> None:
    with python_process(WRITE_HALF, pair.id) as writer:
        assert writer.wait(timeout=10) == -signal.SIGKILL
    labs = tmp_path / "barewire" / "labs"
    assert len(list(labs.glob("*.draft"))) == 1
    (labs / "older.draft").touch()
    assert [lab.id for lab in Lab.list()] == [pair.id]
    assert list(labs.glob("*.draft")) == []


def test_an_error_while_standing_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_up_once()
    monkeypatch.setattr("barewire.lab.startup._DEADLINE_S", 0.0)
    monkeypatch.setattr("barewire.lab.startup._DEADLINE_PER_HOST_S", 0.0)
    with pytest.raises(MachineCannot, match="in time"):
        Lab.up("pair")
    assert Lab.list() == []
    eventually(lambda: processes_with(str(tmp_path)) == [])


def test_a_process_with_the_same_number_is_not_taken_for_the_lab() -> None:
    """A checker's check: the right number with another start time is somebody else, who must live."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        now = Process.of(bystander.pid)
        before = Process(now.pid, now.start_ticks - 1)
        assert now.alive and not before.alive
        assert before.kill(1.0)
        assert bystander.poll() is None
        assert now.kill(5.0)
        assert bystander.wait(timeout=5) == -signal.SIGKILL


def test_wrong_use_says_what_exists(pair: Lab) -> None:
    with pytest.raises(WrongUse, match="h1, h2"):
        pair.run("h3", ["true"])
    with pytest.raises(WrongUse, match=pair.id):
        Lab.open("nosuchlab")
    with pytest.raises(WrongUse, match="not a lab id"):
        Lab.open("../../etc")


def test_the_command_line_makes_uses_and_ends_a_lab() -> None:
    stand_up_once()
    assert json.loads(cli("list", "--json"))["labs"] == []
    made = json.loads(cli("up", "--rate", "1gbit", "--mtu", "9000", "--json"))
    try:
        assert made["status"] == "running" and made["persistent"]
        assert made["link"] == {
            "rate_bit_s": 10**9,
            "mtu": 9000,
            "offloads": False,
            "loss": 0.0,
            "receive_on": "sender",
            "delay_us": 0.0,
            "jitter_us": 0.0,
        }
        assert made["id"] in cli("list")
        executed = execute("--lab", made["id"], "h2", "--", "sh", "-c", "hostname; exit 9")
        assert (executed.stdout, executed.returncode) == ("h2\n", 9)
        assert execute("h1", "sh", "-c", "exit 8").returncode == 8
        with pytest.raises(WrongUse, match="h1, h2"):
            cli("exec", "h7", "true")
    finally:
        ended = cli("down", made["id"], "--json")
    assert json.loads(ended)["ended"] == [made["id"]]
    assert json.loads(cli("list", "--json"))["labs"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "--topology", "ring"], "pair, star:N"),
        (["up", "--rate", "fast"], "100mbit"),
        (["up", "--mtu", "1"], "68 to 65535"),
        (["exec", "h1", "true"], "lab up"),
        (["down"], "--all"),
        (["down", "ab12cd34"], "there are: none"),
    ],
)
def test_the_command_line_says_what_exists(arguments: list[str], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        cli(*arguments)


def test_a_file_of_a_lab_without_processes_is_shown_as_gone_and_removed_on_demand() -> None:
    lab = stand_up_persistent()
    kill_keeper(lab)
    assert [found["status"] for found in json.loads(cli("list", "--json"))["labs"]] == ["gone"]
    assert lab.id in cli("down", "--all")
    assert json.loads(cli("list", "--json"))["labs"] == []


def test_a_persistent_lab_outlives_its_creator_and_ends_when_told() -> None:
    stand_up_once()
    program = "from barewire.lab import Lab; print(Lab.up('pair', persistent=True).id)"
    with python_process(program) as creator:
        lab_id = creator.communicate(timeout=20)[0].strip()
    lab = Lab.open(lab_id)
    try:
        assert lab.status == "running"
        assert lab.run("h1", ["true"]).returncode == 0
    finally:
        lab.down()
    assert lab.status == "gone"


def test_a_lab_is_created_without_standard_streams() -> None:
    """Sockets and pipes would get their numbers."""
    for closed in ("<&-", ">&-", "<&- >&- 2>&-"):
        command = f"exec {closed}; {sys.executable} -m barewire lab up --topology pair --json"
        done = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    labs = Lab.list()
    assert [lab.status for lab in labs] == 3 * ["running"]
    for lab in labs:
        lab.down()


@pytest.mark.parametrize(
    ("output", "arguments"),
    [
        (">/dev/full", ""),
        ("| true", "--json"),
        pytest.param(">/dev/full", "--json", marks=pytest.mark.matrix),
        pytest.param("| true", "", marks=pytest.mark.matrix),
    ],
)
def test_a_lab_whose_id_nobody_reads_ends(output: str, arguments: str) -> None:
    stand_up_once()
    command = f"{sys.executable} -m barewire lab up {arguments} {output}"
    subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, check=False)
    assert Lab.list() == []


def test_a_lab_stays_whose_first_line_alone_is_read() -> None:
    stand_up_once()
    command = f"{sys.executable} -m barewire lab up --topology star:8 | head -n 1"
    done = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, text=True, check=False)
    lab = Lab.open(done.stdout.split()[1].rstrip(":"))
    try:
        assert lab.status == "running"
    finally:
        lab.down()


@pytest.mark.parametrize("kib", [4, 8, 16])
def test_a_full_directory_of_labs_is_named(kib: int, tmp_path: Path) -> None:
    stand_up_once()
    script = 'mount -t tmpfs -o "size=$1k" none "$2" || exit 99; exec "$3" -m barewire lab up'
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    command = [*namespaces, "sh", "-c", script, "sh", str(kib), str(tmp_path), sys.executable]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode == 99:
        pytest.skip("no tmpfs can be mounted in a namespace here; run as root")
    assert done.returncode == 3
    assert f"to {tmp_path}/barewire/labs" in done.stderr and done.stderr.endswith(": No space left on device\n")


def test_a_running_lab_is_small(pair: Lab) -> None:
    """Resident memory of a pair at rest, in MB of 10^6 bytes: its keeper and two hosts."""

    def resident_bytes() -> int:
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in processes_of(pair)]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    eventually(lambda: resident_bytes() < 20e6)  # at first, its processes still are what made it


def stand_up_once() -> None:
    """Skip where there can be no lab."""
    stand_up("pair").down()


def stand_up_persistent() -> Lab:
    stand_up_once()
    return Lab.up("pair", LinkSpec(), persistent=True)


def kill_keeper(lab: Lab) -> None:
    keeper = lab._state.keeper
    assert keeper is not None and keeper.kill(5.0)


def cli(*arguments: str) -> str:
    """Run a command that returns, in this process: importing all of barewire's commands takes a second."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.stdout


def execute(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `lab exec`, which replaces its process."""
    command = [sys.executable, "-c", "from barewire.cli.lab import app; app()", "exec", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=30)


def python_process(program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment())


def processes_of(lab: Lab) -> list[int]:
    keeper = lab._state.keeper
    assert keeper is not None
    own = link_of(keeper.pid, "pid")
    return [pid for pid in all_processes() if own and link_of(pid, "pid") == own]


def network_namespaces(lab: Lab) -> set[str]:
    return {link_of(pid, "net") for pid in processes_of(lab)}


def all_network_namespaces() -> set[str]:
    return {link_of(pid, "net") for pid in all_processes()}


def processes_with(text: str) -> list[int]:
    """Processes, this one apart, whose environment has `text` and which still run."""
    found = []
    for pid in all_processes():
        try:
            if pid != os.getpid() and text.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue  # somebody else's, or gone
    return found


def all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def link_of(pid: int, kind: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def eventually(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    """The kernel frees a network in the background; give it time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "still not so after the time"
        time.sleep(0.02)
