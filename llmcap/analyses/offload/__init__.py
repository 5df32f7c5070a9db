"""The question of tiers in depth: many users, queues, placement, shared prefixes, writes and wear."""
