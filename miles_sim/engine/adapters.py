"""LoRA adapters: which are loaded, and what a request for one gets."""

from collections import Counter

from miles_sim.engine.errors import RequestError


class AdapterError(ValueError):
    """An adapter that cannot be loaded or unloaded, in SGLang's words."""


class Adapters:
    """Adapters by name, in the order in which they were loaded (sglang lora/lora_registry.py, lora_manager.py).

    One that was unloaded is loaded again by a request for it, as SGLang does.
    """

    def __init__(self, loaded: dict[str, str] | None, *, disabled_is_refused: bool) -> None:
        self.enabled = loaded is not None
        self.loaded: dict[str, str] = dict(loaded or {})
        """Path by name."""
        self._known = dict(self.loaded)
        self._loads: Counter[str] = Counter()
        self._disabled_is_refused = disabled_is_refused

    def load(self, name: str, path: str) -> None:
        """Raises `AdapterError` where it is loaded, or none can be."""
        self._check_enabled()
        if name in self.loaded:
            raise AdapterError(f"Failed to load LoRA adapter {name} because it is already loaded")
        self.loaded[name] = self._known[name] = path
        self._loads[name] += 1

    def loads(self, name: str | None) -> int:
        """How often it was loaded while the engine ran: each time it is another adapter, whatever its name."""
        return 0 if name is None else self._loads[name]

    def check_unload(self, name: str) -> None:
        """Raises `AdapterError` where `name` cannot be unloaded."""
        self._check_enabled()
        if name not in self.loaded:
            raise AdapterError(f"LoRA with name {name} does not exist. Loaded LoRAs: {self.loaded.keys()}")

    def unload(self, name: str) -> None:
        self.check_unload(name)
        del self.loaded[name]

    def resolve(self, name: str | None) -> str | None:
        """The adapter that a request with this `lora_path` runs on; `RequestError` for one that never was there."""
        if not name:
            return None
        if not self.enabled:
            if not self._disabled_is_refused:
                return None
            raise RequestError(
                f"LoRA adapter '{name}' was requested, but LoRA is not enabled. Please launch the server with "
                "--enable-lora flag and preload adapters using --lora-paths or /load_lora_adapter endpoint."
            )
        if name not in self._known:
            raise RequestError(
                f"Got LoRA adapter that has never been loaded: {name}\nAll loaded adapters: {self._known.keys()}."
            )
        self.loaded.setdefault(name, self._known[name])
        return name

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise AdapterError("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")
