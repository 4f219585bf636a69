"""The endpoint of the partner. In reality it is another company, which shares only the secret."""

from __future__ import annotations

import json

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from partner.models import PartnerEvent
from partner.signatures import is_signed


@csrf_exempt
@require_POST
def receive(request: HttpRequest) -> HttpResponse:
    """Store a signed event once. The first request for each event gets the status 503."""
    if not is_signed(request, settings.PARTNER_SECRET):
        return HttpResponse("The signature is wrong.", status=401)
    if request.headers.get("Event-Attempt") == "1":
        return HttpResponse("Not ready yet.", status=503)
    PartnerEvent.objects.get_or_create(
        event_id=request.headers["webhook-id"],
        defaults={"type": request.headers["Event-Type"], "payload": json.loads(request.body)},
    )
    return HttpResponse(status=204)
