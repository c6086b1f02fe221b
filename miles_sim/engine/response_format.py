"""OpenAI's `response_format`, as chat and completions take it (protocol.py)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from miles_sim.engine.errors import RequestError

NO_SCHEMA = "schema_ is required for json_schema response format request."


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    description: str | None = None
    schema_: dict[str, Any] | None = Field(alias="schema", default=None)
    strict: bool | None = False


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="before")
    @classmethod
    def _wrapped(cls, values: Any) -> Any:
        """A schema may stand in the place of `json_schema` (protocol.py `set_json_schema`)."""
        if not isinstance(values, dict) or values.get("type") != "json_schema" or values.get("json_schema"):
            return values
        schema = values.get("schema")
        if not isinstance(schema, dict) or not schema:
            return values
        return {**values, "json_schema": {"name": schema.get("title", "Schema"), "schema": schema}}


def check_format(asked: ResponseFormat | None) -> None:
    """`RequestError` where a schema is promised and none is there."""
    if asked is not None and asked.type == "json_schema" and (asked.json_schema and asked.json_schema.schema_) is None:
        raise RequestError(NO_SCHEMA)
