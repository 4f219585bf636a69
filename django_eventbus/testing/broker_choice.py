"""Choose the broker that a test publishes to."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

_VARIABLE = "EVENTBUS_TEST_BROKER"
_DATABASE = "database://"
#: The templates in NAMES for resources on a broker.
_NAMED = ("exchange", "queue", "tier")

_chosen = ""


def choose(url: str) -> None:
    """Use the broker at *url* for every test of this process."""
    global _chosen
    _chosen = url


def chosen() -> str:
    """Return the URL of the broker: --eventbus-broker, EVENTBUS_TEST_BROKER, or the database."""
    return _chosen or os.environ.get(_VARIABLE, "") or _DATABASE


def settings_for(url: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the EVENTBUS setting *given*, changed for a test on the broker at *url*."""
    if url.startswith(_DATABASE):
        is_own = str(given.get("BROKER_URL", "")).startswith(_DATABASE)
        return {**given, "BROKER_URL": given["BROKER_URL"] if is_own else url}
    return {
        **given,
        "BROKER_URL": url,
        # They would replace the user and the password in the URL.
        "BROKER_USER": None,
        "BROKER_PASSWORD": None,
        "NAMESPACE": f"test-{uuid4().hex[:12]}",
        "TOPOLOGY": "declare",
        "PARK_TO": "database",
    }


def shared_names(names: dict[str, str], routes: dict[str, str]) -> list[str]:
    """Return the settings whose names do not contain the namespace, so that tests share them."""
    shared = [f"NAMES[{key!r}]" for key, template in names.items() if _is_shared(key, template)]
    return shared + [
        f"ROUTES[{key!r}]" for key, each in routes.items() if "{namespace}" not in each
    ]


def _is_shared(key: str, template: str) -> bool:
    is_name = key.endswith(_NAMED)
    return is_name and template != "" and not ("{namespace}" in template or "{queue}" in template)
