"""`python -m miles_sim.bench` is `miles-sim bench`."""

from miles_sim.bench.cli import app

if __name__ == "__main__":
    app(prog_name="miles-sim bench")
