# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs tshark over a capture, line by line, so that memory does not grow with the file.

TCP's analysis is off: it keeps records of every segment, and retransmissions are told from sequence numbers instead
(`ledger.py`).
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse

DISSECTOR = Path(__file__).with_name("barewire.lua")
TSHARK_FIX = "apt install tshark"
# tshark forgets everything after this many frames: addresses, conversations, what dissectors keep.
_FRAMES_PER_SESSION = 100_000
_SETTINGS = (
    "tcp.analyze_sequence_numbers:FALSE",
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.calculate_timestamps:FALSE",
    # Unless the file says so: an extension behind LLC's length is no FCS.
    "eth.fcs:Never",
    "udp.try_heuristic_first:TRUE",
    "udp.calculate_timestamps:FALSE",
    "ip.defragment:FALSE",
    "ipv6.defragment:FALSE",
    "ip.tso_support:TRUE",
    "barewire.brief:TRUE",
)
_STDERR_SHOWN = 3


class Row(NamedTuple):
    """One frame's fields as tshark prints them; empty if it has none, separated by commas if it has several."""

    time: str
    frame_len: str
    frame_cap_len: str
    encapsulation: str
    interface: str
    eth_src: str
    eth_dst: str
    eth_fcs: str
    vlan_id: str
    # Outer tags of 802.1ad: one in front of other contents, and two of them.
    outer_vlan_id: str
    two_outer_vlan_ids: str
    arp_opcode: str
    ip_src: str
    ip_dst: str
    ip_proto: str
    ip_hdr_len: str
    ip_len: str
    ipv6_src: str
    ipv6_dst: str
    ipv6_plen: str
    icmpv6_type: str
    tcp_srcport: str
    tcp_dstport: str
    tcp_hdr_len: str
    tcp_len: str
    tcp_seq: str
    tcp_flags: str
    tcp_mss: str
    udp_srcport: str
    udp_dstport: str
    udp_length: str
    llc_dsap: str
    llc_ssap: str
    llc_control: str
    barewire_pdu: str
    barewire_retransmission: str
    barewire_llc: str
    barewire_extension: str
    barewire_seal: str
    barewire_message: str
    barewire_payload: str
    barewire_encrypted: str
    path_version: str
    name_kind: str


_FIELDS = Row(
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "frame.encap_type",
    "frame.interface_id",
    "eth.src",
    "eth.dst",
    "eth.fcs",
    "vlan.id",
    "ieee8021ad.id",
    "ieee8021ad.svid",
    "arp.opcode",
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ip.hdr_len",
    "ip.len",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.plen",
    "icmpv6.type",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.hdr_len",
    "tcp.len",
    "tcp.seq_raw",
    "tcp.flags",
    "tcp.options.mss_val",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "llc.dsap",
    "llc.ssap",
    "llc.control",
    "barewire.pdu",
    "barewire.retransmission",
    "barewire.bytes.llc",
    "barewire.bytes.extension",
    "barewire.bytes.seal",
    "barewire.bytes.message",
    "barewire.bytes.payload",
    "barewire.encrypted",
    "barewire.path.version",
    "barewire.name.kind",
)


class Dissection:
    """A running dissection: iterate over `rows`, then read `is_cut_short`."""

    def __init__(self, capture: Path) -> None:
        """Prepare to read `capture`; WrongUse if it is no file, MachineCannot without tshark."""
        self._capture = capture
        self.is_cut_short = False
        try:
            with capture.open("rb") as file:
                is_empty = not file.read(1)
        except OSError as error:
            raise WrongUse(f"{capture} cannot be read: {error.strerror}") from error
        if is_empty:
            raise WrongUse(
                f"{capture} is empty: name a capture, as tcpdump, dumpcap and `barewire run --capture` write"
            )
        self._program = find("tshark")

    def rows(self) -> Generator[Row, None, None]:
        """Yield one row for each frame."""
        with tempfile.TemporaryDirectory(prefix="barewire-tshark-") as home, tempfile.TemporaryFile() as errors:
            # Neither the user's preferences nor other dissectors of theirs.
            environment = dict(os.environ) | {"HOME": home, "XDG_CONFIG_HOME": home, "WIRESHARK_CONFIG_DIR": home}
            environment |= {"LC_ALL": "C.UTF-8"}
            with subprocess.Popen(
                self._command(),
                env=environment,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process:
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        yield Row._make(line.rstrip("\n").split("\t"))
                except BaseException:
                    process.kill()
                    raise
            errors.seek(0)
            self._judge(process.returncode, errors.read().decode(errors="replace"))

    def _command(self) -> list[str]:
        options = [word for setting in _SETTINGS for word in ("-o", setting)]
        fields = [word for name in _FIELDS for word in ("-e", name)]
        script = ["-X", f"lua_script:{DISSECTOR}"]
        layout = ["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=,"]
        reading = ["-n", "-M", str(_FRAMES_PER_SESSION), "-r", str(self._capture)]
        return [self._program, *reading, *script, *options, *layout, *fields]

    def _judge(self, code: int, errors: str) -> None:
        lines = [line for line in errors.splitlines() if not line.startswith("Running as user")]
        text = "\n".join(lines)
        if "cut short" in text:
            self.is_cut_short = True
        elif "isn't a capture file" in text or "not a capture file" in text:
            raise WrongUse(f"{self._capture} is no capture that tshark reads, such as pcap or pcapng")
        elif "aren't valid" in text or "Lua" in text:
            raise MachineCannot(f"this tshark does not load Barewire's dissector: {_last(lines)}; use Debian's tshark")
        elif code != 0:
            raise MeasurementFailed(f"tshark cannot read {self._capture} to its end: {_last(lines)}")


def find(program: str) -> str:
    """Return the path of one of Wireshark's programs; MachineCannot if it is missing."""
    path = shutil.which(program)
    if path is None:
        raise MachineCannot(f"{program} is missing: {TSHARK_FIX}")
    return path


def _last(lines: list[str]) -> str:
    return " | ".join(line for line in lines[-_STDERR_SHOWN:] if line) or "no message"
