"""Published claims, each computed as published and calibrated."""
