"""What a fleet would do and cost, before it does: graph, fit, compatibility, rules, quota, price."""
