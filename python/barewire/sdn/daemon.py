# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller as a process, from reading its files until a signal ends it; the switches then keep their rules."""

import asyncio
import contextlib
import fcntl
import gc
import importlib
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from barewire.errors import MachineCannot, WrongUse
from barewire.lab import Lab
from barewire.sdn.api.peer import Peer
from barewire.sdn.api.server import Api
from barewire.sdn.classify.features import Features
from barewire.sdn.classify.model import Model, built_in, read_model
from barewire.sdn.classify.policy import Policy, parse_policy
from barewire.sdn.classify.recording import Recording
from barewire.sdn.classify.tenants import Tenants, parse_tenants
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.hosts import Hosts, parse_addresses_file, parse_hosts_file
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.flow import FlowKey
from barewire.sdn.tls import Tls, TlsFiles, load_tls
from barewire.sdn.token import make_token
from barewire.sdn.ui.feed import Feed
from barewire.sdn.ui.server import PAGE, Ui

Tell = Callable[[Event], None]
# gc thresholds: new objects per young collection, and how many of these are followed by no older one: an object is
# looked at twice, some 0.3 ms at a time. All objects, 70 ms with 10,000 flows, are looked at only by the clock: never
# after a number of collections, which a busy controller reaches within the hour.
COLLECT_AFTER = (200, 0, 1_000_000_000)
COLLECT_ALL_S = 3600.0
# What else the first flow would import: half a second in the event loop, after which another controller takes over.
IMPORTED_LATE = ("scipy.sparse", "statistics")
# How long the event loop waits for a thread that makes a plan, after each system call; Python's default is 5 ms.
SWITCH_INTERVAL_S = 0.0001


@dataclass(frozen=True)
class Options:
    """An operator's options: addresses for switches and API, files."""

    listen: Sequence[str]
    api: str
    token_file: Path
    settings: Settings
    lab: str | None = None
    hosts: Path | None = None
    addresses: Path | None = None
    policy: Path | None = None
    strategies: Sequence[str] = ()
    ui: bool = False
    tenants: Path | None = None
    # A classifier's file, `none`, or None for the built-in one.
    classifier: str | None = None
    record: Path | None = None
    # The API of the other controller of a pair.
    peer: str | None = None
    tls: TlsFiles | None = None


def run(options: Options, tell: Tell) -> None:
    """Control a network until SIGINT, SIGTERM or SIGHUP. WrongUse and MachineCannot before listening."""
    policy = policy_of(options.policy, options.strategies)
    model = model_of(options.classifier)
    tls = None if options.tls is None else load_tls(options.tls, is_paired=options.peer is not None)
    lab = None if options.lab is None else Lab.open(options.lab)
    hosts = _hosts(options, lab)
    tenants = Tenants()
    if options.tenants is not None:
        text = _read(options.tenants)
        tenants = parse_tenants(text, str(options.tenants), hosts.by_name.keys(), options.tenants.parent)
    token = make_token(options.token_file)
    prepare_interpreter()
    permit_descriptors()
    with contextlib.nullcontext() if lab is None else _lab_socket(lab, options.peer is not None) as socket:
        serving = _Serving(options, policy, model, hosts, token, tenants, tls, lab, socket)
        asyncio.run(_serve(serving, tell))


