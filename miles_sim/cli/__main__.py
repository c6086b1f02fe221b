"""`python -m miles_sim.cli`."""

from miles_sim.cli import main

main()
