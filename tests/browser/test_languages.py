"""Every screen in a browser of somebody who reads another language than English."""

from __future__ import annotations

import pytest

from tests.admin.test_languages import lists, pages, troubles, verbs
from tests.support.story import tell

# A walk over all pages takes long on a busy machine.
pytestmark = pytest.mark.timeout(300)

BASE = "/admin/eventbus/"
LANGUAGES = ("de", "pt-br")


def test_no_screen_makes_the_browser_complain_in_another_language(page, bus, settings):
    tell(bus, orders=12)
    troubles()

    # Words are looked at elsewhere; here it is scripts that may stumble over a translation.
    for number, path in enumerate([*lists(), *pages(), *verbs()]):
        settings.LANGUAGE_CODE = language = LANGUAGES[number % len(LANGUAGES)]
        page.goto(BASE + path)
        assert page.locator("html").get_attribute("lang") == language, path
        # What is drawn wrongly is told once it is laid out.
        page.evaluate("new Promise(requestAnimationFrame)")
