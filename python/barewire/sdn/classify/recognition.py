# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Flows recognised by a trained classifier, a few at a time, and the services that they belong to. No clock, no I/O.

    counted() for each counted flow
    round(): work for another thread ─▶ evaluated() ─▶ step() until nothing is left ─▶ profile_of()

A new flow to a service that was recognised belongs to it at once; that is one look into a dictionary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from barewire.sdn.classify.features import Conversations, End, Features, Interval, ends_of
from barewire.sdn.classify.model import Model
from barewire.sdn.flow import DEFAULT_PROFILE, FlowKey

# Conversations whose verdicts are given at once: less than a millisecond.
STEP = 128
# How long a service is remembered after its last conversation was recognised.
REMEMBERED_S = 300.0
SERVICES_MAX = 100_000

Conversation = frozenset[End]


@dataclass(frozen=True)
class Verdict:
    """A sure class of a conversation or a service, its probability, and when it was found last."""

    profile: str
    probability: float
    at_s: float


@dataclass(frozen=True)
class Evaluation:
    """The features of all conversations, and by row the likeliest class's number and its probability."""

    features: Features
    best: Sequence[int] = ()
    probabilities: Sequence[float] = ()


class Recognition:
    """Profiles of flows by their behaviour; without a model there are none, and features are still counted."""

    def __init__(self, model: Model | None, interval_s: float) -> None:
        """Begin without flows; `interval_s` is the time between two counts of a flow."""
        self.model = model
        self._conversations = Conversations(interval_s)
        self._verdicts: dict[Conversation, Verdict] = {}
        self._services: dict[End, Verdict] = {}
        self._renewed_s = -math.inf
        self._due: Evaluation | None = None
        self._next = 0
        # Called with the features of each round.
        self.observed: Callable[[Features], None] | None = None

    def counted(self, key: FlowKey, packets: int, carried: int, since_s: float, now: float) -> None:
        """Add a flow's counters since `since_s`; `carried` is in bytes."""
        self._conversations.counted(key, packets, carried, since_s, now)

    def forget(self, now: float) -> None:
        """Forget conversations that have ended; `round`, some time later, then has less to do at once."""
        self._conversations.forget(now)

    def round(self, now: float) -> Callable[[], Evaluation]:
        """End an interval; return the work of evaluating all conversations, for another thread."""
        return partial(_evaluate, self._conversations.round(now), self.model)

    def evaluated(self, evaluation: Evaluation, now: float) -> None:
        """Take the result of a round's work, which the next steps turn into verdicts."""
        if self.observed is not None:
            self.observed(evaluation.features)
        self._due, self._next = evaluation, 0
        for ends in evaluation.features.ended:
            self._verdicts.pop(frozenset(ends), None)
        if self._renewed_s <= now - REMEMBERED_S:
            self._services = {
                end: verdict for end, verdict in self._services.items() if verdict.at_s > now - REMEMBERED_S
            }

    def step(self, now: float) -> tuple[Sequence[FlowKey], bool]:
        """Judge the next few; return those whose profile has changed, one direction each, and whether more wait."""
        due, model = self._due, self.model
        if due is None or model is None:
            return (), False
        part = slice(self._next, self._next + STEP)
        keys, services = due.features.keys[part], due.features.services[part]
        changed = []
        for key, service, number, share in zip(keys, services, due.best[part], due.probabilities[part], strict=True):
            if share < model.threshold:
                continue  # not sure: what it was before remains
            before = self.profile_of(key)
            verdict = Verdict(model.classes[number], share, now)
            self._verdicts[_conversation(key)] = verdict
            if verdict.profile == DEFAULT_PROFILE:
                self._services.pop(service, None)
            elif len(self._services) < SERVICES_MAX:
                self._services[service] = verdict
            if before != verdict.profile:
                changed.append(key)
        self._next += STEP
        more = self._next < len(due.features.keys)
        if not more:
            self._due = None
        return changed, more

    def verdicts(self) -> list[tuple[Conversation, Verdict]]:
        """Return what is sure, by the ends of a conversation, or the one end of a service."""
        services = [(frozenset((end,)), verdict) for end, verdict in self._services.items()]
        return [*self._verdicts.items(), *services]

    def restore(self, ends: Conversation, verdict: Verdict | None) -> None:
        """Set what another controller is sure of, or with None no longer."""
        known: dict[Any, Verdict] = self._verdicts if len(ends) > 1 else self._services
        key = ends if len(ends) > 1 else next(iter(ends))
        if verdict is None:
            known.pop(key, None)
        else:
            known[key] = verdict

    def renew_all(self, now: float) -> None:
        """Remember all services as if they were recognised now: a leader tells them once, not each time."""
        self._renewed_s = now

    def profile_of(self, key: FlowKey) -> str | None:
        """Return a flow's profile by its own behaviour, else by its service's; None if neither is sure."""
        verdict = self._verdicts.get(_conversation(key))
        if verdict is None:
            source, destination = ends_of(key)
            verdict = self._services.get(destination) or self._services.get(source)
        return None if verdict is None else verdict.profile


def _evaluate(interval: Interval, model: Model | None) -> Evaluation:
    features = interval.features()
    if model is None:
        return Evaluation(features)
    probabilities = model.probabilities(features.rows)
    best = np.argmax(probabilities, axis=1)
    return Evaluation(features, best.tolist(), probabilities[np.arange(len(best)), best].tolist())


def _conversation(key: FlowKey) -> Conversation:
    return frozenset(ends_of(key))
