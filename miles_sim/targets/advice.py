"""What keeps a target from running, and what to do about it: the words of `doctor` and of every other command."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DISTRIBUTIONS = {
    "IPython": "ipython",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "dotenv": "python-dotenv",
    "google": "protobuf",
    "msgpack": "msgpack",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Modules whose distribution has another name."""
_WITHOUT_DEPENDENCIES = frozenset({"sglang", "miles"})
"""Distributions of which the modules are enough: what they declare to need is a whole GPU image."""
_EVERY_ROLLOUT_NEEDS = (
    ("miles/utils/types.py",),
    ("miles/utils/http_utils.py",),
    ("miles/utils/processing_utils.py",),
    ("miles/rollout/base_types.py",),
    ("miles/rollout/generate_hub/agentic_tool_call.py",),
    ("miles/rollout/session/server.py", "miles/rollout/session/session_server.py", "miles/router/router.py"),
)
"""Files of a miles source tree; of each entry one."""


@dataclass(frozen=True)
class Advice:
    """What to do about an error: lines for a person, and the shell commands among them."""

    lines: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    told_all: bool = True
    """What the worker printed last adds nothing to it."""


def on_checkout(folder: Path) -> str | None:
    """What is wrong with `folder` as a source tree of miles; None: nothing that can be seen from outside."""
    if not (folder / "miles").is_dir():
        inside = (folder / "rollout").is_dir() and (folder / "utils").is_dir()
        hint = f"; it is the package itself, name {str(folder.parent)!r}" if inside else ""
        return f"{str(folder)!r} is no miles: there is no folder miles in it{hint}"
    lacking = [" or ".join(names) for names in _EVERY_ROLLOUT_NEEDS if not any((folder / n).is_file() for n in names)]
    if len(lacking) == len(_EVERY_ROLLOUT_NEEDS) and (folder / "miles/miles").is_dir():
        return f"{str(folder)!r} is no miles, but holds one: name {str(folder / 'miles')!r}"
    if lacking:
        return (
            f"{str(folder)!r} is not a whole miles: it lacks {', '.join(lacking)}; it is half checked out "
            "(`git status` tells), or older than agentic rollouts"
        )
    return None


def on_start(error: Mapping[str, Any], python: str, checkout: str | None) -> Advice:
    """What to do where the target cannot be imported. `error`: an error document of the worker."""
    message = error["message"]
    names = _missing(message) if error["type"] == "ModuleNotFoundError" else []
    if "miles" in names:
        return Advice(
            (
                f"{python} has no miles: name by --python the interpreter of the environment that has it, or by "
                "--checkout a source tree",
            )
        )
    if any(name.startswith("miles.") for name in names):
        where = f"the checkout {checkout}" if checkout else f"the miles of {python}"
        return Advice((f"{where} is not a whole miles, or another package of that name",))
    if names:
        return _installing([name for name in names if "." not in name], names, python)
    found = re.search(r"cannot import name '([^']+)' from '([\w.]+)'", message)
    if found is None:
        return Advice(told_all=False)
    name, module = found.groups()
    if module.split(".")[0] == "miles":
        return Advice((f"this miles does not fit together: {module} has no {name}; is it half checked out?",))
    return Advice((_unfit(f"{module}.{name}", python),))


def on_silence(python: str) -> Advice:
    """What to ask where a worker died at its start, or answered nonsense."""
    return Advice((f"is {python} a Python 3.10 or later?",), told_all=False)


def _missing(message: str) -> list[str]:
    return re.findall(r"'([\w.]+)'", message) if message.startswith("No module named") else []


def _installing(absent: list[str], names: list[str], python: str) -> Advice:
    """`absent`: packages; the others of `names` are modules that a package of another version would have."""
    packages = sorted({_distribution(module) for module in absent})
    plain = [package for package in packages if package not in _WITHOUT_DEPENDENCIES]
    alone = [package for package in packages if package in _WITHOUT_DEPENDENCIES]
    commands = [["install", *plain]] if plain else []
    commands += [["install", "--no-deps", *alone]] if alone else []
    install = tuple(shlex.join([python, "-m", "pip", *words]) for words in commands)
    lines = [f"install what is missing: {line}" for line in install]
    lines += [_unfit(name, python) for name in names if "." in name]
    return Advice(tuple(lines), install)


def _unfit(module: str, python: str) -> str:
    package = _distribution(module)
    return f"the {package} of {python} does not fit this miles (see {module}): install the version that it asks for"


def _distribution(module: str) -> str:
    top = module.split(".")[0]
    return _DISTRIBUTIONS.get(top, top.replace("_", "-"))