def prepare_interpreter() -> None:
    """Keep Python's own pauses of the event loop short, in this process."""
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    # Loaded objects are permanent.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def permit_descriptors() -> None:
    """Let this process have as many descriptors as the system permits: each switch and each client takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True)
class _Serving:
    """What was read before the controller starts; `socket` is the one for the switches of `lab`."""

    options: Options
    policy: Policy
    model: Model | None
    hosts: Hosts
    token: str
    tenants: Tenants
    tls: Tls | None
    lab: Lab | None
    socket: Path | None

    @property
    def listen(self) -> Sequence[str]:
        """The addresses for switches."""
        return [*self.options.listen, *([] if self.socket is None else [f"unix:{self.socket}"])]


async def _serve(serving: _Serving, tell: Tell) -> None:
    options, tls, listen = serving.options, serving.tls, serving.listen
    over = asyncio.Event()
    endings = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        endings.append(signal.SIGHUP)
    for number in endings:
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    feed: Feed | None = None

    def tell_all(event: Event) -> None:
        tell(event)
        if feed is not None:
            feed.note(event)

    shell = Shell(
        options.settings,
        serving.policy,
        serving.hosts,
        listen,
        tell_all,
        serving.tenants,
        serving.model,
        is_paired=options.peer is not None,
        tls=None if tls is None else tls.switches,
    )
    recording = None if options.record is None else _recorded(options.record, shell, tell_all)
    feed = Feed(shell, tell) if options.ui else None
    pages = None if feed is None else Ui(feed)
    api = Api(shell, options.api, serving.token, pages, None if tls is None else tls.api)
    peer = None
    if options.peer is not None:
        peer = Peer(options.peer, shell, serving.token, tell_all, None if tls is None else tls.peer)
        if peer.url == api.url:
            raise WrongUse(f"--peer {options.peer} is this controller's own API: give the other one's")
        shell.peer = peer
    tasks = [asyncio.create_task(_collect_all())]
    try:
        await shell.open()
        await api.open()
        if serving.lab is not None:
            await asyncio.to_thread(serving.lab.reconnect_switches, serving.socket)
        addresses = ", ".join(listen)
        if feed is not None:
            tasks.append(asyncio.create_task(feed.run()))
            tell(Event("page", f"{_page_url(api.url)} asks for the token in {options.token_file}"))
        tell(Event("ready", f"switches connect to {addresses}; API at {options.api}, token in {options.token_file}"))
        if peer is not None:
            tasks.append(asyncio.create_task(peer.run()))
        await over.wait()
        tell(Event("ending", f"the switches keep the rules of {len(shell.core.router.routes)} flows"))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.close()
        await shell.close()
        if recording is not None and options.record is not None:
            _complete(recording, options.record, tell_all)


async def _collect_all() -> None:
    """Collect what long-lived connections have left; flows create no cycles."""
    while True:
        await asyncio.sleep(COLLECT_ALL_S)
        gc.collect()


def _recorded(file: Path, shell: Shell, tell: Tell) -> Recording:
    """Record the features of announced jobs' conversations; a full disk ends the recording, not the controller."""

    def label(key: FlowKey) -> tuple[str, str] | None:
        job = shell.core.jobs.of(key)
        return None if job is None else (job.name or job.profile, job.profile)

    def observe(features: Features) -> None:
        try:
            recording.add(features)
        except OSError as error:
            shell.core.recognition.observed, shell.renewed = None, lambda _: None
            tell(Event("recording ended", f"{file} cannot be written: {error.strerror or error}"))

    recording = Recording(file, label)

    def record(core: Controller) -> None:
        core.recognition.observed = observe

    record(shell.core)
    shell.renewed = record
    return recording


def _complete(recording: Recording, file: Path, tell: Tell) -> None:
    """Close a recording; on a full disk its last lines are missing, which must not look like a mistake of ours."""
    try:
        recording.close()
    except OSError as error:
        tell(Event("recording ended", f"{file} is not complete: {error.strerror or error}"))


def model_of(classifier: str | None) -> Model | None:
    """Return the classifier of a file, the built-in one by default, None for `none`. WrongUse for an invalid file."""
    if classifier == "none":
        return None
    return built_in() if classifier is None else read_model(Path(classifier))


def _page_url(api: str) -> str:
    if not api.startswith("unix:"):
        return f"{api}{PAGE}"
    return f"ssh -L 8181:{api.removeprefix('unix:')} HOST makes this socket http://127.0.0.1:8181{PAGE}, which"


def policy_of(file: Path | None, strategies: Sequence[str]) -> Policy:
    """Return the policy of a file, overridden by `PROFILE=STRATEGY`. WrongUse names the mistake."""
    policy = Policy() if file is None else parse_policy(_read(file), str(file))
    for given in strategies:
        profile, equals, strategy = given.partition("=")
        if not equals:
            raise WrongUse(f"--strategy {given}: write PROFILE=STRATEGY, such as mpi=isolated")
        policy = policy.with_strategy(profile, strategy)
    return policy


@contextlib.contextmanager
def _lab_socket(lab: Lab, is_paired: bool) -> Iterator[Path]:
    """Take the socket to which a lab's switches connect; of a pair the second controller takes a second one."""
    for path in (lab.controller_socket, lab.standby_socket) if is_paired else (lab.controller_socket,):
        # A lock tells them apart also while both start. It ends with the process.
        with path.with_suffix(".lock").open("w") as lock:
            if _is_locked(lock):
                yield path
                return
    both = "both controllers of a pair run" if is_paired else "a controller runs"
    raise MachineCannot(f"lab {lab.id}: {both} already; end one, or start a pair with --peer")


def _is_locked(file: TextIO) -> bool:
    """Lock a file until it is closed; False if another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hosts(options: Options, lab: Lab | None) -> Hosts:
    if lab is not None:
        if options.hosts is not None or options.addresses is not None:
            raise WrongUse("a lab's hosts are known: leave out --hosts-file and --addresses")
        named = {host.name: host.mac for host in lab.hosts}
        ports = {host.mac: lab.network.attachment(host.name) for host in lab.hosts} if lab.network is not None else {}
        expected = {mac: port for mac, port in ports.items() if port is not None}
        return Hosts(named, {host.address: host.name for host in lab.hosts}, expected)
    if options.addresses is not None and options.hosts is None:
        raise WrongUse("--addresses needs --hosts-file, which names the hosts: give both")
    named = {} if options.hosts is None else parse_hosts_file(_read(options.hosts), str(options.hosts))
    addresses = {}
    if options.addresses is not None:
        addresses = parse_addresses_file(_read(options.addresses), str(options.addresses), named)
    return Hosts(named, addresses)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"cannot read {file}: {error}") from error
