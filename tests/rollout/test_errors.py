"""Errors: one base, and for the session server's the status that a client acts on."""

import pytest

from miles_sim.rollout import errors

STATUS = {
    "SessionError": 500,
    "SessionNotFoundError": 404,
    "MessageValidationError": 400,
    "BodyTooLargeError": 413,
    "TruncatedGenerationError": 409,
    "TokenizationError": 500,
    "UpstreamResponseError": 502,
    "UpstreamTransportError": 502,
    "SessionBusyError": 409,
    "NodeLimitError": 409,
    "MatcherError": 500,
    "ClientGoneError": 499,
}
"""4xx: asking the same again is in vain, but for 409; 5xx: it may help."""


def test_every_error_of_the_session_server_has_its_status() -> None:
    found = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    sessions = {name: kind for name, kind in found.items() if issubclass(kind, errors.SessionError)}
    assert {name: kind.status_code for name, kind in sessions.items()} == STATUS


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_every_error_is_a_value_error_of_one_base(kind: type) -> None:
    assert issubclass(kind, errors.RolloutError)
    assert issubclass(kind, ValueError)
