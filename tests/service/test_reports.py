"""What of the workers' reports a tenant sees."""

from __future__ import annotations

from fmware.service.reports import costs_of, seen_by
from fmware.service.worker import SEPARATOR

REPORT = {
    "workers": [
        {
            "version": 1,
            "summary": {"messages": 7},
            "index": {"path": "/srv/index"},
            "statements": [
                {"name": f"alice{SEPARATOR}city", "joins": [{"join": "a/b"}], "matches": 3},
                {"name": f"bob{SEPARATOR}sale", "joins": [{"join": "a/c"}], "matches": 4},
            ],
            "joins": [{"name": "a/b"}, {"name": "a/c"}],
        }
    ]
}


def test_of_several_tenants_each_sees_its_own_and_nothing_of_all() -> None:
    (worker,) = seen_by("alice", REPORT, alone=False)["workers"]
    assert worker == {
        "version": 1,
        "statements": [{"name": "city", "joins": [{"join": "a/b"}], "matches": 3}],
        "joins": [{"name": "a/b"}],
    }


def test_a_lone_tenant_sees_all() -> None:
    (worker,) = seen_by("alice", REPORT, alone=True)["workers"]
    assert worker["summary"] == {"messages": 7}
    assert costs_of(seen_by("alice", REPORT, alone=True)) == {"city": {"matches": 3}}
