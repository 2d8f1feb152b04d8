# SPDX-License-Identifier: MIT
"""Small pieces of HTML for notebooks."""
from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any, Iterable, Sequence

if TYPE_CHECKING:
    from .session import Token


def table(title: str, heads: Sequence[str] | None, rows: Iterable[Sequence[Any]]) -> str:
    head = "" if heads is None else "<tr>" + "".join(f"<th>{escape(h)}</th>" for h in heads) + "</tr>"
    body = "".join("<tr>" + "".join(f'<td style="text-align:left">{escape(str(x))}</td>' for x in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption>{head}{body}</table>"


def number(x: float) -> str:
    return "–" if math.isnan(x) else "∞" if math.isinf(x) else f"{x:.4g}"


def tokens_html(tokens: Sequence[Token]) -> str:
    """Text with a background that is the darker, the less likely a token was."""
    parts = []
    for t in tokens:
        shade = 0.0 if math.isnan(t.logprob) else min(1.0, -t.logprob / 6)
        tip = f"id {t.id}, probability {number(t.probability)}, variance {number(t.variance)}"
        parts.append(f'<span title="{tip}" style="background:rgba(214,121,37,{shade:.2f})">{escape(t.text)}</span>')
    return '<pre style="white-space:pre-wrap">' + "".join(parts) + "</pre>"
