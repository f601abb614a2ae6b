"""One pass: from what the host sends, over the handlers, to what it gets.

How a handler ends says what becomes of the pass:

- it returns: its actions are carried out
- `PermanentError`: so are those before it, and the failure is `invalid`
- `TemporaryError`: so are those before it, and the failure is `retry`, or with a delay none
- any other exception: nothing is carried out, as it is a mistake in the plugin and half a decision is none; its
  traceback goes to the log, and the failure is `retry`
"""

from __future__ import annotations

import json
import logging
import random
from datetime import datetime
from typing import Any

from pilothouse_wit.imports import types

from . import registry, schema
from .actions import Collected, collecting, text
from .errors import PermanentError, TemporaryError, Unanswered
from .objects import Answer, Objects, Rejected, parts
from .registry import Controller, accepted

logger = logging.getLogger("pilothouse.operator")


def run(desired: types.Desired, observed: types.Observed) -> types.Outcome:
    """The contract's `reconcile`."""
    # The generator's state is part of the compiled snapshot, the same in each pass.
    random.seed(desired.seed)
    body = json.loads(desired.primary)
    controller = registry.current().serving(body)
    if controller is None:
        return _failed(types.Failure_Retry("this plugin does not serve objects of that kind"))
    # Of an object that is going, handlers undo what they once did for it, however it looks by now.
    problem = None if desired.deleting else schema.problem(body, controller.schema)
    if problem is not None:
        return _failed(types.Failure_Invalid(problem))
    answers = {
        answer.query: Answer(map(json.loads, answer.objects), complete=answer.complete) for answer in observed.related
    }
    arguments = _arguments(body, desired, observed, answers)
    with collecting(answers, desired.deleting) as collected:
        try:
            failure = _call(controller, desired.deleting, arguments, collected)
        except Unanswered:
            # The host forgets the others; not sending them spares it reading them.
            asked = [action for action in collected.actions if isinstance(action, types.Action_LookUp)]
            return types.Outcome(actions=asked, failure=None)
        except Exception as error:
            logger.exception("a handler failed")
            return _failed(types.Failure_Retry(f"{type(error).__name__}: {error}"))
    _set_status(collected)
    return types.Outcome(actions=collected.actions, failure=failure)


def _call(
    controller: Controller, deleting: bool, arguments: dict[str, Any], collected: Collected
) -> types.Failure | None:
    """Runs the handlers in the order of the file, to the first that does not return."""
    handlers = controller.deleters if deleting else controller.reconcilers
    try:
        for handler in handlers:
            returned = handler(**accepted(handler, arguments))
            if returned is None:
                continue
            if not isinstance(returned, dict):
                raise TypeError(f"{handler.__name__} returned a {type(returned).__name__}: a dictionary for the status or None would be right")
            collected.status = {**(collected.status or {}), **returned}
    except PermanentError as error:
        return types.Failure_Invalid(str(error))
    except TemporaryError as error:
        if error.delay is None:
            return types.Failure_Retry(str(error))
        logger.warning("%s; again in %g s", error, error.delay)
        collected.actions.append(types.Action_RequeueAfter(max(0, round(error.delay * 1000))))
        return None
    if deleting:
        collected.actions.append(types.Action_Release())
    return None


def _arguments(
    body: dict[str, Any], desired: types.Desired, observed: types.Observed, answers: dict[str, Answer]
) -> dict[str, Any]:
    return {
        **parts(body),
        "children": Objects(map(json.loads, observed.children)),
        "related": answers,
        "rejected": [_rejected(one) for one in observed.last],
        "now": datetime.fromisoformat(desired.now),
        "config": json.loads(desired.config),
        "logger": logger,
    }


def _rejected(one: types.Rejected) -> Rejected:
    kind, name = (one.target.kind.kind, one.target.name) if one.target else (None, None)
    return Rejected(index=one.index, reason=one.reason, message=one.message, kind=kind, name=name)


def _set_status(collected: Collected) -> None:
    if collected.status is None and not collected.conditions:
        return
    status = dict(collected.status or {})
    if collected.conditions:
        status["conditions"] = list(collected.conditions.values())
    # Before a release it would be without effect.
    if not any(isinstance(action, types.Action_Release) for action in collected.actions):
        collected.actions.append(types.Action_SetStatus(text(status)))


def _failed(failure: types.Failure) -> types.Outcome:
    return types.Outcome(actions=[], failure=failure)
