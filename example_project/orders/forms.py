"""The order form."""

from __future__ import annotations

from django import forms

from orders.models import Order


class OrderForm(forms.ModelForm):
    email = forms.EmailField(initial="ada@example.com")

    class Meta:
        model = Order
        fields = ("item", "email", "card")
