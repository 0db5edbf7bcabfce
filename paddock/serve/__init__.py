"""Serving of models on whatever devices the machines have: where a model runs, and what it takes there."""
