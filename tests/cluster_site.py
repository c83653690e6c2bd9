# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A cluster as `barewire run` meets one: the two hosts of a lab, which know nothing of it, each with a real sshd,
or Slurm on both.

    h1 10.77.0.1 ─── sshd, slurmd, slurmctld      the packages are unpacked into .cluster, so no daemon of theirs starts
    h2 10.77.0.2 ─── sshd, slurmd                 on this machine; what is started here ends with the lab
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, ROOT, eventually, stand_up

from barewire.lab import Lab

UNPACKED = ROOT / ".cluster"
ADDRESSES = "10.77.0.1,10.77.0.2"
# Open MPI would bind the first rank of each host to the machine's first core: it knows of no other host there.
UNBOUND = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
# Its user and its folder are what installing the package would have made: here in a mount namespace of its own.
_SSHD = """
mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && mount --bind "$1/passwd" /etc/passwd || exit
exec "$2" -D -e -f "$1/sshd_config" -o ListenAddress="$3"
"""
_SSHD_CONFIGURATION = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
PasswordAuthentication no
SetEnv PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin
"""
_SSH_CONFIGURATION = """
IdentityFile {folder}/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""
# Hosts of a lab have no cgroups, and one file system: what ranks of both put into /tmp would collide.
_SLURM_CONFIGURATION = """
ClusterName=lab
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/slurmctld
SlurmdSpoolDir={folder}/slurmd-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
TmpFS={folder}/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
SlurmdParameters=config_overrides
NodeName=h1 NodeAddr=10.77.0.1 CPUs=2 RealMemory=100
NodeName=h2 NodeAddr=10.77.0.2 CPUs=2 RealMemory=100
PartitionName=all Nodes=h1,h2 Default=YES State=UP MaxTime=INFINITE
"""
_CGROUP_CONFIGURATION = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
"""
_SLURM_DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
_SLURMD = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


class Cluster:
    """A pair of hosts, and the folder of what runs on them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Take over the lab; daemons start with methods of their own."""
        self.lab, self.folder = lab, folder
        self.programs = folder / "bin"
        self.programs.mkdir()

    def barewire(self, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run this checkout's command on h1 to its end, with more variables in its environment."""
        return self.run([BAREWIRE, *arguments], **more)

    def run(self, command: list[str], **more: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on h1 to its end."""
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "check": False}
        return self.lab.run("h1", command, env=self.environment(**more), **options)

    def environment(self, **more: str) -> dict[str, str]:
        """This process's, with the cluster's own programs found first."""
        return dict(os.environ) | UNBOUND | {"PATH": f"{self.programs}:{os.environ['PATH']}"} | more

    def put_program(self, name: str, text: str) -> str:
        """A script for the hosts' PATH."""
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return str(file)

    def allow_ssh(self) -> "dict[str, subprocess.Popen[str]]":
        """Start a sshd on each host; `ssh` on the hosts' PATH then needs no password."""
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        users = Path("/etc/passwd").read_text()
        if "\nsshd:" not in users:
            users += f"sshd:x:{_free_number(users)}:65534::/run/sshd:/usr/sbin/nologin\n"
        (self.folder / "passwd").write_text(users)
        (self.folder / "sshd_config").write_text(_SSHD_CONFIGURATION.format(folder=self.folder))
        (self.folder / "ssh_config").write_text(_SSH_CONFIGURATION.format(folder=self.folder))
        self.put_program("ssh", f'exec {shutil.which("ssh")} -F {self.folder}/ssh_config "$@"')
        return {host.name: self._sshd(host.name, str(host.address)) for host in self.lab.hosts}

    def start_slurm(self) -> None:
        """Start Slurm on both hosts; its commands are on their PATH then."""
        (plugins,) = (UNPACKED / "usr" / "lib").glob("*/slurm-wlm")
        configuration = self.folder / "slurm.conf"
        configuration.write_text(_SLURM_CONFIGURATION.format(folder=self.folder, plugins=plugins))
        (self.folder / "cgroup.conf").write_text(_CGROUP_CONFIGURATION)
        for name in ("slurmctld", "slurmd-h1", "slurmd-h2", "tmp"):
            (self.folder / name).mkdir()
        for name in ("salloc", "sbatch", "scontrol", "sinfo", "srun"):
            self._put_slurm_program(name, "bin", name)
        daemons = {name: self._put_slurm_program(name, "sbin", f"{name}-wlm") for name in _SLURM_DAEMONS}
        started = [self._daemon("h1", "slurmctld", [daemons["slurmctld"], "-D", "-i"])]
        separate = ["unshare", "--mount", "sh", "-c", _SLURMD, str(self.folder / "tmp")]
        for host in ("h1", "h2"):
            command = [*separate, daemons["slurmd"], "-D", "-N", host, "-d", daemons["slurmstepd"]]
            started.append(self._daemon(host, f"slurmd-{host}", command))
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        ready = eventually(lambda: self.run(idle).stdout.split() == ["2"] or any(x.poll() for x in started), 30)
        said = "".join(file.read_text() for file in self.folder.glob("slurm*.log"))
        assert ready and not any(process.poll() for process in started), said

    def _put_slurm_program(self, name: str, kind: str, file: str) -> str:
        """By the linker's own option, for Slurm hands its environment on to the ranks."""
        (linker,) = Path("/").glob("lib*/ld-linux*.so.*")
        program = f'{linker} --library-path {_library_path()} {UNPACKED}/usr/{kind}/{file} "$@"'
        return self.put_program(name, f"SLURM_CONF={self.folder}/slurm.conf exec {program}")

    def _daemon(self, host: str, name: str, command: list[str]) -> "subprocess.Popen[Any]":
        with (self.folder / f"{name}.log").open("w") as log:
            return self.lab.popen(host, command, env=self.environment(), stdout=log, stderr=log)

    def _sshd(self, host: str, address: str) -> "subprocess.Popen[str]":
        program = str(UNPACKED / "usr" / "sbin" / "sshd")
        command = ["unshare", "--mount", "sh", "-c", _SSHD, "sh", str(self.folder), program, address]
        environment = dict(os.environ) | {"LD_LIBRARY_PATH": _library_path()}
        daemon = self.lab.popen(host, command, env=environment, stderr=subprocess.PIPE, text=True)
        assert daemon.stderr is not None
        said = daemon.stderr.readline()
        assert "Server listening" in said, f"sshd of {host}: {said}{daemon.stderr.read() if daemon.poll() else ''}"
        return daemon


@contextlib.contextmanager
def standing_cluster() -> Iterator[Cluster]:
    """Two hosts, where this machine allows daemons on them; else a loud skip."""
    if not (UNPACKED / "installed").is_file():
        pytest.skip("sshd and Slurm are not unpacked in .cluster: setup/setup.sh test")
    if os.geteuid() != 0:
        pytest.skip("sshd changes users, which a user namespace of one user does not allow: run as root")
    for program in ("ssh", "ssh-keygen", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program}(1) is missing: apt install openssh-client util-linux")
    folder = Path(tempfile.mkdtemp(prefix="barewire-cluster-"))
    try:
        with stand_up("pair") as lab:
            yield Cluster(lab, folder)
    finally:
        shutil.rmtree(folder)


def _library_path() -> str:
    """Where the unpacked programs, and no others, find what was unpacked with them."""
    folders = sorted((UNPACKED / "usr" / "lib").glob("*-linux-gnu"))
    return ":".join(str(folder) for found in folders for folder in (found, found / "slurm-wlm"))


def _free_number(users: str) -> int:
    taken = {line.split(":")[2] for line in users.splitlines() if line.count(":") == 6}
    return next(number for number in range(999, 100, -1) if str(number) not in taken)
