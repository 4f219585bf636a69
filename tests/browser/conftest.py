"""A browser for the tests of pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from django_eventbus import publish
from django_eventbus.models import DeadLetter
from tests.browser.redriving import LETTERS, SCRIPT
from tests.end_to_end.oracle import FAST
from tests.support import services
from tests.support.helpers import eventually
from tests.support.services import ServiceMissing
from tests.support.skipping import skipped_if_missing

HERE = Path(__file__).parent
POLICY = "default-src 'self'"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all of them to one worker: a browser takes long to start."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.xdist_group("browser"))


# Not for the session: the event loop that it leaves running would be in the way of other tests.
@pytest.fixture(scope="package")
def browser() -> Iterator:
    """Chromium, for the tests of this package."""
    with skipped_if_missing():
        playwright, executable = found_playwright(), services.chromium()
    with async_allowed(), playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    """The file without which the handler fails."""
    return tmp_path / "mended"


@pytest.fixture
def worker(manage):
    return manage("consume_events", "--with-relay", env=FAST)


@pytest.fixture
def letters(worker, mended) -> list[DeadLetter]:
    """Dead letters of a handler that fails until it is mended, parked by the worker."""
    for number in range(LETTERS):
        publish(
            "climb.up",
            {"fixed": str(mended), "order_id": number, "note": SCRIPT},
            headers={"tenant": SCRIPT},
        )
    eventually(
        lambda: DeadLetter.objects.filter(state="open").count() == LETTERS,
        timeout=60,
        message=lambda: worker.output,
    )
    return list(DeadLetter.objects.order_by("pk"))


@pytest.fixture
def page(page_for, admin_client):
    """A page of an administrator, under a strict policy; what it complains of fails the test."""
    return page_for(admin_client)


@pytest.fixture
def page_for(browser, live_server) -> Iterator:
    """Pages for whoever is logged in to a test client."""
    contexts: list = []
    complaints: list[str] = []

    def opened(client, **options):
        context = browser.new_context(base_url=live_server.url, **options)
        contexts.append(context)
        session = client.cookies["sessionid"].value
        context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
        context.route("**/admin/eventbus/**", under_policy)
        return listened_to(context.new_page(), complaints)

    yield opened
    for context in contexts:
        # A page that follows a plan asks until it is left; its last question may be on its way.
        for page in context.pages:
            page.goto("about:blank")
        context.unroute_all(behavior="ignoreErrors")
        context.close()
    assert not complaints


def listened_to(page, complaints: list[str]):
    page.on(
        "console",
        lambda said: (
            complaints.append(f"{said.text} {said.location}") if said.type == "error" else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    return page


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
