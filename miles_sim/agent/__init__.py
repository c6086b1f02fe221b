"""A simulated agent: a plan of turns, and the player that lives it over plain OpenAI requests."""
