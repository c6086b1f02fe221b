"""A simulated SGLang engine: exact on the wire, deterministic, with an own record of what it generated."""
