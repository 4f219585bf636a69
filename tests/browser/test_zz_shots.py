from __future__ import annotations

import os

import pytest

from tests.browser.test_dashboard import busy as busy

pytestmark = pytest.mark.sqlite
PAGES = os.environ.get("SHOTS", "/admin/eventbus/").split(",")


def test_shots(page, busy):
    for n, path in enumerate(PAGES):
        path = path.replace("QUEUE", busy.replace(".", "."))
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": 1200, "height": 900})
            page.goto(path)
            page.screenshot(path=f"/tmp/team/shot-dash-{n}-{scheme}.png", full_page=True)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(path)
        page.screenshot(path=f"/tmp/team/shot-dash-{n}-phone.png", full_page=True)
