"""`python -m miles_sim.cli`."""

from miles_sim.cli.main import main

main()
