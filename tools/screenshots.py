"""Take the screenshots of the docs: python -m tools.screenshots, or make screenshots.

The script fills its own database with a story, and opens its pages in Chromium.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDE, TELEPHONE = 1200, 390
#: The maximum height of screenshots, by default and for pages that need another one.
TALLEST, OTHERWISE = 1000, {"message": 1500, "dashboard": 1300, "audit": 850}


def main() -> int:
    """Take all screenshots and print their sizes."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DJANGO_ALLOW_ASYNC_UNSAFE": "true",
            "EVENTBUS_TEST_DATABASE_URL": f"sqlite:///{directory}/story.sqlite3",
            "EVENTBUS_TEST_SETTINGS": json.dumps({"SERVICE": "orders", "NAMESPACE": "shop"}),
        }
        # The failures in the story are intended.
        logging.disable(logging.CRITICAL)
        session = prepared()
        with served() as address, opened() as browser:
            for name, path in paths().items():
                take(browser, address + path, name, session)
            for name, options in SPECIAL.items():
                take(
                    browser,
                    address + paths()[name],
                    f"{name}-{options.pop('as')}",
                    session,
                    **options,
                )
    return 0


#: Screenshots in addition to the wide, light one of every page.
SPECIAL: dict[str, dict[str, Any]] = {
    "dashboard": {"as": "dark", "color_scheme": "dark"},
    "plan": {"as": "telephone", "width": TELEPHONE},
    "groups": {"as": "telephone", "width": TELEPHONE},
}


def prepared() -> str:
    """Create the database, play the story, and return the session of an administrator."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    settings.ALLOWED_HOSTS, settings.TIME_ZONE = ["127.0.0.1"], "UTC"
    call_command("migrate", verbosity=0)

    from django.contrib.auth.models import User
    from django.test import Client

    from django_eventbus.subscriptions.subscription import registry
    from tests.support.bus import Bus
    from tests.support.story import tell

    for each in list(registry):
        registry.remove(each)
    tell(Bus())
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client.cookies["sessionid"].value


def paths() -> dict[str, str]:
    """Return the page of every screenshot."""
    from django.contrib.admin.utils import quote

    from django_eventbus.models import DeadLetter, FailureGroup, Plan, Queue

    letters, base = DeadLetter.objects.order_by("pk"), "/admin/eventbus"
    letter = letters.filter(error_type__endswith="PaymentTimeout", state="open").first()
    address = letters.filter(error_type="KeyError", state="open").first()
    group = FailureGroup.objects.get(pk=letter.fingerprint)
    redrives, discards = (Plan.objects.filter(action=each) for each in ("redrive", "discard"))
    running, paused = (redrives.get(state=state) for state in ("running", "paused"))
    queue = Queue.objects.get(name__endswith="billing")
    return {
        "dashboard": f"{base}/",
        "groups": f"{base}/deadletter/",
        "group": f"{base}/deadletter/groups/{group.pk}/",
        "list": f"{base}/deadletter/list/?queue={queue.pk}&state=open",
        "message": f"{base}/deadletter/{letter.pk}/change/",
        "dry-run": f"{base}/deadletter/dry-run/?group={letter.fingerprint}&state=open",
        "plan": f"{base}/plan/{running.pk}/change/",
        "paused-plan": f"{base}/plan/{paused.pk}/change/",
        "edit": f"{base}/deadletter/{address.pk}/edit/",
        "discard": f"{base}/deadletter/discard/?id={address.pk}",
        "discard-plan": f"{base}/plan/{discards.get(state='paused').pk}/change/",
        "queue": f"{base}/queue/{quote(queue.pk)}/change/",
        "outbox": f"{base}/outboxevent/",
        "inbox": f"{base}/inboxrecord/",
        "audit": f"{base}/auditentry/",
    }


@contextmanager
def served() -> Iterator[str]:
    """Serve the admin in a thread and yield its address."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.test.testcases import LiveServerThread

    server = LiveServerThread("127.0.0.1", StaticFilesHandler)
    server.daemon = True
    server.start()
    server.is_ready.wait()
    if server.error:
        raise server.error
    yield f"http://127.0.0.1:{server.port}"
    server.terminate()


@contextmanager
def opened() -> Iterator[Any]:
    """Run Chromium."""
    from playwright.sync_api import sync_playwright

    from tests.support import services

    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=services.chromium(), args=arguments)
        yield browser
        browser.close()


def take(
    browser: Any,
    url: str,
    name: str,
    session: str,
    *,
    width: int = WIDE,
    color_scheme: str = "light",
) -> None:
    """Write the screenshot *name* of *url*."""
    # A low window, so that a short page becomes a short picture.
    viewport = {"width": width, "height": 300}
    context = browser.new_context(
        viewport=viewport, color_scheme=color_scheme, reduced_motion="reduce"
    )
    # The cookie is for the whole site. Otherwise later requests of the page would get the login.
    context.add_cookies([{"name": "sessionid", "value": session, "url": urljoin(url, "/")}])
    # Hide Django's sidebar.
    context.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
    page = context.new_page()
    response = page.goto(url)
    if not response.ok:
        raise SystemExit(f"{url} answered {response.status}.")
    page.wait_for_load_state("networkidle")
    tall = min(page.evaluate("document.documentElement.scrollHeight"), OTHERWISE.get(name, TALLEST))
    IMAGES.mkdir(exist_ok=True)
    file = IMAGES / f"{name}.png"
    page.screenshot(
        path=file, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": tall}
    )
    context.close()
    squeeze(file)
    print(f"{file.name} {file.stat().st_size // 1024} kB", flush=True)


def squeeze(file: Path) -> None:
    """Reduce the colours of a picture if a tool for it is installed."""
    if tool := shutil.which("pngquant"):
        arguments = ["--force", "--skip-if-larger", "--strip", "--output", str(file), str(file)]
        subprocess.run([tool, *arguments], check=False)


if __name__ == "__main__":
    sys.exit(main())
