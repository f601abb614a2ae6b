"""Why a pass could not reach its goal. Any other exception ends the pass as a trap would: see `passes`."""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal[
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueNotFound",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
]
"""In which way a field is wrong, in the API server's words."""


class PermanentError(Exception):
    """The object is wrong and its user must change it. No retry until it, a child or a related object changes.

    The text names the field and what would be right: ``spec.replicas: 0 is too few, 1 to 5 would be right``. Actions
    before it are carried out all the same, so that a status can say why.
    """


class AdmissionError(PermanentError):
    """The object may not be stored, or on deletion: may not go. Raised by handlers of `on.validate`.

    `field` is the path of what is wrong, ``spec.ports[0].name``, and the message says what would be right: the API server
    puts the field, the reason's words and the value before it. In a pass it is the `PermanentError` that it is, so that
    one function checks in both. To name several fields at once, raise an `ExceptionGroup` of them.
    """

    def __init__(self, message: str, *, field: str = "", reason: Reason = "FieldValueInvalid") -> None:
        if reason not in get_args(Reason):
            raise ValueError(f"reason: {reason!r} is none of {', '.join(get_args(Reason))}")
        super().__init__(f"{field}: {message}" if field else message)
        self.message = message
        self.field = field
        self.reason = reason


class TemporaryError(Exception):
    """Something else is not as it should be: try again.

    Without `delay` the pass has failed: the host tries again with a backoff that doubles, and its condition
    `Reconciled` says why. With `delay`, seconds, the pass waits rather than fails: it runs again after that time, or as
    soon as something changes, and the text is logged as a warning. Actions before it are carried out in both cases; an
    object that is being deleted is not released.
    """

    def __init__(self, message: str = "", delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class Unanswered(BaseException):
    """A look-up that has no answer yet: the pass ends here, and the host begins it anew with the answer.

    No `Exception`, so that an author's ``except Exception`` does not hold it up.
    """
