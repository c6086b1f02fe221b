"""The built-in contract pack: rule modules, schemas, snapshots, baselines."""
