"""Inverse questions: the most users, the fewest devices, the cheapest machine under objectives."""
