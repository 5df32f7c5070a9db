"""Serving in steady state: requests that come and go, prefill and decode sharing the steps, admission by the pool."""
