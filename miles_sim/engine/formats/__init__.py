"""How model families spell tool calls, and how SGLang's parser of each finds them again, whole or piece by piece."""

from miles_sim.engine.formats.call import CallFormat, CallPiece, CallStream, Delta, Found, ParsedCall, UnreadableCall
from miles_sim.engine.formats.deepseek import DeepSeekV3, DeepSeekV31
from miles_sim.engine.formats.dialect import Dialect, dialect
from miles_sim.engine.formats.glm import Glm45
from miles_sim.engine.formats.json_array import JsonArray
from miles_sim.engine.formats.kimi import KimiK2
from miles_sim.engine.formats.qwen import Qwen25

__all__ = [
    "FORMATS",
    "JSON_ARRAY",
    "CallFormat",
    "CallPiece",
    "CallStream",
    "Delta",
    "Dialect",
    "Found",
    "ParsedCall",
    "UnreadableCall",
    "dialect",
]

JSON_ARRAY = "json_array"
FORMATS: dict[str, CallFormat] = {
    "qwen": Qwen25(),
    "qwen25": Qwen25(),
    "deepseekv3": DeepSeekV3(),
    "deepseekv31": DeepSeekV31(),
    "glm": Glm45(),
    "glm45": Glm45(),
    "kimi_k2": KimiK2(),
    JSON_ARRAY: JsonArray(),
}
"""SGLang's names (`--tool-call-parser`), and the one that no server is started with."""
