"""Every screen in a browser of somebody who reads another language than English."""

from __future__ import annotations

import pytest

from tests.story import tell
from tests.test_languages import lists, pages, troubles, verbs

# A walk over all pages takes long on a busy machine.
pytestmark = [pytest.mark.sqlite, pytest.mark.timeout(300)]

BASE = "/admin/eventbus/"


@pytest.mark.parametrize("language", ["de", "pt-br"])
def test_no_screen_makes_the_browser_complain_in_another_language(page, bus, settings, language):
    settings.LANGUAGE_CODE = language
    tell(bus, orders=12)
    troubles()

    for path in [*lists(), *pages(), *verbs()]:
        page.goto(BASE + path)
        assert page.locator("html").get_attribute("lang") == language, path
        # What is drawn wrongly is told once it is laid out.
        page.evaluate("new Promise(requestAnimationFrame)")
