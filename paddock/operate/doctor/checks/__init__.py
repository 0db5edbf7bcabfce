"""Checks of the doctor by subject. A check yields results, and raises Unavailable where nobody answered it."""
