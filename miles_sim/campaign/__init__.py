"""Campaigns: many random rollouts under random faults, counted, resumable, spread over processes or machines."""
