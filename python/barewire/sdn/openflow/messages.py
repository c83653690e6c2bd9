# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a controller and a switch say to each other, as values: what the core speaks, whatever carries it."""

from dataclasses import dataclass
from enum import StrEnum

# Reserved port of OpenFlow 1.3 (OFPP_CONTROLLER): to the controller, or a frame that no port received.
CONTROLLER = 0xFFFF_FFFD


@dataclass(frozen=True, slots=True)
class Match:
    """Which packets a rule is for; None matches anything. Ports are TCP's or UDP's, as `ip_proto` says."""

    in_port: int | None = None
    eth_src: str | None = None
    eth_dst: str | None = None
    eth_type: int | None = None
    ip_proto: int | None = None
    source_port: int | None = None
    destination_port: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry of table 0. No `out` drops. `idle_s` and `hard_s` of 0 never end it; `notify` asks for RuleGone."""

    match: Match
    priority: int
    cookie: int
    out: tuple[int, ...] = ()
    idle_s: int = 0
    hard_s: int = 0
    notify: bool = False


@dataclass(frozen=True, slots=True)
class SetRule:
    """Add a rule; one with the same match and priority is replaced at once and keeps its counters."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Delete the rule with exactly this match and priority, if its cookie is this where `cookie_mask` has bits."""

    match: Match
    priority: int
    cookie: int
    cookie_mask: int = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a frame out of ports."""

    out: tuple[int, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class Confirm:
    """A barrier: asks for Confirmed once all before it is done."""

    token: int


class Question(StrEnum):
    """What a switch can be asked."""

    PORTS = "ports"  # answered by PortsAre
    PORT_COUNTERS = "port counters"  # by PortCounters
    RULES = "rules"  # by RulesAre: whole rules
    RULE_COUNTERS = "rule counters"  # by RuleCounters: cookies and counters only


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; of rules only those whose cookie has the bits of `cookie` where `cookie_mask` is set."""

    question: Question
    cookie: int = 0
    cookie_mask: int = 0


ToSwitch = SetRule | DeleteRule | SendFrame | Confirm | Ask


@dataclass(frozen=True, slots=True)
class PortIs:
    """A port of a switch: its number, name, whether it is up, its rate (None if the switch does not know)."""

    number: int
    name: str
    is_up: bool
    rate_bit_s: int | None = None


@dataclass(frozen=True, slots=True)
class PortsAre:
    """All ports of a switch; the first one says that the switch is ready for rules."""

    ports: tuple[PortIs, ...]


@dataclass(frozen=True, slots=True)
class PortChanged:
    """A port was added, changed or (`is_gone`) removed."""

    port: PortIs
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class FrameIn:
    """A frame that no rule forwarded, or that a rule sent to the controller."""

    in_port: int
    frame: bytes


class Why(StrEnum):
    """Why a rule went."""

    IDLE = "idle"
    HARD = "hard"
    DELETED = "deleted"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class RuleGone:
    """A rule that had asked for it is gone."""

    cookie: int
    why: Why
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The answer to Confirm: all before it is done, or was refused before this."""

    token: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An error of a switch. `request` is what it refused, None if nothing of ours is known to be meant."""

    kind: int
    code: int
    text: str
    request: ToSwitch | None = None
    is_table_full: bool = False


@dataclass(frozen=True, slots=True)
class PortCounter:
    """What a port has sent and received since the switch began to count."""

    number: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class PortCounters:
    """The counters of all ports of a switch."""

    counters: tuple[PortCounter, ...]


@dataclass(frozen=True, slots=True)
class RuleCounter:
    """What a rule has carried, and for how long it has stood."""

    cookie: int
    packets: int
    bytes: int
    age_s: float


@dataclass(frozen=True, slots=True)
class RuleCounters:
    """The counters of the rules asked for."""

    counters: tuple[RuleCounter, ...]


@dataclass(frozen=True, slots=True)
class RulesAre:
    """The rules asked for, with their counters in the same order."""

    rules: tuple[Rule, ...]
    counters: tuple[RuleCounter, ...]


@dataclass(frozen=True, slots=True)
class SwitchUp:
    """A switch has shaken hands; what was asked of it over an earlier connection will not be answered."""

    datapath_id: int


@dataclass(frozen=True, slots=True)
class SwitchDown:
    """The connection to a switch has ended; the switch itself may go on forwarding."""

    reason: str = ""


FromSwitch = (
    SwitchUp
    | SwitchDown
    | PortsAre
    | PortChanged
    | FrameIn
    | RuleGone
    | Confirmed
    | Refused
    | PortCounters
    | RuleCounters
    | RulesAre
)
