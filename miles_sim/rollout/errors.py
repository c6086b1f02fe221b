"""Errors of generate and merge: each names the field and the value, and loses nothing else."""


class RolloutError(ValueError):
    """Base of all errors of this package."""


class SettingsError(RolloutError):
    """A setting of the wrong type, or outside what is allowed."""


class RolloutIdentityError(RolloutError):
    """A rollout without identity, or two rollouts under one."""


class AssemblyError(RolloutError):
    """Records that do not form one sample: drifted ids, lengths that disagree, an unknown finish reason."""


class BatchError(RolloutError):
    """A batch of the wrong shape, or one that cannot be cut into training steps."""


class ToolError(RolloutError):
    """A tool that answered with something else than text."""


class CancelledInsideError(RolloutError):
    """An agent or a tool that raised `asyncio.CancelledError`, though its rollout was not cancelled."""


class RewardError(RolloutError):
    """Rewards that cannot be used: missing where others are given, unequal among siblings, without a group."""


class WireError(RolloutError):
    """A samples payload, or a value meant for one, that the wire's table refuses."""


class SessionError(RolloutError):
    """Base of the session server's errors; `status_code` is what the client sees."""

    status_code = 500


class SessionNotFoundError(SessionError):
    """No such session, or it is closing."""

    status_code = 404


class MessageValidationError(SessionError):
    """A request body or messages that cannot be served."""

    status_code = 400


class BodyTooLargeError(SessionError):
    """A request body of more bytes than the server takes."""

    status_code = 413


class TruncatedGenerationError(SessionError):
    """A request that would extend a generation which was cut: finish reason `length` or `abort`."""

    status_code = 409


class TokenizationError(SessionError):
    """Stored ids are no prefix of the new ones."""

    status_code = 500


class UpstreamResponseError(SessionError):
    """The engine's reply is not one that can be recorded."""

    status_code = 502


class UpstreamTransportError(SessionError):
    """The engine could not be reached, or gave no whole reply in time."""

    status_code = 502


class SessionBusyError(SessionError):
    """A linear session was asked again while a request of it is under way."""

    status_code = 409


class NodeLimitError(SessionError):
    """A session that holds as many generations as it may."""

    status_code = 409


class MatcherError(SessionError):
    """A message matcher that raised, or gave something else than a bool."""

    status_code = 500


class ClientGoneError(SessionError):
    """The client left while its request was under way; nobody reads the answer."""

    status_code = 499
