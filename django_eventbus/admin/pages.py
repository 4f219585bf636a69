"""Pages beside those that Django makes of a model: in the same frame, under the same rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.admin import ModelAdmin
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from django_eventbus.admin.refused_forms import refused_among
from django_eventbus.exceptions import BadSelection
from django_eventbus.permissions import Verb, why_not

View = Callable[..., HttpResponseBase]


def page_urls(screen: ModelAdmin[Any], views: dict[str, tuple[str, View]]) -> list[URLPattern]:
    """Return the patterns of *views*, each called with its screen: {name: (route, view)}."""
    prefix = f"{screen.opts.app_label}_{screen.opts.model_name}"
    return [
        path(route, screen.admin_site.admin_view(_on_screen(view, screen)), name=f"{prefix}_{name}")
        for name, (route, view) in views.items()
    ]


def _on_screen(view: View, screen: ModelAdmin[Any]) -> View:
    """Return *view* of *screen*; a refusal that says why is a page, too."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(screen, request, *args, **kwargs)
        except (BadSelection, BadRequest) as error:
            return _refusal(screen, request, _("This cannot be shown"), str(error), 400)
        except PermissionDenied as error:
            if not str(error):
                raise
            return not_allowed(screen, request, str(error))

    return answer


def not_allowed(screen: ModelAdmin[Any], request: HttpRequest, problem: str) -> HttpResponse:
    """Say on a page why this is not for the user."""
    return _refusal(screen, request, _("This is not allowed"), problem, 403)


def _refusal(
    screen: ModelAdmin[Any], request: HttpRequest, title: str, problem: str, status: int
) -> HttpResponse:
    response = page(screen, request, "refusal", title, problem=problem)
    response.status_code = status
    return response


def page(
    screen: ModelAdmin[Any], request: HttpRequest, name: str, title: str, **context: Any
) -> HttpResponse:
    """Render admin/eventbus/<name>.html as a page of *screen*."""
    framed = {
        **screen.admin_site.each_context(request),
        "title": title,
        "original": title,
        "opts": screen.opts,
        "has_view_permission": True,
        "media": screen.media,
        **refused_among(context.values()),
        **context,
    }
    return TemplateResponse(request, f"admin/eventbus/{name}.html", framed)


def url_of(screen: ModelAdmin[Any], name: str, *args: Any, query: str = "") -> str:
    """Return the URL of the page *name* of *screen*."""
    view = f"admin:{screen.opts.app_label}_{screen.opts.model_name}_{name}"
    url = reverse(view, args=args, current_app=screen.admin_site.name)
    return f"{url}?{query}" if query else url


def require_view(screen: ModelAdmin[Any], request: HttpRequest) -> None:
    if not screen.has_view_permission(request):
        raise PermissionDenied


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A way to another page, or the reason why it is closed."""

    label: str
    url: str
    why_not: str = ""


def button(user: Any, verb: Verb, label: str, url: str, *, queue: str = "") -> Button:
    """Return the button of *verb*; if *user* may not do it, with the reason."""
    return Button(label=label, url=url, why_not=why_not(user, verb, queue))
