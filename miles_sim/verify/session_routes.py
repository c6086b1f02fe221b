"""What crosses at the session server's own routes, as documents. The routes' names and shapes are miles'."""

from typing import Any, Literal

from pydantic import Field

from miles_sim.document import Document


class Health(Document):
    """`GET /health`."""

    status: Literal["ok"]
    session_server_instance_id: str | None = None
    """Only where the server was given one."""


class Created(Document):
    """`POST /sessions`; what is asked is not read."""

    session_id: str = Field(min_length=1)


class Refusal(Document):
    """Any route: a request that cannot be served (400, 404, 405, 409, 413, 422, 499, 500, 502)."""

    error: str = Field(min_length=1)
    """Names the field, the value and what is allowed."""


class CollectRequest(Document):
    """`POST /sessions/{id}/samples`: an empty body, or this; answered with a samples payload (`samples-wire`)."""

    max_seq_len: int | None = Field(default=None, ge=1)
    """Most ids of a sample; None: the server's own setting."""
    metadata: dict[str, Any] | None = None
    """What the agent function returned."""


class ChatAsked(Document, extra="allow"):
    """What the engine was asked: the client's fields, and these."""

    messages: tuple[dict[str, Any], ...] = Field(min_length=1)
    input_ids: tuple[int, ...]
    n: Literal[1]
    logprobs: Literal[True]
    return_meta_info: Literal[True]
    no_stop_trim: Literal[False]


class SessionRecord(Document):
    """One generation of a session."""

    timestamp: float
    """Unix seconds at which it was recorded."""
    request_timestamp: float
    method: Literal["POST"]
    path: Literal["/v1/chat/completions"]
    status_code: Literal[200]
    request: ChatAsked
    response: dict[str, Any]
    """As the engine gave it: a schema `engine-<profile>` says how."""


class TreeNode(Document):
    """One generation in the tree of a v2 session."""

    id: int
    parent: int | None
    seq: int
    """Order of commits."""
    truncated: bool
    finish_reason: Literal["stop", "tool_calls", "length", "abort"]
    completion_span: tuple[int, int]
    """Of its path's ids: from, up to and without."""
    num_tokens: int
    response_id: str
    asked: str
    """Equal among siblings that asked the same thing."""
    concurrent_with: tuple[int, ...]


class TreeLeaf(Document):
    """The end of one path."""

    node_id: int
    path_node_ids: tuple[int, ...]


class Tree(Document):
    """`metadata.tree` of a v2 session."""

    nodes: tuple[TreeNode, ...]
    leaves: tuple[TreeLeaf, ...]


class SessionMetadata(Document):
    """What a session tells of itself."""

    max_trim_tokens: int
    accumulated_token_ids: tuple[int, ...]
    tree: Tree | None = None
    """v2 only."""


class Shown(Document):
    """`GET /sessions/{id}`."""

    session_id: str
    records: tuple[SessionRecord, ...]
    metadata: SessionMetadata


class SessionRoutes(Document):
    """The session server's own documents, by route. Chat requests and answers are the engine's (OpenAI's) own."""

    health: Health
    created: Created
    collect: CollectRequest
    shown: Shown
    refusal: Refusal
