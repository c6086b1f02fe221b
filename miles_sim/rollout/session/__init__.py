"""The session server: tokenises, forwards, checks and records each generation of a session, linear or as a tree."""
