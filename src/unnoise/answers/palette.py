"""The look that plots and reports share: one palette for light and one for dark.

page, card : backgrounds; ink, soft : text; edge, grid : lines around and behind
line, band : the estimate and its interval; truth : what is known to be true; tint : a chosen button; alarm : warnings
"""

from __future__ import annotations

__all__ = ["DARK", "LIGHT"]

LIGHT = {
    "page": "#f7f6f2", "card": "#ffffff", "ink": "#1b2230", "soft": "#5a6374", "edge": "#dddbd3", "grid": "#eeece6",
    "line": "#0b6e6e", "band": "#0b6e6e2b", "tint": "#e4f0ef", "truth": "#c2571a", "alarm": "#b3341f",
}  # fmt: skip
DARK = {
    "page": "#11141a", "card": "#191e27", "ink": "#e9ecf2", "soft": "#9ba6b8", "edge": "#2e3644", "grid": "#242b37",
    "line": "#55c8bc", "band": "#55c8bc33", "tint": "#1f3439", "truth": "#f2a65f", "alarm": "#ff7d68",
}  # fmt: skip
