"""Skip what cannot be run here, and say for want of what."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import services

NEEDS = "Not run, for want of "


@contextmanager
def skipped_if_missing() -> Iterator[None]:
    """Skip the test when its service cannot be had; under CI the error stands."""
    try:
        yield
    except (services.ServiceMissing, services.Unavailable) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{NEEDS}{reason_of(error)}")


def reason_of(error: Exception) -> str:
    if isinstance(error, services.ServiceMissing):
        return f"{error.name}: {error.reason}"
    return f"a private server: {error}"
