"""A browser for the tests of pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import services
from tests.services import ServiceMissing
from tests.skipping import skipped_if_missing

POLICY = "default-src 'self'"


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Chromium, for the tests of one module."""
    with skipped_if_missing():
        playwright, executable = found_playwright(), services.chromium()
    with async_allowed(), playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser, live_server, admin_client) -> Iterator:
    """A page of an administrator, under a strict policy; what it complains of fails the test."""
    context = browser.new_context(base_url=live_server.url)
    session = admin_client.cookies["sessionid"].value
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    context.route("**/admin/eventbus/**", under_policy)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    yield page
    page.unroute_all(behavior="ignoreErrors")
    context.close()
    assert not complaints


def under_policy(route) -> None:
    response = route.fetch(max_redirects=0)
    route.fulfill(
        response=response, headers={**response.headers, "content-security-policy": POLICY}
    )


def found_playwright():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise ServiceMissing(
            "Playwright", "it is not installed (pip install playwright)"
        ) from error
    return sync_playwright


@contextmanager
def async_allowed() -> Iterator[None]:
    """Let Django work in a thread that Playwright runs an event loop in."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        yield
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
