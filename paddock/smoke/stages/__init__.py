"""Stages: what is tested in each tier, and what a measurement means. Pure functions of facts and documents."""
