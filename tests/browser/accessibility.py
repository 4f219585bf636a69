"""What axe-core finds on a page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def serious_problems(page) -> list[str]:
    """Return what axe-core calls serious or worse, within the part of the page that is ours."""
    # Evaluated, not added as a script: the page's policy would refuse it.
    page.evaluate(axe())
    found = page.evaluate("axe.run('#content', {resultTypes: ['violations'], preload: false})")
    return [
        f"{each['id']}: {node['html']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def ids_used_twice(page) -> list[str]:
    """Return those of our ids that something else on the page has too, such as Django's sidebar."""
    found = page.evaluate("[...document.querySelectorAll('[id^=eventbus-]')].map(each => each.id)")
    return sorted({each for each in found if found.count(each) > 1})
