"""Admission: requests are checked and limited before they reach a replica."""
