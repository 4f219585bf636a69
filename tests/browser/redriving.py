"""What an administrator does on the pages of dead letters and plans."""

from __future__ import annotations

import re

from django_eventbus.models import Plan

GROUPS = "/admin/eventbus/deadletter/"
LIST = f"{GROUPS}list/?state=open"
SCRIPT = "<script>alert(1)</script>"
LETTERS = 8


def page_of(plan: Plan) -> str:
    return f"/admin/eventbus/plan/{plan.pk}/change/"


def start_from_page(page, **answers) -> Plan:
    """Go from the group to its dry run, fill in the form and start the plan."""
    page.goto(GROUPS)
    page.get_by_role("link", name="ValueError").click()
    page.get_by_role("link", name="Re-drive…").click()
    page.get_by_text(f"{LETTERS} would be re-driven").wait_for()
    return submit_plan(page, **answers)


def submit_plan(page, **answers) -> Plan:
    fill_in(page, **answers)
    page.get_by_role("button", name="Start the re-drive").click()
    page.get_by_role("heading", name="Progress").wait_for()
    return Plan.objects.latest("pk")


def fill_in(page, **answers) -> None:
    """Answer by the labels of the fields."""
    for label, value in answers.items():
        page.get_by_label(label.replace("_", " ").capitalize()).fill(str(value))


def wait_for_state(page, words: str) -> None:
    """Wait, without a reload, until the plan's page says that it is so far."""
    page.get_by_role("status").filter(has_text=re.compile(words)).wait_for(timeout=30_000)


def counts(page) -> dict[str, int]:
    """Return what the plan's page counts, without the zeros."""
    found = page.locator("[data-eventbus-count]")
    return {
        each.get_attribute("data-eventbus-count"): int(each.inner_text())
        for each in found.all()
        if each.inner_text() != "0"
    }


def outcomes(page, name: str) -> int:
    """Return how many rows of the plan's page have this outcome."""
    return page.get_by_role("cell", name=name).count()
