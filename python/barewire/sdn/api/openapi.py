# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The OpenAPI 3.1 document of the API."""

from typing import Any

from barewire.sdn.classify.jobs import LEASE_S, LEASE_S_MAX, LEASE_S_MIN
from barewire.sdn.classify.policy import PROFILE, PROTOCOLS

_ERRORS = {
    "401": "no token, or a wrong one",
    "404": "there is no such job, or no such path",
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
    bad = {code: {"description": _ERRORS[code], "content": _content(_ref("Error"))} for code in ("401", *errors)}
    return {status: good, **bad}


def _listing(what: str, name: str) -> dict[str, Any]:
    return {
        "get": {"operationId": name, "summary": what, "responses": _responses("200", what, _ref(name.capitalize()))}
    }


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required or list(properties),
        "additionalProperties": False,
    }


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _NUMBER, _WHOLE, _YES = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
_TEXT_OR_NONE: dict[str, Any] = {"type": ["string", "null"]}
_NUMBER_OR_NONE: dict[str, Any] = {"type": ["number", "null"]}
_END = {"description": "a rank's number, or a host's name", "oneOf": [{"type": "integer", "minimum": 0}, _TEXT]}
_PATTERN = _list_of(_object({"from": _END, "to": _END, "bytes": {"type": "integer", "minimum": 1}}))
_TRAFFIC = _object(
    {
        "protocol": {"type": ["string", "null"], "enum": [*PROTOCOLS, None]},
        "ports": _list_of({"description": '22, or "1024-1044"', "type": ["integer", "string"]}),
    },
    [],
)
_PROFILE_SCHEMA = {"type": "string", "pattern": f"^{PROFILE.pattern}$"}
_JOB_IN = {"name": "job", "in": "path", "required": True, "schema": _TEXT}
_PROFILE_IN = {"name": "profile", "in": "path", "required": True, "schema": _PROFILE_SCHEMA}

_SCHEMAS: dict[str, Any] = {
    "Error": _object({"error": _TEXT}),
    "Announcement": _object(
        {
            "name": {"type": "string", "maxLength": 200},
            "profile": _PROFILE_SCHEMA,
            "hosts": {"description": "the job's hosts, by the controller's names", "minItems": 1, **_list_of(_TEXT)},
            "ranks": {"description": "each rank's host", **_list_of(_TEXT)},
            "traffic": {"description": "the job's flows between its hosts; none: all", **_list_of(_TRAFFIC)},
            "patterns": {
                "description": "sets of concurrent flows, in order; the first is current",
                **_list_of(_PATTERN),
            },
            "lease_s": {"type": "number", "minimum": LEASE_S_MIN, "maximum": LEASE_S_MAX, "default": LEASE_S},
        },
        ["profile", "hosts"],
    ),
    "Job": _object(
        {
            "id": _TEXT,
            "name": _TEXT,
            "profile": _TEXT,
            "hosts": _list_of(_TEXT),
            "ranks": _list_of(_TEXT),
            "traffic": _list_of(_TRAFFIC),
            "patterns": {"description": "number of patterns", **_WHOLE},
            "current": {"description": "the number of the current pattern", **_WHOLE},
            "lease_s": _NUMBER,
            "ends_in_s": _NUMBER,
            "labels": {"description": "VLAN identifiers that name paths, as in 3840-3843", **_TEXT_OR_NONE},
        }
    ),
    "Jobs": _object({"jobs": _list_of(_ref("Job"))}),
    "Status": _object(
        {
            **{name: _WHOLE for name in ("switches", "connected", "links", "hosts", "flows", "being_laid", "jobs")},
            "counts": {"type": "object", "additionalProperties": _WHOLE},
        }
    ),
    "Switches": _object(
        {
            "switches": _list_of(
                _object(
                    {
                        "name": _TEXT,
                        "connected": _YES,
                        "flows": _WHOLE,
                        "ports": _list_of(
                            _object({"number": _WHOLE, "name": _TEXT, "up": _YES, "leads_to": _TEXT_OR_NONE})
                        ),
                    }
                )
            )
        }
    ),
    "Hosts": _object(
        {"hosts": _list_of(_object({"name": _TEXT, "mac": _TEXT, "addresses": _list_of(_TEXT), "port": _TEXT_OR_NONE}))}
    ),
    "Links": _object(
        {"links": _list_of(_object({"from": _TEXT, "to": _TEXT, "rate_bit_s": {"type": ["integer", "null"]}}))}
    ),
    "Loads": _object({"loads": _list_of(_object({"port": _TEXT, "sent_byte_s": _WHOLE, "received_byte_s": _WHOLE}))}),
    "Flows": _object(
        {
            "flows": _list_of(
                _object(
                    {
                        **{name: _TEXT for name in ("source", "destination", "protocol", "profile", "known_by", "why")},
                        **{
                            name: _WHOLE
                            for name in ("source_port", "destination_port", "rate_byte_s", "bytes", "packets")
                        },
                        "path": {"description": "the output port of each switch", **_list_of(_TEXT)},
                        "laid": {"description": "whether all its rules are confirmed", **_YES},
                        "age_s": _NUMBER,
                        "reserved_s": {"description": "null: for the flow's lifetime", **_NUMBER_OR_NONE},
                    }
                )
            )
        }
    ),
    "Strategies": _object({"strategies": _list_of(_TEXT)}),
    "Policy": _object(
        {
            "strategies": {"description": "each profile's", "type": "object", "additionalProperties": _TEXT},
            "signatures": _list_of(_object({"profile": _TEXT, "protocol": _TEXT_OR_NONE, "ports": _list_of(_TEXT)})),
            "behaviours": _list_of({"type": "object"}),
        }
    ),
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
    "components": {"schemas": _SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
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
        "/v1/switches": _listing("switches and their ports", "switches"),
        "/v1/hosts": _listing("hosts, and where they are", "hosts"),
        "/v1/links": _listing("links between switches", "links"),
        "/v1/loads": _listing("rates that each switch port sends and receives", "loads"),
        "/v1/flows": _listing("flows with their paths, profiles and rates", "flows"),
        "/v1/strategies": _listing("strategies that can be named", "strategies"),
        "/v1/policy": _listing("the policy in force", "policy"),
        "/v1/policy/{profile}": {
            "parameters": [_PROFILE_IN],
            "put": _change(
                "set a profile's strategy; its flows are placed again",
                "set_strategy",
                _object({"strategy": _TEXT}),
                _responses("200", "the policy in force", _ref("Policy"), "400", "413", "422"),
            ),
        },
        "/v1/jobs": {
            **_listing("announced jobs", "jobs"),
            "post": _change(
                "announce a job",
                "announce",
                _ref("Announcement"),
                _responses("201", "the job", _JOB, "400", "413", "422"),
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
                _object({"to": {"type": ["integer", "null"], "minimum": 0}}, []),
                _responses("200", "the job", _JOB, "400", "404", "413", "422"),
                required=False,
            ),
        },
        "/v1/jobs/{job}/patterns": {
            "parameters": [_JOB_IN],
            "post": _change(
                "announce further patterns of a job",
                "append_patterns",
                _object({"patterns": _list_of(_PATTERN)}),
                _responses("200", "the job", _JOB, "400", "404", "413", "422"),
            ),
        },
    },
}
