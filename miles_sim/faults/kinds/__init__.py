"""The kinds of fault, a module a layer."""
