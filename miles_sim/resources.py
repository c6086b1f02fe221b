"""Where the built-in contract pack and the fixtures lie: inside an installed package, beside it in a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


CONTRACTS = _folder("contracts")
FIXTURES = _folder("fixtures")
