"""What axe-core finds on a page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


#: Width, colour scheme, and which of axe's rules are asked: a scheme changes nothing but colours.
VIEWS = (
    (1280, "light", {}),
    (1280, "dark", {"runOnly": ["color-contrast"]}),
    (390, "light", {}),
)


def problems_in_every_view(page, path: str) -> list[tuple[object, ...]]:
    """Return what is wrong with a page on a desk, in the dark and on a telephone."""
    page.goto(path)
    # Django's links change their colour slowly: half way, neither scheme is readable.
    page.add_style_tag(content="* { transition: none !important }")
    # Evaluated, not added as a script: the page's policy would refuse it.
    page.evaluate(axe())
    problems = [(path, f"has {each} twice") for each in ids_used_twice(page)]
    for width, scheme, options in VIEWS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 844})
        problems += [(path, width, scheme, each) for each in serious_problems(page, options)]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append((path, width, "is wider than the screen"))
    return problems


def serious_problems(page, options: dict[str, list[str]]) -> list[str]:
    """Return what axe-core calls serious or worse, within the part of the page that is ours."""
    asked = {"resultTypes": ["violations"], "preload": False, **options}
    found = page.evaluate("options => axe.run('#content', options)", asked)
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
