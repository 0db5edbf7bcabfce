"""Forecast of a fleet and its cost, before anything is created: graph, fit, compatibility, rules, quota, price."""
