"""Pages of a model admin beside those of Django, in the same layout and with the same permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import quote
from django.core.exceptions import BadRequest, PermissionDenied
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_eventbus.admin.permissions import Verb, denial_for
from django_eventbus.exceptions import BadSelection


def changelist_url(request: HttpRequest, model: str, **query: str) -> str:
    """Return the URL of the list of *model*, filtered by *query*; "" if the user may not see it."""
    address = permitted_url(request, f"{model}_changelist")
    return f"{address}?{urlencode(query)}" if address and query else address


def permitted_url(request: HttpRequest, name: str, *args: Any) -> str:
    """Return the URL of the page *name*; "" if there is none, or the user may not see it."""
    model = name.partition("_")[0]
    if not request.user.has_perm(f"eventbus.view_{model}"):
        return ""
    try:
        quoted = [quote(each) for each in args]
        site = getattr(request, "current_app", None)
        return reverse(f"admin:eventbus_{name}", args=quoted, current_app=site)
    except NoReverseMatch:
        return ""


def form_errors(values: Iterable[Any]) -> dict[str, Any]:
    """Return the context of form_errors.html for the forms among *values*."""
    forms = [each for each in values if isinstance(each, BaseForm) and each.errors]
    fields = [field for form in forms for field in form if field.errors]
    shown = [field for field in fields if not field.is_hidden]
    if shown:
        shown[0].field.widget.attrs["autofocus"] = True
    return {
        "field_errors": [(field, error) for field in fields for error in field.errors],
        "other_errors": [error for form in forms for error in form.non_field_errors()],
        "is_field_focused": bool(shown),
    }


View = Callable[..., HttpResponseBase]


def page_urls(model_admin: ModelAdmin[Any], views: dict[str, tuple[str, View]]) -> list[URLPattern]:
    """Return the patterns of *views*, {name: (route, view)}; each view gets the model admin first."""
    prefix = f"{model_admin.opts.app_label}_{model_admin.opts.model_name}"
    return [
        path(
            route,
            model_admin.admin_site.admin_view(_bound(view, model_admin)),
            name=f"{prefix}_{name}",
        )
        for name, (route, view) in views.items()
    ]


def _bound(view: View, model_admin: ModelAdmin[Any]) -> View:
    """Return *view* with its model admin; an error that has a text is shown as a page."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(model_admin, request, *args, **kwargs)
        except (BadSelection, BadRequest) as error:
            return error_page(model_admin, request, _("This cannot be shown"), str(error), 400)
        except PermissionDenied as error:
            if not str(error):
                raise
            return not_allowed(model_admin, request, str(error))

    return answer


def not_allowed(model_admin: ModelAdmin[Any], request: HttpRequest, problem: str) -> HttpResponse:
    """Return the page that says why the user may not do this."""
    return error_page(model_admin, request, _("This is not allowed"), problem, 403)


def error_page(
    model_admin: ModelAdmin[Any], request: HttpRequest, title: str, problem: str, status: int
) -> HttpResponse:
    """Return a page that says what is wrong."""
    response = page(model_admin, request, "error", title, problem=problem)
    response.status_code = status
    return response


def page(
    model_admin: ModelAdmin[Any], request: HttpRequest, name: str, title: str, **context: Any
) -> HttpResponse:
    """Render admin/eventbus/<name>.html as a page of *model_admin*."""
    full_context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "original": title,
        "opts": model_admin.opts,
        "has_view_permission": True,
        "media": model_admin.media,
        **form_errors(context.values()),
        **context,
    }
    return TemplateResponse(request, f"admin/eventbus/{name}.html", full_context)


def page_url(model_admin: ModelAdmin[Any], name: str, *args: Any, query: str = "") -> str:
    """Return the URL of the page *name* of *model_admin*."""
    view = f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_{name}"
    url = reverse(view, args=args, current_app=model_admin.admin_site.name)
    return f"{url}?{query}" if query else url


def require_view(model_admin: ModelAdmin[Any], request: HttpRequest) -> None:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A link to another page; disabled if there is a denial, which says why."""

    label: str
    url: str
    denial: str = ""


def button(user: Any, verb: Verb, label: str, url: str, *, queue: str = "") -> Button:
    """Return the button of *verb*, disabled if *user* may not do it."""
    return Button(label=label, url=url, denial=denial_for(user, verb, queue))


def database_of(model_admin: ModelAdmin[Any], request: HttpRequest) -> str:
    """Return the database that is written to; lists may be read from a replica."""
    return str(model_admin.get_queryset(request).select_for_update().db)
