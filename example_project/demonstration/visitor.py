"""A visitor of the shop's page: over HTTP, with cookies and the CSRF token of the form."""

from __future__ import annotations

import re
from http.cookiejar import CookieJar
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

from demonstration.processes import DemoFailed

TIMEOUT = 10
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Visitor:
    """Places orders like a browser."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Without a proxy from the environment, because the shop is on this machine.
        self._browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))

    def is_served(self) -> bool:
        try:
            return bool(self._page())
        except OSError:
            return False

    def place_order(self, **fields: str) -> int:
        """Fill in the form and send it; return the number of the order."""
        token = TOKEN.search(self._page())
        if token is None:
            raise DemoFailed("The page has no order form.")
        form = urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        with self._browser.open(self.url, form, timeout=TIMEOUT) as response:
            placed = parse_qs(urlsplit(response.url).query).get("placed")
        if placed is None:
            raise DemoFailed("The shop did not accept the order.")
        return int(placed[0])

    def _page(self) -> str:
        with self._browser.open(self.url, timeout=TIMEOUT) as response:
            return response.read().decode()
