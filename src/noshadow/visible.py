"""Show text of others as a reader may see it; this imports only the standard library."""

import re

# What moves a terminal's cursor or colours it, does not survive HTML, reorders its neighbours or is
# not seen at all: controls, line and paragraph separators, joiners and marks without width,
# fillers, tags, lone surrogates and codes that are no characters.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(value: object, *, keep: str = "") -> str:
    r"""Write the text of a value so that every character is seen.

    Each character that would not be seen, or would do something, is written as ⟨U+…⟩.

    Two ids that look alike and are not, and an id that steers the terminal it is printed on, are
    both shown for what they are.

    Args:
        value: anything; `str` of it is taken. keep: characters to leave alone, such as line breaks.

    Example:
        >>> visible("anna\u200b"), visible("ab\u202ecd\x1b[2J")
        ('anna⟨U+200B⟩', 'ab⟨U+202E⟩cd⟨U+001B⟩[2J')
    """
    return _UNSEEN.sub(lambda match: match[0] if match[0] in keep else f"⟨U+{ord(match[0]):04X}⟩", str(value))
