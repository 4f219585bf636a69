"""A form that is refused says so first, and leads to what is wrong."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.utils import quote

from django_eventbus import Event, publish
from django_eventbus.conf import conf
from django_eventbus.models import OutboxEvent
from tests.admin.test_admin import Handler
from tests.admin.test_languages import answers, troubles
from tests.support.readers import BASE
from tests.support.story import tell

pytestmark = pytest.mark.django_db

NOTE = re.compile(r'<div class="errornote".*?</div>', re.DOTALL)


class OrderWeighed(Event, type="order.weighed"):
    grams: int


def answered(client, path: str, data: dict[str, str]) -> str:
    response = client.post(f"{BASE}/{path}", data)
    assert response.status_code == 200, path
    return response.content.decode()


def focused(page: str) -> list[str]:
    """Return the ids of what has the focus when the page is opened."""
    tags = re.findall(r"<[^>]* autofocus[^>]*>", page)
    return [re.search(r' id="([^"]*)"', tag)[1] for tag in tags]


def test_every_refused_form_says_so_at_the_top_and_leads_to_its_fields(admin_client, bus):
    tell(bus, orders=12)
    troubles()
    queue = f"queue/{quote(conf.queue('billing'))}"
    scheduled = OutboxEvent.objects.filter(state="scheduled").first()
    others = [(f"{queue}/peek/", {"limit": "0"}), (f"outboxevent/{scheduled.pk}/cancel/", {})]
    forms = [each for each in answers() if "publish_again" not in each[0]]

    for path, data in [*forms, *others]:
        page = answered(admin_client, path, data)
        note = NOTE.search(page)[0]
        links = re.findall(r'<a href="#([^"]*)">', note)
        assert "Please correct the errors below." in note, path
        assert page.index(note) < page.index("<form", page.index('id="content-main"')), path
        assert focused(page) == links[:1], path
        assert all(f'id="{link}"' in page for link in links), path


def test_what_belongs_to_no_field_is_said_at_the_top_and_focused(admin_client, bus):
    tell(bus, orders=12)
    troubles()
    path, _ = next(each for each in answers() if each[0].endswith("/edit/"))
    shown = admin_client.get(f"{BASE}/{path}").context["form"]
    same = {name: str(shown[name].value()) for name in ("payload", "headers", "round")}

    page = answered(admin_client, path, {**same, "reason": "A typo."})

    assert "Nothing was changed" in NOTE.search(page)[0]
    assert focused(page) == ["eventbus-refused"]


def test_a_payload_is_examined_also_without_a_reason(admin_client, bus):
    bus.subscribe(OrderWeighed, name="weigh", tries=1)(Handler())
    publish(OrderWeighed(grams=1))
    bus.drain()
    path, data = f"deadletter/{bus.letter.pk}/edit/", {"payload": "{}", "round": "0"}

    page = answered(admin_client, path, data)

    assert "grams is missing" in NOTE.search(page)[0]
    assert "This field is required." in NOTE.search(page)[0]
