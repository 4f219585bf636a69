"""Which broker a test is on, and the settings that keep it to itself there. No Django at import."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

_VARIABLE = "EVENTBUS_TEST_BROKER"
_DATABASE = "database://"
#: Templates of NAMES that name something on a broker.
_NAMED = ("exchange", "queue", "tier")

_chosen = ""


def choose(url: str) -> None:
    """Let every test of this process be on the broker at *url*."""
    global _chosen
    _chosen = url


def chosen() -> str:
    """Return the broker's URL: --eventbus-broker, else EVENTBUS_TEST_BROKER, else the database."""
    return _chosen or os.environ.get(_VARIABLE, "") or _DATABASE


def settings_for(url: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the EVENTBUS setting *given* as a test on the broker at *url* needs it."""
    if url.startswith(_DATABASE):
        is_own = str(given.get("BROKER_URL", "")).startswith(_DATABASE)
        return {**given, "BROKER_URL": given["BROKER_URL"] if is_own else url}
    return {
        **given,
        "BROKER_URL": url,
        # They would replace those in the URL.
        "BROKER_USER": None,
        "BROKER_PASSWORD": None,
        "NAMESPACE": f"test-{uuid4().hex[:12]}",
        "TOPOLOGY": "declare",
        "PARK_TO": "database",
    }


def shared_names(names: dict[str, str], routes: dict[str, str]) -> list[str]:
    """Return the settings whose names are the same in every namespace, and so not a test's own."""
    shared = [f"NAMES[{key!r}]" for key, template in names.items() if _is_shared(key, template)]
    return shared + [
        f"ROUTES[{key!r}]" for key, each in routes.items() if "{namespace}" not in each
    ]


def _is_shared(key: str, template: str) -> bool:
    is_name = key.endswith(_NAMED)
    return is_name and template != "" and not ("{namespace}" in template or "{queue}" in template)
