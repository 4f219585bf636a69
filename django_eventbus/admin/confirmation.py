"""Verbs on selected rows: shown on a page first, done by POST only, logged for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import label_for_field, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from django_eventbus.admin.pages import Button
from django_eventbus.admin.read_only import ReadOnlyAdmin
from django_eventbus.admin.refused_forms import refused_among
from django_eventbus.admin.selections import Selection, preview_of


class ConfirmationForm(forms.Form):
    """Nothing to fill in but yes."""


class Verb(ABC):
    """Something that may be done to rows, once a person has confirmed it."""

    #: In URLs, and in the screen's has_<name>_permission().
    name: ClassVar[str]
    title: ClassVar[str | Promise]
    question: ClassVar[str | Promise]
    button: ClassVar[str | Promise]
    #: The states in which it can be done to a row.
    states: ClassVar[tuple[str, ...]]
    #: The column that is different once the row is no longer the one that was shown.
    stamp: ClassVar[str]
    grouped_by: ClassVar[tuple[str, ...]]
    form: ClassVar[type[forms.Form]] = ConfirmationForm

    @abstractmethod
    def do(self, row: Any, *, by: str, reason: str, using: str) -> bool:
        """Do it, unless it can no longer be done; tell whether it was."""

    @abstractmethod
    def record(self, row: Any, reason: str) -> str:
        """Return what the row's history says of it."""

    @abstractmethod
    def forecast(self, count: int) -> str:
        """Tell how many it will be done to."""

    @abstractmethod
    def summary(self, done: int, left: int) -> str:
        """Tell how many it was done to, and how many not."""


class ConfirmingAdmin(ReadOnlyAdmin):
    """Screens with verbs, for selected rows of the list and for the page of one row."""

    verbs: tuple[Verb, ...] = ()

    def get_urls(self) -> list[URLPattern]:
        own = [pattern for verb in self.verbs for pattern in self._patterns(verb)]
        return [*own, *super().get_urls()]

    def _patterns(self, verb: Verb) -> Iterable[URLPattern]:
        many = self.admin_site.admin_view(partial(self.many_view, verb))
        one = self.admin_site.admin_view(partial(self.one_view, verb))
        name = f"{self.opts.app_label}_{self.opts.model_name}_{verb.name}"
        yield path(f"{verb.name}/", many, name=f"{name}_selected")
        yield path(f"<path:object_id>/{verb.name}/", one, name=name)

    def may(self, verb: Verb, request: HttpRequest) -> bool:
        allowed: bool = getattr(self, f"has_{verb.name}_permission")(request)
        return allowed and self.has_view_permission(request)

    def many_view(self, verb: Verb, request: HttpRequest) -> HttpResponse:
        """Do it to the selection in the form; without one there is nothing to show."""
        self._require(verb, request)
        back = self._url(request, "changelist")
        if request.method != "POST":
            return redirect(back)
        ids = Selection.read(request.POST.get("selection", "")).ids
        return self._answer(verb, request, ids, back)

    def one_view(self, verb: Verb, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask whether to do it to one row, or do it."""
        self._require(verb, request)
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")
        back = self._url(request, "change", row)
        return self._answer(verb, request, [row.pk], back)

    def ask(self, verb: Verb, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse:
        """Ask whether to do it to *rows*: the answer to the list's action."""
        target = self._url(request, f"{verb.name}_selected")
        back = self._url(request, "changelist")
        return self._page(verb, request, rows, verb.form(), target=target, back=back)

    def _answer(self, verb: Verb, request: HttpRequest, ids: list[int], back: str) -> HttpResponse:
        form = verb.form(request.POST if request.method == "POST" else None)
        if not form.is_valid():
            rows = self.get_queryset(request).filter(pk__in=ids)
            target = request.get_full_path()
            return self._page(verb, request, rows, form, target=target, back=back)
        selection = Selection.read(request.POST.get("selection", ""))
        done = self._do(verb, request, selection, form.cleaned_data.get("reason", ""))
        left = len(selection) - done
        level = messages.WARNING if left or not done else messages.SUCCESS
        self.message_user(request, verb.summary(done, left), level)
        return redirect(back)

    def _do(self, verb: Verb, request: HttpRequest, selection: Selection, reason: str) -> int:
        rows = self.get_queryset(request)
        # The database that is written to, which need not be the one that lists are read from.
        rows = rows.using(rows.select_for_update().db)
        by, done = request.user.get_username(), 0
        for key, stamp in selection:
            row = rows.filter(pk=key, **{verb.stamp: stamp}).first()
            if row and verb.do(row, by=by, reason=reason, using=rows.db):
                self.log_change(request, row, verb.record(row, reason))
                done += 1
        return done

    def _page(
        self,
        verb: Verb,
        request: HttpRequest,
        rows: QuerySet[Any],
        form: forms.Form,
        **urls: str,
    ) -> HttpResponse:
        preview = preview_of(rows, verb.states, stamp=verb.stamp, grouped_by=verb.grouped_by)
        columns = [label_for_field(name, self.model, self) for name in verb.grouped_by]
        context = {
            **self.admin_site.each_context(request),
            **urls,
            "verb": verb,
            "title": verb.title,
            "original": verb.title,
            "opts": self.opts,
            "has_view_permission": True,
            "media": self.media,
            "form": form,
            "errors": form.errors,
            **refused_among([form]),
            "preview": preview,
            "forecast": verb.forecast(len(preview.selection)),
            "columns": columns,
        }
        return TemplateResponse(request, "admin/eventbus/confirmation.html", context)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context["tools"] = self._tools(request, context["original"])
        return super().render_change_form(request, context, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Say of actions that the user may not choose which permission is missing."""
        closed = [
            Button(label=str(verb.title), url="", why_not=self._why_not(verb))
            for verb in self.verbs
            if not self.may(verb, request)
        ]
        return super().changelist_view(request, {**(extra_context or {}), "closed": closed})

    def _tools(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": verb.button,
                "url": self._url(request, verb.name, row),
                "why_not": "" if self.may(verb, request) else self._why_not(verb),
            }
            for verb in self.verbs
            if row.state in verb.states
        ]

    def _why_not(self, verb: Verb) -> str:
        """Say why the button of *verb* is closed."""
        needed = f"{self.opts.app_label}.{verb.name}_{self.opts.model_name}"
        return _("You need the permission %(name)s.") % {"name": needed}

    def _require(self, verb: Verb, request: HttpRequest) -> None:
        if not self.may(verb, request):
            raise PermissionDenied

    def _url(self, request: HttpRequest, name: str, row: Model | None = None) -> str:
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        args = [quote(row.pk)] if row else []
        url = reverse(view, args=args, current_app=self.admin_site.name)
        filters = self.get_preserved_filters(request)
        return add_preserved_filters({"preserved_filters": filters, "opts": self.opts}, url)
