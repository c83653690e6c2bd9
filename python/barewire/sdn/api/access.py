# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Who may do what at the API: the operator everything, a tenant what concerns its own jobs, within its quotas."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barewire.errors import WrongUse
from barewire.sdn.classify.jobs import Job, Jobs, UnknownJobError
from barewire.sdn.classify.tenants import Tenant, Tenants
from barewire.sdn.token import is_authorised

# What tenants may read besides jobs.
_READABLE = ("/v1/strategies", "/v1/policy", "/v1/tenants", "/v1/pair", "/v1/hosts")
# A tenant may send this many seconds' requests at once.
_BURST_S = 2.0
# A tenant's requests at once: what it leaves unfinished must not take all connections.
REQUESTS_MAX = 64


class ForbiddenError(WrongUse):
    """The token does not permit this."""


class QuotaError(WrongUse):
    """The tenant's quota is used up."""


@dataclass(frozen=True)
class Caller:
    """Who sends a request: a tenant, or, without one, the operator."""

    tenant: Tenant | None = None


class Access:
    """The tokens, and who announced which job."""

    def __init__(self, token: str, tenants: Tenants, known: Callable[[], tuple[Jobs, dict[str, Tenant]]]) -> None:
        """`token` is the operator's; `known` returns the jobs, and the tenants' ones by id, with their owner.

        WrongUse if a tenant has the operator's token.
        """
        for tenant in tenants.all:
            if tenant.token == token:
                raise WrongUse(f"tenant '{tenant.name}' has the operator's token: give it its own")
        self._token, self._tenants, self._known = token, tenants, known
        # By tenant: requests left, and the time of the last one.
        self._left: dict[str, tuple[float, float]] = {}
        # By tenant: requests that are being handled.
        self._handled: Counter[str] = Counter()

    def caller(self, header: str | None) -> Caller | None:
        """Return who has the token in an Authorization header; None if nobody has."""
        found = Caller() if is_authorised(header, self._token) else None
        for tenant in self._tenants.all:
            if tenant.token is not None and is_authorised(header, tenant.token):
                found = Caller(tenant)
        return found

    def check(self, caller: Caller, method: str, path: str, now: float) -> None:
        """Check a request. ForbiddenError or QuotaError."""
        tenant = caller.tenant
        if tenant is None:
            return
        left, then_s = self._left.get(tenant.name, (_BURST_S * tenant.requests_per_s, now))
        left = min(left + (now - then_s) * tenant.requests_per_s, _BURST_S * tenant.requests_per_s)
        self._left[tenant.name] = left - (left >= 1), now  # what is refused costs nothing
        if left < 1:
            raise QuotaError(f"tenant '{tenant.name}' may send {tenant.requests_per_s:g} requests a second: send fewer")
        is_job = path == "/v1/jobs" or path.startswith("/v1/jobs/")
        if not is_job and not (method in ("GET", "HEAD") and path in _READABLE):
            allowed = f"tenant '{tenant.name}' may use /v1/jobs and read {', '.join(_READABLE)}"
            raise ForbiddenError(f"{method} {path} needs the operator's token; {allowed}")

    @contextmanager
    def handling(self, caller: Caller) -> Iterator[None]:
        """Count a request while it is handled. QuotaError if there are too many at once."""
        name = "" if caller.tenant is None else caller.tenant.name
        if caller.tenant is not None and self._handled[name] >= REQUESTS_MAX:
            raise QuotaError(f"tenant '{name}' may have {REQUESTS_MAX} requests at once: send fewer")
        self._handled[name] += 1
        try:
            yield
        finally:
            self._handled[name] -= 1

    def job(self, caller: Caller, job_id: str) -> Job:
        """Return a job that the caller may use. UnknownJobError for one of another, as for one that does not exist."""
        jobs, owners = self._known()
        if caller.tenant is not None and owners.get(job_id) is not caller.tenant:
            raise UnknownJobError(job_id)
        return jobs.get(job_id)

    def jobs(self, caller: Caller) -> list[Job]:
        """Return the jobs that the caller may see."""
        jobs, owners = self._known()
        if caller.tenant is None:
            return jobs.all
        return [job for job in jobs.all if owners.get(job.id) is caller.tenant]

    def hosts(self, caller: Caller, named: Collection[str], known: Collection[str]) -> Collection[str]:
        """Return the hosts that a job of the caller may have. ForbiddenError if it names known ones of others."""
        tenant = caller.tenant
        if tenant is None:
            return known
        own = tenant.hosts or {host for host in known if self._tenants.of_host(host) is None}
        if forbidden := sorted((set(named) - own) & set(known)):
            listed = ", ".join(sorted(own)[:20])
            raise ForbiddenError(
                f"{', '.join(forbidden[:20])} cannot be in a job of tenant '{tenant.name}'; its hosts are {listed}"
            )
        return own

    def check_jobs(self, caller: Caller) -> None:
        """Check a tenant's number of jobs before one is added. QuotaError."""
        tenant = caller.tenant
        if tenant is not None and (has := len(self.jobs(caller))) >= tenant.jobs_max:
            raise QuotaError(f"tenant '{tenant.name}' has {has} jobs, which is its quota: withdraw one")

    def check_quota(self, caller: Caller, flows: int, ranks: int = 0) -> None:
        """Check a tenant's flows in patterns, and its jobs' ranks, before this many are added. QuotaError."""
        tenant = caller.tenant
        if tenant is None:
            return
        own = self.jobs(caller)
        for what, more, has, most in (
            ("flows in patterns", flows, sum(job.flows for job in own), tenant.pattern_flows_max),
            ("ranks in its jobs", ranks, sum(len(job.ranks) for job in own), tenant.ranks_max),
        ):
            if more and has + more > most:
                raise QuotaError(
                    f"tenant '{tenant.name}' may have {most} {what}; it has {has}, and {more} more are too many: "
                    "withdraw a job, or announce patterns later"
                )

    def announced(self, caller: Caller, job: Job) -> None:
        """Remember who announced a job, and forget those of jobs that ended."""
        if caller.tenant is not None:
            jobs, owners = self._known()
            owners[job.id] = caller.tenant
            alive = {job.id for job in jobs.all}
            for gone in owners.keys() - alive:
                del owners[gone]
