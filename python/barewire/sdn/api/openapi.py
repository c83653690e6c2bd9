# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The OpenAPI 3.1 document of the API: its requests, and the schema of their documents."""

from typing import Any

from barewire.sdn.api.schema import ALL
from barewire.sdn.classify.announcement import schemas
from barewire.sdn.classify.policy import PROFILE

_ERRORS = {
    "307": "this is the standby of a pair: Location is the same request at the leader",
    "503": "this is the standby of a pair, and no leader is known at the moment: try again",
    "401": "no token, or a wrong one",
    "403": "the token is a tenant's, which may not do this",
    "429": "the quota of the tenant whose token it is is used up",
    "404": "there is no such job, or no such path",
    "408": "the body did not come in time",
    "413": "the body is too long",
    "422": "the body is invalid; the message has the remedy",
    "400": "the body is not JSON",
}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _responses(status: str, what: str, schema: dict[str, Any] | None, *errors: str) -> dict[str, Any]:
    good: dict[str, Any] = {"description": what}
    if schema is not None:
        good["content"] = _content(schema)
    bad = {
        code: {"description": _ERRORS[code], "content": _content(_ref("Error"))}
        for code in ("307", "401", "403", "429", "503", *errors)
    }
    return {status: good, **bad}


def _listing(what: str, name: str) -> dict[str, Any]:
    return {
        "get": {"operationId": name, "summary": what, "responses": _responses("200", what, _ref(name.capitalize()))}
    }


_TEXT = {"type": "string"}
_JOB_IN = {"name": "job", "in": "path", "required": True, "schema": _TEXT}
_PROFILE_IN = {
    "name": "profile",
    "in": "path",
    "required": True,
    "schema": {**_TEXT, "pattern": f"^{PROFILE.pattern}$"},
}


def _change(
    what: str, name: str, body: dict[str, Any] | None, responses: dict[str, Any], required: bool = True
) -> dict[str, Any]:
    change: dict[str, Any] = {"operationId": name, "summary": what, "responses": responses}
    if body is not None:
        change["requestBody"] = {"required": required, "content": _content(body)}
    return change


_JOB = _ref("Job")
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Barewire SDN controller",
        "version": "1",
        "description": "Announce jobs, inspect the network, set the policy. A job lasts while its lease is renewed.",
    },
    "components": {
        "schemas": schemas(ALL, "#/components/schemas/{name}"),
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
    "security": [{"token": []}],
    "paths": {
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "this document",
                "security": [],
                "responses": {"200": {"description": "this document", "content": _content({"type": "object"})}},
            }
        },
        "/v1/status": _listing("counts of everything", "status"),
        "/v1/pair": _listing("which controller of a pair leads", "pair"),
        "/v1/pair/stream": {
            "get": {
                "operationId": "pair_stream",
                "summary": "what a standby needs of the leader, without end: frames of MessagePack, see api/replica.py",
                "responses": {
                    **_responses("200", "frames, each after its length in four bytes", None),
                    "409": {"description": "this controller has no peer", "content": _content(_ref("Error"))},
                },
            }
        },
        "/v1/switches": _listing("switches and their ports", "switches"),
        "/v1/hosts": _listing("hosts, and where they are; a tenant's jobs may have those that it sees", "hosts"),
        "/v1/links": _listing("links between switches", "links"),
        "/v1/loads": _listing("rates that each switch port sends and receives", "loads"),
        "/v1/flows": _listing("flows with their paths, profiles and rates", "flows"),
        "/v1/strategies": _listing("strategies that can be named", "strategies"),
        "/v1/tenants": _listing("tenants, their shares, and where they are limited", "tenants"),
        "/v1/policy": _listing("the policy in force", "policy"),
        "/v1/policy/{profile}": {
            "parameters": [_PROFILE_IN],
            "put": _change(
                "set a profile's strategy; its flows are placed again",
                "set_strategy",
                _ref("ChosenStrategy"),
                _responses("200", "the policy in force", _ref("Policy"), "400", "408", "413", "422"),
            ),
        },
        "/v1/jobs": {
            **_listing("announced jobs", "jobs"),
            "post": _change(
                "announce a job",
                "announce",
                _ref("Announcement"),
                _responses("201", "the job", _JOB, "400", "408", "413", "422"),
            ),
        },
        "/v1/jobs/{job}": {
            "parameters": [_JOB_IN],
            "get": _change("a job", "job", None, _responses("200", "the job", _JOB, "404")),
            "delete": _change("withdraw a job", "withdraw", None, _responses("204", "it is forgotten", None, "404")),
        },
        "/v1/jobs/{job}/lease": {
            "parameters": [_JOB_IN],
            "put": _change("renew a job's lease", "renew", None, _responses("200", "the job", _JOB, "404")),
        },
        "/v1/jobs/{job}/step": {
            "parameters": [_JOB_IN],
            "post": _change(
                "go to the job's next pattern, or to one by its number",
                "step",
                _ref("Step"),
                _responses("200", "the job", _JOB, "400", "404", "408", "413", "422"),
                required=False,
            ),
        },
        "/v1/jobs/{job}/turn": {
            "parameters": [_JOB_IN],
            "post": _change(
                "ask whether the job may send its current pattern now, or say that it has sent it; renews its lease",
                "turn",
                _ref("Turn"),
                _responses("200", "whether it may send now", _ref("Granted"), "400", "404", "408", "413", "422"),
            ),
        },
        "/v1/jobs/{job}/patterns": {
            "parameters": [_JOB_IN],
            "post": _change(
                "announce further patterns of a job",
                "append_patterns",
                _ref("Patterns"),
                _responses("200", "the job", _JOB, "400", "404", "408", "413", "422"),
            ),
        },
    },
}
