"""The partner's endpoint: signed or refused, not ready at first, and each event once."""

from __future__ import annotations

import time
from uuid import uuid4

from django.conf import settings
from django.http import HttpResponse
from django.test import TestCase
from django.urls import reverse

from partner.models import PartnerEvent
from partner.signatures import signature

BODY = b'{"order_id":1,"email":"ada@example.com"}'


class PartnerTests(TestCase):
    def test_a_signed_event_is_taken_at_the_second_attempt_and_kept_once(self):
        event_id = str(uuid4())

        statuses = [self.post(event_id, attempt).status_code for attempt in (1, 2, 3)]

        self.assertEqual(statuses, [503, 204, 204])
        self.assertEqual(PartnerEvent.objects.get().payload["order_id"], 1)

    def test_an_event_that_is_signed_with_another_secret_is_refused(self):
        answer = self.post(str(uuid4()), 2, secret="guessed")

        self.assertEqual(answer.status_code, 401)
        self.assertFalse(PartnerEvent.objects.exists())

    def test_an_old_signature_is_refused(self):
        answer = self.post(str(uuid4()), 2, age=3600)

        self.assertEqual(answer.status_code, 401)

    def post(
        self, event_id: str, attempt: int, *, secret: str = settings.PARTNER_SECRET, age: int = 0
    ) -> HttpResponse:
        sent_at = str(int(time.time()) - age)
        headers = {
            "webhook-id": event_id,
            "webhook-timestamp": sent_at,
            "webhook-signature": signature(event_id, sent_at, BODY, secret).decode(),
            "event-type": "order.shipped",
            "event-attempt": str(attempt),
        }
        address = reverse("partner")
        return self.client.post(address, BODY, content_type="application/json", headers=headers)
