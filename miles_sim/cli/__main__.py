"""`python -m miles_sim.cli`."""

from miles_sim.cli.commands import main

main()
