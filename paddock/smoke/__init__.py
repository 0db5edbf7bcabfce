"""Smoke tests of a machine's GPUs: may it take jobs? Three tiers, each with everything of the one before.

Tier 1 reads what driver and kernel report, in a second. Tier 2 works the GPUs for less than a minute, tier 3 for ten.
"""
