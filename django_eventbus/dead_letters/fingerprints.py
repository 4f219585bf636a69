"""Compute the fingerprint that similar failures share."""

from __future__ import annotations

import hashlib
import re
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

import django_eventbus

_PACKAGE = str(Path(django_eventbus.__file__).parent)
_STANDARD_LIBRARY = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
#: Check these first: such a directory may be below the standard library.
_INSTALLED = ("site-packages", "dist-packages")
_WORDS_LIMIT = 500
#: The longer patterns come first, so that a UUID is not matched as several numbers.
_VARYING = re.compile(
    r"""(?<!\w)'[^'\n]*'(?!\w) | (?<!\w)"[^"\n]*"(?!\w)
    | [0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}
    | 0x[0-9a-fA-F]+ | \b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b | \d+(?:[.,:]\d+)*""",
    re.VERBOSE,
)
#: Errors that quote names in the code: a key, an attribute, a module or a parameter.
_QUOTING_NAMES = (
    "KeyError", "AttributeError", "NameError", "UnboundLocalError", "TypeError",
    "ImportError", "ModuleNotFoundError", "FieldError", "FieldDoesNotExist",
)  # fmt: skip
_NAME = re.compile(r"""(['"])[A-Za-z_][A-Za-z_.]{0,59}\1""")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSignature:
    """The values that all failures of a group share."""

    subscription: str
    kind: str
    error_type: str
    #: Module and function, without the line: a change elsewhere in the file is not a new failure.
    place: str
    title: str

    @property
    def fingerprint(self) -> str:
        parts = (self.subscription, self.kind, self.error_type, self.place, self.title)
        return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:32]


def strip_variables(words: str) -> str:
    """Return *words* with a placeholder for each quoted value, id and number."""
    return _VARYING.sub("#", words[: 4 * _WORDS_LIMIT])[:_WORDS_LIMIT]


def normalised_message(error_type: str, words: str) -> str:
    """Do the same as strip_variables(), but keep the names that an error of this type quotes."""
    if error_type not in _QUOTING_NAMES:
        return strip_variables(words)
    return _VARYING.sub(_keep_names, words[: 4 * _WORDS_LIMIT])[:_WORDS_LIMIT]


def _keep_names(found: re.Match[str]) -> str:
    return found[0] if _NAME.fullmatch(found[0]) else "#"


def project_frame(error: BaseException) -> str:
    """Return the module and function of the last frame of the error in the project's own code."""
    frame = _last_project_frame(error)
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}" if frame else ""


def last_project_line(error: BaseException) -> str:
    """Return file, function and line of the last frame of the error in the project's own code."""
    frames = [(frame.f_code, line) for frame, line in _frames(error)]
    in_project = [
        (code, line) for code, line in frames if is_project_file(code.co_filename)
    ] or frames
    code, line = in_project[-1] if in_project else (None, 0)
    return f"{code.co_filename}:{code.co_name}:{line}" if isinstance(code, CodeType) else ""


@lru_cache(maxsize=1024)
def is_project_file(filename: str) -> bool:
    """Whether a file belongs to the project, not to Python, an installed package or this one."""
    if any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith((*_STANDARD_LIBRARY, _PACKAGE, "<frozen"))


def _last_project_frame(error: BaseException) -> FrameType | None:
    frames = [frame for frame, _ in _frames(error)]
    in_project = [frame for frame in frames if is_project_file(frame.f_code.co_filename)]
    # If the project itself is an installed package, use the last frame outside this package.
    others = [frame for frame in frames if not frame.f_code.co_filename.startswith(_PACKAGE)]
    chosen = in_project or others
    return chosen[-1] if chosen else None


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    return traceback.walk_tb(error.__traceback__)
